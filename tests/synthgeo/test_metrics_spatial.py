"""Range-query error: the numbers are those of the definition, and the definition can tell good from bad."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthgeo.errors import ConfigError, InputError
from synthgeo.evaluation.spatial import (
    CLASSES,
    RangeQueries,
    random_rectangles,
    range_counts,
    range_query_error,
    relative_error,
)

BOX = (-10.0, 5.0, 30.0, 15.0)
FEW = {"small": 200, "medium": 100, "large": 50}


def uniform_points(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.uniform((BOX[0], BOX[1]), (BOX[2], BOX[3]), (n, 2))


def brute(xy: np.ndarray, rectangles: np.ndarray) -> list[int]:
    return [int(((xy >= r[:2]) & (xy <= r[2:])).all(axis=1).sum()) for r in rectangles]


@pytest.mark.parametrize("name", list(CLASSES))
def test_rectangles_lie_in_the_box_and_in_their_class(name: str) -> None:
    low, high, _ = CLASSES[name]
    r = random_rectangles(BOX, 500, share=(low, high), rng=np.random.default_rng(1))
    assert (r[:, :2] >= BOX[:2]).all()
    assert (r[:, 2:] <= np.array(BOX[2:]) + 1e-9).all()
    width, height = (r[:, 2] - r[:, 0]) / 40, (r[:, 3] - r[:, 1]) / 10
    assert (width * height >= low * (1 - 1e-9)).all()
    assert (width * height <= high * (1 + 1e-9)).all()
    assert (width / height).min() < 0.6
    assert (width / height).max() > 1.7


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=40), st.integers(0, 2**32 - 1))
def test_counts_equal_brute_force_also_on_edges(points: list[tuple[int, int]], seed: int) -> None:
    corners = np.sort(np.random.default_rng(seed).integers(0, 9, (20, 2, 2)), axis=1).astype(float)
    rectangles = corners.reshape(20, 4)
    xy = np.array(points, dtype=float).reshape(-1, 2)
    assert range_counts(xy, rectangles).tolist() == brute(xy, rectangles)


def test_relative_error_is_the_definition() -> None:
    assert relative_error([10, 0, 4], [5, 1, 4], sanity=2.0) == pytest.approx((0.5 + 0.5 + 0) / 3)


def test_error_of_hand_made_data() -> None:
    """One class, the whole data inside or outside each rectangle: errors can be written down."""
    queries = RangeQueries({"large": np.array([[0.0, 5.0, 10.0, 10.0], [20.0, 5.0, 30.0, 10.0]])}, BOX)
    real = np.array([[1.0, 6.0]] * 8)
    synthetic = np.array([[1.0, 6.0]] * 6 + [[25.0, 6.0]] * 1)
    assert queries.error(real, synthetic)["large"] == pytest.approx((2 / 8 + 1 / 0.008) / 2)


def test_same_points_score_zero_and_worse_points_score_worse() -> None:
    real = np.clip(np.random.default_rng(0).normal((0, 10), (2, 1), (4000, 2)), BOX[:2], BOX[2:])
    queries = RangeQueries.draw(BOX, seed=5, counts=FEW)
    assert queries.error(real, real) == dict.fromkeys(FEW, 0.0)
    near = queries.error(real, real + 0.05)
    far = queries.error(real, uniform_points(4000, 1))
    assert all(0 < near[name] < far[name] for name in FEW)


def test_size_matters() -> None:
    real = uniform_points(5000, 2)
    assert range_query_error(real, real[::2], bounds=BOX, counts={"large": 100})["large"] > 0.4


def test_seed_fixes_the_queries() -> None:
    one, other = (RangeQueries.draw(BOX, seed=s, counts=FEW) for s in (1, 2))
    again = RangeQueries.draw(BOX, seed=1, counts=FEW)
    np.testing.assert_array_equal(one.rectangles["small"], again.rectangles["small"])
    assert not np.array_equal(one.rectangles["small"], other.rectangles["small"])


def test_default_numbers_of_queries() -> None:
    assert {k: len(v) for k, v in RangeQueries.draw(BOX).rectangles.items()} == {
        "small": 10_000,
        "medium": 5_000,
        "large": 1_000,
    }


def test_empty_sides_are_finite() -> None:
    nothing, queries = np.empty((0, 2)), RangeQueries.draw(BOX, counts=FEW)
    assert queries.error(nothing, nothing) == dict.fromkeys(FEW, 0.0)
    # With no synthetic point every query that holds a real one is off by exactly 100 %.
    assert 0 < queries.error(uniform_points(50, 3), nothing)["large"] <= 1.0
    assert np.isfinite(queries.error(nothing, uniform_points(50, 3))["large"])


@pytest.mark.parametrize("bad", [np.zeros(3), np.zeros((3, 3))])
def test_bad_shapes_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(InputError, match="shape"):
        range_query_error(bad, bad, bounds=BOX, counts=FEW)


def test_nan_is_refused_with_its_row() -> None:
    xy = uniform_points(5, 0)
    xy[3, 1] = np.nan
    with pytest.raises(InputError, match="row 3"):
        range_query_error(xy, xy, bounds=BOX, counts=FEW)


@pytest.mark.parametrize(
    "call",
    [
        lambda: RangeQueries.draw((0, 0, 0, 1), counts=FEW),
        lambda: RangeQueries.draw((0, 0, 1, np.nan), counts=FEW),
        lambda: RangeQueries.draw(BOX, counts={"huge": 3}),
        lambda: RangeQueries.draw(BOX, counts={"small": 0}),
        lambda: random_rectangles(BOX, 3, share=(0.6, 0.9), rng=np.random.default_rng(0)),
        lambda: relative_error([1], [1], sanity=0.0),
    ],
)
def test_senseless_parameters_are_refused(call: object) -> None:
    with pytest.raises(ConfigError):
        call()  # type: ignore[operator]
