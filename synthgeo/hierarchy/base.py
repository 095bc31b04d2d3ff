"""What a hierarchy is: a way to cut a domain into cells, and the cells' public measure on the domain."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Protocol, TypeAlias

import numpy as np
import shapely

from synthgeo import ragged
from synthgeo.arrays import Array, Bools, Floats, Ints, Keys, Points
from synthgeo.domain.box import SpatialDomain
from synthgeo.domain.coordinates import check_outside
from synthgeo.errors import ConfigError, DomainError
from synthgeo.sources.chunk import refuse

# How domains are cut, by their kind.
HIERARCHIES = {
    "box": "synthgeo.hierarchy.morton:BoxCells",
    "h3": "synthgeo.hierarchy.h3_cells:H3Cells",
    "polygon": "synthgeo.hierarchy.land_cells:LandCells",
    "roads": "synthgeo.hierarchy.road_cells:RoadCells",
}


class Hierarchy(Protocol):
    """Nested cells over a domain. Cells are addressed as ``synthgeo.hierarchy.base`` describes.

    The measure (area, length of road) of the cells below a cell adds up to its own. Cells of measure 0 hold
    nothing by public knowledge, so they are pruned without touching private data; no point is ever located
    in one. Picklable.
    """

    @property
    def domain(self) -> SpatialDomain:
        """What is cut."""
        ...

    @property
    def fanout(self) -> int:
        """Into how many a cell is cut where nobody says: 2 for halves, 7 for H3."""
        ...

    def levels(self, max_depth: int, fanout: int) -> tuple[int, ...]:
        """Bits of the cells at depth 0 (where it is 0), 1, ..., for trees of that fanout: to ``max_depth``,
        or to the finest cells that there are.
        """
        ...

    def locate(self, xy: Points, bits: int) -> tuple[Keys, Bools]:
        """Key of each point at ``bits`` bits, and whether it is in the domain (keys elsewhere are 0)."""
        ...

    def measure(self, prefix: Keys, bits: Bits) -> Floats:
        """Measure of the domain in cells; 0 means that the domain has nothing there."""
        ...

    def sample(self, prefix: Keys, bits: Bits, counts: Ints, rng: np.random.Generator) -> Points:
        """``counts[i]`` points uniform on the domain inside cell i, all cells concatenated in order."""
        ...

    def names(self, prefix: Keys, bits: Bits) -> list[str | None] | None:
        """What the rest of the world calls each cell, None where it has no name for one; None for cells that
        are only ours.
        """
        ...

    def geometry(self, prefix: Keys, bits: Bits) -> Array:
        """The domain inside each cell: rectangles for boxes, clipped land, pieces of road, hexagons."""
        ...


@lru_cache(maxsize=8)
def hierarchy_of(domain: SpatialDomain) -> Hierarchy:
    """The hierarchy that cuts this domain. Equal domains share one: what it computed is worth keeping."""
    if domain.kind not in HIERARCHIES:
        raise ConfigError(f"no hierarchy cuts domains of kind {domain.kind!r}")
    module, _, name = HIERARCHIES[domain.kind].partition(":")
    made: Hierarchy = getattr(import_module(module), name)(domain)
    return made


def locate_points(
    hierarchy: Hierarchy, xy: Points, bits: int, *, outside: str = "drop"
) -> tuple[Keys, Bools]:
    """Keys of points; what lies outside the domain is dropped, or an error (``outside="error"``)."""
    check_outside(outside)
    keys, inside = hierarchy.locate(xy, bits)
    if outside == "error":
        refuse(~inside, None, f"the point lies outside the {hierarchy.domain.kind} domain", DomainError)
    return keys, inside


# Addresses of cells, the same for every hierarchy.
#
# A *cell* is a pair (prefix, bits). The cell of 0 bits is everything; each further bit, or group of bits,
# says which part of the cell above was taken, and ``prefix`` holds these bits, the first in the highest
# place. A *key* is the prefix of a point at the finest level asked for. Keys are ``uint64`` of at most
# ``MAX_BITS`` bits, and the cells below a cell are a contiguous range of keys: that is what makes a level of
# a tree one ``searchsorted``.

MAX_BITS = 62
Bits: TypeAlias = int | Ints  # of all cells, or of each

ROOT: Keys = np.zeros(1, dtype=np.uint64)  # the prefix of the cell of 0 bits
_ONE = np.uint64(1)


def check_bits(bits: Bits) -> Bits:
    """``bits`` if all are in [0, MAX_BITS]."""
    values = np.asarray(bits)
    if values.dtype.kind not in "iu" or (values.size and (values.min() < 0 or values.max() > MAX_BITS)):
        raise ConfigError(f"bits must be whole numbers in [0, {MAX_BITS}], got {bits!r}")
    return bits


def as_cells(prefix: Keys, bits: Bits) -> tuple[Keys, Ints]:
    """Cells with a number of bits for each."""
    check_bits(bits)
    prefix = np.asarray(prefix, dtype=np.uint64)
    return prefix, np.broadcast_to(np.asarray(bits, dtype=np.int64), prefix.shape)


def aligned(prefix: Keys, bits: Bits) -> Keys:
    """First key of each cell at ``MAX_BITS``, where cells of different sizes compare as integers."""
    return prefix << (MAX_BITS - np.asarray(bits)).astype(np.uint64)


def key_range(prefix: Keys, bits: Bits, finer: int) -> tuple[Keys, Keys]:
    """First key, and key after the last, of each cell at ``finer`` >= bits."""
    shift = (finer - np.asarray(bits, dtype=np.int64)).astype(np.uint64)
    prefix = np.asarray(prefix, dtype=np.uint64)
    return prefix << shift, (prefix + _ONE) << shift


def coarsen(keys: Keys, bits: Bits, coarser: Bits) -> Keys:
    """The cells at ``coarser`` <= bits that hold cells (or keys) at ``bits``."""
    shift = (np.asarray(bits, dtype=np.int64) - np.asarray(coarser, dtype=np.int64)).astype(np.uint64)
    return np.asarray(keys, dtype=np.uint64) >> shift


def children(prefix: Keys, *, step: int = 1) -> Keys:
    """The 2^step cells that each cell is cut into by ``step`` more bits, one row for each cell."""
    low = np.arange(1 << step, dtype=np.uint64)
    return (np.asarray(prefix, dtype=np.uint64)[:, None] << np.uint64(step)) | low


def descend(prefix: Keys, step: Ints) -> tuple[Keys, Ints]:
    """The cells that each cell is cut into by its own ``step`` more bits, one after the other; and which
    cell each comes from.
    """
    counts = np.left_shift(1, step)
    low = ragged.ranks_of(counts).astype(np.uint64)
    below = np.repeat(prefix << step.astype(np.uint64), counts) | low
    return below, np.repeat(np.arange(len(prefix)), counts)


# Whole numbers of synthetic points from released counts. Post-processing.


def unbiased(values: Floats, rng: np.random.Generator) -> Ints:
    """Systematic rounding: each number is right on average, and so is the total, off by less than 1."""
    running = np.floor(np.cumsum(values) + rng.random()).astype(np.int64)
    return np.diff(running, prepend=0)


def sticky(values: Floats, current: Ints, rng: np.random.Generator) -> Ints:
    """Rounding that leaves a cell's number of points alone where it can.

    The total is unbiased; the leftover ones go to cells that already hold one more than their floor, then by
    largest remainder.
    """
    floor = np.floor(values).astype(np.int64)
    total = int(np.floor(values.sum() + rng.random()))
    extra = min(max(total - int(floor.sum()), 0), values.size)
    priority = (values - floor) + (current > floor)
    chosen = np.argsort(-priority, kind="stable")[:extra]
    out = floor.copy()
    out[chosen] += 1
    return out


# Uniform points in rectangles and polygons, and draws by weight: what sampling in cells is made of.
#
# All of it is post-processing on public geometry.


def draw_by_weight(
    cumulative: Floats, first: Ints, last: Ints, counts: Ints, rng: np.random.Generator
) -> Ints:
    """``counts[i]`` items out of first[i], ..., last[i] - 1, by weights given as their cumulative sums."""
    low, high = np.repeat(cumulative[first], counts), np.repeat(cumulative[last], counts)
    item = np.searchsorted(cumulative, low + rng.random(low.size) * (high - low), side="right") - 1
    return np.clip(item, np.repeat(first, counts), np.repeat(last, counts) - 1)


def uniform_in_rectangles(rectangles: Floats, counts: Ints, rng: np.random.Generator) -> Points:
    """``counts[i]`` uniform points in rectangle i, not on its upper edges (the next cell's)."""
    total = int(np.sum(counts))
    out = np.empty((total, 2))
    for axis in (0, 1):
        low, high = rectangles[:, axis], rectangles[:, axis + 2]
        width = np.repeat(high - low, counts)
        width *= rng.random(total)
        width += np.repeat(low, counts)
        # low + u (high - low) may round up to high
        np.minimum(width, np.repeat(np.maximum(np.nextafter(high, low), low), counts), out=width)
        out[:, axis] = width
    return out


def uniform_in_polygons(polygons: Array, counts: Ints, rng: np.random.Generator) -> Points:
    """``counts[i]`` points uniform on the area of polygon i: exact, by triangles, without rejection."""
    used = np.flatnonzero(counts > 0)
    triangles = shapely.constrained_delaunay_triangles(polygons[used])
    parts, owner = shapely.get_parts(triangles, return_index=True)
    corners, weight = shapely.get_coordinates(parts).reshape(-1, 4, 2)[:, :3], shapely.area(parts)
    bare = np.setdiff1d(np.arange(used.size), owner)
    if bare.size:  # a sliver too thin for a triangle still has a point
        point = shapely.get_coordinates(shapely.point_on_surface(polygons[used[bare]]))
        order = np.argsort(np.concatenate([owner, bare]), kind="stable")
        owner = np.concatenate([owner, bare])[order]
        corners = np.concatenate([corners, np.repeat(point[:, None], 3, axis=1)])[order]
        weight = np.concatenate([weight, np.ones(bare.size)])[order]
    reach = ragged.cumulative(weight)
    first = np.searchsorted(owner, np.arange(used.size + 1))
    triangle = draw_by_weight(reach, first[:-1], first[1:], counts[used], rng)
    # Uniform in a parallelogram, folded onto its half.
    share = rng.random((triangle.size, 2))
    share = np.where(share.sum(axis=1, keepdims=True) > 1, 1 - share, share)
    a, b, c = corners[triangle].transpose(1, 0, 2)
    points: Points = a + share[:, :1] * (b - a) + share[:, 1:] * (c - a)
    return points
