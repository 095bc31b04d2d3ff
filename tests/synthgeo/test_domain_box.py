"""Boxes."""

from __future__ import annotations

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

import synthgeo as sg
from synthgeo.domain.box import SpatialDomain
from synthgeo.errors import ConfigError, DomainError, StateError
from synthgeo.hierarchy.base import hierarchy_of
from tests.statistical.goodness import chi_square_rejects
from tests.synthgeo.domain_checks import (
    ROOT,
    check_geometry_has_the_measure,
    check_measure_adds_up,
    check_nothing,
    check_samples_stay_home,
    check_saving,
)

CITY = sg.BoxDomain(5e5, 4e6, 5.3e5, 4.02e6, crs="EPSG:32618")


def test_nothing_in_nothing_out():
    check_nothing(CITY)


def test_it_is_a_spatial_domain():
    assert isinstance(CITY, SpatialDomain)
    assert repr(CITY).startswith("BoxDomain(")
    assert sg.BoxDomain(5e5, 4e6, 5.3e5, 4.02e6, crs=32618) == CITY
    assert sg.BoxDomain(5e5, 4e6, 5.3e5, 4.02e6) != CITY
    assert CITY.outline().equals(shapely.box(*CITY.bounds))


def test_measure_is_area_and_adds_up():
    assert hierarchy_of(CITY).measure(ROOT, 0)[0] == pytest.approx(30_000 * 20_000)
    check_measure_adds_up(CITY, 11)


def test_samples_stay_in_their_cells():
    check_samples_stay_home(CITY, 9, np.random.default_rng(0))


def test_geometry_is_the_cell():
    check_geometry_has_the_measure(CITY, 7, shapely.area)


def test_saving():
    check_saving(CITY)
    check_saving(sg.BoxDomain(0, 0, 1, 1))


@settings(max_examples=80, deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(1, 62), st.integers(0, 2**32))
def test_samples_of_the_tiniest_cells_stay_home(low, size, bits, seed):
    """Whenever a cell has room for a float below its upper edge, points drawn in it come back to it."""
    box = sg.BoxDomain(low, low, low + size, low + size)
    rng = np.random.default_rng(seed)
    prefix = rng.integers(0, 2**bits, 10).astype(np.uint64)
    prefix = prefix[hierarchy_of(box).measure(prefix, bits) > 0]
    keys, inside = hierarchy_of(box).locate(
        hierarchy_of(box).sample(prefix, bits, np.full(prefix.size, 3), rng), bits
    )
    assert inside.all()
    assert np.array_equal(keys, np.repeat(prefix, 3))


def _grid_counts(xy, cells=8):
    column, row = np.minimum((xy * cells).astype(int), cells - 1).T
    return np.bincount(column * cells + row, minlength=cells * cells)


@pytest.mark.statistical
def test_samples_are_uniform():
    """Chi-square on 64 squares, 200,000 points, α=1e-9 (flake probability 1e-9).

    Power: the twin draws x as u^1.05, a 5 % change of exponent; it is rejected with probability > 1 - 1e-9.
    """
    box = sg.BoxDomain(0, 0, 1, 1)
    cells = np.arange(4, dtype=np.uint64)
    xy = hierarchy_of(box).sample(cells, 2, np.full(4, 50_000), np.random.default_rng(11))
    even = np.full(64, 1 / 64)
    assert not chi_square_rejects(_grid_counts(xy), even)
    assert chi_square_rejects(_grid_counts(np.column_stack([xy[:, 0] ** 1.05, xy[:, 1]])), even)


@pytest.mark.parametrize(
    "bounds",
    [
        (1, 0, 0, 1),
        (0, 0, 0, 1),
        (0, 0, np.inf, 1),
        (np.nan, 0, 1, 1),
        ("a", 0, 1, 1),
        (-1.7e308, 0, 1.7e308, 1),
    ],
)
def test_impossible_bounds_are_refused(bounds):
    with pytest.raises(ConfigError, match="bounds"):
        sg.BoxDomain(*bounds)


def test_unknown_crs_is_refused():
    with pytest.raises(DomainError, match="nonsense"):
        sg.BoxDomain(0, 0, 1, 1, crs="nonsense")


@pytest.mark.parametrize(
    "values", [{"kind": "ball"}, {"kind": "box"}, {"kind": "box", "bounds": [0, 1], "crs": None}]
)
def test_damaged_states_are_refused(values):
    from synthgeo.domain.coordinates import domain_from_state

    with pytest.raises(StateError):
        domain_from_state(values, {})
