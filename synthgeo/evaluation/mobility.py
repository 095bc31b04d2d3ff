"""What papers on synthetic mobility report beside the ten figures of ``trajectories``. For the curator only.

Grids span the bounding box of the real trips, and the synthetic trips are given as many points a kilometre
as the real ones, as there. Jensen-Shannon figures are divergences with base-2 logarithms.

* ``density``: points on a 40x40 grid. ``transitions``: steps between cells of a 15x15 grid that differ.
* ``hotspots``: the 20 cells of a 15x15 grid that synthetic points visit most, as a ranking of the real
  visits: normalised discounted cumulative gain, 1 is best. These three as Du et al. (LDPTrace, 2023) and Hu
  et al. (RetraSyn, 2024) define them, but for the grids.
* ``gyration``: the root mean square distance of a trip's points from their middle, in 20 equal buckets.
* ``flows``: metres driven on each street, the sum of absolute differences over the sum of the real ones. A
  path is sampled every 100 metres and counts for the nearest street; off roads, for cells of a 40x40 grid.
* ``od_paths``: trips of both sides that start in the same cell of a 15x15 grid and end in the same one, one
  real with one synthetic: the mean Hausdorff distance of their paths in metres, at 17 points each (as HOSER
  compares paths of the same ends, Cao et al. 2025).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from synthgeo.arrays import Floats, Ints
from synthgeo.domain.roads import RoadDomain
from synthgeo.evaluation.paths import Paths, resample_like
from synthgeo.evaluation.trajectories import Grid, bucket_divergence, divergence, read_paths
from synthgeo.ragged import ranks_of, sums

_FINE, _COARSE, _TOP = 40, 15, 20
_EVERY = 100.0  # metres
_PIECES = 16


def mobility_scores(real: Any, synthetic: Any, *, domain: Any = None) -> dict[str, float]:
    """The six figures of synthetic trips against the real ones: not private. ``domain`` is that of both, and
    names the streets where it is a ``RoadDomain``.
    """
    truth, made = (_in_metres(read_paths(side, domain), domain) for side in (real, synthetic))
    made = resample_like(made, truth)
    box = truth.bounds()
    fine, coarse = Grid(box, _FINE), Grid(box, _COARSE)
    visits = [_counts(coarse.cells(paths.xy), _COARSE**2) for paths in (truth, made)]
    return {
        "density": divergence(*(_counts(fine.cells(paths.xy), _FINE**2) for paths in (truth, made))),
        "transitions": divergence(*(_moves(coarse, paths) for paths in (truth, made))),
        "hotspots": hotspot_gain(*visits, top=_TOP),
        "gyration": bucket_divergence(_gyration(truth), _gyration(made)),
        "flows": _flow_error(truth, made, domain, fine),
        "od_paths": _path_distance(truth, made, coarse),
    }


def _in_metres(paths: Paths, domain: Any) -> Paths:
    """Paths in a domain that is in degrees, or in units of its own, in metres. Roads are in metres."""
    from trajectories.reading.points import metres_per_unit

    if domain is None or isinstance(domain, RoadDomain):
        return paths
    return Paths(paths.xy * metres_per_unit(domain), paths.start)


def hotspot_gain(real: Floats, synthetic: Floats, *, top: int) -> float:
    """Normalised discounted cumulative gain of the ``top`` places of one ranking by the numbers of the other.

    >>> hotspot_gain(np.array([4.0, 2.0, 0.0]), np.array([9.0, 5.0, 1.0]), top=2)
    1.0
    """
    discount = 1 / np.log2(np.arange(min(top, len(real))) + 2)
    best = np.sort(real)[::-1][: len(discount)] @ discount
    found = real[np.argsort(-synthetic, kind="stable")[: len(discount)]] @ discount
    return float(found / best) if best > 0 else 1.0


def _counts(index: Ints, size: int) -> Floats:
    return np.bincount(index, minlength=size).astype(np.float64)


def _moves(grid: Grid, paths: Paths) -> Floats:
    cells, trip = grid.cells(paths.xy), paths.trip
    moved = (trip[1:] == trip[:-1]) & (cells[1:] != cells[:-1])
    size = grid.side**2
    return _counts(cells[:-1][moved] * size + cells[1:][moved], size**2)


def _gyration(paths: Paths) -> Floats:
    number = np.diff(paths.start)
    middle = sums(paths.xy, paths.start) / number[:, None]
    squares = ((paths.xy - middle[paths.trip]) ** 2).sum(axis=1)
    return np.sqrt(sums(squares, paths.start) / number)


def _flow_error(real: Paths, synthetic: Paths, domain: Any, grid: Grid) -> float:
    flows = []
    for paths in (real, synthetic):
        xy = paths.every(_EVERY).xy
        if isinstance(domain, RoadDomain):
            flow = _counts(domain.nearest(xy)[0], len(domain.network.edge_u))
        else:
            flow = _counts(grid.cells(xy), grid.side**2)
        flows.append(flow / paths.size)
    true, made = flows
    return float(np.abs(true - made).sum() / max(true.sum(), 1e-300))


def _path_distance(real: Paths, synthetic: Paths, grid: Grid) -> float:
    """Mean Hausdorff distance of paths between the same cells; NaN where none have the same."""
    size = grid.side**2
    named = []
    for paths in (real, synthetic):
        pair = grid.cells(paths.first) * size + grid.cells(paths.last)
        order = np.argsort(pair, kind="stable")
        rank = ranks_of(np.unique(pair, return_counts=True)[1])
        named.append((np.stack([pair[order], rank]), order))
    (one, order), (two, other) = named
    most = int(max(one[1].max(), two[1].max())) + 1
    _, first, second = np.intersect1d(one[0] * most + one[1], two[0] * most + two[1], return_indices=True)
    if not len(first):
        return float("nan")
    shapes = [
        paths.take(index).at(np.full(len(index), _PIECES)).xy.reshape(-1, _PIECES + 1, 2)
        for paths, index in ((real, order[first]), (synthetic, other[second]))
    ]
    apart = np.hypot(*np.moveaxis(shapes[0][:, :, None] - shapes[1][:, None], -1, 0))
    return float(np.maximum(apart.min(axis=2).max(axis=1), apart.min(axis=1).max(axis=1)).mean())


__all__ = ["hotspot_gain", "mobility_scores"]
