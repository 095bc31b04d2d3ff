"""Trips where no road is known: their own lengths and paces, lines through cells, plausible speeds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import shapely

import synthgeo as sg
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.cells import Partition
from synthgeo.polylines import Polylines
from trajectories.fit.clock import TripClock, estimate_recording, humps
from trajectories.ground import ground_of
from trajectories.ground.cell_lines import SideSegments, shortest, strayed, uniforms, with_corners
from trajectories.measure.ends import count_lengths
from trajectories.measure.measured import Walking
from trajectories.measure.times import count_paces, measure_recording
from trajectories.reading.points import Trips
from trajectories.walks.bridges import Walks, join

BOX = sg.BoxDomain(0, 0, 8000, 8000)
BITS = 20


def cells(bits=6):
    prefix = np.arange(1 << bits, dtype=np.uint64)
    return Partition(prefix, np.full(len(prefix), bits), hierarchy_of(BOX).measure(prefix, bits))


def walkers(trips=300, seed=0, speed=5 / 3.6, minutes=6):
    """Walks of a few hundred metres in any direction, a point a minute: less than a cell."""
    rng = np.random.default_rng(seed)
    turn = rng.uniform(0, 2 * np.pi, trips)
    step = 60 * speed * np.column_stack([np.cos(turn), np.sin(turn)])
    xy = rng.uniform(1500, 6500, (trips, 1, 2)) + step[:, None] * np.arange(minutes + 1)[None, :, None]
    time = 1_700_000_000 + 3600.0 * rng.integers(0, 168, trips)[:, None] + 60.0 * np.arange(minutes + 1)
    return Trips(xy.reshape(-1, 2), (minutes + 1) * np.arange(trips + 1), time.ravel())


def walked(trips):
    ground = ground_of(BOX, BITS)
    placed = ground.place(trips, method="hmm")
    return Walking(ground, ground.graph(cells()), cells())(placed)


def test_lengths_and_paces_are_those_of_a_trips_own_points():
    found = walked(walkers())
    assert found.metres == pytest.approx(500.0)
    assert found.diameter == pytest.approx(500.0, rel=0.01)
    assert found.duration / found.usual == pytest.approx(6.0)  # 30 km/h over 5


def test_one_trip_moves_lengths_and_paces_by_one():
    trips = walkers(40)
    whole = walked(trips)
    for gone in (0, 17, 39):
        rest = np.delete(np.arange(40), gone)
        fewer = walked(trips.take(rest))
        for name in ("metres", "diameter", "usual"):
            assert np.array_equal(getattr(fewer, name), getattr(whole, name)[rest])
        lengths = count_lengths(whole.metres, whole.diameter) - count_lengths(fewer.metres, fewer.diameter)
        paces = count_paces(whole.duration, whole.usual) - count_paces(fewer.duration, fewer.usual)
        assert np.abs(lengths).sum() == np.abs(paces).sum() == 1


def random_walks(graph, rng, count=200, steps=9):
    states = np.empty((count, steps), dtype=np.int64)
    states[:, 0] = rng.integers(0, graph.size, count)
    for k in range(1, steps):
        before = states[:, k - 1]
        ways = graph.first[before + 1] - graph.first[before]
        states[:, k] = graph.to[graph.first[before] + rng.integers(0, ways)]
    return states.ravel(), steps * np.arange(count + 1)


def lines_of_walks(number=None, segments=None):
    ground = ground_of(BOX, BITS)
    graph, rng = ground.graph(cells()), np.random.default_rng(1)
    states, start = random_walks(graph, rng)
    rectangles = ground._rectangles(cells())
    ends = []
    for at in (start[:-1], start[1:] - 1):
        box = rectangles[states[at]]
        ends.append(box[:, :2] + rng.random((len(at), 2)) * (box[:, 2:] - box[:, :2]))
    lines = shortest(graph, states, start, *ends)
    if number is not None:
        lines = strayed(graph, states, start, *ends, number, segments)
    return lines.polylines, rectangles[states], ends


NUMBERS = np.random.default_rng(2).integers(0, 1 << 62, 200)


@pytest.mark.parametrize("number", [None, NUMBERS])
def test_lines_stay_in_the_cells_of_their_walks_and_are_short(number):
    lines, boxes, ends = lines_of_walks(number)
    assert np.array_equal(lines.xy[lines.offsets[:-1]], ends[0])
    assert np.array_equal(lines.xy[lines.offsets[1:] - 1], ends[1])
    begin = np.setdiff1d(np.arange(len(lines.xy)), lines.offsets[1:] - 1)
    for at in (begin, begin + 1):  # both ends of each segment lie in its cell
        assert (lines.xy[at] >= boxes[:, :2] - 1e-6).all()
        assert (lines.xy[at] <= boxes[:, 2:] + 1e-6).all()
    centres = Polylines((boxes[:, :2] + boxes[:, 2:]) / 2, 9 * np.arange(201))
    assert lines.lengths.sum() < 0.8 * centres.lengths.sum()


def test_a_line_along_a_row_of_cells_is_straight():
    ground = ground_of(BOX, BITS)
    graph, middles = ground.graph(cells()), ground.centres(cells())
    row = np.flatnonzero(middles[:, 1] == middles[0, 1])
    row = row[np.argsort(middles[row, 0])]
    ends = np.array([[10.0, 100.0]]), np.array([[7990.0, 900.0]])
    # Whoever stays in a cell for a step, as Algorithm 21 lets walks do, goes no other way.
    for states in (row, np.repeat(row, 3)):
        found = shortest(graph, states, np.array([0, len(states)]), *ends)
        lines, sharp = found.polylines, found.sharp
        assert lines.lengths[0] == pytest.approx(np.hypot(7980, 800), rel=1e-3)
        assert sharp[0] == 0


def test_lines_stray_from_the_shortest_by_their_numbers():
    shortest_lines, strayed_lines = lines_of_walks()[0], lines_of_walks(NUMBERS)[0]
    assert strayed_lines.lengths.sum() / shortest_lines.lengths.sum() == pytest.approx(1.0, abs=0.1)
    assert np.array_equal(lines_of_walks(NUMBERS)[0].xy, strayed_lines.xy)
    assert not np.array_equal(lines_of_walks(NUMBERS + 1)[0].xy, strayed_lines.xy)


def test_lines_of_a_row_cross_its_sides_around_the_straight_line():
    graph, middles = ground_of(BOX, BITS).graph(cells()), ground_of(BOX, BITS).centres(cells())
    row = np.flatnonzero(middles[:, 1] == middles[0, 1])
    row, count = row[np.argsort(middles[row, 0])], 2000
    ends = (np.tile([[x, 300.0]], (count, 1)) for x in (10.0, 7990.0))
    number = np.random.default_rng(3).integers(0, 1 << 62, count)
    start = len(row) * np.arange(count + 1)
    along = strayed(graph, np.tile(row, count), start, *ends, number).along(graph)
    along = along.reshape(count, -1)
    assert np.isnan(along[:, -1]).all()
    drawn = np.histogram(along[:, 3], 4, (0, 1))[0] / count
    assert (drawn[1:3] > 0.3).all()  # the middle of the row, far from both ends, is not crossed at corners
    assert (drawn[[0, 3]] < 0.25).all()
    assert (drawn[[0, 3]] > 0.01).all()


def test_weights_of_segments_say_where_lines_cross():
    graph = ground_of(BOX, BITS).graph(cells())
    there = int(graph.to[0])
    side, number = graph.side_of_step[0], np.random.default_rng(4).integers(0, 1 << 62, 4000)
    assert (side, graph.source[0]) == (0, 0)
    first = np.where(np.arange(graph.side_of_step.max() + 2) > side, 4, 0)
    states, start = np.tile([0, there], 4000), 2 * np.arange(4001)
    ends = (np.tile(graph.xy[[state]], (4000, 1)) for state in (0, there))
    weight = np.array([1.0, 30.0, 0.05, 1.0])
    along = strayed(graph, states, start, *ends, number, SideSegments(first, weight)).along(graph)[::2]
    drawn = np.histogram(along, 4, (0, 1))[0] / 4000
    assert drawn[1] > 0.9
    assert drawn[2] < 0.01


def test_going_back_is_a_sharp_turn():
    graph = ground_of(BOX, BITS).graph(cells())
    there = int(graph.to[graph.first[20]])
    states = np.array([20, there, 20])
    middle = graph.xy[[20]]
    assert shortest(graph, states, np.array([0, 3]), middle, middle + 5.0).sharp[0] == 1


def test_corners_lengthen_lines_inside_their_cells():
    lines, boxes, _ = lines_of_walks()
    number = np.random.default_rng(2).integers(0, 1 << 62, 200)
    bent = with_corners(lines, boxes, number, 1.1)
    assert bent.lengths.sum() / lines.lengths.sum() == pytest.approx(1.1, abs=0.02)
    assert (bent.lengths >= lines.lengths - 1e-6).all()
    inserted = ~(bent.xy[:, None] == lines.xy[None]).all(axis=2).any(axis=1)
    assert inserted.any()
    turns = np.flatnonzero(inserted)
    into, out = bent.xy[turns] - bent.xy[turns - 1], bent.xy[turns + 1] - bent.xy[turns]
    assert (into * out).sum(axis=1) == pytest.approx(0.0, abs=1e-3)  # right angles
    whole = with_corners(lines, boxes, number, 10.0)
    begin = np.setdiff1d(np.arange(len(lines.xy)), lines.offsets[1:] - 1)
    assert len(whole.xy) > len(lines.xy) + 0.5 * len(begin)
    assert np.array_equal(with_corners(lines, boxes, number, 1.0).xy, lines.xy)


def test_numbers_of_walks_are_uniform_and_stay_with_them():
    number = np.arange(20_000)
    drawn = uniforms(number, 3)
    assert np.array_equal(drawn, uniforms(number, 3))
    assert not np.array_equal(drawn, uniforms(number, 4))
    assert np.histogram(drawn, 10, (0, 1))[0] == pytest.approx(2000, abs=250)
    walks = Walks(np.arange(3), np.arange(4), np.ones(3, dtype=bool), np.array([5, 6, 7]))
    assert walks.take(np.array([2, 0])).number.tolist() == [7, 5]
    nothing = Walks(np.empty(0, np.int64), np.zeros(1, np.int64), np.empty(0, bool))
    assert join([nothing, walks, walks]).number.tolist() == [5, 6, 7, 5, 6, 7]
    assert join([walks, Walks(walks.states, walks.start, walks.found)]).number is None


def test_paces_of_those_who_walk_and_of_those_who_ride_are_kept_and_noise_is_not():
    counts = np.zeros(32)
    counts[[5, 18, 19, 20, 26, 27]] = 30, 200, 300, 200, 500, 600
    assert np.flatnonzero(humps(counts, 20.0)).tolist() == [18, 19, 20, 26, 27]
    assert np.flatnonzero(humps(counts, 2.0)).tolist() == [5, 18, 19, 20, 26, 27]


def test_noise_makes_no_trips_of_uneven_speed():
    """Over ten seeds: 4,000 trips at steady speed, with noise of 140 trips in each bucket."""
    found = []
    for seed in range(10):
        counts = measure_recording(
            np.full(4000, 60.0), np.full(4000, 0.01), epsilon=0.02, noise=sg.SeededNoise(seed)
        )
        found.append(estimate_recording(counts, timed=True).usual_variation)
    assert np.mean(found) < 0.1  # without the choice of humps 0.17


def test_nobody_is_faster_than_released_paces_say():
    ground = ground_of(BOX, BITS)
    paces = np.zeros(32)
    paces[[25, 26, 27]] = 1.0
    cap = ground.fastest(TripClock.of(np.ones(168), paces), None)
    assert cap * 3.6 == pytest.approx(30 * 16 / 2 ** (25 / 4))
    assert ground_of(sg.RoadDomain.from_graph(sg.simulate.city_graph(4, 4, seed=1)), BITS).fastest(
        TripClock.of(np.ones(168), paces), None
    ) is None  # fmt: skip


def test_walkers_walk():
    """Trips inside one cell, too: their own points say how long they are."""
    trips = walkers(2000)
    model = sg.TrajectorySynthesizer(
        domain=BOX, budget=sg.PrivacyBudget(4.0), noise=sg.SeededNoise(1)
    ).fit_trips(trips)  # fmt: skip
    made = model.sample(1000)
    frame = made.to_pandas()
    same = np.diff(frame["trip_id"]) == 0
    seconds = (np.diff(frame["time"]) / np.timedelta64(1, "s"))[same]
    metres = np.hypot(np.diff(frame["x"]), np.diff(frame["y"]))[same]
    assert metres.sum() / seconds.sum() * 3.6 == pytest.approx(5.0, rel=0.15)
    assert (metres / seconds).max() * 3.6 < 15
    lengths = np.bincount(frame["trip_id"].to_numpy()[1:][same], metres)
    assert np.median(lengths) == pytest.approx(500, rel=0.25)


def test_trips_cross_a_busy_side_where_trips_do_and_saving_keeps_it(tmp_path):
    """Two streets lead from the left half to the right, and the cells are quarters: only the segments of
    their sides know the streets.
    """
    rng = np.random.default_rng(6)
    street = rng.choice([700.0, 2900.0, 4700.0], 3000, p=[0.45, 0.45, 0.1])
    x = np.linspace(500.0, 7500.0, 8) + rng.uniform(-300, 300, (3000, 1))
    points = pd.DataFrame(
        {
            "trip_id": np.repeat(np.arange(3000), 8),
            "x": x.ravel(),
            "y": np.repeat(street, 8) + rng.normal(0, 20, 24_000),
        }
    )
    quarters = Partition(np.arange(4, dtype=np.uint64), np.full(4, 2), np.full(4, 0.25))
    model = sg.TrajectorySynthesizer(
        domain=BOX,
        budget=sg.PrivacyBudget(epsilon=1.0),
        settings=sg.TripSettings(partition=quarters),
        noise=sg.SeededNoise(1),
    ).fit(points)
    assert model.model.segments is not None
    lines = model.sample(2000).lines
    lower = lines.geometry.intersection(shapely.LineString([(4000, 0), (4000, 4000)]))
    y = shapely.get_y(shapely.centroid(lower[~lower.is_empty].to_numpy()))
    crossed = np.histogram(y, 8, (0, 4000))[0] / len(y)
    assert crossed[1] + crossed[5] > 0.7  # of the even two eighths
    model.save(tmp_path / "model")
    again = sg.TrajectorySynthesizer.load(tmp_path / "model")
    assert np.array_equal(again.model.segments.weight, model.model.segments.weight)
    assert np.array_equal(again.model.measured.crossings, model.model.measured.crossings)
