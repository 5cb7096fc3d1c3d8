"""One control plane for all tests of the session, with our CustomResourceDefinitions in it."""

import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.places import Place
from tests.support.control_plane import ControlPlane, missing_binaries

_COUNT = itertools.count(1)
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


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """An empty one, which is deleted after the test."""
    with control_plane.namespace(f"test-{next(_COUNT)}") as name:
        # a pod needs its namespace's default ServiceAccount, which a controller makes
        control_plane.kubectl("wait", "--for=create", "--timeout=30s", "sa/default", "-n", name)
        yield name


@pytest.fixture
def place(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Place]:
    with control_plane.namespace(f"op-{uuid.uuid4().hex[:8]}") as namespace:
        place = Place(control_plane, namespace, tmp_path)
        yield place
        control_plane.kubectl("delete", "tenantpriority", place.tenant, "--ignore-not-found")
