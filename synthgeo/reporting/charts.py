"""Small SVG charts: axes, units, and marks that can be told apart without colour."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import shapely
from numpy.typing import ArrayLike, NDArray

from synthgeo import ragged
from synthgeo.arrays import Bools, Floats, Ints, Points
from synthgeo.polylines import Polylines

WIDTH, HEIGHT = 460, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 44
_DASHES = ("", "6 3", "2 3", "9 3 2 3")


@dataclass(frozen=True)
class Series:
    """A named row of numbers; ``true`` marks private data, drawn hatched or hollow."""

    name: str
    values: Sequence[float]
    true: bool = False


def bars(labels: Sequence[str], series: Sequence[Series], *, x: str, y: str) -> str:
    """Grouped bars, one group a label."""
    top = max((max(s.values, default=0.0) for s in series), default=0.0)
    scale = _Scale(0.0, top)
    group = (WIDTH - _LEFT - _RIGHT) / max(len(labels), 1)
    width = group * 0.8 / max(len(series), 1)
    marks = []
    for i, label in enumerate(labels):
        for j, s in enumerate(series):
            left = _LEFT + group * (i + 0.1) + j * width
            upper = scale(s.values[i])
            kind = "true" if s.true else "synthetic"
            title = f"{escape(label)}: {escape(s.name)} {s.values[i]:.3g}"
            marks.append(
                f'<rect class="bar {kind}" x="{left:.1f}" y="{upper:.1f}" width="{width:.1f}" '
                f'height="{max(HEIGHT - _BOTTOM - upper, 0):.1f}"><title>{title}</title></rect>'
            )
    every = max(1, math.ceil(len(labels) / 9))
    ticks = "".join(
        f'<text class="tick" text-anchor="middle" x="{_LEFT + group * (i + 0.5):.1f}" y="{HEIGHT - 28}">'
        f"{escape(_short(label))}</text>"
        for i, label in enumerate(labels)
        if i % every == 0
    )
    return _frame(scale, "".join(marks) + ticks, x=x, y=y, names=[s.name for s in series])


def lines(xs: Sequence[float], series: Sequence[Series], *, x: str, y: str) -> str:
    """Lines over a common axis, told apart by dashes and by their names at the right end."""
    values = [v for s in series for v in s.values if math.isfinite(v)]
    scale = _Scale(0.0, max(values, default=0.0))
    low, high = min(xs, default=0.0), max(xs, default=1.0)
    reach = (WIDTH - _LEFT - _RIGHT - 84) / ((high - low) or 1.0)
    marks = []
    for i, s in enumerate(series):
        points = [
            (_LEFT + (a - low) * reach, scale(b))
            for a, b in zip(xs, s.values, strict=True)
            if math.isfinite(b)
        ]
        if not points:
            continue
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        kind = "true" if s.true else "synthetic"
        dash = f' stroke-dasharray="{_DASHES[i % 4]}"' if _DASHES[i % 4] else ""
        marks.append(f'<polyline class="line {kind} s{i}" points="{path}"{dash}/>')
        end = f'x="{points[-1][0] + 4:.1f}" y="{points[-1][1] + 3:.1f}"'
        marks.append(f'<text class="tick" {end}>{escape(s.name)}</text>')
    ticks = "".join(
        f'<text class="tick" text-anchor="middle" x="{_LEFT + (a - low) * reach:.1f}" y="{HEIGHT - 28}">'
        f"{a:g}</text>"
        for a in _ticks(low, high)
    )
    return _frame(scale, "".join(marks) + ticks, x=x, y=y, names=[s.name for s in series])


def heatmaps(
    across: Sequence[str], up: Sequence[str], panels: Sequence[tuple[str, Floats]], *, x: str, y: str
) -> str:
    """Shares of pairs of values, one picture for each panel, the darker the more; ``true`` is private."""
    top = max((float(table.max(initial=0.0)) for _, table in panels), default=0.0) or 1.0
    side = (WIDTH - _LEFT - _RIGHT) / len(panels)
    wide, high = (side - 10) / max(len(across), 1), (HEIGHT - _TOP - _BOTTOM) / max(len(up), 1)
    marks = []
    for panel, (kind, table) in enumerate(panels):
        left = _LEFT + panel * side
        for (i, j), share in np.ndenumerate(table):
            title = f"{escape(across[i])}, {escape(up[j])}: {kind} {share:.3g}"
            marks.append(
                f'<rect class="heat {kind}" x="{left + i * wide:.1f}" '
                f'y="{HEIGHT - _BOTTOM - (j + 1) * high:.1f}" width="{wide:.1f}" height="{high:.1f}" '
                f'fill-opacity="{math.sqrt(share / top):.2f}"><title>{title}</title></rect>'
            )
        place = f'x="{left + side / 2 - 5:.1f}" y="{HEIGHT - _BOTTOM + 12}"'
        marks.append(f'<text class="tick" text-anchor="middle" {place}>{kind}</text>')
    every = max(1, math.ceil(len(up) / 8))
    ticks = "".join(
        f'<text class="tick" text-anchor="end" x="{_LEFT - 4}" '
        f'y="{HEIGHT - _BOTTOM - (j + 0.5) * high + 3:.1f}">{escape(_short(label))}</text>'
        for j, label in enumerate(up)
        if j % every == 0
    )
    return _labelled("".join(marks) + ticks, x=x, y=y, names=[kind for kind, _ in panels])


def histogram(true: ArrayLike | None, synthetic: ArrayLike, *, x: str, bins: int = 20) -> str:
    """Shares of values in equal bins over both series' common range."""
    both = np.concatenate([np.asarray(synthetic, float), np.asarray(true if true is not None else [], float)])
    both = both[np.isfinite(both)]
    if both.size == 0:
        return bars([], [Series("synthetic", [])], x=x, y="share")
    edges = np.histogram_bin_edges(
        both, bins=bins, range=(float(both.min()), float(np.quantile(both, 0.995)) or 1.0)
    )

    def share(values: ArrayLike) -> list[float]:
        counts = np.histogram(np.asarray(values, float), edges)[0]
        return list(counts / max(counts.sum(), 1))

    labels = [f"{edge:.3g}" for edge in edges[:-1]]
    series = [Series("synthetic", share(synthetic))]
    if true is not None:
        series.insert(0, Series("true", share(true), true=True))
    return bars(labels, series, x=x, y="share of trips")


