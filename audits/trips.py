"""Trips."""

from __future__ import annotations

import functools
import threading
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

import synthgeo as sg
import trajectories.measure.measured as module
from audits.registry import EXTREMES, Attacker, Found, case
from audits.traced import traced
from synthgeo.auditing.neighbours import unique_trip
from synthgeo.auditing.whitebox import rule_loss, worst_loss, worst_loss_of_fractions
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.cells import Partition
from synthgeo.hierarchy.privtree import GRID, SplitRule
from trajectories.baselines import PaperTrips, ShortestPathTrips, measure_moves
from trajectories.ground import ground_of
from trajectories.measure.ends import count_ends, measure_ends, measure_lengths
from trajectories.measure.pairs import count_links, expected_crossings, measure_links, measure_pairs
from trajectories.measure.times import measure_recording, measure_times, measure_zones, zones_of

BOX = sg.BoxDomain(0, 0, 1, 1)
PAIR = unique_trip(BOX)


def trips(data: Any, noise: Any, *, epsilon: float = 1.0, **options: Any) -> list[np.ndarray]:
    """Everything that the measurements of a synthesizer hand on."""
    model = sg.TrajectorySynthesizer.from_options(
        domain=BOX, budget=sg.PrivacyBudget(epsilon), noise=noise, max_depth=8, cleaning=False, **options
    ).fit(data)
    return list(model.model.measured.arrays().values())


def timed(pair: Any) -> Any:
    """The pair with a time for each point."""
    return tuple(
        frame.assign(time=1_700_000_000.0 + 60.0 * frame.groupby("trip_id").cumcount()) for frame in pair
    )


def _enter(name: str, pair: Any, covers: tuple[str, ...], *, epsilon: float = 1.0, **options: Any) -> None:
    @case(
        f"TrajectorySynthesizer{name}, a trip with a unique pair of ends",
        unit="trip",
        claimed=epsilon,
        method="duel",
        twin="noise scale halved",
        covers=("TrajectorySynthesizer", "measure", *covers),
    )
    def attack(attacker: Attacker) -> Found:
        with traced():
            return attacker.duels(functools.partial(trips, epsilon=epsilon, **options), pair)


_enter("", PAIR, ())
_enter(" with times", timed(PAIR), ("measure_times",))
for _epsilon in EXTREMES:
    _enter(" with times", timed(PAIR), ("measure_times",), epsilon=_epsilon)
_enter(" (weights to the ends)", PAIR, ("measure_links",), weights="ends")


def _true_links(graph: Any, states: Any, start: Any, **options: Any) -> np.ndarray:
    """Algorithm 20, line 4: the noisy weights are paid for, the walk uses the true ones."""
    measure_links(graph, states, start, **options)
    names = ("weights", "along", "halvings")
    return np.asarray(GRID.value(count_links(graph, states, start, *(options[name] for name in names))))


@case(
    "TrajectorySynthesizer, a trip with a unique pair of ends",
    unit="trip",
    claimed=1.0,
    method="duel",
    twin="transition weights from the true data (Algorithm 20, line 4)",
    covers=("TrajectorySynthesizer", "measure_links"),
)
def true_transitions(attacker: Attacker) -> Found:
    with traced():
        honest = attacker.largest_duel(trips, PAIR, seeds=2)
        with mock.patch.object(module, "measure_links", _true_links):
            leaky = attacker.largest_duel(trips, PAIR, seeds=2)
    return Found(honest, leaky, 4)


def across(count: int, *, seed: int = 1) -> pd.DataFrame:
    """Trips from the left to the right at all hours of a week: so many that at ε = 5 there are several zones,
    and links in segments.
    """
    rng = np.random.default_rng(seed)
    height, leaves = rng.uniform(0, 1, count), rng.uniform(0, 7 * 86_400, count)
    x = np.linspace(0.05, 0.95, 6) + rng.normal(0, 0.01, (count, 6))
    when = 1_700_000_000.0 + leaves[:, None] + 60.0 * np.arange(6)
    trip = np.repeat(np.arange(count), 6)
    return pd.DataFrame({"trip_id": trip, "x": x.ravel(), "y": np.repeat(height, 6), "time": when.ravel()})


