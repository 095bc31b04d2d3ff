"""Cells of roads: halves of the frame of a road network, measured by the metres of road in them."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import shapely

from synthgeo import ragged
from synthgeo.arrays import Array, Bools, Floats, Ints, Keys, Points
from synthgeo.domain.coordinates import Bounds
from synthgeo.domain.road_network import Segments
from synthgeo.domain.roads import RoadDomain
from synthgeo.errors import DomainError
from synthgeo.hierarchy import morton
from synthgeo.hierarchy.base import MAX_BITS, Bits, as_cells, check_bits, coarsen, draw_by_weight, key_range
from synthgeo.hierarchy.morton import Halving


class RoadCells(Halving[RoadDomain]):
    """A point's cell is the cell of the place on the road that it snaps to."""

    @cached_property
    def pieces(self) -> RoadPieces:
        """The roads cut at the lines of a fine grid, once."""
        return RoadPieces(self.domain.network.segments, self.domain.bounds)

    def locate(self, xy: Points, bits: int) -> tuple[Keys, Bools]:
        """Key of the place on the road that each point snaps to, and whether a road is near enough."""
        check_bits(bits)
        segment, along = self.domain.nearest_segment(xy)
        inside = segment >= 0
        keys = np.zeros(len(segment), dtype=np.uint64)
        keys[inside] = self.pieces.keys(segment[inside], along[inside], bits)
        return keys, inside

    def measure(self, prefix: Keys, bits: Bits) -> Floats:
        """Metres of road in cells."""
        return self.pieces.measure(*as_cells(prefix, bits))

    def sample(self, prefix: Keys, bits: Bits, counts: Ints, rng: np.random.Generator) -> Points:
        """``counts[i]`` points uniform on the roads inside cell i, all cells concatenated in order."""
        return self.pieces.sample(*as_cells(prefix, bits), np.asarray(counts, dtype=np.int64), rng)

    def geometry(self, prefix: Keys, bits: Bits) -> Array:
        """The roads inside each cell, as multi-lines."""
        return self.pieces.lines(*as_cells(prefix, bits))


# Road segments cut at the lines of a fine grid, sorted by Morton key.
#
# The length of road in any cell of that grid is then a difference of two cumulative sums, and a uniform point
# on the roads of a cell is a uniform number between them. The cell of a place on a road is *the cell of its
# piece*: a place is never in a cell whose measure is 0, whatever rounding does at a grid line. Cells finer
# than the grid (about a metre) clip the few pieces of the grid cell that they lie in.

# A piece shorter than this (a cut at a corner of the grid) joins the piece before it.
SHORTEST = 1e-7
# Finer cells reach this far over their edges, so that rounding does not put a place in a cell without road.
_REACH = 2 * SHORTEST
_MOST_PIECES = 1 << 19
_FINEST_CELL = 1.0  # metres


class Spans(NamedTuple):
    """Stretches of road, each in one cell and on one segment, by cell."""

    cell: Ints
    segment: Ints
    begin: Floats  # positions
    end: Floats


