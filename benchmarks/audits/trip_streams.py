"""Trips over time: a trip in its batch, a trip that comes twice, a batch that would be noised again."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd

import synthgeo as sg
from benchmarks.audits.registry import EXTREMES, Attacker, Found, case
from benchmarks.audits.traced import traced
from synthgeo.auditing.neighbours import unique_trip
from trajectories.measure.measured import measure
from trajectories.over_time.admission import TripBounder
from trajectories.over_time.counting import Batch, TripCounting
from trajectories.stream import TrajectoryStream

BOX = sg.BoxDomain(0, 0, 1, 1)


def batches(at: tuple[int, ...], steps: int = 3) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """Batches of trips, and the same with one trip more, recorded in the batches ``at``."""
    without, with_one = unique_trip(BOX)
    more = with_one[~with_one["trip_id"].isin(without["trip_id"])]
    worlds: tuple[list[pd.DataFrame], list[pd.DataFrame]] = ([], [])
    for step in range(steps):
        batch = without.assign(trip_id=without["trip_id"] + f" of {step}")
        worlds[0].append(batch)
        worlds[1].append(pd.concat([batch, more], ignore_index=True) if step in at else batch)
    return worlds


def trips(
    data: list[pd.DataFrame],
    noise: Any,
    *,
    kind: type[TrajectoryStream] = TrajectoryStream,
    epsilon: float = 1.0,
) -> list[np.ndarray]:
    """Everything that a stream released of all its batches."""
    stream = kind(
        domain=BOX, budget=sg.PrivacyBudget(epsilon), lifetime=2, max_depth=6, cleaning=False, time=None,
        noise=noise,
    )  # fmt: skip
    released: list[np.ndarray] = []
    for batch in data:
        stream.update(batch)
        measured = stream.model.measured
        assert measured is not None
        released += measured.arrays().values()
    return released


class Forgetful(TripBounder):
    """Takes every trip of every batch, whether it was measured before or not."""

    def admit(self, ids: Any, users: Any, *, period: int = 0) -> Any:
        return np.ones(len(ids), dtype=bool)


class Repeating(TrajectoryStream):
    def _new_bounder(self) -> TripBounder:
        return Forgetful(self.unit)


class Sliding(TripCounting):
    """Every batch of the window is measured again at each slide."""

    raw: tuple[Any, ...] = ()

    def advance(self, counts: Any, *, step: int, structure: bool) -> None:
        super().advance(counts, step=step, structure=structure)
        assert self.lifetime is not None
        self.raw = (*self.raw, counts)[-self.lifetime :]
        again = [
            measure(batch.placed, self.setup.ground, self.shares[False], noise=self.noise, like=self.latest)
            for batch in self.raw
        ]
        self.batches = tuple(Batch(one, self.batches[-1].variances) for one in again)


class Slid(TrajectoryStream):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        honest: Any = self.mechanism
        twin = Sliding(
            honest.setup,
            lifetime=honest.lifetime,
            borrow=honest.borrow,
            timed=honest.timed,
            noise=honest.noise,
        )
        self._now = type(self._now)(twin, self._now.bounder)


ATTACKS = {
    "a trip of the first batch": ((0,), "noise scale halved", None),
    "a trip of a later batch": ((1,), "noise scale halved", None),
    "a trip that is recorded in two batches": ((0, 2), "a trip counted in two batches", Repeating),
    "a trip of the first batch, three releases": ((0,), "a batch noised again at each slide", Slid),
}


def _enter(name: str, epsilon: float = 1.0) -> None:
    at, twin_name, kind = ATTACKS[name]

    @case(
        f"TrajectoryStream, {name}",
        unit="trip",
        claimed=epsilon,
        method="duel",
        twin=twin_name,
        covers=("TrajectoryStream", "TripCounting"),
    )
    def attack(attacker: Attacker) -> Found:
        twin = None if kind is None else functools.partial(trips, kind=kind)
        with traced():
            return attacker.duels(functools.partial(trips, epsilon=epsilon), batches(at), twin=twin, seeds=2)


for _name in ATTACKS:
    _enter(_name)
for _epsilon in EXTREMES:
    _enter("a trip of the first batch", _epsilon)
