"""Keys, measures, samples, shapes and trees on a box, on land and on roads, as digests: moving code must not
move a number.

``python -m tests.pinned.test_spatial_foundation`` prints the table below anew; change a line only with a
reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import shapely

import synthgeo as sg
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.cells import Estimate, EstimateScore, Partition
from synthgeo.hierarchy.privtree import GRID, adapt, privtree
from tests.pinned.digest import digest
from tests.synthgeo.domain_checks import ROOT, coast, grow

DOMAINS: dict[str, Any] = {
    # A box where its coordinate system is not meant for: new ones are refused, saved ones still open.
    "box": sg.BoxDomain.from_state({"bounds": [-3, 2, 5, 9], "crs": "EPSG:32632"}, {}),
    "land": sg.PolygonDomain(coast(5, seed=4), crs="EPSG:32632"),
    "roads": sg.RoadDomain.from_graph(sg.simulate.city_graph(7, 5, seed=6)),
}
BITS = (0, 3, 10, 27, 40)


def points(domain: Any, n: int = 400) -> np.ndarray:
    """Points in and a little around the frame, some on its grid lines."""
    rng = np.random.default_rng(8)
    low, high = np.array(domain.bounds[:2]), np.array(domain.bounds[2:])
    share = rng.beta(2, 3, (n, 2)) * 1.1 - 0.05
    share[::10] = rng.integers(0, 17, (len(share[::10]), 2)) / 16
    return low + share * (high - low)


def keys(domain: Any) -> list[Any]:
    return [hierarchy_of(domain).locate(points(domain), bits) for bits in BITS]


def cells(domain: Any) -> tuple[np.ndarray, np.ndarray]:
    """Cells of several sizes, all with something in them."""
    parts = [grow(domain, bits)[::step] for bits, step in ((3, 2), (7, 5), (9, 7))]
    deep, inside = hierarchy_of(domain).locate(
        hierarchy_of(domain).sample(ROOT, 0, np.array([40]), np.random.default_rng(3)), 33
    )
    parts.append(np.unique(deep[inside]))
    bits = np.repeat([3, 7, 9, 33], [len(part) for part in parts])
    return np.concatenate(parts), bits


def measures(domain: Any) -> list[Any]:
    prefix, bits = cells(domain)
    return [prefix, bits, hierarchy_of(domain).measure(prefix, bits)]


def samples(domain: Any) -> list[Any]:
    prefix, bits = cells(domain)
    rng = np.random.default_rng(5)
    return [hierarchy_of(domain).sample(prefix, bits, rng.integers(0, 5, len(prefix)), rng) for _ in range(2)]


def shapes(domain: Any) -> list[Any]:
    prefix, bits = cells(domain)
    made = hierarchy_of(domain).geometry(prefix, bits)
    return [shapely.area(made), shapely.length(made), shapely.get_num_coordinates(made)]


def tree(domain: Any, fanout: int = 2) -> Partition:
    depth = {2: 14, 4: 7}[fanout]
    found, inside = hierarchy_of(domain).locate(points(domain, 3000), 14)
    distinct, counts = np.unique(found[inside], return_counts=True)
    return privtree(
        distinct,
        counts.astype(np.int64) * GRID.one,
        hierarchy=hierarchy_of(domain),
        epsilon=1.0,
        noise=sg.SeededNoise(2),
        max_depth=depth,
        fanout=fanout,
    )


def trees(domain: Any) -> list[Any]:
    grown = [tree(domain, fanout) for fanout in (2, 4)]
    return [[one.prefix, one.bits, one.measure, one.start, one.stop] for one in grown]


def moved(domain: Any) -> list[Any]:
    """A tree moved by counts, and an estimate refined, added to, coarsened and made consistent."""
    out = []
    for fanout, step in ((2, 1), (4, 2)):
        partition, levels = tree(domain, fanout), range(0, 15, step)
        rng = np.random.default_rng(1)
        counts = rng.exponential(20, partition.size)
        after = adapt(
            partition, counts, hierarchy=hierarchy_of(domain), split_above=40, merge_below=25, levels=levels
        )
        estimate = Estimate(partition, counts - 15, np.ones(partition.size), levels=levels)
        estimate.refine(after)
        estimate.add(after, rng.normal(0, 9, after.size), np.full(after.size, 2.0))
        released = estimate.non_negative()
        score = EstimateScore(estimate.cells, released, GRID.one)
        prefix = grow(domain, 6)
        out += [after.prefix, after.bits, estimate.cells.start, estimate.values, estimate.variance, released]
        out.append(score(prefix, 6, hierarchy_of(domain).measure(prefix, 6)))
        estimate.refine(partition)
        estimate.coarsen(partition)
        out += [estimate.values, estimate.variance]
    return out


WHAT: dict[str, Callable[[Any], Any]] = {
    "keys": keys,
    "measures": measures,
    "samples": samples,
    "shapes": shapes,
    "trees": trees,
    "moved": moved,
}
CASES = [(kind, what) for kind in DOMAINS for what in WHAT]

PINNED: dict[tuple[str, str], str] = {
    ("box", "keys"): "e1eea39a95de",
    ("box", "measures"): "a137f5a93213",
    ("box", "samples"): "488ae5011bcb",
    ("box", "shapes"): "982c299474d5",
    ("box", "trees"): "b0edd124ed0b",
    ("box", "moved"): "8418a9b94d0f",
    ("land", "keys"): "6bf51838e6d2",
    ("land", "measures"): "c20ce665b6d9",
    ("land", "samples"): "d98a11a4b6f5",
    ("land", "shapes"): "41696b3ae99b",
    ("land", "trees"): "4fa707874731",
    ("land", "moved"): "ac9af02f5d7a",
    ("roads", "keys"): "a0ab2e2d8c02",
    ("roads", "measures"): "464b236579f7",
    ("roads", "samples"): "c1221c77667b",
    ("roads", "shapes"): "87ca4dcd1f35",
    ("roads", "trees"): "18aa2132bbec",
    ("roads", "moved"): "c6bf631eb046",
}


@pytest.mark.parametrize(("kind", "what"), CASES)
def test_pinned(kind, what):
    assert digest(WHAT[what](DOMAINS[kind])) == PINNED[kind, what]


if __name__ == "__main__":
    for kind, what in CASES:
        print(f'    ("{kind}", "{what}"): "{digest(WHAT[what](DOMAINS[kind]))}",')
