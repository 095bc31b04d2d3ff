"""What noise does to the estimates of a stream whose leaves follow its releases: nothing, on average?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import synthgeo as sg
from streams.mechanism import EventBudget
from streams.spatial.expiring import Expiring
from streams.spatial.lasting import Lasting
from streams.spatial.overlay import overlay
from streams.spatial.phd import PHD
from streams.spatial.structure import Structure
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.cells import Partition
from synthgeo.sources import Histogram

BOX = sg.BoxDomain(0, 0, 1, 1)
Make = Callable[..., Any]


class _NoNoise(sg.SeededNoise):
    """A noise source whose draws are 0."""

    def discrete_laplace(self, scale: Any, size: Any = None) -> Any:
        return np.zeros(np.shape(scale) or (1 if size is None else int(size)), dtype=np.int64)


class _Mirror:
    """In place of a mechanism's structure: the leaves of another one."""

    def __init__(self, other: Any, structure: Structure) -> None:
        self.other, self.bits, self.blank = other, structure.bits, structure.blank

    def leaves(self, _: Any, counts: Histogram) -> tuple[Partition, Histogram]:
        return self.other.cells.partition, counts

    def follow(self, *_: Any, **__: Any) -> Partition:
        return self.other.cells.partition  # type: ignore[no-any-return]


def expiring(**parts: Any) -> Expiring:
    """A lifetime of 30 steps."""
    return Expiring(lifetime=30, deletions=False, adapts=True, **parts)


def tree_counters(**parts: Any) -> PHD:
    """A k-ary counter on each leaf: what is biased where leaves stop by their own noise."""
    return PHD(always=False, adapts=True, counter="kary", horizon=200, **parts)


def noise_in(make: Make, seed: int, steps: int) -> list[float]:
    """What the noise did to the total and to the four of 16 parts of the box that are busiest by truth: the
    estimate of a mechanism less that of its twin without noise on the same leaves.
    """
    event, cut = EventBudget.of(sg.PrivacyBudget(0.5), None, 0.5), hierarchy_of(BOX)
    pair = []
    for noise in (sg.SeededNoise(seed), _NoNoise(1)):
        rules = Structure(
            cut, event=event, settings=sg.PointSettings(max_depth=8, fanout=2, theta=0.0), noise=noise
        )
        pair.append(make(structure=rules, event=event, noise=noise))
    noisy, quiet = pair
    quiet.structure = _Mirror(noisy, quiet.structure)
    for step in range(1, steps + 1):
        xy = np.clip(np.random.default_rng(step % 40).normal(0.4, 0.1, (15, 2)), 0, 1)
        keys, _ = cut.locate(xy, 8)
        found = Histogram.of(keys, np.tile([[1, 0]], (15, 1)))
        for mechanism in pair:
            mechanism.advance(found, step=step, structure=step == 1)
    onto = Partition(np.arange(16, dtype=np.uint64), np.full(16, 4), np.full(16, 1 / 16))
    inside = [
        overlay(onto, m.cells.estimate.cells, m.cells.estimate.values, m.cells.estimate.variance)[0]
        for m in pair
    ]
    busiest = np.argsort(-inside[1])[:4]
    difference = inside[0] - inside[1]
    return [float(difference.sum()), *difference[busiest].tolist()]


def bias(make: Make, runs: int, steps: int = 160) -> np.ndarray:
    """Mean of the noise in the total and in the busy parts over its standard error."""
    found = np.array([noise_in(make, seed, steps) for seed in range(runs)])
    return np.asarray(found.mean(axis=0) / (found.std(axis=0, ddof=1) / np.sqrt(runs)))


KINDS: dict[str, Make] = {
    "no lifetime (the default)": Lasting,
    "a lifetime of 30 steps": expiring,
    "k-ary counters on the leaves": tree_counters,
}
