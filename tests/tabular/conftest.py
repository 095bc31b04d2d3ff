from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg


def small_table(rows: int, seed: int = 0) -> pd.DataFrame:
    """Three columns; b follows a, c is on its own."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 4, rows)
    return pd.DataFrame(
        {
            "a": np.array(list("wxyz"), dtype=object)[a],
            "b": (a + rng.integers(0, 2, rows)) % 4,
            "c": rng.random(rows) * 10,
        }
    )


@pytest.fixture
def schema() -> sg.Schema:
    return sg.Schema(
        {"a": sg.Categorical(list("wxyz")), "b": sg.Ordinal(range(4)), "c": sg.Numeric(0, 10, bins=5)}
    )
