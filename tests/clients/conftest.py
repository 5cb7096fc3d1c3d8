"""Fixtures of the tests that run the proxy as a process."""

from tests.support.proxy_fixtures import stand, stand_of_module, start_proxy

__all__ = ["stand", "stand_of_module", "start_proxy"]
