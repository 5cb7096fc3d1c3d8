"""One control plane for all tests of the session, with our CustomResourceDefinitions in it."""

from collections.abc import Iterator

import pytest

from tests.support.control_plane import ControlPlane, missing_binaries

USERS = {"nobody": "token-of-nobody", "operator": "token-of-the-operator"}


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real API server. Tests share it: each works in a namespace of its own."""
    missing = missing_binaries()
    if missing:
        pytest.skip(f"not found: {', '.join(missing)} (tests/cluster/get_binaries.sh builds them)")
    with ControlPlane(tmp_path_factory.mktemp("control-plane"), users=USERS) as running:
        running.start_controllers()
        running.install_crds()
        yield running
