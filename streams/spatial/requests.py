"""Counts that are asked for cell by cell, where there may be more keys than the driver can hold.

At depth 30 a batch can have 10^9 distinct keys. A mechanism needs few of them: the counts of its leaves and,
where it grows a tree, of the nodes on the way down. So the engine first counts coarse cells, all of them,
and then only what lies below nodes that are split, several levels at a time. What is asked for depends on
released leaves and on the noisy tree that the release will show; the numbers are the very ones that the full
histogram would give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from synthgeo.arrays import Bools, Floats, Ints, Keys
from synthgeo.hierarchy.base import ROOT, Hierarchy, aligned, coarsen, key_range
from synthgeo.hierarchy.cells import Partition
from synthgeo.hierarchy.privtree import GRID, KeyScore
from synthgeo.sources import Histogram
from synthgeo.sources.histogram import merge_all

# A histogram of at most 2^24 keys is counted at once.
DRIVER_BITS = 24
# Bits of the cells that are counted first where there may be more, and the number of cells that a later
# request may have, as long as there are fewer nodes.
COARSE_BITS = 22
MOST_CELLS = 1 << 22
# Bits below the leaves of the moment to which batches are kept that later leaves will count.
SPARE = 8


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

    def told(self, leaves: Partition) -> Ints:
        """To how many bits the answer tells the counts of each leaf; -1 where it does not."""
        at = self.cells.holder_of(leaves.start)
        held = (at >= 0) & (leaves.bits >= self.cells.bits[at]) & (leaves.bits <= self.known[at])
        return np.where(held, self.known[at], -1)


@dataclass(frozen=True, eq=False)
class KnownTo(Histogram):
    """Counts that are known to so many bits, from each of some first keys (at ``MAX_BITS``) on: finer cells
    were not asked for. Private.
    """

    start: Keys
    bits: Ints

    def with_weights(self, weights: Ints) -> KnownTo:
        """Other weights of the same keys."""
        return KnownTo(self.keys, weights, self.start, self.bits)

    def limit(self, leaves: Partition) -> Partition:
        """The leaves, where they are finer than what is known their common cell."""
        known = self.bits[np.searchsorted(self.start, leaves.start, side="right") - 1]
        finer = leaves.bits > known
        if not finer.any():
            return leaves
        bits = np.minimum(leaves.bits, known)
        prefix = coarsen(leaves.prefix, leaves.bits, bits)
        first = np.flatnonzero(np.diff(aligned(prefix, bits), prepend=np.uint64(1 << 63)) != 0)
        measure = np.add.reduceat(leaves.measure, first)
        return Partition(prefix[first], bits[first], measure)


def together(batches: Iterable[Histogram]) -> Histogram:
    """Several batches as one, known as far as each of them is."""
    batches = list(batches)
    whole, asked = merge_all(batches), [batch for batch in batches if isinstance(batch, KnownTo)]
    if not asked:
        return whole
    start = np.unique(np.concatenate([batch.start for batch in asked]))
    bits = [batch.bits[np.searchsorted(batch.start, start, side="right") - 1] for batch in asked]
    return KnownTo(whole.keys, whole.weights, start, np.min(bits, axis=0))


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

    def on(self, leaves: Partition, spare: int = 0) -> KnownTo:
        """Counts from which ``leaves.totals`` gives what it would give for those of all keys, and so do cells
        up to ``spare`` bits below, or as far as ``MOST_CELLS`` reach.
        """
        by, known = np.full(leaves.size, -1), np.full(leaves.size, -1)
        for number, (request, _) in enumerate(self.asked):
            finer = request.told(leaves) > known
            by[finer], known[finer] = number, request.told(leaves)[finer]
        answers = list(self.asked)
        rest = known < np.minimum(leaves.bits + spare, self.bits)
        if rest.any():
            missing = Partition(leaves.prefix[rest], leaves.bits[rest], leaves.measure[rest])
            request = CellsAsked(missing, min(spare, _levels_for(missing.size)), self.bits)
            by[rest], known[rest] = len(answers), request.known
            answers.append((request, self.ask(request)))
        parts = []
        for number, (_, counts) in enumerate(answers):
            leaf = leaves.cell_of(counts.keys, self.bits)
            here = (leaf >= 0) & (by[leaf] == number)
            parts.append(Histogram(counts.keys[here], counts.weights[here]))
        found = merge_all(parts)
        return KnownTo(found.keys, found.weights, leaves.start, known)


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
            nodes = Partition(prefix, np.full(prefix.size, bits, dtype=np.int64), measure)
            levels = min(_levels_for(prefix.size), self.counts.bits - bits)
            request = CellsAsked(nodes, levels, self.counts.bits)
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


def below_leaves(counts: Counts, leaves: Partition) -> Histogram:
    """The counts that a mechanism needs of a batch that it keeps, to count it on later leaves too: they may
    be ``SPARE`` bits finer, or are counted as coarsely as the batch is known (``KnownTo.limit``).
    """
    return counts if isinstance(counts, Histogram) else counts.on(leaves, SPARE)


def with_weights(counts: Histogram, weights: Ints) -> Histogram:
    """Other weights of the same keys."""
    if isinstance(counts, KnownTo):
        return counts.with_weights(weights)
    return Histogram(counts.keys, weights)


def _levels_for(cells: int) -> int:
    """How many bits below so many cells a request may go."""
    return max(MOST_CELLS // cells, 1).bit_length() - 1