def measured_of_many(data: Any, noise: Any) -> Any:
    """What is measured of many trips."""
    found = sg.TrajectorySynthesizer(
        domain=BOX,
        budget=sg.PrivacyBudget(5.0),
        noise=noise,
        settings=sg.TripSettings(max_depth=12, theta=100.0, cleaning=False),
    ).fit(data)
    return found.model.measured


def crowded(data: Any, noise: Any) -> list[np.ndarray]:
    """Everything that the measurements of many trips hand on."""
    return list(measured_of_many(data, noise).arrays().values())


class TrueEnds(threading.local):
    """Twin: what is meant to follow from released ends follows from true ones. Each world has its own."""

    ends: Any = None

    def measure_pairs(self, first: Any, last: Any, partition: Any, **options: Any) -> Any:
        self.ends = sum(np.bincount(end[end >= 0], minlength=partition.size) for end in (first, last))
        return measure_pairs(first, last, partition, **options)

    def zones_of(self, centres: Any, ends: Any, **options: Any) -> Any:
        return zones_of(centres, self.ends, **options)

    def expected_crossings(self, graph: Any, pairs: Any, variance: float, ends: Any, *more: Any) -> Any:
        return expected_crossings(graph, pairs, variance, self.ends.astype(float), *more)


@case(
    "TrajectorySynthesizer, one of many trips: zones, and links in segments",
    unit="trip",
    claimed=5.0,
    method="duel",
    twin="zones and segments chosen from true ends",
    covers=("TrajectorySynthesizer", "measure_zones", "measure_links"),
)
def zones_and_segments(attacker: Attacker) -> Found:
    found = [_among(attacker, *each) for each in (("zones_of", 937), ("expected_crossings", 1000))]
    return Found(max(one for one, _ in found), min(twin for _, twin in found), 2)


def _among(attacker: Attacker, name: str, trips: int) -> tuple[float, float]:
    """What one trip more than these costs, and what it would if a choice came from true ends: so many that
    one more decides about it.
    """
    many, twin = across(trips + 1), TrueEnds()
    pair = many[many["trip_id"] < trips], many
    with traced():
        honest = attacker.largest_duel(crowded, pair, seeds=1)
        with (
            mock.patch.object(module, "measure_pairs", twin.measure_pairs),
            mock.patch.object(module, name, getattr(twin, name)),
        ):
            return honest, attacker.largest_duel(crowded, pair, seeds=1)


def heavy_user(bound: int, excess: int) -> Any:
    """Users with one trip each, and the same with one who made more trips than the bound, all unique."""
    without, _ = unique_trip(BOX)
    back = without[without.trip_id == "t0"].iloc[::-1]
    frames = [without.assign(user_id=without.trip_id)]
    heavy = [back.assign(trip_id=f"h{i}", user_id="heavy") for i in range(bound + excess)]
    return frames[0], pd.concat([*frames, *heavy], ignore_index=True)


def _unbounded(data: Any, noise: Any) -> list[np.ndarray]:
    """Twin: ε divided by the bound, and nobody bounded."""
    return trips(data.drop(columns="user_id"), noise, epsilon=1 / 2)


@case(
    "TrajectorySynthesizer, a user with 6 trips, bound 2",
    unit="user",
    claimed=1.0,
    method="duel",
    twin="no bounding",
    covers=("TrajectorySynthesizer", "ContributionBounder", "user-level trips"),
)
def bounded(attacker: Attacker) -> Found:
    unit = sg.PrivacyUnit.user(max_trajectories=2)
    with traced():
        return attacker.duels(functools.partial(trips, unit=unit), heavy_user(2, 4), twin=_unbounded)


# --- each measurement alone, at ε = 1 ---

COUNT = 256
CELLS = Partition(np.arange(COUNT, dtype=np.uint64), np.full(COUNT, 8), np.full(COUNT, 1 / COUNT))
COARSE = ground_of(BOX, 4).graph(
    Partition(np.arange(16, dtype=np.uint64), np.full(16, 4), np.full(16, 1 / 16))
)
CROWD = np.zeros(6, dtype=np.int64), np.full(6, 3)
WITH_ONE_MORE = np.append(CROWD[0], 15), np.append(CROWD[1], 2)


