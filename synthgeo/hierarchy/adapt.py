"""Move a partition by released counts: split cells that hold enough, merge siblings that do not.

Guarantee
---------
Post-processing. The new partition is a function of released counts, public geometry and public thresholds,
so it costs no privacy budget, however often it is done. This is what lets a stream follow its data without
paying for a new PrivTree: events pay for the counts alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synthgeo.arrays import Bools, Floats, Ints, Keys
from synthgeo.hierarchy.base import Hierarchy
from synthgeo.hierarchy.cells import Partition
from synthgeo.hierarchy.keys import MAX_BITS, descend


def adapt(
    partition: Partition,
    released: Floats,
    *,
    hierarchy: Hierarchy,
    levels: Sequence[int],
    split_above: float,
    merge_below: float,
) -> Partition:
    """The partition in which no cell of more than ``split_above`` is left whole, and siblings below
    ``merge_below`` are one.

    ``released`` is a non-negative released count of each cell; inside a cell it is taken to be spread by
    measure, so a cell of eight times the threshold is cut three times at once. ``levels`` are the bits of
    the tree's cells by depth.
    """
    to_children, to_parent = _steps(levels)
    prefix, bits, measure, count = _merge(partition, released, merge_below, to_parent)
    done = []
    while True:
        split = (count > split_above) & (to_children[bits] > 0)
        done.append((prefix[~split], bits[~split], measure[~split]))
        if not split.any():
            break
        parent_count, parent_bits = count[split], bits[split]
        children, parent = descend(prefix[split], to_children[parent_bits])
        child_bits = (parent_bits + to_children[parent_bits])[parent]
        child_measure = hierarchy.measure(children, child_bits)
        of_parent = np.bincount(parent, child_measure)
        child_count = (parent_count / of_parent)[parent] * child_measure
        real = child_measure > 0
        prefix, bits, measure, count = (
            children[real],
            child_bits[real],
            child_measure[real],
            child_count[real],
        )
    if len(done) == 1 and done[0][0].size == partition.size:
        return partition
    prefix, bits, measure = (np.concatenate([part[i] for part in done]) for i in range(3))
    order = np.argsort(Partition(prefix, bits, measure).start, kind="stable")
    return Partition(prefix[order], bits[order], measure[order])


def _steps(levels: Sequence[int]) -> tuple[Ints, Ints]:
    """For a cell of b bits, how many more bits its children have, and its parent fewer; 0 where it has
    none.
    """
    to_children, to_parent = np.zeros((2, MAX_BITS + 1), dtype=np.int64)
    to_children[list(levels[:-1])] = to_parent[list(levels[1:])] = np.diff(levels)
    return to_children, to_parent


def _merge(
    partition: Partition, released: Floats, merge_below: float, to_parent: Ints
) -> tuple[Keys, Ints, Floats, Floats]:
    """Families of siblings that are all leaves and hold little together become their parent."""
    prefix, bits, measure = partition.prefix, partition.bits, partition.measure
    if partition.size < 2:
        return prefix, bits, measure, released
    up = to_parent[bits]
    parent = prefix >> up.astype(np.uint64)
    # In the order of keys a family of leaves is a run of equal (parent, bits); a sibling that was cut further
    # breaks into the run.
    fresh = np.ones(partition.size, dtype=bool)
    fresh[1:] = (parent[1:] != parent[:-1]) | (bits[1:] != bits[:-1])
    first = np.flatnonzero(fresh)
    together = np.add.reduceat(released, first)
    size = np.add.reduceat(measure, first)
    whole = _is_family(partition, parent, up, first)
    merge = whole & (together < merge_below)
    run = np.cumsum(fresh) - 1
    keep = ~merge[run] | fresh
    merged = merge[run[keep]]
    return (
        np.where(merged, parent[keep], prefix[keep]),
        np.where(merged, (bits - up)[keep], bits[keep]),
        np.where(merged, size[run[keep]], measure[keep]),
        np.where(merged, together[run[keep]], released[keep]),
    )


def _is_family(partition: Partition, parent: Keys, up: Ints, first: Ints) -> Bools:
    """Whether each run of equal (parent, bits) is all that the partition has below that parent."""
    last = np.append(first[1:], partition.size)
    bounds = Partition(parent[first], (partition.bits - up)[first], np.ones(first.size))
    begins = np.searchsorted(partition.start, bounds.start)
    ends = np.searchsorted(partition.start, bounds.stop)
    family: Bools = (up[first] > 0) & (begins == first) & (ends == last)
    return family
