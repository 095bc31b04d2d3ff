"""What every spatial domain must do, whatever it is made of; and a coast to do it on."""

from __future__ import annotations

import pickle

import numpy as np
import shapely

from synthgeo.domain.coordinates import domain_from_state
from synthgeo.hierarchy import morton
from synthgeo.hierarchy.base import ROOT, children, coarsen, hierarchy_of
from synthgeo.state import dump_state, parse_state


def grow(domain, bits):
    """All cells of positive measure at ``bits``, found level by level as a tree would."""
    cells = hierarchy_of(domain)
    prefix = ROOT
    for level in range(1, bits + 1):
        prefix = children(prefix).ravel()
        prefix = prefix[cells.measure(prefix, level) > 0]
    return prefix


def check_measure_adds_up(domain, bits, *, rtol=1e-9):
    """Children's measures sum to their parent's, and nothing is lost by pruning."""
    cells = hierarchy_of(domain)
    total = cells.measure(ROOT, 0)[0]
    prefix = ROOT
    for level in range(1, bits + 1):
        parent = cells.measure(prefix, level - 1)
        below = children(prefix)
        measure = cells.measure(below.ravel(), level).reshape(below.shape)
        assert (measure >= 0).all()
        np.testing.assert_allclose(measure.sum(axis=1), parent, rtol=rtol, atol=1e-12 * total)
        prefix = below[measure > 0]
    np.testing.assert_allclose(cells.measure(prefix, bits).sum(), total, rtol=rtol)


def check_samples_stay_home(domain, bits, rng, *, each=2):
    """Points drawn in a cell are in the domain and located in that very cell."""
    cells = hierarchy_of(domain)
    prefix = grow(domain, bits)
    counts = rng.integers(0, 2 * each, prefix.size)
    xy = cells.sample(prefix, bits, counts, rng)
    assert xy.shape == (counts.sum(), 2)
    keys, inside = cells.locate(xy, bits)
    assert inside.all()
    assert np.array_equal(keys, np.repeat(prefix, counts))
    # Mixed depths give the same cells.
    depth = np.where(np.arange(prefix.size) % 2, bits, bits - 1)
    mixed = coarsen(prefix, bits, depth)
    np.testing.assert_allclose(
        cells.measure(mixed, depth),
        np.where(
            depth == bits,
            cells.measure(prefix, bits),
            cells.measure(prefix >> np.uint64(1), bits - 1),
        ),
    )
    xy = cells.sample(mixed, depth, np.ones(prefix.size, dtype=np.int64), rng)
    keys, inside = cells.locate(xy, bits)
    assert inside.all()
    assert np.array_equal(coarsen(keys, bits, depth), mixed)


def check_geometry_has_the_measure(domain, bits, size):
    """``geometry`` of cells has the measure that ``measure`` says; ``size`` is shapely.area or .length."""
    cells = hierarchy_of(domain)
    prefix = grow(domain, bits)
    shapes = cells.geometry(prefix, bits)
    assert len(shapes) == prefix.size
    np.testing.assert_allclose(size(shapes), cells.measure(prefix, bits), rtol=1e-6, atol=1e-6)
    cell = morton.cell_bounds(prefix, bits, domain.bounds)
    assert (
        np.abs(shapely.bounds(shapes)[:, :2] - np.maximum(shapely.bounds(shapes)[:, :2], cell[:, :2])) < 1e-6
    ).all()


def check_nothing(domain):
    """Empty questions have empty answers."""
    cells = hierarchy_of(domain)
    none = np.zeros(0, dtype=np.uint64)
    counts, rng = np.zeros(0, dtype=np.int64), np.random.default_rng(0)
    for bits in (0, 5, 50, np.zeros(0, dtype=np.int64)):
        assert cells.measure(none, bits).shape == (0,)
        assert cells.sample(none, bits, counts, rng).shape == (0, 2)
        assert cells.geometry(none, bits).shape == (0,)
    assert cells.sample(ROOT, 0, np.array([0]), rng).shape == (0, 2)
    keys, inside = cells.locate(np.zeros((0, 2)), 9)
    assert keys.dtype == np.uint64
    assert keys.shape == inside.shape == (0,)


def check_saving(domain):
    """A domain survives its saved form and a pickle, and still answers the same."""
    cells = hierarchy_of(domain)
    values, arrays = domain.to_state()
    restored = domain_from_state(*parse_state(dump_state("domain", 1, values, arrays), "domain", 1))
    for twin in (restored, pickle.loads(pickle.dumps(domain))):
        assert twin == domain
        assert hash(twin) == hash(domain)
        assert twin.describe() == domain.describe()
        assert twin.bounds == domain.bounds
        xy = cells.sample(ROOT, 0, np.array([50]), np.random.default_rng(1))
        assert np.array_equal(hierarchy_of(twin).locate(xy, 15)[0], cells.locate(xy, 15)[0])
        assert np.array_equal(
            hierarchy_of(twin).sample(ROOT, 0, np.array([50]), np.random.default_rng(1)), xy
        )


def coast(doublings=8, *, seed=0, size=1e5, corner=(5e5, 4e6)):
    """A rough island with a lake and a neighbour: midpoint displacement, made valid."""
    rng = np.random.default_rng(seed)
    angle = np.linspace(0, 2 * np.pi, 9)[:-1]
    ring = np.column_stack([np.cos(angle), np.sin(angle)])
    for _ in range(doublings):
        ahead = np.roll(ring, -1, axis=0) - ring
        side = np.column_stack([-ahead[:, 1], ahead[:, 0]])
        middle = ring + ahead / 2 + side * np.clip(rng.normal(0, 0.14, (len(ring), 1)), -0.2, 0.2)
        ring = np.stack([ring, middle], axis=1).reshape(-1, 2)
    island = shapely.make_valid(shapely.Polygon(ring))
    land = island.difference(shapely.Point(0.1, 0.1).buffer(0.2)).union(shapely.box(1.3, -0.2, 1.5, 0.3))
    parts = [part for part in shapely.get_parts(land) if part.area > 0]
    moved = shapely.transform(shapely.MultiPolygon(parts), lambda xy: xy * size + np.array(corner))
    return shapely.make_valid(moved)
