"""Trips over time: a trip in its batch, a trip that comes twice, a batch that would be noised again; users in
periods, with numbers of trips that start again, and trips over a border.
"""

from __future__ import annotations

import functools
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

import synthgeo as sg
from audits.registry import EXTREMES, Attacker, Found, case
from audits.traced import traced
from streams.stream import Stream
from synthgeo.auditing.neighbours import unique_trip
from synthgeo.hashing import mix
from synthgeo.privacy.users import UserIds
from trajectories.ground.base import PlacedTrips
from trajectories.measure.measured import measure
from trajectories.over_time import admission
from trajectories.over_time.admission import TripBounder
from trajectories.over_time.counting import TripBatch, TripCounting
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
    stream = kind.from_options(
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
        self.batches = tuple(TripBatch(one, self.batches[-1].variances) for one in again)


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


# --- users in periods ---


def released(stream: TrajectoryStream) -> list[np.ndarray]:
    """What a stream released of its last batch."""
    measured = stream.model.measured
    assert measured is not None
    return list(measured.arrays().values())


def of_users(per: Any, noise: Any, kind: type[TrajectoryStream], **options: Any) -> TrajectoryStream:
    """A stream with one trip of each user in each period, or in all."""
    unit = sg.PrivacyUnit.user(max_trajectories=1, per=per)
    budget = sg.PrivacyBudget(1.0)
    settings = {"lifetime": 1, "borrow": False, "max_depth": 6, "cleaning": False, "noise": noise, **options}
    return kind.from_options(domain=BOX, budget=budget, unit=unit, **settings)


def crowd(month: int) -> pd.DataFrame:
    """Trips of a month of users with one each."""
    frame = departing(unique_trip(BOX)[0], "2026-01-05")
    return frame.assign(user_id=frame["trip_id"], trip_id=month)


def back(user: Any, trip: Any) -> pd.DataFrame:
    """A trip that nobody else makes."""
    frame = departing(unique_trip(BOX)[1], "2026-01-05")
    return frame[frame["trip_id"] == "back"].assign(user_id=user, trip_id=trip)


def departing(frame: pd.DataFrame, start: Any) -> pd.DataFrame:
    """Trips with a point a minute from one moment on."""
    minutes = frame.groupby("trip_id").cumcount()
    return frame.assign(time=pd.Timestamp(start) + pd.to_timedelta(minutes, unit="min"))


def numbers_start_again() -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """Five months in which a user makes trips 1 to 4, trip 1, trip 2, ...; and the same without the first."""
    own = [[1, 2, 3, 4], [1], [2], [3], [4]]
    months = [pd.concat([crowd(at), *(back("u", trip) for trip in own[at])]) for at in range(5)]
    return months, [crowd(0), *months[1:]]


def months(
    data: list[pd.DataFrame], noise: Any, *, kind: type[TrajectoryStream] = TrajectoryStream, per: Any = 1
) -> list[np.ndarray]:
    """Everything that a stream released of batches, each a period or all in one."""
    stream = of_users(per, noise, kind)
    return [array for batch in data for array in (stream.update(batch), *released(stream))[1:]]


class Lifelong(TripBounder):
    """Forgets users when a period is over, and their trips never: development versions did."""

    def admit(self, ids: Any, users: Any, *, period: int = 0) -> Any:
        self._period = period
        return super().admit(ids, users, period=period)


class Remembering(TrajectoryStream):
    def _new_bounder(self) -> TripBounder:
        return Lifelong(self.unit)


@case(
    "TrajectoryStream, a user's month, five months whose trips are numbered alike",
    unit="user and period",
    claimed=1.0,
    method="duel",
    twin="trips of earlier periods remembered",
    covers=("TrajectoryStream", "user-level trips"),
)
def restart_attack(attacker: Attacker) -> Found:
    with traced():
        twin = functools.partial(months, kind=Remembering)
        return attacker.duels(months, numbers_start_again(), twin=twin, seeds=2)


# Two pairs of user and trip that the folding of ids in development versions took for one (2^33 evaluations).
COLLIDING = ((2143743468769701644, 1), (3937662501316990650, -7341180020029374583))


def colliding_users() -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """Two users, one in each of two batches, whose trips collide; and the same without the first user."""
    first, second = (pd.concat([crowd(at), back(*COLLIDING[at])]) for at in range(2))
    return [first, second], [crowd(0), second]


def folded(ids: UserIds, users: UserIds | None) -> Any:
    """Twin: a pair of user and trip as 128 bits that anybody can compute, and invert."""
    assert users is not None
    parts = (users.high, users.low, ids.high, ids.low)
    lanes = [mix(np.uint64(lane), *parts) for lane in (1, 2, 1, 2)]
    return np.column_stack(lanes).view("V32")[:, 0]


@case(
    "TrajectoryStream, a user whose trip collides with another's",
    unit="user",
    claimed=1.0,
    method="duel",
    twin="pairs of user and trip folded by an invertible function",
    covers=("TrajectoryStream", "user-level trips"),
)
def collision_attack(attacker: Attacker) -> Found:
    for_life = functools.partial(months, per=None)
    with traced():
        honest = attacker.largest_duel(for_life, colliding_users(), seeds=2)
        with mock.patch.object(admission, "packed_ids", folded):
            broken = attacker.largest_duel(for_life, colliding_users(), seeds=2)
    return Found(honest, broken, 4)


def over_the_border() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two months. A user makes a trip over the border of both, and another in the first; and the same without
    the trip over the border, which is all of the user's that ends in the second month.
    """
    second = crowd(2)
    second["time"] += pd.Timedelta("30D")
    without = pd.concat([crowd(1), second, back("u", "early")], ignore_index=True)
    over = departing(back("u", "late"), "2026-01-31 23:57")
    return pd.concat([without, over], ignore_index=True), without


class ByPoints(TrajectoryStream):
    """Cuts points and not trips: a trip over a border is one trip in each of two months."""

    windows: Any = Stream.windows


def in_windows(
    data: pd.DataFrame, noise: Any, *, kind: type[TrajectoryStream] = TrajectoryStream
) -> list[np.ndarray]:
    """Everything that a stream released of a file, month by month."""
    stream = of_users("1MS", noise, kind)
    steps = stream.run(data, every="1MS", start="2026-01-01", end="2026-03-01")
    return [array for _ in steps for array in released(stream)]


@case(
    "TrajectoryStream, a user's trips that end in a month, one of them over its border",
    unit="user and period",
    claimed=1.0,
    method="duel",
    twin="windows of points",
    covers=("TrajectoryStream", "user-level trips"),
)
def border_attack(attacker: Attacker) -> Found:
    with traced():
        twin = functools.partial(in_windows, kind=ByPoints)
        return attacker.duels(in_windows, over_the_border(), twin=twin, seeds=2)


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
        domain=BOX, budget=sg.PrivacyBudget(1.0), lifetime=1,
        settings=sg.TripSettings(max_depth=6, cleaning=False, attribute_share=0.5),
        columns=sg.ColumnNames(time=None),
        attributes=SCHEMA, noise=noise,
    )  # fmt: skip
    released: list[np.ndarray] = []
    for batch in data:
        stream.update(batch)
        measured, mechanism = stream.model.measured, stream.mechanism
        assert measured is not None
        assert isinstance(mechanism, TripCounting)
        assert mechanism.attributes is not None
        released += [*measured.arrays().values(), *mechanism.attributes.to_state()[1].values()]
        released.append(np.array(mechanism.attributes.weights))
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
    setup = sg.TrajectorySynthesizer(
        domain=BOX, budget=sg.PrivacyBudget(1.0), settings=sg.TripSettings(max_depth=6)
    )._setup
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