class _Scale:
    """Values to vertical positions."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high if high > low else low + 1.0

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)


def _frame(scale: _Scale, marks: str, *, x: str, y: str, names: Sequence[str]) -> str:
    grid = "".join(
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{scale(v):.1f}" y2="{scale(v):.1f}"/>'
        f'<text class="tick" text-anchor="end" x="{_LEFT - 6}" y="{scale(v) + 3:.1f}">{v:g}</text>'
        for v in _ticks(scale.low, scale.high)
    )
    return _labelled(grid + marks, x=x, y=y, names=names)


def _labelled(marks: str, *, x: str, y: str, names: Sequence[str]) -> str:
    """The picture with the names of its axes, and a description for those who do not see it."""
    middle = (HEIGHT - _BOTTOM + _TOP) / 2
    label = escape(f"{y} by {x}: {', '.join(names)}")
    axis = '<text class="axis" text-anchor="middle"'
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{marks}'
        f'{axis} x="{(WIDTH + _LEFT) / 2}" y="{HEIGHT - 8}">{escape(x)}</text>'
        f'{axis} transform="translate(12 {middle}) rotate(-90)">{escape(y)}</text></svg>'
    )


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers from low to high."""
    if not high > low:
        return [low]
    step = 10 ** math.floor(math.log10((high - low) / 4))
    for factor in (1, 2, 5, 10):
        if (high - low) / (step * factor) <= 5:
            step *= factor
            break
    first = math.ceil(low / step)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _short(label: str) -> str:
    return label if len(label) <= 9 else label[:8] + "…"


# Geometry packed for the page's canvas: quantised to the map's frame, a few bytes per point.

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
