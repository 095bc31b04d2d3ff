"""Pairs of inputs that differ in one unit, built to hurt: what to give to ``audit`` for each product.

Every function returns ``(without, with)`` or, where more than presence differs, ``(one, other)``. The pairs
are tiny on purpose: many runs matter more than much data, and the worst case of a mechanism is a small one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from synthgeo import validate
from synthgeo.domain.box import SpatialDomain
from synthgeo.hierarchy.base import hierarchy_of

Pair = tuple[Any, Any]


def border_event(length: int, at: int, *, background: int = 0) -> Pair:
    """Two series of counts; the second has one event more at step ``at`` (from 1).

    The first step of a tree counter lies in the most nodes; the last step of a block is the one a careless
    counter leaves out or counts twice; a structure step is the one whose events pay for two things.
    """
    validate.whole(at, "at", low=1, high=length)
    quiet = np.full(length, background, dtype=np.int64)
    loud = quiet.copy()
    loud[at - 1] += 1
    return quiet, loud


def loyal_user(length: int, *, background: int = 0) -> Pair:
    """Two series of counts; the second has one user more, who is in every step (user-level series
    mechanisms).
    """
    quiet = np.full(length, background, dtype=np.int64)
    return quiet, quiet + 1


def lone_point(domain: SpatialDomain, *, crowd: int = 30, bits: int = 6) -> Pair:
    """A crowd in one corner cell, and the same with one outlier, alone in the cell at the other end.

    A mechanism that skips empty cells, or clips to what it has seen, gives the outlier away.
    """
    ends = _cells(domain, bits)[[0, -1]]
    xy = _middle(domain, ends, bits)
    without = pd.DataFrame({"x": np.full(crowd, xy[0, 0]), "y": np.full(crowd, xy[0, 1])})
    outlier = pd.DataFrame({"x": [xy[1, 0]], "y": [xy[1, 1]]})
    return without, pd.concat([without, outlier], ignore_index=True)


def deletion_path(domain: SpatialDomain, *, levels: int, decay: float) -> Pair:
    """Inserts deep in one cell and deletes in all siblings on the way: the path that breaks the printed
    PHDStream.

    With bias ``decay`` (δ, in counts) a level, the net count at depth d is about d·δ: it *rises* along the
    path, as no count of points can, and every node's biased score sits at the threshold. A rule that scores
    net counts loses up to 1/λ at each of the levels; one that scores inserts, on top of what was released,
    does not.
    """
    target = np.round(np.arange(levels + 1) * decay).astype(np.int64)
    deep = np.zeros(1, dtype=np.uint64)
    xy = [_middle(domain, deep, levels).repeat(int(target[-1]), axis=0)]
    op = [np.ones(int(target[-1]), dtype=np.int64)]
    for depth in range(1, levels + 1):
        taken = int(target[depth] - target[depth - 1])
        xy.append(_middle(domain, np.ones(1, dtype=np.uint64), depth).repeat(taken, axis=0))
        op.append(np.full(taken, -1, dtype=np.int64))
    places = np.concatenate(xy)
    without = pd.DataFrame({"x": places[:, 0], "y": places[:, 1], "op": np.concatenate(op)})
    return without, pd.concat([without, without.iloc[:1]], ignore_index=True)


def user_at_bound(
    domain: SpatialDomain, *, bound: int, excess: int = 3, crowd: int = 10, key: str = "user_id"
) -> Pair:
    """A crowd of users with one event each, and the same with one who has ``excess`` events above the bound,
    all in one place.

    Bounding that keeps what exceeds the bound, or that looks at other users to decide, shows here.
    """
    cells = _cells(domain, 4)[[0, -1]]
    xy = _middle(domain, cells, 4)
    without = pd.DataFrame(
        {"x": np.full(crowd, xy[0, 0]), "y": np.full(crowd, xy[0, 1]), key: [f"u{i}" for i in range(crowd)]}
    )
    many = bound + excess
    heavy = pd.DataFrame({"x": np.full(many, xy[1, 0]), "y": np.full(many, xy[1, 1]), key: ["heavy"] * many})
    return without, pd.concat([without, heavy], ignore_index=True)


def marginal_flip(*, rows: int = 12, names: tuple[str, str, str] = ("a", "b", "c")) -> Pair:
    """A table in which the pairs (a, b) and (b, c) are exactly equally informative, and one record more that
    tips it.

    All columns hold "0" and "1". The record agrees in a and b and differs in c: it strengthens one pair and
    weakens the other, so a selection with too large an exponent gives it away.
    """
    half = rows // 2
    table = pd.DataFrame({name: ["0"] * half + ["1"] * half for name in names})
    record = pd.DataFrame({names[0]: ["1"], names[1]: ["1"], names[2]: ["0"]})
    return table, pd.concat([table, record], ignore_index=True)


def rare_record(*, rows: int = 12, columns: int = 3) -> Pair:
    """A table of equal rows of "0", and the same with one row of "1", unique in every marginal."""
    names = [chr(ord("a") + i) for i in range(columns)]
    table = pd.DataFrame({name: ["0"] * rows for name in names})
    return table, pd.concat([table, pd.DataFrame({name: ["1"] for name in names})], ignore_index=True)


def unique_trip(domain: SpatialDomain, *, trips: int = 8, points: int = 6, bits: int = 6) -> Pair:
    """Trips that all run between the same two places, and the same with one trip the other way round.

    Its origin-destination pair occurs nowhere else: a synthesizer that drops empty pairs, or that walks by
    the true transitions, gives it away.
    """
    ends = _middle(domain, _cells(domain, bits)[[0, -1]], bits)
    along = np.linspace(0, 1, points)[:, None]
    there = ends[0] * (1 - along) + ends[1] * along
    frames = [pd.DataFrame({"trip_id": f"t{i}", "x": there[:, 0], "y": there[:, 1]}) for i in range(trips)]
    back = pd.DataFrame({"trip_id": "back", "x": there[::-1, 0], "y": there[::-1, 1]})
    without = pd.concat(frames, ignore_index=True)
    return without, pd.concat([without, back], ignore_index=True)


def _cells(domain: SpatialDomain, bits: int) -> np.ndarray:
    """The cells of one depth where the domain has something."""
    prefix = np.arange(1 << bits, dtype=np.uint64)
    return prefix[hierarchy_of(domain).measure(prefix, bits) > 0]


def _middle(domain: SpatialDomain, prefix: np.ndarray, bits: int) -> np.ndarray:
    """One point inside each cell's part of the domain."""
    inside = [shape.representative_point() for shape in hierarchy_of(domain).geometry(prefix, bits)]
    return np.array([(point.x, point.y) for point in inside])
