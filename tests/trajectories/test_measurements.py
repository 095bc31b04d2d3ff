"""What touches private trips: shares, counts, cells, pairs, lengths. Sensitivity, and noise on what is
empty.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import synthgeo as sg
from synthgeo.domain.box import BoxDomain
from synthgeo.hierarchy.cells import Partition
from synthgeo.hierarchy.privtree import GRID, SplitRule
from synthgeo.privacy.noise import SeededNoise
from synthgeo.ragged import owners_of
from trajectories.calendar import hour_of_week, wanted_hours
from trajectories.fit.clock import estimate_clock
from trajectories.fit.shrinkage import estimate_ends
from trajectories.ground import ground_of
from trajectories.ground.plane import PlaneGround
from trajectories.ground.state_graph import fill_gaps
from trajectories.measure.ends import (
    BUCKETS,
    bucket,
    count_ends,
    count_lengths,
    measure_cells,
    measure_ends,
    measure_lengths,
    path_shapes,
    weighted_places,
)
from trajectories.measure.pairs import (
    PairBlocks,
    count_links,
    crossing_shares,
    expected_crossings,
    halvings_of,
    measure_links,
    measure_pairs,
    segment_offsets,
)
from trajectories.measure.times import (
    GAPS,
    VARIATIONS,
    TimeCounts,
    count_by_hour,
    count_departures,
    count_paces,
    count_zones,
    gap_bucket,
    measure_recording,
    measure_times,
    measure_zones,
    variation_bucket,
    zones_of,
)
from trajectories.reading.points import Trips, read_trips
from trajectories.reading.recorded import recorded_gaps, speed_variations

THIRDS, EXACT = (0.3, 0.3, 0.4), (1e6, 1e6, 1e6)
BITS = 12
BOX = BoxDomain(0, 0, 1000, 1000)

GROUND = PlaneGround(BOX, BITS)
points = st.tuples(st.floats(-100, 1100), st.floats(-100, 1100))
journeys = st.lists(st.lists(points, min_size=1, max_size=12), min_size=1, max_size=6)


def trips_of(lists) -> Trips:
    start = np.concatenate([[0], np.cumsum([len(points) for points in lists])])
    return Trips(np.array([p for points in lists for p in points], dtype=float).reshape(-1, 2), start)


def some_cells(seed=0, epsilon=1.0):
    rng = np.random.default_rng(seed)
    walk = [np.clip(rng.normal(400, 150, (8, 2)), 0, 999) for _ in range(300)]
    private = GROUND.place(trips_of(walk), method="hmm")
    return measure_cells(
        private, GROUND.hierarchy, epsilon=epsilon, noise=SeededNoise(seed), max_depth=BITS, base=3
    ), private


CELLS, PRIVATE = some_cells()
GRAPH = GROUND.graph(CELLS)
HALVINGS = np.where(GRAPH.side_of_step >= 0, GRAPH.side_of_step % 3, 0)


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=8), st.sampled_from(["uniform", "ends"]))
def test_a_trip_never_gives_more_than_one(crossings, weights):
    crossings = np.array(crossings)
    shares = crossing_shares(crossings, weights)
    assert (shares >= 0).all()
    trip = np.repeat(np.arange(len(crossings)), crossings)
    assert (np.bincount(trip, shares, minlength=len(crossings)) <= GRID.one).all()


def test_ends_weigh_most_at_both_ends():
    shares = crossing_shares(np.array([7]), "ends")
    assert shares.tolist() == shares[::-1].tolist()
    assert (np.diff(shares[:4]) < 0).all()


@settings(max_examples=60, deadline=None)
@given(journeys, st.data())
def test_removing_a_trip_moves_every_count_by_at_most_one(lists, data):
    """The exact statistics behind each noise: cells, links, their segments, lengths, ends (which move by
    two). L1 distance of neighbours, in grid steps.
    """
    gone = data.draw(st.integers(0, len(lists) - 1))
    fewer = lists[:gone] + lists[gone + 1 :]
    weights = data.draw(st.sampled_from(["uniform", "ends"]))
    at_ends = data.draw(st.floats(0, 1))

    def statistics(part):
        if not part:
            counts = (4**6, GRAPH.links, segment_offsets(HALVINGS)[-1], BUCKETS, CELLS.size)
            return tuple(np.zeros(count, np.int64) for count in counts)
        private = GROUND.place(trips_of(part), method="hmm")
        visits = np.zeros(4**6, dtype=np.int64)
        keys, shares = weighted_places(private.keys, private.shares, private.ends, at_ends)
        np.add.at(visits, keys.astype(np.int64), shares)
        states, start, along = GROUND.paths(private, GRAPH, CELLS)
        real = np.diff(start) > 0
        metres, diameter = path_shapes(GRAPH, states, start)
        ends = CELLS.cell_of(GROUND.end_keys(private, CELLS, states, start).ravel(), BITS)
        return (
            visits,
            count_links(GRAPH, states, start, weights),
            count_links(GRAPH, states, start, weights, along, HALVINGS),
            count_lengths(metres[real], diameter[real]),
            np.bincount(ends, minlength=CELLS.size),
        )

    with_it, without = statistics(lists), statistics(fewer)
    for one, other, most in zip(with_it, without, (GRID.one, GRID.one, GRID.one, 1, 2), strict=True):
        assert (one >= other).all()  # adding a trip never lowers anything: PrivTree's scores stay monotone
        assert (one - other).sum() <= most


def test_segments_of_links_add_up_to_their_links_and_are_where_trips_cross():
    trips = trips_of([np.array([[100.0, 130.0], [900.0, 130.0]]), np.array([[100.0, 870.0], [900.0, 870.0]])])
    halves = Partition(np.arange(2, dtype=np.uint64), np.ones(2, dtype=np.int64), np.full(2, 0.5))
    graph = GROUND.graph(halves)
    states, start, along = GROUND.paths(GROUND.place(trips, method="hmm"), graph, halves)
    assert states.tolist() == [0, 1, 0, 1]
    assert along[::2] == pytest.approx([0.13, 0.87], abs=0.02)
    assert np.isnan(along[1::2]).all()
    found = count_links(graph, states, start, "uniform", along, np.array([2, 2]))
    assert (found / GRID.one).tolist() == [1, 0, 0, 1, 0, 0, 0, 0]  # both from the left to the right
    states, start, along = GROUND.paths(PRIVATE, GRAPH, CELLS)
    whole = count_links(GRAPH, states, start, "uniform")
    parts = count_links(GRAPH, states, start, "uniform", along, HALVINGS)
    assert np.array_equal(np.add.reduceat(parts, segment_offsets(HALVINGS)[:-1]), whole)


def test_a_trip_crosses_where_its_own_points_say():
    """Alone and in company."""
    along = GROUND.paths(PRIVATE, GRAPH, CELLS)[2]
    start = GROUND.paths(PRIVATE, GRAPH, CELLS)[1]
    for trip in (0, 7, 299):
        points = slice(*PRIVATE.start[trip : trip + 2])
        one = replace(
            PRIVATE, keys=PRIVATE.keys[points], shares=PRIVATE.shares[points], ends=PRIVATE.ends[[trip]],
            states=np.arange(points.stop - points.start), start=np.array([0, points.stop - points.start]),
        )  # fmt: skip
        alone = GROUND.paths(one, GRAPH, CELLS)[2]
        assert np.array_equal(alone, along[start[trip] : start[trip + 1]], equal_nan=True)


def test_busy_links_are_counted_in_segments_by_what_was_released_before():
    """The same halvings both ways, none at corners, none finer than the cells allow, more where more are
    expected.
    """
    expected = np.where(GRAPH.source + GRAPH.to == GRAPH.source[0] + GRAPH.to[0], 300.0, 0.0)
    finest = np.full(CELLS.size, 3)
    halvings = halvings_of(GRAPH, expected, 5.0, finest)
    back = GRAPH.link_between(GRAPH.to, GRAPH.source)
    assert np.array_equal(halvings, halvings[back])
    assert halvings[0] == 3
    assert (halvings[expected == 0] == 0).all()
    assert (halvings[GRAPH.side_of_step < 0] == 0).all()
    assert halvings_of(GRAPH, expected, 25.0, finest)[0] == 2
    assert halvings_of(GRAPH, expected, 500.0, finest).max() == 0
    assert halvings_of(GRAPH, expected, 5.0, np.where(np.arange(CELLS.size) == GRAPH.to[0], 1, 3))[0] == 1


def test_released_pairs_let_expect_crossings_on_their_ways():
    from_, to = 0, CELLS.size - 1
    one = PairBlocks(*(np.array([at]) for at in (from_, from_ + 1, to, to + 1)), np.array([1000.0]))
    by_cell = np.zeros(CELLS.size)
    by_cell[[from_, to]] = 500.0
    expected = expected_crossings(
        GRAPH, one, 1.0, by_cell, GROUND.centres(CELLS), np.random.default_rng(1), "uniform"
    )
    assert expected.sum() == pytest.approx(1000, rel=1e-3)
    way = np.flatnonzero(expected)
    assert GRAPH.source[way].min() == from_
    assert np.count_nonzero(GRAPH.to[way] == to) == 1
    assert len(np.unique(GRAPH.source[way])) == len(way)  # one way, each cell left once


def test_weight_at_the_ends_makes_cells_small_there():
    """Trips cross the box from one corner to the other."""
    rng = np.random.default_rng(0)
    across = [np.linspace([30, 30], [960, 960], 40) + rng.normal(0, 8, (40, 2)) for _ in range(400)]
    private = GROUND.place(trips_of(across), method="hmm")
    corner = private.keys[private.start[:-1]]

    def size(at_ends):
        cells = measure_cells(
            private,
            GROUND.hierarchy,
            epsilon=1.0,
            noise=SeededNoise(1),
            max_depth=BITS,
            base=3,
            at_ends=at_ends,
        )
        return cells.measure[cells.cell_of(corner, BITS)].mean()

    assert size(0.5) < 0.5 * size(0.0)


def test_shapes_of_paths():
    """Lengths are exact; diameters within one in a hundred of the largest distance, which they never
    exceed.
    """
    rng = np.random.default_rng(4)
    start = np.array([0, 1, 1, 8, 60])
    states = rng.integers(0, GRAPH.size, 60)
    metres, diameter = path_shapes(GRAPH, states, start)
    for i in range(4):
        xy = GRAPH.xy[states[start[i] : start[i + 1]]]
        if len(xy) < 2:
            assert (metres[i], diameter[i]) == (0, 0)
            continue
        assert metres[i] == pytest.approx(np.hypot(*np.diff(xy, axis=0).T).sum())
        exact = np.hypot(*(xy[:, None] - xy[None]).transpose(2, 0, 1)).max()
        assert 0.99 * exact <= diameter[i] <= exact * (1 + 1e-9)


def test_buckets_tell_loops_from_straight_runs():
    metres = np.array([3000.0, 3000.0, 3000.0, 1500.0])
    assert len(set(bucket(metres, np.array([2900.0, 1500.0, 500.0, 1450.0])).tolist())) == 4
    huge = bucket(np.array([0.0, 1e9]), np.array([0.0, 1e9]))
    assert huge.min() >= 0
    assert huge.max() < BUCKETS


def test_every_link_gets_noise_also_where_nobody_goes():
    noisy = measure_links(GRAPH, np.array([0]), np.array([0, 1]), epsilon=1.0, noise=SeededNoise(1))
    assert len(noisy) == GRAPH.links
    assert (noisy != 0).mean() > 0.99


def test_links_are_right_without_noise():
    states, start, _ = fill_gaps(GRAPH, np.array([0, 5, 9]), np.array([0, 3]))
    noisy = measure_links(GRAPH, states, start, epsilon=1e9, noise=SeededNoise(1))
    crossed = GRAPH.link_between(states[:-1], states[1:])
    assert np.flatnonzero(noisy > 1e-3).tolist() == sorted(set(crossed.tolist()))
    assert noisy.sum() == pytest.approx(1.0, abs=1e-3)


def test_gaps_are_filled_with_steps_that_exist():
    rng = np.random.default_rng(5)
    states, start, _ = fill_gaps(GRAPH, rng.integers(0, GRAPH.size, 60), np.arange(0, 61, 6))
    inner = np.ones(len(states) - 1, dtype=bool)
    inner[start[1:-1] - 1] = False
    assert (GRAPH.link_between(states[:-1], states[1:])[inner] >= 0).all()


def test_a_forest_covers_the_box_and_follows_the_points():
    assert CELLS.measure.sum() == pytest.approx(1e6)
    cells = CELLS.cell_of(PRIVATE.keys, BITS)
    assert (cells >= 0).all()
    assert CELLS.measure[cells].mean() < 0.8 * CELLS.measure.mean()


@pytest.mark.parametrize("epsilon", [0.5, 50.0])
def test_the_bias_of_a_level_is_never_below_what_a_trip_adds(monkeypatch, epsilon):
    """A trip's shares of cells are fractions: PrivTree's proof needs a whole count for each level."""
    made = []

    def recorded(*args, **options):
        made.append(SplitRule(*args, **options))
        return made[-1]

    monkeypatch.setattr("trajectories.measure.ends.SplitRule", recorded)
    measure_cells(PRIVATE, GROUND.hierarchy, epsilon=epsilon, noise=SeededNoise(1), max_depth=BITS)
    assert [rule.decay >= GRID.one for rule in made] == [True]


def test_empty_cells_are_tested_like_others():
    """Without a single trip some of the 8 public cells are split for some seeds: nothing marks them as
    empty.
    """
    nobody = GROUND.place(Trips(np.empty((0, 2)), np.zeros(1, np.int64)), method="hmm")
    sizes = {
        measure_cells(
            nobody, GROUND.hierarchy, epsilon=1.0, noise=SeededNoise(seed), max_depth=BITS, base=3
        ).size
        for seed in range(12)
    }
    assert min(sizes) >= 8
    assert len(sizes) > 1


def pairs_of(origin, destination, seed=0, **options):
    settings_ = {"epsilon_tree": 1.0, "epsilon_count": 1.0, "ends": np.full(CELLS.size, 2.0), **options}
    return measure_pairs(
        np.asarray(origin), np.asarray(destination), CELLS, noise=SeededNoise(seed), **settings_
    )


def test_blocks_cover_every_pair_once():
    rng = np.random.default_rng(2)
    blocks = pairs_of(rng.integers(0, CELLS.size, 400), rng.integers(0, CELLS.size, 400))
    covered = np.zeros((CELLS.size, CELLS.size), dtype=int)
    for i in range(blocks.size):
        covered[
            blocks.origin_low[i] : blocks.origin_high[i],
            blocks.destination_low[i] : blocks.destination_high[i],
        ] += 1
    assert (covered == 1).all()


def test_pairs_are_right_without_noise():
    origin, destination = np.array([0, 0, 7, CELLS.size - 1]), np.array([3, 3, 7, 0])
    blocks = pairs_of(origin, destination, epsilon_tree=1e6, epsilon_count=1e6)
    for o, d, expected in ((0, 3, 2), (7, 7, 1), (CELLS.size - 1, 0, 1)):
        block = np.flatnonzero(
            (blocks.origin_low <= o) & (o < blocks.origin_high) & (blocks.destination_low <= d)
            & (d < blocks.destination_high)
        )  # fmt: skip
        assert blocks.count[block].tolist() == [expected]
        assert blocks.origin_high[block] - blocks.origin_low[block] == 1
    assert blocks.count.sum() == 4


def test_pairs_without_trips_split_and_get_noise():
    nobody = np.empty(0, dtype=np.int64)
    blocks = [pairs_of(nobody, nobody, seed=seed) for seed in range(6)]
    assert len({b.size for b in blocks}) > 1
    assert all((b.count != 0).mean() > 0.3 for b in blocks)  # P(noise = 0) is 0.46 at scale 1


def test_blocks_are_no_more_than_a_computer_holds(monkeypatch):
    """At a large ε every pair of cells would be a block of its own."""
    rng = np.random.default_rng(3)
    trips = rng.integers(0, CELLS.size, 2000), rng.integers(0, CELLS.size // 4, 2000)
    ends = np.bincount(np.concatenate(trips), minlength=CELLS.size) / 2
    whole = pairs_of(*trips, epsilon_tree=1e4, epsilon_count=1e4, ends=ends)
    monkeypatch.setattr("trajectories.measure.pairs.MOST_BLOCKS", 100)
    bounded = pairs_of(*trips, epsilon_tree=1e4, epsilon_count=1e4, ends=ends)
    assert bounded.size <= 4 * 100 < whole.size
    assert bounded.count.sum() == whole.count.sum() == 2000


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=30), st.integers(0, 5)
)
def test_removing_a_pair_changes_one_block_by_one(pairs, seed):
    """With ε_tree so small that no count can be seen, both worlds grow the same tree from the same noise."""
    one = pairs_of(*np.array(pairs).T, seed=seed, epsilon_tree=1e-5)
    two = pairs_of(*np.array(pairs[1:]).reshape(-1, 2).T, seed=seed, epsilon_tree=1e-5)
    assume(one.size == two.size and np.array_equal(one.origin_low, two.origin_low))
    change = one.count - two.count
    assert sorted(np.abs(change[change != 0]).tolist()) == [1]


def test_ends_are_right_without_noise_and_noisy_everywhere_with_it():
    exact = measure_ends(np.array([0, 2]), np.array([2, 2]), 5, epsilon=1e6, noise=SeededNoise(0))
    assert exact.tolist() == [0.5, 0, 1.5, 0, 0]
    nobody = np.empty(0, dtype=np.int64)
    assert (measure_ends(nobody, nobody, 500, epsilon=0.1, noise=SeededNoise(0)) != 0).mean() > 0.9


HOT, COLD = PRIVATE.keys[0], PRIVATE.keys[40]


def counted(ends, seed=0, epsilon=1e6):
    origin, destination = np.asarray(ends, dtype=np.uint64).reshape(-1, 2).T
    return count_ends(
        origin, destination, BITS, CELLS, GROUND.hierarchy, epsilon=epsilon, noise=SeededNoise(seed)
    )


def test_busy_cells_are_counted_again_in_parts():
    found = counted([[HOT, HOT]] * 30 + [[HOT, COLD]])
    assert found.by_cell.sum() == pytest.approx(31)
    assert found.by_part[found.parts.cell_of(np.array([HOT]), BITS)[0]] == 30.5
    # The parts of a cell are all of it, and every part of a busy one was counted.
    assert np.bincount(found.cell, found.parts.measure, minlength=CELLS.size) == pytest.approx(CELLS.measure)
    busy = np.unique(found.cell[found.counted])
    assert set(found.counted.tolist()) == set(np.flatnonzero(np.isin(found.cell, busy)).tolist())
    assert busy.tolist() == np.flatnonzero(found.by_cell > 0).tolist()


def test_the_more_ends_stand_out_of_the_noise_the_finer_they_are_counted():
    few, many = (counted([[HOT, HOT]] * trips, epsilon=1.0) for trips in (40, 4000))
    for found in (few, many):
        assert found.part_variance < found.cell_variance
    sizes = [found.parts.bits[found.parts.cell_of(np.array([HOT]), BITS)[0]] for found in (few, many)]
    cell = CELLS.bits[CELLS.cell_of(np.array([HOT]), BITS)[0]]
    assert cell <= sizes[0] < sizes[1] == min(cell + 6, BITS)
    # The parts of an earlier release are counted as they are.
    again = count_ends(
        *np.full((2, 5), HOT), BITS, CELLS, GROUND.hierarchy, epsilon=1.0, noise=SeededNoise(1),
        parts=many.parts,
    )  # fmt: skip
    assert np.array_equal(again.parts.start, many.parts.start)
    assert np.array_equal(again.counted, many.counted)


def test_parts_get_noise_whether_or_not_a_trip_ends_there():
    found = counted([[HOT, HOT]] * 3000, epsilon=1.0)
    assert len(found.counted) >= 16
    # P(noise = 0) is 0.12 at scale 4.
    assert (found.by_part[found.counted] != 0).mean() > 0.6


def test_an_end_outside_every_cell_is_not_counted():
    assert measure_ends(np.array([-1, 0]), np.array([1, -1]), 2, epsilon=1e6, noise=SeededNoise(0)).sum() == 1
    assert pairs_of([-1, 3, 3], [2, -1, 3], epsilon_tree=1e6, epsilon_count=1e6).count.sum() == 1


def test_ends_are_estimated_where_they_are():
    """600 trips from one place to one other; nothing else is known."""
    found = counted([[HOT, COLD]] * 600, epsilon=1.0)
    expected = 600 * found.parts.measure / found.parts.measure.sum()
    ends = estimate_ends(found, expected)
    assert ends.min() >= 0
    here = found.parts.cell_of(np.array([HOT, COLD]), BITS)
    assert ends[here] == pytest.approx([300, 300], abs=40)
    assert ends.sum() == pytest.approx(600, abs=150)


def test_lengths_and_times_put_noise_in_every_bucket():
    nothing = np.empty(0)
    released = measure_lengths(nothing, nothing, epsilon=1.0, noise=SeededNoise(3))
    assert len(released) == BUCKETS
    assert 0.3 < (released != 0).mean() < 0.8  # P(noise = 0) is 0.46 at scale 1
    counts = measure_times(nothing, nothing, nothing, epsilons=THIRDS, noise=SeededNoise(3))
    assert (counts.departures != 0).mean() > 0.6
    assert (counts.paces != 0).mean() > 0.6
    assert (counts.by_hour != 0).all()
    none = np.empty(0, dtype=np.int64)
    zones = measure_zones(
        np.arange(4), np.array([0, 0, 1, 1]), none, none, none, epsilon=0.5, noise=SeededNoise(3)
    )
    assert zones.trips.shape == (4, 2, 12)
    assert (zones.trips != 0).mean() > 0.5
    found = measure_recording(nothing, nothing, epsilon=1.0, noise=SeededNoise(3))
    assert (np.concatenate([found.gaps, found.variations]) != 0).mean() > 0.5
    clock = estimate_clock(counts, total=max(counts.departures.sum(), 1.0))
    assert clock.hours.min() >= 0
    assert clock.hours.sum() > 0


def test_times_are_right_without_noise():
    # 1970-01-01 was a Thursday: hour 3 * 24 of the week.
    counts = measure_times(
        np.array([0.0, 0.0, 7200.0]),
        np.full(3, 100.0),
        np.full(3, 100.0),
        epsilons=EXACT,
        noise=SeededNoise(3),
    )
    clock = estimate_clock(counts, total=max(counts.departures.sum(), 1.0))
    assert np.flatnonzero(clock.hours > 0.01).tolist() == [72, 74]
    assert clock.hours[[72, 74]] == pytest.approx([2, 1], abs=0.05)
    rng = np.random.default_rng(0)
    zone = np.zeros(200, dtype=np.int64)
    at_two = clock.departures(zone, zone, rng, wanted=wanted_hours(2, None)) // 3600
    assert (at_two % 24 == 2).all()
    assert (at_two == 74).mean() > 0.95
    paces = clock.draw_paces(np.full(1000, 100.0), np.zeros(1000), rng)
    assert paces.min() >= 2**-0.125
    assert paces.max() <= 2**0.25
    assert np.log2(paces).mean() == pytest.approx(0, abs=0.02)  # the sums know better than the buckets


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(1, 1e5), st.floats(1, 1e4)), min_size=1, max_size=20),
    st.data(),
)
def test_removing_a_trip_moves_times_zones_and_recording_by_at_most_one(rows, data):
    departure, duration, usual = np.array(rows).T
    gone = np.arange(len(rows)) != data.draw(st.integers(0, len(rows) - 1))
    hour = hour_of_week(departure)
    cell = (departure // 1000).astype(np.int64) % 6
    for exact in (
        lambda keep: count_paces(duration[keep], usual[keep]),
        lambda keep: count_departures(hour[keep]),
        lambda keep: GRID.value(count_by_hour(hour[keep], duration[keep], usual[keep], np.full(5, 0.3))),
        lambda keep: count_zones(
            np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 1]), cell[keep], cell[keep] - 1, hour[keep]
        ),
        lambda keep: np.bincount(gap_bucket(usual[keep]), minlength=GAPS),
        lambda keep: np.bincount(variation_bucket(usual[keep] / 1e3), minlength=VARIATIONS),
    ):
        every = np.ones(len(rows), dtype=bool)
        assert np.abs(exact(every) - exact(gone)).sum() <= 1


def test_gaps_and_variations_are_each_trips_own():
    """A trip alone gives what it gives in company."""
    rng = np.random.default_rng(3)
    size = rng.integers(1, 9, 30)
    start = np.concatenate([[0], np.cumsum(size)])
    trips = Trips(rng.random((start[-1], 2)) * 1000, start, np.cumsum(rng.integers(0, 90, start[-1])) * 1.0)
    for function in (recorded_gaps, speed_variations):
        together = function(trips, (1.0, 1.0))
        alone = [function(trips.take(np.array([i])), (1.0, 1.0))[0] for i in range(30)]
        np.testing.assert_array_equal(together, alone)
    steady = Trips(np.column_stack([np.arange(5.0), np.zeros(5)]), np.array([0, 5]), 10.0 * np.arange(5))
    assert recorded_gaps(steady, (1.0, 1.0)).tolist() == [10.0]
    assert speed_variations(steady, (1.0, 1.0)).tolist() == [0.0]


def test_hours_of_zones_are_found_again():
    """Zone 0 departs in the morning, zone 1 in the evening, and all go to the other one."""
    rng = np.random.default_rng(0)
    origin = rng.integers(0, 2, 4000)
    hour = np.where(origin == 0, 8, 18) + 24 * rng.integers(0, 5, 4000)
    zone = np.arange(2)
    zones = measure_zones(zone, zone, origin, 1 - origin, hour, epsilon=0.2, noise=SeededNoise(1))
    counts = measure_times(
        345600.0 + 3600.0 * hour, np.full(4000, 600.0), np.full(4000, 500.0), epsilons=(0.1, 0.1, 0.1),
        noise=SeededNoise(2),
    )  # fmt: skip
    clock = estimate_clock(counts, zones, np.array([[0.0, 2000.0], [2000.0, 0.0]]), total=4000.0)
    assert clock.chance(
        wanted_hours(range(8, 12), range(5)), np.array([0, 1]), np.array([1, 0])
    ) == pytest.approx([1, 0], abs=0.12)


def test_zones_have_as_many_ends_each():
    rng = np.random.default_rng(0)
    centres, ends = rng.random((300, 2)) * 1000, rng.exponential(100.0, 300)
    zone, ending = zones_of(centres, ends, epsilon=0.12)
    together = np.bincount(zone, ends)
    assert len(together) == len(ending) == 8
    assert together.max() < 2 * together.mean()
    assert np.bincount(ending).tolist() == [2, 2, 2, 2]
    for number in range(4):  # the larger zones do not overlap
        inside = centres[ending[zone] == number]
        others = centres[ending[zone] != number]
        assert not ((others > inside.min(axis=0)) & (others < inside.max(axis=0))).all(axis=1).any()
    assert zones_of(centres, ends, epsilon=1e-3)[1].tolist() == [0]  # noise leaves no room for more


def test_hardly_a_trip_goes_at_the_pace_of_noise():
    """300 trips at the map's pace, each count with a standard deviation of 28."""
    rng = np.random.default_rng(0)
    wrong = []
    for seed in range(40):
        duration = 300.0 * rng.lognormal(0.1, 0.15, 300)
        counts = measure_times(
            np.zeros(300), duration, np.full(300, 300.0), epsilons=(0.05, 0.05, 0.05), noise=SeededNoise(seed)
        )
        paces = estimate_clock(counts, total=max(counts.departures.sum(), 1.0)).draw_paces(
            np.full(1000, 300.0), np.zeros(1000), rng
        )
        wrong.append(np.mean((paces < 0.35) | (paces > 2.9)))
    assert np.mean(wrong) < 0.2


