"""Fixtures of the tests that run the proxy as a process."""

from tests.support.proxy_fixtures import start_proxy

__all__ = ["start_proxy"]
