"""Cleaning: each rule on a trip made for it, and the promise that trips do not touch each other."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthgeo.domain.box import BoxDomain
from synthgeo.domain.roads import RoadDomain
from synthgeo.errors import ConfigError
from trajectories.reading.cleaning import clean
from trajectories.reading.points import Trips

NOTHING: dict[str, Any] = {"max_gap": None, "max_speed": None, "still": None}


def trip(x: list[float], time: list[float] | None = None, y: list[float] | None = None) -> Trips:
    xy = np.column_stack([x, np.zeros(len(x)) if y is None else y]).astype(float)
    return Trips(xy, np.array([0, len(x)]), None if time is None else np.array(time, dtype=float))


def join(parts: list[Trips]) -> Trips:
    start = np.concatenate([[0], np.cumsum([len(p.xy) for p in parts])])
    time = None if parts[0].time is None else np.concatenate([p.time for p in parts if p.time is not None])
    return Trips(np.concatenate([p.xy for p in parts]), start, time, np.arange(len(parts)))


def test_nothing_asked_nothing_done() -> None:
    walk = trip([0, 10, 500, 5], [0, 1, 2, 90_000])
    cleaned = clean(walk, **NOTHING)
    np.testing.assert_array_equal(cleaned.xy, walk.xy)


def test_points_at_the_same_time_go() -> None:
    cleaned = clean(trip([0, 10, 11, 30], [0, 5, 5, 9]), **NOTHING)
    assert cleaned.xy[:, 0].tolist() == [0, 10, 30]


def test_points_at_the_same_place_stay_with_times_and_go_without() -> None:
    assert clean(trip([0, 0, 9], [0, 60, 90]), **NOTHING).xy[:, 0].tolist() == [0, 0, 9]
    assert clean(trip([0, 0, 9]), **NOTHING).xy[:, 0].tolist() == [0, 9]


def test_a_spike_goes_and_the_trip_stays_whole() -> None:
    spiky = trip([0, 20, 5000, 60, 80], [0, 1, 2, 3, 4])
    assert clean(spiky, max_speed=60, max_gap=None, still=None).xy[:, 0].tolist() == [0, 20, 60, 80]


def test_a_jump_cuts_and_the_longer_side_stays() -> None:
    jump = trip([0, 20, 5000, 5020, 5040], [0, 1, 2, 3, 4])
    assert clean(jump, max_speed=60, max_gap=None, still=None).xy[:, 0].tolist() == [5000, 5020, 5040]


def test_a_gap_cuts_and_the_longer_side_stays() -> None:
    gap = trip([0, 100, 200, 210, 220], [0, 10, 20, 2000, 2010])
    assert clean(gap, max_gap=600, max_speed=None, still=None).xy[:, 0].tolist() == [0, 100, 200]


def test_two_points_a_day_apart_become_one_or_stay_if_asked() -> None:
    day = trip([0, 5000], [0, 86_400])
    assert clean(day).xy[:, 0].tolist() == [0]
    assert clean(day, max_gap=None).xy[:, 0].tolist() == [0, 5000]


def test_without_times_long_steps_cut() -> None:
    steps = trip([0, 10, 20, 900, 910])
    assert clean(steps, max_step=100, still=None).xy[:, 0].tolist() == [0, 10, 20]


def test_ties_go_to_more_points_then_to_the_earlier() -> None:
    more = trip([0, 20, 1000, 1010, 1020])
    assert clean(more, max_step=100, still=None).xy[:, 0].tolist() == [1000, 1010, 1020]
    same = trip([0, 20, 1000, 1020])
    assert clean(same, max_step=100, still=None).xy[:, 0].tolist() == [0, 20]


def test_a_trip_that_leaves_the_domain_keeps_its_longest_stay() -> None:
    box = BoxDomain(0, -10, 100, 10)
    out = trip([50, 60, 150, 70, 20, 0, -30, 5, 10], list(range(9)))
    cleaned = clean(out, domain=box, max_gap=None, max_speed=None, still=None)
    assert cleaned.xy[:, 0].tolist() == [70, 20, 0]


def test_on_roads_a_stray_point_goes_and_does_not_cut() -> None:
    graph = nx.MultiDiGraph(crs="EPSG:32616", simplified=True)
    for node, x in enumerate((440_000.0, 440_300.0)):
        graph.add_node(node, x=x, y=4_630_000.0, street_count=1)
    graph.add_edge(0, 1, osmid=0, length=300.0)
    roads = RoadDomain.from_graph(graph, max_distance=50)
    stray = trip(
        [440_010, 440_050, 440_100, 440_150], [0, 5, 10, 15], [4_630_000, 4_630_002, 4_630_080, 4_630_000]
    )
    assert clean(stray, domain=roads, still=None).xy[:, 0].tolist() == [440_010, 440_050, 440_150]


def test_a_trip_wholly_outside_goes() -> None:
    box = BoxDomain(0, 0, 1, 1)
    assert clean(join([trip([5, 6]), trip([0.5, 0.6])]), domain=box).user.tolist() == [1]  # type: ignore[union-attr]


def test_standing_ends_are_trimmed() -> None:
    waits = trip([0, 3, -2, 4, 50, 100, 150, 152, 149, 151], list(range(0, 100, 10)))
    cleaned = clean(waits, still=20, max_gap=None, max_speed=None)
    assert cleaned.xy[:, 0].tolist() == [4, 50, 100, 150]
    assert cleaned.time is not None
    assert cleaned.time.tolist() == [30, 40, 50, 60]


def test_a_round_trip_keeps_its_middle() -> None:
    loop = trip([0, 1, 100, 200, 100, 2, 0])
    assert clean(loop, still=20).xy[:, 0].tolist() == [1, 100, 200, 100, 2]


def test_a_trip_that_never_moves_is_one_point() -> None:
    assert clean(trip([0, 3, 5, 1], [0, 60, 120, 180]), still=20).xy[:, 0].tolist() == [0]


def test_a_short_hop_keeps_both_ends() -> None:
    assert clean(trip([0, 25]), still=20).xy[:, 0].tolist() == [0, 25]


def test_a_trip_of_one_point_stays_one_point() -> None:
    assert clean(trip([7], [0])).xy.tolist() == [[7.0, 0.0]]
    assert clean(trip([7], [0]), min_points=2).size == 0


def test_too_short_trips_go() -> None:
    both = join([trip([0, 30, 300]), trip([0, 30, 60])])
    assert clean(both, min_length=100, still=None).user.tolist() == [0]  # type: ignore[union-attr]
    assert clean(both, min_points=4, still=None).size == 0


def test_degrees_are_measured_in_metres() -> None:
    box = BoxDomain(0, 59, 2, 61, crs="EPSG:4326")
    # 0.002 degrees of longitude at 60 degrees north are about 111 m.
    east = Trips(np.array([[1.0, 60.0], [1.002, 60.0]]), np.array([0, 2]), np.array([0.0, 2.0]))
    assert len(clean(east, domain=box, max_speed=60).xy) == 2
    assert len(clean(east, domain=box, max_speed=50).xy) == 1


def test_no_trips() -> None:
    nothing = Trips(np.empty((0, 2)), np.array([0]), np.empty(0))
    assert clean(nothing, domain=BoxDomain(0, 0, 1, 1), min_points=2).size == 0


def test_a_hundred_thousand_points_in_one_trip() -> None:
    x = np.arange(100_000.0)
    long = Trips(np.column_stack([x, x]), np.array([0, len(x)]), x)
    assert len(clean(long, still=None).xy) == 100_000


@pytest.mark.parametrize(
    "option",
    [
        {"max_gap": 0},
        {"max_speed": -1},
        {"max_step": np.nan},
        {"still": 0},
        {"min_points": 0},
        {"min_length": -1},
    ],
)
def test_senseless_limits_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(option))):
        clean(trip([0, 1]), **option)


coordinate = st.integers(-3, 3).map(lambda k: 40.0 * k)
a_trip = st.lists(st.tuples(coordinate, coordinate, st.integers(0, 5)), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(st.lists(a_trip, min_size=1, max_size=5), st.booleans())
def test_each_trip_is_cleaned_as_if_it_were_alone(drawn: list[list[tuple]], timed: bool) -> None:
    """One trip in, one trip or none out, the same whatever else is there: sensitivity 1."""
    box = BoxDomain(-100, -130, 130, 100)
    parts = [
        trip([p[0] for p in points], np.cumsum([p[2] for p in points]).tolist() if timed else None,
             [p[1] for p in points])
        for points in drawn
    ]  # fmt: skip
    options: dict[str, Any] = {"domain": box, "max_gap": 4, "max_speed": 41, "max_step": 85, "still": 45}
    together = clean(join(parts), **options)
    assert together.user is not None
    alone = [clean(part, **options) for part in parts]
    assert [cleaned.size for cleaned in alone] == [int(i in together.user) for i in range(len(parts))]
    expected = np.concatenate([cleaned.xy for cleaned in alone])
    np.testing.assert_array_equal(together.xy, expected)
    # What is left is a run of the recorded points: nothing is invented.
    for part, cleaned in zip(parts, alone, strict=True):
        assert {tuple(p) for p in cleaned.xy.tolist()} <= {tuple(p) for p in part.xy.tolist()}