class RoadPieces:
    """Pieces of road in the cells of the frame ``bounds``."""

    def __init__(self, segments: Segments, bounds: Bounds) -> None:
        self._segments, self._bounds = segments, bounds
        self.bits = _finest(segments, bounds)
        segment, begin = _cut(segments, self.bits, bounds)
        # Positions at which pieces begin, increasing; and the end of the last one.
        self._start = np.append(
            segments.position[segment] + begin * segments.length[segment], segments.position[-1]
        )
        self._segment = segment
        self._first = np.searchsorted(segment, np.arange(len(segments.start) + 1))
        # Midpoints are well inside their cells, so rounding cannot move a piece to a neighbour.
        middle = (self._start[1:] + self._start[:-1]) / 2
        self._key, _ = morton.locate(self._points(segment, middle), self.bits, bounds)
        self._order = np.argsort(self._key, kind="stable")
        self._sorted_key = self._key[self._order]
        self._cumulative = ragged.cumulative(np.diff(self._start)[self._order])

    def keys(self, segment: Ints, along: Floats, bits: int) -> Keys:
        """Cells of the places ``along`` metres into segments."""
        position = self._segments.position[segment] + along
        piece = np.searchsorted(self._start, position, side="right") - 1
        # A position at the very end of a segment may equal, or round past, the start of the next one.
        piece = np.clip(piece, self._first[segment], self._first[segment + 1] - 1)
        if bits <= self.bits:
            return coarsen(self._key[piece], self.bits, bits)
        cell = morton.cell_bounds(self._key[piece], self.bits, self._bounds)
        top = np.maximum(np.nextafter(cell[:, 2:], -np.inf), cell[:, :2])
        xy = np.clip(self._segments.points(segment, along), cell[:, :2], top)
        return morton.locate(xy, bits, self._bounds)[0]

    def measure(self, prefix: Keys, bits: Ints) -> Floats:
        """Metres of road in cells."""
        fine = bits > self.bits
        out = np.empty(prefix.size)
        first, last = self._ranges(prefix[~fine], bits[~fine])
        out[~fine] = self._cumulative[last] - self._cumulative[first]
        spans = self._clipped(prefix[fine], bits[fine])
        out[fine] = np.bincount(spans.cell, weights=spans.end - spans.begin, minlength=int(fine.sum()))
        return out

    def sample(self, prefix: Keys, bits: Ints, counts: Ints, rng: np.random.Generator) -> Points:
        """``counts[i]`` uniform points on the roads in cell i."""
        used = counts > 0
        prefix, bits, counts = prefix[used], bits[used], counts[used]
        fine = bits > self.bits
        of_fine = np.repeat(fine, counts)
        position, segment = np.empty(of_fine.size), np.empty(of_fine.size, dtype=np.int64)
        first, last = self._ranges(prefix[~fine], bits[~fine])
        _refuse_empty(first, last)
        rank = draw_by_weight(self._cumulative, first, last, counts[~fine], rng)
        piece = self._order[rank]
        position[~of_fine] = self._start[piece] + rng.random(piece.size) * (
            self._start[piece + 1] - self._start[piece]
        )
        segment[~of_fine] = self._segment[piece]
        spans = self._clipped(prefix[fine], bits[fine])
        borders = np.searchsorted(spans.cell, np.arange(int(fine.sum()) + 1))
        _refuse_empty(borders[:-1], borders[1:])
        reach = ragged.cumulative(spans.end - spans.begin)
        span = draw_by_weight(reach, borders[:-1], borders[1:], counts[fine], rng)
        length = spans.end[span] - spans.begin[span]
        position[of_fine] = spans.begin[span] + rng.random(span.size) * length
        segment[of_fine] = spans.segment[span]
        return self._points(segment, position)

    def lines(self, prefix: Keys, bits: Ints) -> Array:
        """The roads in each cell, as multi-lines."""
        out = np.full(prefix.size, shapely.MultiLineString(), dtype=object)
        fine = bits > self.bits
        for spans, here in (
            (self._joined(prefix[~fine], bits[~fine]), np.flatnonzero(~fine)),
            (self._clipped(prefix[fine], bits[fine]), np.flatnonzero(fine)),
        ):
            if spans.cell.size:
                ends = [self._points(spans.segment, place) for place in (spans.begin, spans.end)]
                line = shapely.linestrings(np.stack(ends, axis=1))
                found, which = np.unique(spans.cell, return_inverse=True)
                out[here[found]] = shapely.multilinestrings(line, indices=which)
        return out

    def _points(self, segment: Ints, position: Floats) -> Points:
        return self._segments.points(segment, position - self._segments.position[segment])

    def _ranges(self, prefix: Keys, bits: Ints) -> tuple[Ints, Ints]:
        """First rank, and rank after the last, of each cell's pieces in key order."""
        low, high = key_range(prefix, bits, self.bits)
        return np.searchsorted(self._sorted_key, low), np.searchsorted(self._sorted_key, high)

    def _pieces_of(self, prefix: Keys, bits: Ints) -> tuple[Ints, Ints]:
        """Cell and piece, for all pieces in cells; pieces in order."""
        first, last = self._ranges(prefix, bits)
        counts = last - first
        cell = np.repeat(np.arange(counts.size), counts)
        piece = self._order[ragged.positions(first, counts)]
        order = np.lexsort((piece, cell))
        return cell[order], piece[order]

    def _joined(self, prefix: Keys, bits: Ints) -> Spans:
        """Stretches of road in cells of the grid or coarser, each as long as it is straight."""
        cell, piece = self._pieces_of(prefix, bits)
        if not cell.size:
            return Spans(cell, piece, np.zeros(0), np.zeros(0))
        segment = self._segment[piece]
        # Pieces are numbered along segments: a run of numbers on one segment is one straight line.
        broken = (np.diff(cell) != 0) | (np.diff(piece) != 1) | (np.diff(segment) != 0)
        opens = np.concatenate([[0], np.flatnonzero(broken) + 1])
        closes = np.concatenate([opens[1:], [cell.size]]) - 1
        return Spans(cell[opens], segment[opens], self._start[piece[opens]], self._start[piece[closes] + 1])

    def _clipped(self, prefix: Keys, bits: Ints) -> Spans:
        """Stretches of road in cells finer than the grid."""
        holder = coarsen(prefix, bits, self.bits)
        cell, piece = self._pieces_of(holder, np.full(prefix.size, self.bits))
        rectangle = morton.cell_bounds(prefix, bits, self._bounds)[cell]
        segment, begin, end = self._segment[piece], self._start[piece], self._start[piece + 1]
        a, b = self._points(segment, begin), self._points(segment, end)
        enter, leave = np.zeros(cell.size), np.ones(cell.size)
        for axis in (0, 1):
            low, high, run = rectangle[:, axis], rectangle[:, axis + 2], b[:, axis] - a[:, axis]
            moving = run != 0
            step = np.where(moving, run, 1.0)
            near, far = (low - _REACH - a[:, axis]) / step, (high + _REACH - a[:, axis]) / step
            within = (a[:, axis] >= low) & (
                a[:, axis] < high
            )  # parallel to the edge: in the cell, or not at all
            enter = np.maximum(enter, np.where(moving, np.minimum(near, far), np.where(within, 0.0, np.inf)))
            leave = np.minimum(leave, np.where(moving, np.maximum(near, far), np.where(within, 1.0, -np.inf)))
        some = leave > enter
        begin, length, enter, leave = begin[some], (end - begin)[some], enter[some], leave[some]
        return Spans(cell[some], segment[some], begin + enter * length, begin + leave * length)


