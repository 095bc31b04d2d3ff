"""Trip metrics: each figure equals a slow, literal reading of its definition, and moves the right way."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyproj import Transformer
from scipy.spatial.distance import jensenshannon, pdist

from synthgeo.domain.box import BoxDomain
from synthgeo.errors import ConfigError, InputError
from synthgeo.evaluation import trajectories as metrics
from synthgeo.evaluation.spatial import Paths, points_per_length, resample_like

CHICAGO = Path(os.environ.get("SYNTHGEO_DATA", "data")) / "chicago" / "trips.parquet"


def random_trips(n: int, seed: int, *, box: float = 2000.0) -> list[np.ndarray]:
    """Random walks of 2 to 30 points."""
    rng = np.random.default_rng(seed)
    return [
        rng.uniform(0, box, 2) + np.cumsum(rng.normal(0, 60, (int(rng.integers(2, 31)), 2)), axis=0)
        for _ in range(n)
    ]


def cells(line: np.ndarray, bounds: tuple[float, ...], side: int) -> list[tuple[int, int]]:
    low, high = np.array(bounds[:2]), np.array(bounds[2:])
    grid = np.clip(np.floor((line - low) / (high - low) * side), 0, side - 1).astype(int)
    return [(int(a), int(b)) for a, b in grid]


def patterns(lines: list[np.ndarray], bounds: tuple, side: int, longest: int, *, collapse: bool) -> Counter:
    found: Counter = Counter()
    for line in lines:
        word = cells(line, bounds, side)
        if collapse:
            word = [c for i, c in enumerate(word) if i == 0 or c != word[i - 1]]
        for size in range(2, longest + 1):
            found.update(tuple(word[i : i + size]) for i in range(len(word) - size + 1))
    return found


def top(found: Counter, k: int) -> list[tuple]:
    return sorted(found, key=lambda p: (-found[p], len(p), p))[:k]


REAL, MADE = random_trips(60, 1), random_trips(45, 2)
BOX = Paths.of(REAL).bounds()
SCALE = 60 / 45


def test_start_end_equals_a_literal_reading() -> None:
    def pairs(lines: list[np.ndarray]) -> Counter:
        return Counter((cells(x[:1], BOX, 7)[0], cells(x[-1:], BOX, 7)[0]) for x in lines)

    true, made = pairs(REAL), pairs(MADE)
    keys = sorted(true.keys() | made.keys())
    p, q = np.array([true[k] for k in keys], float), np.array([made[k] for k in keys], float)
    jsd, are = metrics.start_end_error(Paths.of(REAL), Paths.of(MADE), bounds=BOX, side=7)
    assert jsd == pytest.approx(jensenshannon(p, q, base=2))
    assert are == pytest.approx(np.mean(np.abs(p - SCALE * q) / np.maximum(p, 1)))


def test_pattern_error_equals_a_literal_reading() -> None:
    true = patterns(REAL, BOX, 10, 5, collapse=False)
    made = patterns(MADE, BOX, 10, 5, collapse=False)
    keys = top(true, 25)
    p, q = np.array([true[k] for k in keys], float), np.array([made[k] for k in keys], float)
    jsd, are = metrics.pattern_error(Paths.of(REAL), Paths.of(MADE), bounds=BOX, side=10, top=25)
    assert jsd == pytest.approx(jensenshannon(p, q, base=2))
    assert are == pytest.approx(np.mean(np.abs(p - SCALE * q) / p))


def test_f1_equals_a_literal_reading() -> None:
    one = set(top(patterns(REAL, BOX, 6, 8, collapse=True), 100))
    other = set(top(patterns(MADE, BOX, 6, 8, collapse=True), 100))
    expected = len(one & other) / 100
    assert 0 < expected < 1
    assert metrics.pattern_f1(Paths.of(REAL), Paths.of(MADE), bounds=BOX) == pytest.approx(expected)


def test_path_queries_equal_a_literal_reading() -> None:
    rectangles = metrics.random_rectangles(BOX, 80, share=(1e-3, 1e-2), rng=np.random.default_rng(4))
    dense = Paths.of(REAL).every(50.0)
    expected = [
        sum(
            bool(((dense.xy[a:b] >= r[:2]) & (dense.xy[a:b] <= r[2:])).all(axis=1).any())
            for a, b in zip(dense.start[:-1], dense.start[1:], strict=True)
        )
        for r in rectangles
    ]
    assert sum(expected) > 0
    assert metrics.trips_touching(dense, rectangles).tolist() == expected


def test_a_path_touches_what_lies_between_its_points() -> None:
    trip = Paths.of([np.array([[0.0, 0.0], [1000.0, 0.0]])])
    square = np.array([[480.0, -30.0, 520.0, 30.0]])
    assert metrics.trips_touching(trip, square).tolist() == [0]
    assert metrics.trips_touching(trip.every(50), square).tolist() == [1]


def test_buckets_equal_a_literal_reading() -> None:
    real, made = np.array([0.0, 1.0, 5.0, 10.0]), np.array([9.9, 10.0, 400.0, 0.2])
    expected = jensenshannon(
        np.bincount([0, 2, 10, 19], minlength=20), np.bincount([19, 19, 19, 0], minlength=20), base=2
    )
    assert metrics.bucket_divergence(real, made) == pytest.approx(expected**2)


def test_diameters_and_lengths() -> None:
    paths = Paths.of(REAL)
    np.testing.assert_allclose(paths.diameters(), [pdist(x).max() for x in REAL])
    np.testing.assert_allclose(paths.lengths(), [np.hypot(*np.diff(x, axis=0).T).sum() for x in REAL])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=9), min_size=1)
)
def test_diameters_with_repeats_and_straight_lines(trips: list[list[tuple[int, int]]]) -> None:
    lines = [np.array(t, dtype=float) for t in trips]
    expected = [pdist(x).max() if len(x) > 1 else 0.0 for x in lines]
    np.testing.assert_allclose(Paths.of(lines).diameters(), expected)


def test_a_real_set_against_itself_is_perfect() -> None:
    scores = metrics.trip_scores(REAL, REAL, resample=False)
    assert scores.tau == pytest.approx(1.0)
    assert scores.f1 == 1.0
    rest = {k: v for k, v in scores.as_dict().items() if k not in {"tau", "f1"}}
    assert rest == pytest.approx(dict.fromkeys(rest, 0.0), abs=1e-12)


def test_every_figure_gets_worse_when_trips_get_worse() -> None:
    rng = np.random.default_rng(0)
    slightly = [x + rng.normal(0, 15, 2) for x in REAL]
    badly = [rng.uniform(BOX[:2], BOX[2:], (9, 2)) for _ in REAL]
    good, bad = (metrics.trip_scores(REAL, x, resample=False).as_dict() for x in (slightly, badly))
    for name in good:
        assert (good[name] > bad[name]) if name in {"tau", "f1"} else (good[name] < bad[name]), name


def test_duplicating_the_synthetic_set_changes_nothing() -> None:
    once, twice = metrics.trip_scores(REAL, MADE), metrics.trip_scores(REAL, MADE + MADE)
    assert once.as_dict() == pytest.approx(twice.as_dict())


def test_resampling_matches_density_and_keeps_the_path() -> None:
    sparse = [np.array([[0.0, 0.0], [3000.0, 0.0], [3000.0, 1000.0]]), np.array([[5.0, 5.0]])]
    dense = [np.column_stack([np.arange(0, 1001, 25.0), np.zeros(41)])]
    made = resample_like(sparse, dense)
    assert points_per_length(Paths.of(dense)) == pytest.approx(1 / 25)
    first = made.xy[made.start[0] : made.start[1]]
    assert len(first) == 161
    np.testing.assert_allclose(np.hypot(*np.diff(first, axis=0).T), 25.0)
    np.testing.assert_allclose(first[[0, 120, -1]], sparse[0])
    assert made.xy[made.start[1] :].tolist() == [[5.0, 5.0], [5.0, 5.0]]


def test_every_has_no_longer_gap_and_stays_on_each_polyline() -> None:
    paths = Paths.of(REAL)
    even = paths.every(50.0)
    assert even.steps().max() <= 50.0 + 1e-9
    np.testing.assert_array_equal(even.first, paths.first)
    np.testing.assert_array_equal(even.last, paths.last)
    box = [(x.min(axis=0) - 1e-9, x.max(axis=0) + 1e-9) for x in REAL]
    low, high = (np.array([b[i] for b in box])[even.trip] for i in (0, 1))
    assert ((even.xy >= low) & (even.xy <= high)).all()


def test_frames_are_read_with_a_domain() -> None:
    frame = pd.DataFrame(np.concatenate(REAL), columns=["x", "y"])
    frame["trip_id"] = np.repeat(np.arange(len(REAL)), [len(line) for line in REAL])
    domain = BoxDomain(*BOX)
    assert metrics.trip_scores(frame, MADE, domain=domain) == metrics.trip_scores(REAL, MADE)
    assert metrics.trip_floor(frame, domain=domain, repeats=1) == metrics.trip_floor(REAL, repeats=1)
    with pytest.raises(InputError, match="xy"):
        metrics.trip_scores(frame, MADE)


def test_halves_are_disjoint_and_equal() -> None:
    lines = [np.array([[float(i), 0.0], [float(i), 1.0]]) for i in range(11)]
    one, other = Paths.of(lines).halves(seed=3)
    assert one.size == other.size == 5
    assert not set(one.first[:, 0]) & set(other.first[:, 0])


def test_odd_shapes_are_measured() -> None:
    """One-point trips, all trips at one place, trips on a line, empty trips among others: finite numbers."""
    spot = [np.array([[3.0, 4.0]])] * 4
    line = [np.array([[0.0, 4.0], [9.0, 4.0]])] * 3 + [np.empty((0, 2))]
    for real in (spot, line):
        for made in (spot, line, REAL):
            scores = metrics.trip_scores(real, made).as_dict()
            assert all(np.isfinite(v) for v in scores.values()), scores
    assert metrics.trip_scores(spot, spot).qe == 0.0


def test_points_outside_count_for_the_nearest_cell() -> None:
    grid = metrics.ScoreGrid((0.0, 0.0, 10.0, 10.0), 2)
    outside = np.array([[-3.0, 1.0], [99.0, 1.0], [10.0, 10.0], [-1.0, 99.0]])
    assert grid.cells(outside).tolist() == [0, 2, 3, 1]


def test_divergence_of_an_empty_side() -> None:
    assert metrics.divergence([0, 0], [1, 2]) == 1.0
    assert metrics.divergence([0, 0], [0, 0]) == 0.0


@pytest.mark.parametrize(
    "bad", [[], [np.empty((0, 2))], [np.array([[np.nan, 0.0]])], "trips", 7], ids=lambda b: type(b).__name__
)
def test_what_is_no_trip_is_refused(bad: object) -> None:
    with pytest.raises(InputError):
        metrics.trip_scores(bad, REAL)


def test_bad_offsets_are_refused() -> None:
    class Broken:
        xy = np.zeros((3, 2))
        start = np.array([0, 2])

    with pytest.raises(InputError, match="start"):
        metrics.trip_scores(Broken(), REAL)
    with pytest.raises(InputError, match="two trips"):
        metrics.trip_floor([REAL[0]])


def test_too_fine_patterns_are_refused() -> None:
    with pytest.raises(ConfigError, match="63 bits"):
        metrics.pattern_error(Paths.of(REAL), Paths.of(MADE), bounds=BOX, side=100, longest=8)


@pytest.mark.realdata
def test_floor_of_the_chicago_shuttles() -> None:
    """The real halves score what the project's table of trips says, within the spread of splits."""
    if not CHICAGO.exists():
        pytest.skip("SYNTHGEO_DATA has no chicago/trips.parquet")
    points = pd.read_parquet(CHICAGO)
    xy = np.column_stack(Transformer.from_crs(4326, 32616, always_xy=True).transform(points.lon, points.lat))
    lines = np.split(xy, np.flatnonzero(np.diff(points.trip_id)) + 1)
    floor = metrics.trip_floor(lines, repeats=4).as_dict()
    expected = {
        "se_jsd": (0.77, 0.04),
        "fp_jsd": (0.05, 0.02),
        "qe": (0.23, 0.08),
        "tau": (0.86, 0.04),
        "f1": (0.92, 0.04),
        "trip": (0.19, 0.03),
        "diameter": (0.01, 0.01),
        "length": (0.01, 0.01),
    }
    for name, (value, spread) in expected.items():
        assert floor[name] == pytest.approx(value, abs=spread), name
