"""Land: pruning is exact, points are on land, and they are uniform there."""

from __future__ import annotations

import geopandas as gpd
import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

import synthgeo as sg
from synthgeo.domain.box import SpatialDomain
from synthgeo.errors import DomainError
from synthgeo.hierarchy import morton
from synthgeo.hierarchy.base import MAX_BITS, coarsen, hierarchy_of
from tests.statistical.goodness import chi_square_rejects
from tests.synthgeo.domain_checks import (
    ROOT,
    check_geometry_has_the_measure,
    check_measure_adds_up,
    check_nothing,
    check_samples_stay_home,
    check_saving,
    coast,
    grow,
)

ISLAND = sg.PolygonDomain(coast(), crs="EPSG:32618")
TRIANGLE = sg.PolygonDomain(shapely.Polygon([(0, 0), (10, 1), (3, 7)]))
# Its inner edges lie on grid lines of the frame, at every depth.
CORNER = sg.PolygonDomain(shapely.Polygon([(0, 0), (4, 0), (4, 2), (2, 2), (2, 4), (0, 4)]))
LANDS = pytest.mark.parametrize("land", [ISLAND, TRIANGLE, CORNER], ids=["island", "triangle", "corner"])


def test_nothing_in_nothing_out():
    check_nothing(ISLAND)


def test_it_is_a_spatial_domain():
    assert isinstance(ISLAND, SpatialDomain)
    assert "vertices" in repr(ISLAND)
    assert ISLAND != TRIANGLE


@LANDS
def test_measure_adds_up(land):
    assert hierarchy_of(land).measure(ROOT, 0)[0] == pytest.approx(land.outline().area, rel=1e-12)
    check_measure_adds_up(land, 13)


@LANDS
def test_pruned_cells_have_no_land_and_kept_ones_do(land):
    """Against shapely's own intersection of every cell with the whole land."""
    bits = 9
    every = np.arange(2**bits, dtype=np.uint64)
    rectangles = shapely.box(*morton.cell_bounds(every, bits, land.bounds).T)
    expected = shapely.area(shapely.intersection(land.outline(), rectangles))
    np.testing.assert_allclose(
        hierarchy_of(land).measure(every, bits), expected, rtol=1e-9, atol=1e-9 * land.outline().area
    )
    assert np.array_equal(hierarchy_of(land).measure(every, bits) > 0, expected > 0)
    assert np.array_equal(grow(land, bits), every[expected > 0])


@LANDS
@pytest.mark.parametrize("bits", [6, 15, 40])
def test_locate_agrees_with_shapely(land, bits):
    rng = np.random.default_rng(2)
    low, high = np.array(land.bounds[:2]), np.array(land.bounds[2:])
    xy = low - 0.1 * (high - low) + rng.random((4_000, 2)) * 1.2 * (high - low)
    keys, inside = hierarchy_of(land).locate(xy, bits)
    assert np.array_equal(inside, shapely.intersects_xy(land.outline(), *xy.T))
    assert np.array_equal(keys[inside], morton.locate(xy[inside], bits, land.bounds)[0])
    assert (keys[~inside] == 0).all()
    assert (hierarchy_of(land).measure(keys[inside], bits) > 0).all()