def pairs(ends: Any, noise: Any) -> np.ndarray:
    """Blocks of pairs: half of ε for the tree, half for the counts."""
    return measure_pairs(
        *ends, CELLS, epsilon_tree=0.5, epsilon_count=0.5, noise=noise, ends=np.full(COUNT, 0.5)
    ).count


def pairs_without_empties(ends: Any, noise: Any) -> np.ndarray:
    """Twin: nodes that no trip falls into are neither tested nor given noise."""
    code, counts = np.unique(ends[0] * COUNT + ends[1], return_counts=True)
    SplitRule(0.5, fanout=4).decide(counts * GRID.one, 1, noise)
    return np.asarray(counts + noise.discrete_laplace(2.0, code.size))


def ends_by_cell(ends: Any, noise: Any) -> np.ndarray:
    return measure_ends(*ends, COUNT, epsilon=1.0, noise=noise)


def one_end(ends: Any, noise: Any) -> np.ndarray:
    """Twin: a trip is said to move the histogram of ends by 1."""
    return measure_ends(*ends, COUNT, epsilon=2.0, noise=noise)


def ends_twice(ends: Any, noise: Any, *, epsilon: float = 1.0) -> list[np.ndarray]:
    """Ends by cell, then in the parts of the cells that turned out busy."""
    keys = (end.astype(np.uint64) << np.uint64(4) for end in ends)
    found = count_ends(*keys, 12, CELLS, hierarchy_of(BOX), epsilon=epsilon, noise=noise)
    return [found.by_cell, found.by_part[found.counted]]


def ends_twice_for_once(ends: Any, noise: Any) -> list[np.ndarray]:
    """Twin: each of the two counts takes the whole of ε."""
    return ends_twice(ends, noise, epsilon=2.0)


def lengths(ends: Any, noise: Any) -> np.ndarray:
    apart = np.abs(ends[0] - ends[1]) * 100.0
    return measure_lengths(apart, apart * 1.3 + 50, epsilon=1.0, noise=noise)


def times(ends: Any, noise: Any) -> list[np.ndarray]:
    """Departures, paces by length, slow and fast trips by hour: about a third of ε each."""
    departure = 1_700_000_000.0 + 3600.0 * ends[0]
    counts = measure_times(
        departure, 600.0 + 60.0 * ends[1], np.full(len(ends[0]), 500.0), epsilons=(0.3, 0.3, 0.4), noise=noise
    )
    return [counts.departures, counts.paces, counts.by_hour]


def zones(ends: Any, noise: Any, *, epsilon: float = 1.0) -> np.ndarray:
    """Trips by zones and block of the week."""
    zone, ending = np.arange(COUNT) % 8, np.arange(8) % 2
    return measure_zones(zone, ending, *ends, 5 * ends[0] % 168, epsilon=epsilon, noise=noise).trips


def zones_for_half(ends: Any, noise: Any) -> np.ndarray:
    """Twin: the noise of half a trip."""
    return zones(ends, noise, epsilon=2.0)


def recording(ends: Any, noise: Any, *, epsilon: float = 1.0) -> list[np.ndarray]:
    """Gaps, and variations of speed."""
    found = measure_recording(10.0 + 5 * ends[0], ends[1] / 10, epsilon=epsilon, noise=noise)
    return [found.gaps, found.variations]


def recording_for_one(ends: Any, noise: Any) -> list[np.ndarray]:
    """Twin: a trip is said to move one of the two histograms."""
    return recording(ends, noise, epsilon=2.0)


def moves(ends: Any, noise: Any, *, epsilon: float = 1.0) -> list[np.ndarray]:
    """Moves of Kumar's method, of trips from a cell to the one beside it."""
    cells = np.column_stack([ends[0] % 16, ends[0] % 16 ^ 1]).ravel()
    start = 2 * np.arange(len(ends[0]) + 1)
    found = measure_moves(COARSE, cells, start, epsilon=epsilon, noise=noise)
    return [found.links, found.loops]