def test_without_a_known_pace_trips_go_at_that_of_the_map():
    nothing = TimeCounts(
        np.full(42, -5.0), np.full((5, 32), -5.0), np.zeros((2, 48)), np.zeros(5), np.full(3, 8.0)
    )
    clock = estimate_clock(nothing, total=1.0)
    assert clock.hours == pytest.approx(np.full(168, 1 / 168))
    paces = clock.draw_paces(np.full(100, 300.0), np.zeros(100), np.random.default_rng(0))
    assert paces.min() >= 2**-0.25
    assert paces.max() <= 2**0.25


@pytest.mark.parametrize("kind", ["plane", "roads"])
def test_the_places_of_a_trip_share_a_weight_of_at_most_one(kind):
    """On roads by length of the path, on a plane by number of points; cells pay for this weight."""
    if kind == "plane":
        ground, trips = GROUND, trips_of(1000 * np.random.default_rng(1).random((5, 7, 2)))
    else:
        roads = sg.RoadDomain.from_graph(sg.simulate.city_graph(4, 4, seed=2))
        ground = ground_of(roads, 8)
        trips = read_trips(
            sg.simulate.city_trips(roads, trips=12, coordinates="xy", seed=6),
            roads,
            unit=sg.PrivacyUnit.trajectory(),
        )
    placed = ground.place(trips, method="hmm")
    total = np.bincount(owners_of(placed.start), placed.shares, minlength=placed.size)
    assert placed.size >= 5
    assert (total <= GRID.one).all()
    assert (total > 0.99 * GRID.one).all()


