"""Road segments cut at the lines of the finest grid, sorted by Morton key.

The length of road in any cell is then a difference of two cumulative sums, and a uniform point on the roads
of a cell is a uniform number between them. The cell of a place on a road is *the cell of its piece*: a
place is never in a cell whose measure is 0, whatever rounding does at a grid line.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synthgeo.domain.road_network import Segments
from synthgeo.domain.spatial import Keys
from synthgeo.partition import morton

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# A piece shorter than this (a cut at a corner of the grid) joins the piece before it.
SHORTEST = 1e-6


class RoadPieces:
    """Pieces of road at ``bits`` bits of the frame ``bounds``."""

    def __init__(self, segments: Segments, bits: int, bounds: morton.Bounds) -> None:
        segment, begin = _cut(segments, bits, bounds)
        length = segments.length
        start = segments.position[segment] + begin * length[segment]
        end = np.concatenate([start[1:], segments.position[-1:]])
        # Midpoints are well inside their cells, so rounding cannot move a piece to a neighbour.
        middle = segments.points(segment, (start + end) / 2 - segments.position[segment])
        keys, _ = morton.locate(middle, bits, bounds)
        order = np.argsort(keys, kind="stable")
        self.bits = bits
        self.start = start  # positions at which pieces begin, increasing
        self.segment = segment
        self.key = keys
        self._first = np.searchsorted(segment, np.arange(len(segments.start) + 1))
        self.sorted_key = keys[order]
        self.sorted_piece = order
        self.cumulative = np.concatenate([[0.0], np.cumsum((end - start)[order])])

    def at(self, segment: Ints, position: Floats) -> Ints:
        """The piece at each position, given also the segment it is on."""
        piece = np.searchsorted(self.start, position, side="right") - 1
        # A position at the very end of a segment may equal, or round past, the start of the next one.
        return np.clip(piece, self._first[segment], self._first[segment + 1] - 1)

    def ranges(self, prefix: Keys, bits: int | Ints) -> tuple[Ints, Ints]:
        """First rank, and rank after the last, of each cell's pieces in key order."""
        low, high = morton.key_range(prefix, bits, self.bits)
        return np.searchsorted(self.sorted_key, low), np.searchsorted(self.sorted_key, high)


def count_pieces(segments: Segments, bits: int, bounds: morton.Bounds) -> int:
    """How many pieces there would be, without cutting."""
    across, up = _crossings(segments, bits, bounds)
    return int(np.abs(across[1] - across[0]).sum() + np.abs(up[1] - up[0]).sum()) + len(segments.start)


def _crossings(
    segments: Segments, bits: int, bounds: morton.Bounds
) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    """Columns, then rows, of the two ends of each segment."""
    begin = morton.decode(morton.locate(segments.start, bits, bounds)[0], bits)
    end = morton.decode(morton.locate(segments.end, bits, bounds)[0], bits)
    return (begin[0], end[0]), (begin[1], end[1])


def _cut(segments: Segments, bits: int, bounds: morton.Bounds) -> tuple[Ints, Floats]:
    """Segment, and where along it (0 to 1) each piece begins; in order."""
    count = len(segments.start)
    owners, places = [np.arange(count)], [np.zeros(count)]
    halvings = ((bits + 1) // 2, bits // 2)
    for axis, (begin, end) in enumerate(_crossings(segments, bits, bounds)):
        crossed = np.abs(end - begin)
        owner = np.repeat(np.arange(count), crossed)
        nth = np.arange(owner.size) - np.repeat(np.cumsum(crossed) - crossed, crossed)
        line = np.minimum(begin, end)[owner] + 1 + nth
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
