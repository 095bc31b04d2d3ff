"""The frames of a published folder: one per layer, with longitude and latitude as plain columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from synthgeo.release import Release

_DEGREES = 7  # decimals: about a centimetre


def published_frames(releases: Sequence[Release], crs: Any = None) -> dict[str, pd.DataFrame]:
    """One frame per layer over all ``releases``; several releases are told apart by ``step``.

    Geometries are in ``crs``, by default longitude and latitude where the domain's CRS is known. Points also
    have the plain columns ``lon`` and ``lat`` (``x`` and ``y`` where there is no CRS).
    """
    parts: dict[str, list[pd.DataFrame]] = {}
    for release in releases:
        for name, frame in release.layers.items():
            made = _readable(frame, crs)
            if len(releases) > 1:
                made.insert(0, "step", release.step)
                start = release.provenance.get("window_start")
                if start is not None and "window_start" not in made:
                    made.insert(1, "window_start", pd.Timestamp(start))
            parts.setdefault(name, []).append(made)
    return {name: pd.concat(frames, ignore_index=True) for name, frames in parts.items()}


def _readable(frame: pd.DataFrame, crs: Any) -> pd.DataFrame:
    import geopandas as gpd

    if not isinstance(frame, gpd.GeoDataFrame):
        return frame.copy()
    made = frame.drop(columns=[name for name in ("x", "y") if name in frame])
    kinds = set(made.geom_type.unique())
    ends = _ends(made) if kinds <= {"LineString"} else {"": made.geometry}
    for prefix, points in ends.items():
        for name, values in _plain(points).items():
            made.insert(made.columns.get_loc(made.geometry.name), f"{prefix}{name}", values)
    return made if made.crs is None else made.to_crs("EPSG:4326" if crs is None else crs)


def _ends(lines: Any) -> dict[str, Any]:
    """Where each line starts and ends."""
    import geopandas as gpd
    import shapely

    shapes = lines.geometry.to_numpy()
    return {
        "start_": gpd.GeoSeries(shapely.get_point(shapes, 0), crs=lines.crs, index=lines.index),
        "end_": gpd.GeoSeries(shapely.get_point(shapes, -1), crs=lines.crs, index=lines.index),
    }


def _plain(points: Any) -> dict[str, np.ndarray]:
    """Coordinates as columns."""
    if points.crs is None:
        return {"x": points.x.to_numpy(), "y": points.y.to_numpy()}
    degrees = points.to_crs("EPSG:4326")
    return {
        "lon": np.round(degrees.x.to_numpy(), _DEGREES),
        "lat": np.round(degrees.y.to_numpy(), _DEGREES),
    }


def period(releases: Sequence[Release]) -> str | None:
    """The time that the releases are about, where they were cut into windows."""
    starts = [r.provenance["window_start"] for r in releases if "window_start" in r.provenance]
    if not starts:
        return None
    last = releases[-1].provenance
    length = f", windows of {last['window']}" if "window" in last else ""
    return f"{min(starts)} to the end of the window that starts at {max(starts)}{length}"
