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
from trajectories.ground.base import PlacedTrips
from trajectories.measure.measured import measure
from trajectories.over_time.admission import TripBounder
from trajectories.over_time.counting import Batch, TripCounting
from trajectories.parts.columns import Parts, added, arrays_of, in_parts
from trajectories.reading.points import read_trips
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


# --- attributes ---

SCHEMA = sg.Schema({"vehicle": sg.Categorical(["car", "van", "tram"])})


def unique_attribute() -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """Batches of cars, and the same with one trip by tram more."""
    worlds = batches((1,), steps=2)
    known = set(worlds[0][1]["trip_id"])
    kinds = [
        [batch.assign(vehicle=np.where(batch["trip_id"].isin(known), "car", "tram")) for batch in world[1:]]
        for world in worlds
    ]
    return kinds[0], kinds[1]


def attributes(data: list[pd.DataFrame], noise: Any, *, twin: bool = False) -> list[np.ndarray]:
    """Everything that a stream released of trips with attributes; the twin hands on true rows."""
    stream = sg.TrajectoryStream(
        domain=BOX, budget=sg.PrivacyBudget(1.0), lifetime=1, max_depth=6, cleaning=False, time=None,
        attributes=SCHEMA, attribute_share=0.5, noise=noise,
    )  # fmt: skip
    released: list[np.ndarray] = []
    for batch in data:
        stream.update(batch)
        measured, mechanism = stream.model.measured, stream.mechanism
        assert measured is not None
        assert isinstance(mechanism, TripCounting)
        assert mechanism.attributes is not None
        released += [*measured.arrays().values(), *mechanism.attributes.to_state()[1].values()]
        if twin:
            true = batch.drop_duplicates("trip_id")["vehicle"].value_counts()
            released.append(true.reindex(["car", "van", "tram"], fill_value=0).to_numpy(dtype=np.float64))
    return released


@case(
    "TrajectoryStream with attributes, a trip whose attribute nobody shares",
    unit="trip",
    claimed=1.0,
    method="duel",
    twin="attributes drawn from true rows",
    covers=("TrajectoryStream", "measure_attributes"),
)
def attribute_attack(attacker: Attacker) -> Found:
    with traced():
        return attacker.duels(
            attributes, unique_attribute(), twin=functools.partial(attributes, twin=True), seeds=1
        )


# --- parts ---


class Halves(Parts):
    """Trips in two parts; the second is worked on twice, as if its first worker had died. ``Recounting``
    adds up whatever comes in, as a driver would that does not know which part a result is of.
    """

    def __init__(self, parts: list[Any]) -> None:
        self.parts, self.names = parts, frozenset(parts[0])

    def __len__(self) -> int:
        return len(self.parts)

    def _attempts(self, work: Any) -> list[tuple[int, Any]]:
        return [(number, work(self.parts[number])) for number in (0, 1, 1)]

    def results(self, work: Any) -> list[Any]:
        return list(dict(self._attempts(work)).values())

    def map(self, work: Any, more: Any = None) -> Halves:
        return type(self)(self.results(work))


class Recounting(Halves):
    def sum(self, work: Any) -> Any:
        return added(result for _, result in self._attempts(work))


def in_halves(data: pd.DataFrame, noise: Any, *, kind: type[Halves] = Halves) -> list[np.ndarray]:
    """Everything that is measured of trips in two parts, the last trip in the second."""
    setup = sg.TrajectorySynthesizer(domain=BOX, budget=sg.PrivacyBudget(1.0), max_depth=6)._setup
    trips = read_trips(data, BOX, unit=setup.unit, time=False)
    first = np.arange(trips.size) < trips.size // 2
    parts = kind([arrays_of(setup.place(trips.take(some))) for some in (first, ~first)])
    placed = in_parts(PlacedTrips, parts)
    measured = measure(placed, setup.ground, setup.shares(timed=False), noise=noise)
    return list(measured.arrays().values())


@case(
    "trips in parts, one of them worked on twice",
    unit="trip",
    claimed=1.0,
    method="duel",
    twin="a worker's retry counts twice",
    covers=("TrajectorySynthesizer", "placed_in_parts"),
)
def retry_attack(attacker: Attacker) -> Found:
    with traced():
        pair = unique_trip(BOX)
        return attacker.duels(in_halves, pair, twin=functools.partial(in_halves, kind=Recounting), seeds=2)


for _epsilon in EXTREMES:
    _enter("a trip of the first batch", _epsilon)
