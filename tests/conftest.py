"""What all tests share: where the real data is, and noise that adds nothing."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from synthgeo.privacy.noise import SeededNoise

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