def test_blocks_are_cut_where_released_ends_lie_and_not_where_trips_do():
    """Two sets of trips with the same released ends and the same noise get the same blocks."""

    class OneSplit(SeededNoise):
        """Splits what is asked first, and nothing after it."""

        asked = 0

        def discrete_laplace(self, scale, size=None):
            self.asked += 1
            return np.full(size, 2**40 if self.asked == 1 else -(2**40), dtype=np.int64)

    ends = np.linspace(1, 2, CELLS.size)
    found = []
    for cell in (0, CELLS.size - 1):
        trips = np.full(50, cell, dtype=np.int64)
        blocks = measure_pairs(
            trips, trips, CELLS, epsilon_tree=1.0, epsilon_count=1.0, noise=OneSplit(1), ends=ends
        )
        bounds = blocks.origin_low, blocks.origin_high, blocks.destination_low, blocks.destination_high
        found.append(np.column_stack(bounds))
    assert len(found[0]) >= 4
    np.testing.assert_array_equal(*found)


@pytest.mark.statistical
def test_long_trips_go_faster_where_their_neighbours_do():
    """Each group of lengths is a quarter of an octave faster than the one before; of the longest there are
    too few to be heard alone, and they are not like all for that.
    """
    rng = np.random.default_rng(4)
    usual = 60.0 * np.repeat([1.5, 3.0, 6.0, 12.0, 24.0], [1500, 1500, 1500, 1500, 60])
    octaves = np.repeat([0.5, 0.25, 0.0, -0.25, -0.5], [1500, 1500, 1500, 1500, 60])
    duration = usual * np.exp2(octaves + rng.normal(0, 0.2, len(usual)))
    departure = rng.uniform(0, 7 * 86400.0, len(usual))
    found = []
    for seed in range(8):
        counts = measure_times(departure, duration, usual, epsilons=(0.1, 0.1, 0.1), noise=SeededNoise(seed))
        clock = estimate_clock(counts, total=6060.0)
        long = np.full(2000, 24 * 60.0)
        paces = clock.draw_paces(long, rng.uniform(0, 7 * 86400.0, 2000), rng)
        found.append(float(np.log2(paces).mean()))
    assert np.mean(found) == pytest.approx(-0.5, abs=0.1)