def _refuse_empty(first: Ints, last: Ints) -> None:
    if np.any(first == last):
        raise DomainError("cannot place points in a cell without roads")


def _finest(segments: Segments, bounds: Bounds) -> int:
    """Bits of the grid: cells about a metre wide, and no more than half a million pieces."""
    bits = 0
    while bits < MAX_BITS:
        more = bits + 1
        wide = (bounds[2] - bounds[0]) / 2 ** ((more + 1) // 2)
        high = (bounds[3] - bounds[1]) / 2 ** (more // 2)
        if max(wide, high) < _FINEST_CELL or _count_pieces(segments, more, bounds) > _MOST_PIECES:
            break
        bits = more
    return bits


def _count_pieces(segments: Segments, bits: int, bounds: Bounds) -> int:
    """How many pieces there would be, without cutting."""
    across, up = _crossings(segments, bits, bounds)
    return int(np.abs(across[1] - across[0]).sum() + np.abs(up[1] - up[0]).sum()) + len(segments.start)


def _crossings(segments: Segments, bits: int, bounds: Bounds) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    """Columns, then rows, of the two ends of each segment."""
    begin = morton.decode(morton.locate(segments.start, bits, bounds)[0], bits)
    end = morton.decode(morton.locate(segments.end, bits, bounds)[0], bits)
    return (begin[0], end[0]), (begin[1], end[1])


def _cut(segments: Segments, bits: int, bounds: Bounds) -> tuple[Ints, Floats]:
    """Segment, and where along it (0 to 1) each piece begins; in order."""
    count = len(segments.start)
    owners, places = [np.arange(count)], [np.zeros(count)]
    halvings = ((bits + 1) // 2, bits // 2)
    for axis, (begin, end) in enumerate(_crossings(segments, bits, bounds)):
        crossed = np.abs(end - begin)
        owner = np.repeat(np.arange(count), crossed)
        line = np.minimum(begin, end)[owner] + 1 + ragged.ranks_of(crossed)
        where = morton.edge(line, halvings[axis], bounds[axis], bounds[axis + 2])
        low, high = segments.start[owner, axis], segments.end[owner, axis]
        owners.append(owner)
        places.append(np.clip((where - low) / (high - low), 0.0, 1.0))
    owner, place = np.concatenate(owners), np.concatenate(places)
    order = np.lexsort((place, owner))
    owner, place = owner[order], place[order]
    length = segments.length[owner]
    ahead = np.concatenate([np.where(owner[1:] == owner[:-1], place[1:], 1.0), [1.0]])
    keep = np.concatenate([[True], owner[1:] != owner[:-1]])
    keep |= ((ahead - place) * length >= SHORTEST) & (place * length >= SHORTEST)
    return owner[keep], place[keep]