def moves_for_half(ends: Any, noise: Any) -> list[np.ndarray]:
    """Twin: the noise of half a trip."""
    return moves(ends, noise, epsilon=2.0)


def segments(ends: Any, noise: Any, *, epsilon: float = 1.0) -> np.ndarray:
    """Crossings from a cell to the one beside it, in eight segments of the side that both share."""
    cells = np.column_stack([ends[0] % 16, ends[0] % 16 ^ 1]).ravel()
    start, along = 2 * np.arange(len(ends[0]) + 1), np.repeat(ends[1] / COUNT, 2)
    halvings = np.where(COARSE.side_of_step >= 0, 3, 0)
    return measure_links(COARSE, cells, start, epsilon=epsilon, noise=noise, along=along, halvings=halvings)


def segments_for_half(ends: Any, noise: Any) -> np.ndarray:
    """Twin: the noise of half a trip."""
    return segments(ends, noise, epsilon=2.0)


MEASUREMENTS = {
    "measure_links": (segments, "noise for half a trip", segments_for_half),
    "measure_moves": (moves, "noise for half a trip", moves_for_half),
    "measure_pairs": (pairs, "noise scale halved", None),
    "measure_pairs ": (pairs, "empty OD nodes skipped", pairs_without_empties),
    "measure_ends": (ends_by_cell, "sensitivity off by one", one_end),
    "count_ends": (ends_twice, "each count with the whole of ε", ends_twice_for_once),
    "measure_lengths": (lengths, "noise scale halved", None),
    "measure_times": (times, "noise scale halved", None),
    "measure_zones": (zones, "noise for half a trip", zones_for_half),
    "measure_recording": (recording, "sensitivity off by one", recording_for_one),
}


def _enter_measurement(name: str) -> None:
    run, twin_name, twin = MEASUREMENTS[name]

    @case(
        f"trips, {name.strip()}",
        unit="trip",
        claimed=1.0,
        method="duel",
        twin=twin_name,
        covers=name.strip(),
    )
    def attack(attacker: Attacker) -> Found:
        return attacker.duels(run, (CROWD, WITH_ONE_MORE), twin=twin, seeds=8)


for _name in MEASUREMENTS:
    _enter_measurement(_name)


