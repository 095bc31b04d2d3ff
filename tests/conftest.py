"""What all tests share: draws that are the same every time, where real data is, noise that adds nothing."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from synthgeo.privacy import noise
from synthgeo.privacy.noise import SeededNoise

ROOT = Path(__file__).resolve().parents[1]
# The suite gives the same answer every time, on a busy machine too; `make fuzz` looks further with fresh
# examples.
settings.register_profile(
    "suite", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", settings.get_profile("suite"), max_examples=10)
settings.register_profile("fuzz", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


def pytest_collection_modifyitems(items):
    """Whole folders that the quick tests leave out."""
    for item in items:
        folder = item.path.parent.name
        if folder in ("audit", "benchmarks"):
            item.add_marker(pytest.mark.slow)
        if folder == "pinned":
            item.add_marker(pytest.mark.pinned)


class Entropy:
    """Stands for the module ``os`` where noise is drawn: what would come from the system comes from the name
    of the test, in this process, so that no test fails by chance.
    """

    def __init__(self, name):
        self._pid = os.getpid()
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest())
        self._generator = np.random.default_rng(seed)

    getpid = staticmethod(os.getpid)

    def urandom(self, count):
        return self._generator.bytes(count) if os.getpid() == self._pid else os.urandom(count)


def seeded_environment(name, root=ROOT, **more):
    """The environment of a process that a test starts: the packages of ``root``, and noise from a name."""
    path = os.pathsep.join([str(ROOT / "tests" / "entropy"), str(root)])
    return os.environ | {"PYTHONPATH": path, "SYNTHGEO_TEST": name, "OMP_NUM_THREADS": "1"} | more


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """All of a test, its fixtures as well; ``entropy`` leaves it what releases have."""
    if item.get_closest_marker("entropy"):
        return (yield)
    with mock.patch.object(noise, "os", Entropy(item.nodeid)):
        return (yield)


class Silence(SeededNoise):
    """A noise source whose draws are 0, so that a test sees the arithmetic alone."""

    def discrete_laplace(self, scale, size=None):
        shape = np.shape(scale) if np.ndim(scale) else (1 if size is None else int(size))
        return np.zeros(shape, dtype=np.int64)

    def discrete_gaussian(self, sigma, size):
        return np.zeros(size, dtype=np.int64)


@pytest.fixture
def silence() -> Silence:
    return Silence(0)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data, or a skip that says how to get it."""
    folder = Path(os.environ.get("SYNTHGEO_DATA", "data"))
    if not (folder / "README.md").exists():
        pytest.skip("SYNTHGEO_DATA does not point to the real data")
    return folder
