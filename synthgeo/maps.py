"""Maps of releases with matplotlib. A picture that shows true data says so, and is for the curator only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import shapely

from synthgeo.domain.coordinates import coordinates_of
from synthgeo.extras import require
from synthgeo.hierarchy.base import hierarchy_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SYNTHETIC = "#0b6e99"
_TRUE = "#b3471d"
_LINES = "#8a8a8a"


def plot_points(release: Any, *, true: Any = None, ax: Any = None) -> Axes | np.ndarray:
    """Synthetic points and partition; with ``true``, the private points beside them on the same axes."""
    plt = require("matplotlib.pyplot", extra="report")
    statement = release.provenance
    label = f"synthetic, step {release.step}"
    if not release.releasable:
        label += " (not releasable)"
    if true is None:
        if ax is None:
            _, ax = plt.subplots(figsize=(6, 6), layout="constrained")
        _draw(ax, release, release.xy, _SYNTHETIC, f"{label}, {release.total:,} points", cells=True)
        single: Axes = ax
        return single
    if ax is None:
        _, ax = plt.subplots(1, 2, figsize=(11, 5.5), layout="constrained", sharex=True, sharey=True)
    left, right = ax
    points = true if isinstance(true, np.ndarray) else coordinates_of(true, release.domain)
    _draw(left, release, points, _TRUE, "true (curator only)", cells=False)
    _draw(right, release, release.xy, _SYNTHETIC, label, cells=True)
    left.figure.supxlabel(
        f"A good result: the same places dense and empty on both sides. {statement['mechanism']}, "
        f"ε = {statement['budget']['epsilon']:g}"
        if statement.get("budget")
        else "not private",
        fontsize=8,
    )
    return np.asarray(ax)


def plot_lines(
    domain: Any, xy: np.ndarray, offsets: np.ndarray, *, ax: Any = None, title: str, true: bool = False
) -> Axes:
    """Lines (``xy[offsets[i]:offsets[i + 1]]``) on a map of their domain; ``true`` ones in another colour."""
    plt = require("matplotlib.pyplot", extra="report")
    collections = require("matplotlib.collections", extra="report")
    if ax is None:
        _, ax = plt.subplots(figsize=(7, 7), layout="constrained")
    ax.add_collection(
        collections.LineCollection(_outline(domain.outline()), colors="#cccccc", linewidths=0.4)
    )
    parts = np.split(xy[: offsets[-1]], offsets[1:-1])
    colour = _TRUE if true else _SYNTHETIC
    ax.add_collection(collections.LineCollection(parts, colors=colour, linewidths=0.8, alpha=0.25))
    minx, miny, maxx, maxy = domain.bounds
    unit = "" if domain.crs is None else " (m)"
    ax.set(xlim=(minx, maxx), ylim=(miny, maxy), aspect="equal", xlabel=f"x{unit}", ylabel=f"y{unit}")
    ax.set_title(title, fontsize=9)
    axes: Axes = ax
    return axes


def _draw(ax: Axes, release: Any, xy: np.ndarray, colour: str, title: str, *, cells: bool) -> None:
    from matplotlib.collections import LineCollection

    domain = release.domain
    lines = _outline(domain.outline())
    ax.add_collection(LineCollection(lines, colors=_LINES, linewidths=0.4, alpha=0.7))
    if cells and domain.kind != "roads" and release.partition.size <= 20_000:
        shapes = hierarchy_of(domain).geometry(release.partition.prefix, release.partition.bits)
        if domain.kind != "h3":  # a rectangle each, whatever coast it holds
            shapes = shapely.box(*shapely.bounds(shapes).T)
        rings = [ring for shape in shapes for ring in _outline(shape)]
        ax.add_collection(LineCollection(rings, colors=_LINES, linewidths=0.3, alpha=0.5))
    size = float(np.clip(4000 / max(len(xy), 1), 0.2, 6))
    ax.plot(
        xy[:, 0],
        xy[:, 1],
        linestyle="none",
        marker=".",
        markersize=size,
        color=colour,
        alpha=0.5,
        rasterized=True,
    )
    minx, miny, maxx, maxy = domain.bounds
    ax.set(xlim=(minx, maxx), ylim=(miny, maxy), title=title)
    unit = (
        "degrees"
        if domain.crs is not None and domain.crs.is_geographic
        else ("m" if domain.crs is not None else "")
    )
    ax.set_xlabel("longitude (degrees)" if unit == "degrees" else f"x {f'({unit})' if unit else ''}".strip())
    ax.set_ylabel("latitude (degrees)" if unit == "degrees" else f"y {f'({unit})' if unit else ''}".strip())
    if unit == "degrees":
        ax.set_aspect(1 / max(np.cos(np.radians((miny + maxy) / 2)), 0.1))
    else:
        ax.set_aspect("equal")
    ax.tick_params(labelsize=7)


def _outline(geometry: shapely.Geometry) -> list[np.ndarray]:
    """All rings and lines of a geometry as coordinate arrays."""
    parts = shapely.get_parts(geometry)
    if shapely.get_dimensions(geometry) == 2:
        parts = shapely.get_rings(parts)
    return [shapely.get_coordinates(part) for part in parts]
