"""Every stream that the contract suite runs over: how to make it, and batches it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import synthgeo as sg


@dataclass(frozen=True)
class Case:
    """One kind of stream with batches, a batch it must refuse, and how to compare two releases."""

    name: str
    make: Callable[..., Any]
    batches: Callable[[], list[Any]]
    bad: Callable[[], Any]
    values: Callable[[Any], np.ndarray]
    max_epsilon: float = 1.0


def point_batches(steps: int = 6) -> list[pd.DataFrame]:
    frame = sg.simulate.circles(steps, 60, deletion=True, seed=4)
    return [batch.drop(columns="step") for _, batch in frame.groupby("step")]


def bad_points() -> pd.DataFrame:
    return pd.DataFrame({"x": [0.1, np.nan], "y": [0.2, 0.3]})


def spatial(name: str, kind: str, **options: Any) -> Case:
    def make(**more: Any) -> Any:
        settings = {"domain": sg.BoxDomain(0, 0, 1, 1), "budget": sg.PrivacyBudget(1.0), "max_depth": 10}
        return getattr(sg, kind)(**(settings | options | more))

    return Case(name, make, point_batches, bad_points, lambda release: release.xy)


CASES = [
    spatial("PHDStream", "PHDStream"),
    spatial("PHDStream every step", "PHDStream", schedule="every_step", counter="binary", horizon=20),
    spatial("PHDStream growing", "PHDStream", schedule="growing", counter="kary", horizon=20),
    spatial("PHDStream living", "PHDStream", persist=True),
    spatial("PHDStream held back", "PHDStream", t0=3),
    spatial("PHDStream fanout 4", "PHDStream", fanout=4, max_depth=6),
    spatial("PHDStream users", "PHDStream", unit=sg.PrivacyUnit.user(max_events=4, key="user_id")),
    spatial("OfflinePrivTree", "OfflinePrivTree"),
    spatial("DifferentialPrivTree", "DifferentialPrivTree"),
    spatial("InitialPrivTree", "InitialPrivTree"),
]
