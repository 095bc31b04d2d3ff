"""Geometry packed for the page's canvas: quantised to the map's frame, a few bytes per point."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from synthgeo import ragged
from synthgeo.arrays import Bools, Floats, Ints, Points
from synthgeo.polylines import Polylines

# More than this many points or lines make a page heavy and a picture no clearer.
MOST_POINTS = 1_000_000  # on one map, over all of its steps: about 5 MB of the page
MOST_TRIPS = 100_000
_MOST_VERTICES = 1_500_000  # of all trips of one map: about 12 MB of the page
_COARSE = 2_000  # a vertex nearer to its neighbours' chord than a 2,000th of the frame is not seen
_STEPS = 65_535


def frame_of(bounds: tuple[float, float, float, float], *, geographic: bool) -> dict[str, Any]:
    """What the page needs to draw in proportion: bounds, and how much shorter a degree of longitude is."""
    stretch = float(np.cos(np.radians((bounds[1] + bounds[3]) / 2))) if geographic else 1.0
    return {"bounds": list(bounds), "stretch": max(stretch, 0.1)}


def points(
    steps: Sequence[NDArray[np.float64]],
    bounds: tuple[float, float, float, float],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """At most ``MOST_POINTS`` points over all steps, as 16-bit pairs, and where each step's points end.

    ``shown`` and ``total`` count those of the last step.
    """
    most = MOST_POINTS // len(steps)
    kept = [xy if len(xy) <= most else xy[rng.choice(len(xy), most, replace=False)] for xy in steps]
    return {
        "shown": len(kept[-1]),
        "total": len(steps[-1]),
        "points": _pack(_quantise(np.concatenate(kept), bounds)),
        "ends": np.cumsum([len(xy) for xy in kept]).tolist(),
    }


def paths(geometries: Any, bounds: tuple[float, float, float, float], *, most: int) -> dict[str, Any]:
    """Lines, or the rings of polygons, as 16-bit pairs with the length of each run."""
    parts = shapely.get_parts(np.asarray(geometries, dtype=object))
    areas = shapely.get_dimensions(parts) == 2
    parts = np.concatenate([parts[~areas], shapely.get_rings(parts[areas])])
    parts = parts[~shapely.is_empty(parts)]
    shown = parts[:most]
    coordinates, index = shapely.get_coordinates(shown, return_index=True)
    runs = np.bincount(index, minlength=len(shown)) if len(shown) else np.empty(0, dtype=np.int64)
    return {
        "shown": len(shown),
        "total": len(parts),
        "paths": _pack(_quantise(coordinates, bounds)),
        "runs": _pack(runs.astype("<u4")),
    }


def trips(
    lines: Polylines,
    bounds: tuple[float, float, float, float],
    *,
    seconds: Floats | None = None,
    leaves: Floats | None = None,
) -> dict[str, Any]:
    """At most ``MOST_TRIPS`` lines, without the vertices that nobody would see.

    With ``seconds`` after departure at each vertex, and the second of the day at which each trip ``leaves``,
    the page drives them: ``times`` are shares of each trip's duration in 16 bits.
    """
    shown = min(len(lines.offsets) - 1, MOST_TRIPS)
    offsets = lines.offsets[: shown + 1]
    xy = lines.xy[: offsets[-1]]
    keep = _seen(xy, offsets, bounds)
    runs = np.diff(ragged.where(offsets, keep))
    out = {
        "shown": shown,
        "total": len(lines.offsets) - 1,
        "paths": _pack(_quantise(xy[keep], bounds)),
        "runs": _pack(runs.astype("<u4")),
    }
    if seconds is None or leaves is None:
        return out
    duration = seconds[offsets[1:] - 1]
    share = seconds[: offsets[-1]] / np.maximum(duration, 1e-9)[ragged.owners_of(offsets)]
    return out | {
        "times": _pack(np.round(np.clip(share[keep], 0, 1) * _STEPS).astype("<u2")),
        "leaves": _pack(np.asarray(leaves[:shown], dtype="<f4")),
        "lasts": _pack(duration.astype("<f4")),
    }


def _seen(xy: Points, offsets: Ints, bounds: tuple[float, float, float, float]) -> Bools:
    """Which vertices to keep: both ends of every line, every eighth vertex, and those where it turns."""
    place = ragged.ranks_of(np.diff(offsets))
    keep: Bools = place % 8 == 0
    keep[offsets[1:] - 1] = True
    if len(xy) > 2:
        chord, leg = xy[2:] - xy[:-2], xy[1:-1] - xy[:-2]
        apart = np.abs(chord[:, 0] * leg[:, 1] - chord[:, 1] * leg[:, 0])
        limit = max(bounds[2] - bounds[0], bounds[3] - bounds[1]) / _COARSE
        keep[1:-1] |= apart > limit * np.hypot(*chord.T)
    most = _MOST_VERTICES // max(len(offsets) - 1, 1)
    if keep.sum() > _MOST_VERTICES:  # as many of each line as fit
        stride = -(-np.diff(offsets) // max(most - 1, 1))
        keep = place % np.maximum(stride, 1)[ragged.owners_of(offsets)] == 0
        keep[offsets[1:] - 1] = True
    return keep


def _quantise(xy: NDArray[np.float64], bounds: tuple[float, float, float, float]) -> NDArray[np.uint16]:
    minx, miny, maxx, maxy = bounds
    scaled = (xy - (minx, miny)) / (max(maxx - minx, 1e-12), max(maxy - miny, 1e-12))
    return np.round(np.clip(scaled, 0, 1) * _STEPS).astype("<u2")


def _pack(array: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
