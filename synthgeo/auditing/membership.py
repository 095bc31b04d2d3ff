"""Membership inference: can somebody who holds a record tell from synthetic data whether it was in the input?

The attack is the one practitioners fear and the literature reports: distance to the closest synthetic record,
for records that were in the input against records that were not. It is an end-to-end check of a whole
product, far weaker than ``audit`` as a test of ε, and it reads private data: its result is for the curator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree

from synthgeo import validate
from synthgeo.arrays import Floats
from synthgeo.auditing.blackbox import clopper_pearson
from synthgeo.domain.coordinates import coordinates_of
from synthgeo.errors import ConfigError, InputError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.sources import open_source

_BLOCK = 1 << 22


@dataclass(frozen=True)
class MembershipResult:
    """Advantage (true minus false positive rate) of the attack, its interval, and what ε allows."""

    advantage: float
    interval: tuple[float, float]
    confidence: float
    allowed: float | None
    members: int
    non_members: int
    threshold: float

    @property
    def violates(self) -> bool:
        """Whether even the interval's lower end exceeds what the budget allows."""
        return self.allowed is not None and self.interval[0] > self.allowed

    def __str__(self) -> str:
        bound = "" if self.allowed is None else f", the budget allows {self.allowed:.3f}"
        low, high = self.interval
        return (
            f"membership advantage {self.advantage:.3f} (between {low:.3f} and {high:.3f} at confidence "
            f"{self.confidence:g}{bound}), from {self.members} members and {self.non_members} others"
        )


def allowed_advantage(budget: PrivacyBudget) -> float:
    """The largest TPR - FPR that (ε, δ) allows any attack on one unit: (e^ε - 1 + 2δ) / (e^ε + 1).

    >>> round(allowed_advantage(PrivacyBudget(1.0)), 4)
    0.4621
    """
    grown = math.exp(min(budget.epsilon, 700.0))
    return min(1.0, (grown - 1 + 2 * budget.delta) / (grown + 1))


def membership_attack(
    synthetic: Any,
    members: Any,
    non_members: Any,
    *,
    budget: PrivacyBudget | None = None,
    confidence: float = 0.99,
    distance: Callable[[Any, Any], Floats] | None = None,
) -> MembershipResult:
    """Attack synthetic data by the distance to its closest record.

    ``members`` were in the input and ``non_members`` are fresh records of the same population (a holdout),
    each record one unit. All three are arrays of numbers (Euclidean distance) or DataFrames (share of columns
    that differ); ``distance(records, synthetic)`` may be given instead and returns one number for each
    record. Half of the records choose the threshold, and on which side of it to say "member"; the other half
    measures, with exact binomial bounds.
    """
    validate.share(confidence, "confidence")
    measure = closest_distance if distance is None else distance
    inside, outside = measure(members, synthetic), measure(non_members, synthetic)
    if min(inside.size, outside.size) < 20:
        raise InputError("a membership attack needs at least 20 members and 20 non-members")
    threshold, near = _choose(inside[::2], outside[::2])
    hits = [_says_member(part[1::2], threshold, near) for part in (inside, outside)]
    sizes = [part[1::2].size for part in (inside, outside)]
    miss = (1 - confidence) / 4
    ends = [clopper_pearson(hit, size, miss) for hit, size in zip(hits, sizes, strict=True)]
    return MembershipResult(
        advantage=hits[0] / sizes[0] - hits[1] / sizes[1],
        interval=(float(ends[0][0] - ends[1][1]), float(ends[0][1] - ends[1][0])),
        confidence=confidence,
        allowed=None if budget is None else allowed_advantage(budget),
        members=inside.size,
        non_members=outside.size,
        threshold=threshold,
    )


