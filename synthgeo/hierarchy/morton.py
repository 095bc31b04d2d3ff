"""Morton (z-order) keys: points to keys, cells to rectangles, whole arrays at a time.

The frame, a rectangle, is halved in x and y in turn, x first; after ``bits`` halvings a cell's prefix holds
the halves taken, the first in the highest bit. An odd number of bits is allowed: x then has one more than y.

**Edges.** With n halvings of an axis [low, high], edge i is ``low + (high - low) * (i / 2^n)``, cut at
high, and edge 2^n is high itself. i / 2^n is an exact float, so edge 2i of the next level is *the same
float* as edge i of this one, and rounding is monotone, so the edges are in order. The cell of a coordinate
is the last i whose edge is <= it. Everything that places a point goes through these floats, so a point is
always inside the rectangle of its cell, and its key at b bits is its key at more bits, shifted. Cells are
half-open, except that the last one keeps the upper boundary of the frame.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
import shapely

from synthgeo import validate
from synthgeo.arrays import Array, Bools, Floats, Ints, Keys, Points
from synthgeo.domain.box import BoxDomain, SpatialDomain
from synthgeo.domain.coordinates import Bounds
from synthgeo.errors import ConfigError
from synthgeo.hierarchy.base import MAX_BITS, Bits, check_bits, hierarchy_of, uniform_in_rectangles

# Masks and shifts that spread the low 32 bits of a word over its even bits.
_SPREAD = tuple(
    (np.uint64(shift), np.uint64(mask))
    for shift, mask in (
        (16, 0x0000FFFF0000FFFF),
        (8, 0x00FF00FF00FF00FF),
        (4, 0x0F0F0F0F0F0F0F0F),
        (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    )
)
_ONE = np.uint64(1)
_CHUNK = 1 << 15  # temporaries of this many points stay in the processor's cache


def encode(column: Array, row: Array, bits: int) -> Keys:
    """Keys of cells given by their column (x) and row (y) at ``bits`` halvings."""
    first, second = _spread(column), _spread(row)
    if bits % 2:  # the last halving was in x, so x has the lowest bit
        first, second = second, first
    return (first << _ONE) | second


def decode(prefix: Keys, bits: Bits) -> tuple[Ints, Ints]:
    """Column and row of cells: the inverse of ``encode``."""
    prefix = np.asarray(prefix, dtype=np.uint64)
    high, low = _gather(prefix >> _ONE), _gather(prefix)
    odd = np.asarray(bits) % 2 == 1
    return np.where(odd, low, high), np.where(odd, high, low)


def locate(xy: Points, bits: int, bounds: Bounds) -> tuple[Keys, Bools]:
    """Key of each point at ``bits`` bits, and whether it lies in the closed frame (keys elsewhere are 0)."""
    check_bits(bits)
    xy = np.asarray(xy, dtype=np.float64)
    keys = np.empty(len(xy), dtype=np.uint64)
    inside = np.empty(len(xy), dtype=bool)
    minx, miny, maxx, maxy = bounds
    for start in range(0, len(xy), _CHUNK):
        part = slice(start, start + _CHUNK)
        x, y = np.ascontiguousarray(xy[part, 0]), np.ascontiguousarray(xy[part, 1])
        within = (x >= minx) & (x <= maxx) & (y >= miny) & (y <= maxy)
        if not within.all():  # NaN and infinities too
            x, y = np.where(within, x, minx), np.where(within, y, miny)
        key = encode(_slot(x, (bits + 1) // 2, minx, maxx), _slot(y, bits // 2, miny, maxy), bits)
        keys[part] = np.where(within, key, np.uint64(0))
        inside[part] = within
    return keys, inside


def cell_bounds(prefix: Keys, bits: Bits, bounds: Bounds) -> Floats:
    """Rectangles (minx, miny, maxx, maxy) of cells, one row each."""
    check_bits(bits)
    minx, miny, maxx, maxy = bounds
    column, row = decode(prefix, bits)
    bits = np.asarray(bits, dtype=np.int64)
    across, up = (bits + 1) // 2, bits // 2
    out = np.empty((column.size, 4))
    out[:, 0] = edge(column, across, minx, maxx)
    out[:, 1] = edge(row, up, miny, maxy)
    out[:, 2] = edge(column + 1, across, minx, maxx)
    out[:, 3] = edge(row + 1, up, miny, maxy)
    return out


def rectangle_areas(rectangles: Floats) -> Floats:
    """Areas of rectangles given as (minx, miny, maxx, maxy)."""
    area: Floats = (rectangles[:, 2] - rectangles[:, 0]) * (rectangles[:, 3] - rectangles[:, 1])
    return area


def edge(index: Ints, halvings: Bits, low: float, high: float) -> Floats:
    """Grid line ``index`` of an axis that was halved ``halvings`` times."""
    fraction = np.ldexp(np.asarray(index, dtype=np.float64), -np.asarray(halvings, dtype=np.int32))
    line: Floats = np.where(fraction >= 1, high, np.minimum(low + (high - low) * fraction, high))
    return line


def _slot(values: Floats, halvings: int, low: float, high: float) -> Ints:
    """The last edge that is <= each value, for values in [low, high]."""
    slots = 1 << halvings
    position = (values - low) * (slots / (high - low))
    index = position.astype(np.int64)
    np.clip(index, 0, slots - 1, out=index)
    # Quotients and edges can be off by a few units in the last place: look again at what is near an edge.
    slack = 8 * np.finfo(np.float64).eps * slots * (1 + max(abs(low), abs(high)) / (high - low))
    if slack >= 0.5:
        near = np.arange(values.size)
    else:
        near = np.flatnonzero(np.abs(position - np.rint(position)) <= slack)
    while near.size:
        here, value = index[near], values[near]
        down = (edge(here, halvings, low, high) > value) & (here > 0)
        up = (edge(here + 1, halvings, low, high) <= value) & (here < slots - 1)
        index[near] = here + up - down
        near = near[up | down]
    return index


def _spread(values: Array) -> Keys:
    """Move bit k of each value to bit 2k."""
    out = np.array(values, dtype=np.uint64)
    spare = np.empty_like(out)
    for shift, mask in _SPREAD:
        np.left_shift(out, shift, out=spare)
        np.bitwise_or(out, spare, out=out)
        np.bitwise_and(out, mask, out=out)
    return out


def _gather(values: Keys) -> Ints:
    """Move bit 2k of each value to bit k, forgetting the odd bits: the inverse of ``_spread``."""
    out = values & _SPREAD[-1][1]
    masks = [*(mask for _, mask in _SPREAD[-2::-1]), np.uint64(0x00000000FFFFFFFF)]
    for (shift, _), mask in zip(_SPREAD[::-1], masks, strict=True):
        out = (out | (out >> shift)) & mask
    return out.astype(np.int64)


# Cells made by halving the frame of a domain, its bounding box, in x and y in turn; here of a plain box.

D = TypeVar("D", bound=SpatialDomain)


class Halving(Generic[D]):
    """What the hierarchies of halves share: a level is as many halvings as the fanout needs."""

    fanout = 2

    def __init__(self, domain: D) -> None:
        self.domain: D = domain

    def levels(self, max_depth: int, fanout: int) -> tuple[int, ...]:
        """Bits of the cells at depth 0, 1, ..., ``max_depth``."""
        step = int(fanout).bit_length() - 1
        if fanout < 2 or fanout != 1 << step:
            raise ConfigError(f"fanout must be a power of two (2, 4, 8, ...), got {fanout!r}")
        validate.whole(max_depth, f"max_depth at fanout {fanout}", low=1, high=MAX_BITS // step)
        return tuple(range(0, max_depth * step + 1, step))

    def names(self, prefix: Keys, bits: Bits) -> None:  # noqa: ARG002
        """None: halves of a frame have no names elsewhere."""
        return

    def __reduce__(self) -> tuple[Any, ...]:
        return hierarchy_of, (self.domain,)  # indices are rebuilt once, where they are needed

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.domain!r})"


class BoxCells(Halving[BoxDomain]):
    """Rectangles, measured by their area in the units of the CRS.

    >>> cells = BoxCells(BoxDomain(0, 0, 4, 2))
    >>> keys, inside = cells.locate(np.array([[0.5, 1.5], [4.0, 2.0], [9.0, 9.0]]), bits=2)
    >>> keys.tolist(), inside.tolist()
    ([1, 3, 0], [True, True, False])
    """

    def locate(self, xy: Points, bits: int) -> tuple[Keys, Bools]:
        """Key of each point at ``bits`` bits, and whether it is in the box (keys elsewhere are 0)."""
        return locate(xy, bits, self.domain.bounds)

    def measure(self, prefix: Keys, bits: Bits) -> Floats:
        """Area of cells."""
        return rectangle_areas(cell_bounds(prefix, bits, self.domain.bounds))

    def sample(self, prefix: Keys, bits: Bits, counts: Ints, rng: np.random.Generator) -> Points:
        """``counts[i]`` points uniform in cell i, all cells concatenated in order."""
        return uniform_in_rectangles(cell_bounds(prefix, bits, self.domain.bounds), counts, rng)

    def geometry(self, prefix: Keys, bits: Bits) -> Array:
        """Each cell as a rectangle."""
        rectangles: Array = shapely.box(*cell_bounds(prefix, bits, self.domain.bounds).T)
        return rectangles
