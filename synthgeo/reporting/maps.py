"""Geometry packed for the page's canvas: quantised to the map's frame, a few bytes per point."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

# More than this many points or lines make a page heavy and a picture no clearer.
MOST_POINTS = 1_000_000  # on one map, over all of its steps: about 5 MB of the page
MOST_LINES = 400
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


def paths(
    geometries: Any, bounds: tuple[float, float, float, float], *, most: int = MOST_LINES
) -> dict[str, Any]:
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


def _quantise(xy: NDArray[np.float64], bounds: tuple[float, float, float, float]) -> NDArray[np.uint16]:
    minx, miny, maxx, maxy = bounds
    scaled = (xy - (minx, miny)) / (max(maxx - minx, 1e-12), max(maxy - miny, 1e-12))
    return np.round(np.clip(scaled, 0, 1) * _STEPS).astype("<u2")


def _pack(array: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