@LANDS
@pytest.mark.parametrize("bits", [0, 3, 8, 11, 24, 31, MAX_BITS])
def test_boundary_points_are_inside_and_never_in_a_pruned_cell(land, bits):
    corners = shapely.get_coordinates(land.outline())[:300]
    middles = (corners[1:] + corners[:-1]) / 2
    for xy in (corners, middles):
        keys, inside = hierarchy_of(land).locate(xy, bits)
        # A vertex is a float; a middle may be rounded off the line that it is on.
        assert inside.all() or xy is middles
        assert (hierarchy_of(land).measure(keys[inside], bits) > 0).all()
        coarse, _ = hierarchy_of(land).locate(xy[inside], bits // 2)
        assert np.array_equal(coarse, coarsen(keys[inside], bits, bits // 2))


def test_a_point_on_an_inner_edge_goes_to_the_side_with_land():
    xy = np.array([[2.0, 3.0], [3.0, 2.0], [2.0, 2.0], [4.0, 1.0], [1.0, 4.0], [3.0, 3.0]])
    keys, inside = hierarchy_of(CORNER).locate(xy, 4)
    assert inside.tolist() == [True] * 5 + [False]
    cell = morton.cell_bounds(keys[:5], 4, CORNER.bounds)
    assert cell[0].tolist() == [1, 3, 2, 4]
    assert cell[1].tolist() == [3, 1, 4, 2]


@LANDS
@pytest.mark.parametrize("bits", [5, 12, 17])
def test_samples_stay_in_their_cells_on_land(land, bits):
    rng = np.random.default_rng(3)
    check_samples_stay_home(land, min(bits, 12), rng, each=1)
    prefix = grow(land, 8)
    xy = hierarchy_of(land).sample(prefix, 8, np.full(prefix.size, 20), rng)
    assert shapely.intersects_xy(land.outline(), *xy.T).all()


def test_samples_of_deep_cells_on_the_coast():
    rng = np.random.default_rng(4)
    corners = shapely.get_coordinates(ISLAND.outline())[:200]
    for bits in (20, 33, 45):
        keys, inside = hierarchy_of(ISLAND).locate(corners, bits)
        cells = np.unique(keys[inside])
        xy = hierarchy_of(ISLAND).sample(cells, bits, np.full(cells.size, 2), rng)
        assert shapely.dwithin(shapely.points(xy), ISLAND.outline(), 1e-6).all()
        back, found = hierarchy_of(ISLAND).locate(xy, bits)
        assert (back[found] == np.repeat(cells, 2)[found]).all()
        assert found.mean() > 0.95


@LANDS
def test_geometry_is_the_land_in_the_cell(land):
    check_geometry_has_the_measure(land, 8, shapely.area)
    empty = hierarchy_of(land).geometry(np.array([3], dtype=np.uint64), 2) if land is CORNER else None
    assert empty is None or empty[0].is_empty


@LANDS
def test_saving(land):
    check_saving(land)


def test_a_cell_without_land_cannot_be_sampled():
    with pytest.raises(DomainError, match="without land"):
        hierarchy_of(CORNER).sample(
            np.array([3], dtype=np.uint64), 2, np.array([1]), np.random.default_rng(0)
        )
    assert hierarchy_of(CORNER).sample(
        np.array([3, 0], dtype=np.uint64), 2, np.array([0, 2]), np.random.default_rng(0)
    ).shape == (2, 2)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=3, max_size=9, unique=True),
    st.integers(0, 99),
)
def test_any_polygon(corners, seed):
    """Hulls with corners on a coarse lattice: edges and corners fall on grid lines in many ways."""
    hull = shapely.MultiPoint(corners).convex_hull
    if hull.geom_type != "Polygon":
        return
    land = sg.PolygonDomain(hull)
    check_measure_adds_up(land, 7)
    check_samples_stay_home(land, 6, np.random.default_rng(seed), each=1)
    lattice = np.stack(np.meshgrid(np.arange(9.0), np.arange(9.0)), axis=-1).reshape(-1, 2)
    keys, inside = hierarchy_of(land).locate(lattice, 7)
    assert np.array_equal(inside, shapely.intersects_xy(hull, *lattice.T))
    assert (hierarchy_of(land).measure(keys[inside], 7) > 0).all()


@pytest.mark.statistical
def test_samples_are_uniform_on_area():
    """Chi-square over the cells of 8 bits of a rough island (merged to expectations >= 100), 200,000 points
    drawn from the whole, α=1e-9 (flake probability 1e-9).

    Power: the twin draws from each cell in proportion to its *rectangle*, as rejection-free sampling on the
    bounding cells would; coastal cells then get up to several times their share and it is rejected surely.
    """
    bits, rng = 8, np.random.default_rng(5)
    cells = grow(ISLAND, bits)
    share = hierarchy_of(ISLAND).measure(cells, bits) / hierarchy_of(ISLAND).measure(ROOT, 0)[0]
    large = share * 200_000 >= 100
    probabilities = np.append(share[large], share[~large].sum())
    if probabilities[-1] * 200_000 < 100:
        probabilities[-2] += probabilities[-1]
        probabilities = probabilities[:-1]

    def observed(xy):
        place = np.searchsorted(cells, hierarchy_of(ISLAND).locate(xy, bits)[0])
        counts = np.bincount(place, minlength=cells.size)
        merged = np.append(counts[large], counts[~large].sum())
        if merged.size > probabilities.size:
            merged[-2] += merged[-1]
        return merged[: probabilities.size]

    xy = hierarchy_of(ISLAND).sample(ROOT, 0, np.array([200_000]), rng)
    assert not chi_square_rejects(observed(xy), probabilities)
    even = rng.multinomial(200_000, np.full(cells.size, 1 / cells.size))
    assert chi_square_rejects(observed(hierarchy_of(ISLAND).sample(cells, bits, even, rng)), probabilities)


@pytest.mark.statistical
def test_samples_are_uniform_inside_a_coastal_cell():
    """A triangle with legs on the axes: u = 1 - (1 - x)^2 is uniform. Chi-square in 20 bins, 100,000 points,
    α=1e-9 (flake probability 1e-9). Power: the twin forgets to fold the square onto the triangle's half;
    rejected surely."""
    land = sg.PolygonDomain(shapely.Polygon([(0, 0), (1, 0), (0, 1)]))
    x = hierarchy_of(land).sample(ROOT, 0, np.array([100_000]), np.random.default_rng(6))[:, 0]
    even = np.full(20, 0.05)

    def bins(values):
        return np.bincount(np.minimum((20 * (1 - (1 - values) ** 2)).astype(int), 19), minlength=20)

    assert not chi_square_rejects(bins(x), even)
    square = np.random.default_rng(6).random((100_000, 2))
    assert chi_square_rejects(bins(square[:, 0]), even)


def test_frames_bring_their_crs_and_are_projected_on_request():
    frame = gpd.GeoDataFrame(
        geometry=[shapely.box(9, 48, 9.1, 48.1), shapely.box(9.05, 48, 9.2, 48.1)], crs=4326
    )
    land = sg.PolygonDomain(frame)
    assert land.crs == frame.crs
    assert land.outline().area == pytest.approx(0.02)  # the overlap counts once
    utm = sg.PolygonDomain(frame, crs="EPSG:32632")
    assert utm.outline().area == pytest.approx(frame.to_crs(32632).union_all().area)
    bare = sg.PolygonDomain(frame.geometry.set_crs(None, allow_override=True), crs="EPSG:4326")
    assert bare == land
    assert sg.PolygonDomain(list(frame.geometry), crs=4326) == land


@pytest.mark.parametrize(
    ("land", "words"),
    [
        ([], "empty"),
        (5, "expected polygons, got int"),
        ([shapely.box(0, 0, 1, 1), None], "row 1: .*missing"),
        ([shapely.Point(0, 0)], "row 0: .*Point"),
        (["text"], "row 0: .*str"),
        (shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)]), "row 0: .*Self-intersection.*make_valid"),
        (shapely.Polygon(), "no area"),
        (gpd.GeoSeries([shapely.box(0, 0, 1, 1)]), "no CRS"),
    ],
)
def test_bad_polygons_are_refused(land, words):
    with pytest.raises(DomainError, match=words):
        sg.PolygonDomain(land)


@pytest.mark.parametrize(
    ("land", "crs"),
    [
        (shapely.box(681_000, 246_000, 684_000, 249_000), "EPSG:4326"),  # metres called degrees
        (shapely.box(8.5, 47.3, 8.6, 47.4), "EPSG:2056"),  # degrees called Swiss metres
        (shapely.box(47.3, 108.5, 47.4, 108.6), "EPSG:4326"),  # latitude first, far in the east
    ],
)
def test_land_that_cannot_be_where_its_crs_is_meant_for_is_refused(land, crs):
    with pytest.raises(DomainError, match="another coordinate system"):
        sg.PolygonDomain(gpd.GeoSeries([land], crs=crs))
    assert sg.PolygonDomain([land]).crs is None