def test_data_of_one_day_have_no_other_days():
    """2,000 trips of one Saturday, all hours alike, each cell with a standard deviation of 14."""
    rng = np.random.default_rng(0)
    departure = 2 * 86400.0 + rng.uniform(0, 86400.0, 2000)
    usual = np.full(2000, 600.0)
    counts = measure_times(departure, usual, usual, epsilons=(0.1, 0.1, 0.1), noise=SeededNoise(4))
    hours = estimate_clock(counts, total=2000.0).hours
    assert hours.sum() == pytest.approx(2000)
    assert hours[120:144].sum() > 1700


def test_fast_hours_are_found_however_few_their_trips():
    """Nights are more than half an octave faster than days and have an eighth of their trips: paces are not
    pulled to those of the many, nor clipped away.
    """
    rng = np.random.default_rng(1)
    night = np.arange(9000) < 1000
    hour = np.where(night, rng.integers(0, 6, 9000), rng.integers(6, 24, 9000)) + 24 * rng.integers(
        0, 7, 9000
    )
    usual = np.full(9000, 600.0)
    duration = usual * np.exp2(np.where(night, -0.1, 0.5) + rng.normal(0, 0.3, 9000))
    found = []
    for seed in range(4):
        counts = measure_times(
            345600.0 + 3600.0 * hour, duration, usual, epsilons=(0.05, 0.05, 0.15), noise=SeededNoise(seed)
        )
        clock = estimate_clock(counts, total=9000.0)
        at = 3600.0 * np.repeat([3, 27, 12, 36], 500)
        paces = np.log2(clock.draw_paces(np.full(2000, 600.0), at, rng)).reshape(4, 500).mean(axis=1)
        found.append(paces)
    assert np.mean(found, axis=0) == pytest.approx([-0.1, -0.1, 0.5, 0.5], abs=0.1)
