"""The lines of road edges: places on them, and the lines that paths of edges follow."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from synthgeo.arrays import Floats, Ints, Points
from synthgeo.domain.road_network import RoadNetwork
from synthgeo.domain.roads import RoadDomain
from synthgeo.polylines import Polylines
from synthgeo.ragged import offsets_of, positions


@lru_cache(maxsize=4)
def edge_lines(network: RoadNetwork) -> Polylines:
    """The line of each edge (the last few networks are remembered)."""
    return Polylines(network.coordinates, network.first_vertex)


@lru_cache(maxsize=4)
def edge_headings(network: RoadNetwork) -> tuple[Floats, Floats]:
    """The direction, in radians, of each edge at its end, and at its beginning."""
    xy, first, last = network.coordinates, network.first_vertex[:-1], network.first_vertex[1:] - 1
    leaving, entering = xy[last] - xy[last - 1], xy[first + 1] - xy[first]
    return np.arctan2(leaving[:, 1], leaving[:, 0]), np.arctan2(entering[:, 1], entering[:, 0])


def edge_points(roads: RoadDomain, edges: Ints, offset: Floats) -> Points:
    """The places ``offset`` metres along edges."""
    return edge_lines(roads.network).at(edges, offset)


def path_lines(
    roads: RoadDomain, edges: Ints, offsets: Ints, first_offset: Floats, last_offset: Floats
) -> Polylines:
    """The lines along paths of edges: each from ``first_offset`` metres along its first edge to
    ``last_offset`` metres along its last, with every vertex of the road between.
    """
    lines = edge_lines(roads.network)
    size = np.diff(lines.offsets)[edges]
    whole = Polylines(lines.xy[positions(lines.offsets[:-1][edges], size)], offsets_of(size)[offsets])
    last = lines.lengths[edges[offsets[1:] - 1]]
    return whole.between(first_offset, whole.lengths - last + last_offset).without_repeats()


__all__ = ["edge_headings", "edge_lines", "edge_points", "path_lines"]
