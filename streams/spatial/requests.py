"""Counts that are asked for cell by cell, where there may be more keys than the driver can hold.

At depth 30 a batch can have 10^9 distinct keys. A mechanism needs few of them: the counts of its leaves and,
where it grows a tree, of the nodes on the way down. So the engine first counts coarse cells, all of them,
and then only what lies below nodes that are split, several levels at a time. What is asked for depends on
released leaves and on the noisy tree that the release will show; the numbers are the very ones that the full
histogram would give.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from synthgeo.arrays import Bools, Floats, Ints, Keys
from synthgeo.hierarchy.base import Hierarchy
from synthgeo.hierarchy.cells import Partition
from synthgeo.hierarchy.keys import MAX_BITS, ROOT, key_range
from synthgeo.hierarchy.privtree import GRID, KeyScore
from synthgeo.sources import Histogram
from synthgeo.sources.histogram import merge_all

# A histogram of at most 2^24 keys is counted at once.
DRIVER_BITS = 24
# Bits of the cells that are counted first where there may be more, and the number of cells that a later
# request may have, as long as there are fewer nodes.
COARSE_BITS = 22
MOST_CELLS = 1 << 22


def exceeds_driver(hierarchy: Hierarchy, bits: int) -> bool:
    """Whether a histogram may have more keys than the driver should hold. Public."""
    finest = getattr(hierarchy, "keys", None)  # H3 knows its cells
    return bits > DRIVER_BITS and (finest is None or len(finest) > 1 << DRIVER_BITS)


@dataclass(frozen=True, eq=False)
class CellsAsked:
    """Disjoint cells, to be counted in cells ``deeper`` bits below each. Picklable: workers count by it.

    Keys of ``finest`` bits become the first key of the cell that they are counted in; the others are left
    out.
    """

    cells: Partition
    deeper: int
    finest: int
    start: Keys = field(init=False, repr=False)
    stop: Keys = field(init=False, repr=False)
    mask: Keys = field(init=False, repr=False)

    def __post_init__(self) -> None:
        start, stop = key_range(self.cells.prefix, self.cells.bits, self.finest)
        dropped = (self.finest - self.known).astype(np.uint64)
        mask = ~((np.uint64(1) << dropped) - np.uint64(1))
        for name, array in (("start", start), ("stop", stop), ("mask", mask)):
            object.__setattr__(self, name, array)

    @property
    def known(self) -> Ints:
        """Bits of the cells that are counted below each cell."""
        return np.minimum(self.cells.bits + self.deeper, self.finest)

    def __call__(self, keys: Keys) -> tuple[Keys, Bools]:
        """The first key of each key's cell, and whether it was asked for."""
        at = np.searchsorted(self.start, keys, side="right") - 1
        asked = (at >= 0) & (keys < self.stop[at])
        return np.where(asked, keys & self.mask[at], np.uint64(0)), asked

    def of(self, counts: Histogram) -> Histogram:
        """Counts of the finest keys, as far as they are asked for."""
        keys, asked = self(counts.keys)
        return Histogram.of(keys[asked], counts.weights[asked])

    def holds(self, leaves: Partition) -> Bools:
        """Which leaves the answer tells the counts of."""
        at = self.cells.holder_of(leaves.start)
        held: Bools = (at >= 0) & (leaves.bits >= self.cells.bits[at]) & (leaves.bits <= self.known[at])
        return held


def coarse_cells(bits: int) -> CellsAsked:
    """Everything, in cells of ``COARSE_BITS``."""
    everything = Partition(ROOT, np.zeros(1, dtype=np.int64), np.ones(1))
    return CellsAsked(everything, COARSE_BITS, bits)


@dataclass(frozen=True, eq=False)
class AskedCounts:
    """The counts of a batch: of coarse cells, and of finer ones when they are asked for. Private.

    ``asked`` are the requests so far with their answers; ``ask`` makes another pass over the batch.
    """

    bits: int
    asked: tuple[tuple[CellsAsked, Histogram], ...]
    ask: Callable[[CellsAsked], Histogram]

    def with_coarse(self, counts: Histogram) -> AskedCounts:
        """The same with other counts of the coarse cells."""
        (request, _), *others = self.asked
        return AskedCounts(self.bits, ((request, counts), *others), self.ask)

    @property
    def coarse(self) -> Histogram:
        """The counts of the coarse cells."""
        return self.asked[0][1]

    def score(self) -> AskedScore:
        """What a tree sees of the insertions, node by node."""
        return AskedScore(self)

    def on(self, leaves: Partition) -> Histogram:
        """Counts from which ``leaves.totals`` gives what it would give for those of all keys."""
        by = np.full(leaves.size, -1)
        for number, (request, _) in enumerate(self.asked):
            by[request.holds(leaves) & (by < 0)] = number
        answers = list(self.asked)
        rest = by < 0
        if rest.any():
            missing = Partition(leaves.prefix[rest], leaves.bits[rest], leaves.measure[rest])
            request = CellsAsked(missing, 0, self.bits)
            by[rest] = len(answers)
            answers.append((request, self.ask(request)))
        parts = []
        for number, (_, counts) in enumerate(answers):
            leaf = leaves.cell_of(counts.keys, self.bits)
            here = (leaf >= 0) & (by[leaf] == number)
            parts.append(Histogram(counts.keys[here], counts.weights[here]))
        return merge_all(parts)

    def whole(self) -> Histogram:
        """The counts of all keys, however many they are."""
        everything = Partition(ROOT, np.zeros(1, dtype=np.int64), np.ones(1))
        return self.ask(CellsAsked(everything, MAX_BITS, self.bits))


class AskedScore:
    """Scores of the nodes of a tree that grows level by level; asks for what lies below nodes that it has no
    counts for, as many levels at once as ``MOST_CELLS`` allow.
    """

    def __init__(self, counts: AskedCounts) -> None:
        self.counts = counts  # with the answers so far
        self._known = COARSE_BITS
        self._score = self._of(counts.coarse)

    def _of(self, counts: Histogram) -> KeyScore:
        return KeyScore(counts.keys, self.counts.bits, counts.weights[:, 0] * GRID.one)

    def __call__(self, prefix: Keys, bits: int, measure: Floats) -> Ints:
        if bits > self._known and prefix.size:
            room = max(MOST_CELLS // prefix.size, 1).bit_length() - 1
            nodes = Partition(prefix, np.full(prefix.size, bits, dtype=np.int64), measure)
            request = CellsAsked(nodes, min(room, self.counts.bits - bits), self.counts.bits)
            answer = self.counts.ask(request)
            self.counts = AskedCounts(
                self.counts.bits, (*self.counts.asked, (request, answer)), self.counts.ask
            )
            self._known, self._score = bits + request.deeper, self._of(answer)
        return self._score(prefix, bits, measure)


Counts = Histogram | AskedCounts


def on_leaves(counts: Counts, leaves: Partition) -> Histogram:
    """The counts that a mechanism needs of a batch that it will never count on other leaves."""
    return counts if isinstance(counts, Histogram) else counts.on(leaves)


def whole(counts: Counts) -> Histogram:
    """The counts that a mechanism needs of a batch that it keeps, to count it on later leaves too."""
    return counts if isinstance(counts, Histogram) else counts.whole()