def attack_release(
    release: Any, members: Any, non_members: Any, *, confidence: float = 0.99, **columns: Any
) -> MembershipResult:
    """Attack a release of points, a table or trips as it came from its stream or model.

    ``members`` are (some of) the private records that it was made from, ``non_members`` records of the same
    kind that it was not: what a curator keeps back on purpose. The bound is for one privacy unit, so each
    record should be one. ``columns`` name coordinates where their names do not say it (``x``, ``y``,
    ``crs``). The result is computed from private data: for the curator only.
    """
    product = getattr(release, "product", None)
    if product == "table":
        parts = [_codes(part, release.schema) for part in (release.to_pandas(), members, non_members)]
    elif product == "points":
        places = [coordinates_of(part, release.domain, **columns) for part in (members, non_members)]
        parts = [release.xy, *places]
    elif product == "trips":
        parts = [trip_vectors(_placed(release.data, release.domain))]
        parts += [trip_vectors(_placed(part, release.domain, **columns)) for part in (members, non_members)]
    else:
        raise ConfigError("a membership attack takes a release as a stream or a synthesizer made it")
    return membership_attack(*parts, budget=release.spent, confidence=confidence)


def _codes(table: pd.DataFrame, schema: Any) -> pd.DataFrame:
    """Records as the model sees them: in bins and cells."""
    return pd.DataFrame(schema.encode(open_source(table).read(schema.inputs)))


def _placed(points: pd.DataFrame, domain: Any, **columns: Any) -> pd.DataFrame:
    """Points of trips in the domain's coordinates."""
    if "trip_id" not in points:
        raise InputError("column 'trip_id' is missing: it says which points are one trip")
    xy = coordinates_of(points, domain, **columns)
    return pd.DataFrame({"trip_id": points["trip_id"].to_numpy(), "x": xy[:, 0], "y": xy[:, 1]})


def closest_distance(records: Any, synthetic: Any) -> Floats:
    """Distance of each record to the closest synthetic one: Euclidean for arrays, share of differing columns
    for frames.
    """
    if isinstance(records, pd.DataFrame):
        return _closest_rows(records, synthetic)
    a, b = np.asarray(records, dtype=np.float64), np.asarray(synthetic, dtype=np.float64)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise InputError(f"records of shape {a.shape} and {b.shape} cannot be compared")
    if len(b) == 0:
        return np.full(len(a), np.inf)
    return np.asarray(cKDTree(b).query(a)[0])


def trip_vectors(
    points: pd.DataFrame, *, size: int = 8, x: str = "x", y: str = "y", trip: str = "trip_id"
) -> Floats:
    """Each trip as ``size`` places spread evenly over its points, one row per trip."""
    at = np.linspace(0, 1, size)
    rows = []
    for _, part in points.groupby(trip, sort=True):
        along = np.linspace(0, 1, len(part)) if len(part) > 1 else np.zeros(1)
        rows.append(np.r_[np.interp(at, along, part[x]), np.interp(at, along, part[y])])
    return np.array(rows).reshape(-1, 2 * size)


def _closest_rows(records: pd.DataFrame, synthetic: pd.DataFrame) -> Floats:
    missing = [column for column in records.columns if column not in synthetic.columns]
    if missing:
        raise InputError(f"column {missing[0]!r} is not in the synthetic table")
    if len(synthetic) == 0:
        return np.full(len(records), np.inf)
    codes = []
    for column in records.columns:
        both = pd.concat([records[column].astype(str), synthetic[column].astype(str)])
        codes.append(pd.factorize(both)[0])
    matrix = np.stack(codes, axis=1)
    mine = matrix[: len(records)]
    theirs = np.unique(matrix[len(records) :], axis=0)
    block = max(1, _BLOCK // max(1, theirs.size))
    parts = [
        (mine[i : i + block, None, :] != theirs[None, :, :]).mean(axis=2).min(axis=1)
        for i in range(0, len(mine), block)
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def _choose(inside: Floats, outside: Floats) -> tuple[float, bool]:
    """Threshold and side of the largest advantage."""
    cuts = np.unique(np.concatenate([inside, outside]))
    near = [np.searchsorted(np.sort(part), cuts, side="right") / part.size for part in (inside, outside)]
    gap = near[0] - near[1]
    if gap.max() >= -gap.min():
        return float(cuts[int(np.argmax(gap))]), True
    return float(cuts[int(np.argmin(gap))]), False


def _says_member(distances: Floats, threshold: float, near: bool) -> int:
    return int(np.count_nonzero(distances <= threshold if near else distances > threshold))
