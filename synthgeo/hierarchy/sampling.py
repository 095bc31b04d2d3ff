"""Uniform points in rectangles and polygons, and draws by weight: what sampling in cells is made of.

All of it is post-processing on public geometry.
"""

from __future__ import annotations

import numpy as np
import shapely

from synthgeo import ragged
from synthgeo.arrays import Array, Floats, Ints, Points


def draw_by_weight(
    cumulative: Floats, first: Ints, last: Ints, counts: Ints, rng: np.random.Generator
) -> Ints:
    """``counts[i]`` items out of first[i], ..., last[i] - 1, by weights given as their cumulative sums."""
    low, high = np.repeat(cumulative[first], counts), np.repeat(cumulative[last], counts)
    item = np.searchsorted(cumulative, low + rng.random(low.size) * (high - low), side="right") - 1
    return np.clip(item, np.repeat(first, counts), np.repeat(last, counts) - 1)


def uniform_in_rectangles(rectangles: Floats, counts: Ints, rng: np.random.Generator) -> Points:
    """``counts[i]`` uniform points in rectangle i, not on its upper edges (the next cell's)."""
    total = int(np.sum(counts))
    out = np.empty((total, 2))
    for axis in (0, 1):
        low, high = rectangles[:, axis], rectangles[:, axis + 2]
        width = np.repeat(high - low, counts)
        width *= rng.random(total)
        width += np.repeat(low, counts)
        # low + u (high - low) may round up to high
        np.minimum(width, np.repeat(np.maximum(np.nextafter(high, low), low), counts), out=width)
        out[:, axis] = width
    return out


def uniform_in_polygons(polygons: Array, counts: Ints, rng: np.random.Generator) -> Points:
    """``counts[i]`` points uniform on the area of polygon i: exact, by triangles, without rejection."""
    used = np.flatnonzero(counts > 0)
    triangles = shapely.constrained_delaunay_triangles(polygons[used])
    parts, owner = shapely.get_parts(triangles, return_index=True)
    corners, weight = shapely.get_coordinates(parts).reshape(-1, 4, 2)[:, :3], shapely.area(parts)
    bare = np.setdiff1d(np.arange(used.size), owner)
    if bare.size:  # a sliver too thin for a triangle still has a point
        point = shapely.get_coordinates(shapely.point_on_surface(polygons[used[bare]]))
        order = np.argsort(np.concatenate([owner, bare]), kind="stable")
        owner = np.concatenate([owner, bare])[order]
        corners = np.concatenate([corners, np.repeat(point[:, None], 3, axis=1)])[order]
        weight = np.concatenate([weight, np.ones(bare.size)])[order]
    reach = ragged.cumulative(weight)
    first = np.searchsorted(owner, np.arange(used.size + 1))
    triangle = draw_by_weight(reach, first[:-1], first[1:], counts[used], rng)
    # Uniform in a parallelogram, folded onto its half.
    share = rng.random((triangle.size, 2))
    share = np.where(share.sum(axis=1, keepdims=True) > 1, 1 - share, share)
    a, b, c = corners[triangle].transpose(1, 0, 2)
    points: Points = a + share[:, :1] * (b - a) + share[:, 1:] * (c - a)
    return points
