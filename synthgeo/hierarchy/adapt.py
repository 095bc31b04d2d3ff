"""Move a partition by released counts: split cells that hold enough, merge siblings that do not.

Guarantee
---------
Post-processing. The new partition is a function of released counts, public geometry and public thresholds,
so it costs no privacy budget, however often it is done. This is what lets a stream follow its data without
paying for a new PrivTree: events pay for the counts alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synthgeo.domain.spatial import SpatialDomain
from synthgeo.hierarchy.cells import Floats, Partition


def adapt(
    partition: Partition,
    released: Floats,
    *,
    domain: SpatialDomain,
    split_above: float,
    merge_below: float,
    step: int,
    max_bits: int,
) -> Partition:
    """The partition in which no cell of more than ``split_above`` is left whole, and siblings below
    ``merge_below`` are one.

    ``released`` is a non-negative released count of each cell; inside a cell it is taken to be spread by
    measure, so a cell of eight times the threshold is cut three times at once. ``step`` is halvings a level.
    """
    prefix, bits, measure, count = _merge(partition, released, merge_below, step)
    offsets = np.arange(1 << step, dtype=np.uint64)
    done = []
    while True:
        split = (count > split_above) & (bits + step <= max_bits)
        done.append((prefix[~split], bits[~split], measure[~split]))
        if not split.any():
            break
        parent_count, parent_bits = count[split], bits[split]
        children = ((prefix[split] << np.uint64(step))[:, None] | offsets).ravel()
        child_bits = np.repeat(parent_bits + step, 1 << step)
        child_measure = domain.measure(children, child_bits)
        of_parent = child_measure.reshape(-1, 1 << step).sum(axis=1)
        child_count = np.repeat(parent_count / of_parent, 1 << step) * child_measure
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


def _merge(
    partition: Partition, released: Floats, merge_below: float, step: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64], Floats, Floats]:
    """Families of siblings that are all leaves and hold little together become their parent."""
    prefix, bits, measure = partition.prefix, partition.bits, partition.measure
    if partition.size < 2:
        return prefix, bits, measure, released
    parent = prefix >> np.uint64(step)
    # In Morton order a family of leaves is a run of equal (parent, bits); a sibling that was cut further
    # breaks into the run.
    fresh = np.ones(partition.size, dtype=bool)
    fresh[1:] = (parent[1:] != parent[:-1]) | (bits[1:] != bits[:-1])
    first = np.flatnonzero(fresh)
    together = np.add.reduceat(released, first)
    size = np.add.reduceat(measure, first)
    whole = _is_family(partition, first, step)
    merge = whole & (together < merge_below)
    run = np.cumsum(fresh) - 1
    keep = ~merge[run] | fresh
    merged = merge[run[keep]]
    return (
        np.where(merged, parent[keep], prefix[keep]),
        np.where(merged, bits[keep] - step, bits[keep]),
        np.where(merged, size[run[keep]], measure[keep]),
        np.where(merged, together[run[keep]], released[keep]),
    )


def _is_family(partition: Partition, first: NDArray[np.intp], step: int) -> NDArray[np.bool_]:
    """Whether each run of equal (parent, bits) is all that the partition has below that parent."""
    last = np.append(first[1:], partition.size)
    parent_bits = partition.bits[first] - step
    shift = np.maximum(parent_bits, 0)
    parent = partition.prefix[first] >> np.uint64(step)
    bounds = Partition(parent, shift, np.ones(first.size))
    begins = np.searchsorted(partition.start, bounds.start)
    ends = np.searchsorted(partition.start, bounds.stop)
    family: NDArray[np.bool_] = (parent_bits >= 0) & (begins == first) & (ends == last)
    return family