@case(
    "trips, the tree of pairs (fanout 4), worst data",
    unit="trip",
    claimed=1.0,
    method="exact",
    twin="noise scale halved",
    covers="measure_pairs",
)
def product_tree(attacker: Attacker) -> Found:
    rule = SplitRule(1.0, fanout=4)
    return Found(rule_loss(rule), worst_loss(rule.scale / 2 * GRID.one, -(-rule.decay // 2), GRID.one))


@case(
    "trips, the forest of places (a trip's shares, roots at depth 1), worst data",
    unit="trip",
    claimed=1.0,
    method="exact",
    twin="noise scale halved",
    covers="measure_cells",
)
def forest(attacker: Attacker) -> Found:
    rule = SplitRule(1.0, fractional=True)
    halved = max(-(-rule.decay // 2), GRID.one)
    return Found(rule_loss(rule), worst_loss_of_fractions(rule.scale / 2 * GRID.one, halved, GRID.one))


def on_roads() -> tuple[sg.RoadDomain, Any]:
    """A few trips in a small town, and the same with one trip more."""
    domain = sg.RoadDomain.from_graph(sg.simulate.city_graph(4, 3, seed=1))
    points = sg.simulate.city_trips(domain, trips=9, coordinates="xy", seed=1)
    return domain, (points[points["trip_id"] < 8], points)


@case(
    "TrajectorySynthesizer on roads, with cleaning, matching and times",
    unit="trip",
    claimed=1.0,
    method="duel",
    twin="noise scale halved",
    covers=("TrajectorySynthesizer", "RoadDomain", "measure_cells"),
)
def roads(attacker: Attacker) -> Found:
    domain, pair = on_roads()

    def run(data: Any, noise: Any) -> list[np.ndarray]:
        budget = sg.PrivacyBudget(1.0)
        made = sg.TrajectorySynthesizer(domain=domain, budget=budget, noise=noise).fit(data)
        return list(made.model.measured.arrays().values())

    with traced():
        return attacker.duels(run, pair, seeds=2)


def _ends(frame: pd.DataFrame) -> pd.DataFrame:
    """Trips known by their two ends only."""
    both = frame.groupby("trip_id").agg(
        ox=("x", "first"), oy=("y", "first"), dx=("x", "last"), dy=("y", "last")
    )
    return both.reset_index()


@case(
    "TrajectorySynthesizer from ends alone, a trip with a unique pair of ends",
    unit="trip",
    claimed=1.0,
    method="duel",
    twin="noise scale halved",
    covers="TrajectorySynthesizer",
)
def ends_alone(attacker: Attacker) -> Found:
    def run(data: Any, noise: Any) -> list[np.ndarray]:
        made = sg.TrajectorySynthesizer(
            domain=BOX, budget=sg.PrivacyBudget(1.0), noise=noise, settings=sg.TripSettings(max_depth=8)
        )
        made.fit(data, origin=("ox", "oy"), destination=("dx", "dy"))
        return list(made.model.measured.arrays().values())

    with traced():
        return attacker.duels(run, tuple(_ends(frame) for frame in PAIR))


SCHEMA = sg.Schema({"vehicle": sg.Categorical(["car", "van"]), "fare": sg.Numeric(0, 8, bins=4)})


def with_attributes(pair: Any) -> Any:
    """The pair with a vehicle and a fare for each trip; the trip that is added has both to itself."""
    without = set(pair[0]["trip_id"]) & set(pair[1]["trip_id"])
    return tuple(
        frame.assign(
            vehicle=np.where(frame["trip_id"].isin(without), "car", "van"),
            fare=np.where(frame["trip_id"].isin(without), 1.0, 7.0),
        )
        for frame in pair
    )


def trips_with_attributes(data: Any, noise: Any) -> list[np.ndarray]:
    """What was measured, and what the table of attributes hands on."""
    model = sg.TrajectorySynthesizer(
        domain=BOX,
        budget=sg.PrivacyBudget(1.0),
        noise=noise,
        settings=sg.TripSettings(max_depth=6, cleaning=False),
        attributes=SCHEMA,
    ).fit(data)
    table = model._attribute_model
    return [*model.model.measured.arrays().values(), *table.to_state()[1].values(), np.array(table.weights)]


def true_rows(data: Any, noise: Any) -> list[np.ndarray]:
    """Twin: the table is paid for, and attributes are drawn from the true rows."""
    released = trips_with_attributes(data, noise)
    return [*released, np.sort(data.groupby("trip_id")["fare"].first().to_numpy())]


@case(
    "TrajectorySynthesizer with attributes, a trip with a fare of its own",
    unit="trip",
    claimed=1.0,
    method="duel",
    twin="attributes drawn from true rows",
    covers=("TrajectorySynthesizer", "measure_attributes"),
)
def attributes(attacker: Attacker) -> Found:
    with traced():
        return attacker.duels(trips_with_attributes, with_attributes(PAIR), twin=true_rows, seeds=2)


def _enter_baseline(kind: Any, epsilon: float) -> None:
    @case(
        f"{kind.__name__}, a trip with a unique pair of ends",
        unit="trip",
        claimed=epsilon,
        method="duel",
        twin="noise scale halved",
        covers=kind.__name__,
    )
    def baseline(attacker: Attacker) -> Found:
        def run(data: Any, noise: Any) -> list[np.ndarray]:
            made = kind.from_options(
                domain=BOX, budget=sg.PrivacyBudget(epsilon), noise=noise, max_depth=8, cleaning=False
            ).fit(data)
            measured = made.model.measured
            return [measured.pairs.count, *([] if kind is ShortestPathTrips else [measured.links])]

        with traced():
            return attacker.duels(run, PAIR)


for _kind in (PaperTrips, ShortestPathTrips):
    for _epsilon in (1.0, *EXTREMES):
        _enter_baseline(_kind, _epsilon)
