"""A road network as a domain: points snap to the nearest road, and roads are measured in metres."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import geopandas as gpd
import numba
import numpy as np
import shapely
from pyproj import CRS

from synthgeo import ragged, validate
from synthgeo.arrays import Bools, Floats, Ints, Points
from synthgeo.domain.crs import Bounds, crs_text
from synthgeo.domain.road_files import (
    graph_from_edges,
    graph_from_osm_xml,
    graph_from_place,
    lines_of_graph,
    reading_graph,
)
from synthgeo.domain.road_nearest import NearestSegment
from synthgeo.domain.road_network import RoadNetwork
from synthgeo.errors import DomainError

if TYPE_CHECKING:
    import networkx as nx


class RoadDomain:
    """The roads of a street graph; everything within ``max_distance`` metres of one belongs to it.

    Make one with ``from_graph``, ``from_edges``, ``from_graphml``, ``from_osm_xml`` or ``from_place``. All
    coordinates are in ``crs``, a projected system in metres (UTM unless told otherwise). The measure is
    length of road; a two-way street is two edges of the graph but one road and counts once. A point's cell is
    the cell of the place on the road that it snaps to: a transformation of one record at a time, so it costs
    no privacy. The graph may be disconnected.
    """

    kind = "roads"

    def __init__(self, network: RoadNetwork, *, max_distance: float = 50.0) -> None:
        self.network = network
        self.max_distance = validate.positive(max_distance, "max_distance")
        segments = network.segments
        low = np.minimum(segments.start, segments.end).min(axis=0) - 1.0
        high = np.maximum(segments.start, segments.end).max(axis=0) + 1.0
        self.bounds: Bounds = (float(low[0]), float(low[1]), float(high[0]), float(high[1]))
        self.crs: CRS = network.crs

    @classmethod
    def from_graph(
        cls, graph: nx.MultiDiGraph, *, max_distance: float = 50.0, crs: Any = None, both_ways: bool = False
    ) -> RoadDomain:
        """Roads of an osmnx graph, which osmnx itself must accept. Without ``crs``, degrees and metres that
        are not those of the ground (Web Mercator) become UTM. ``both_ways`` takes an undirected graph whose
        roads may all be driven in both directions.
        """
        if not getattr(graph, "is_directed", lambda: True)():
            if not both_ways:
                raise DomainError(
                    "the graph is undirected: give both_ways=True if every road may be driven both ways"
                )
            graph = graph_from_edges(lines_of_graph(graph))
        return cls(RoadNetwork.from_graph(graph, crs=crs), max_distance=max_distance)

    @classmethod
    def from_edges(
        cls, edges: gpd.GeoDataFrame, *, max_distance: float = 50.0, crs: Any = None
    ) -> RoadDomain:
        """Roads of a table of lines, which meet where their ends are equal to the millimetre.

        Both ways, except where a column ``oneway`` is true, then as the line is drawn, or -1, then against
        it. A table of osmnx's (columns or index levels ``u`` and ``v``) has each direction in a row of its
        own.
        """
        return cls.from_graph(graph_from_edges(edges), max_distance=max_distance, crs=crs)

    @classmethod
    def from_graphml(
        cls, path: str | os.PathLike[str], *, max_distance: float = 50.0, crs: Any = None
    ) -> RoadDomain:
        """Roads of a file that ``osmnx.save_graphml`` wrote."""
        import osmnx as ox

        with reading_graph(path, "a graph that osmnx saved"):
            graph = ox.io.load_graphml(Path(path))
        return cls.from_graph(graph, max_distance=max_distance, crs=crs)

    @classmethod
    def from_osm_xml(
        cls,
        path: str | os.PathLike[str],
        *,
        network: str = "drive",
        max_distance: float = 50.0,
        crs: Any = None,
    ) -> RoadDomain:
        """Roads of an OpenStreetMap XML file; ``network`` is ``"drive"``, or ``"all"`` for paths too."""
        return cls.from_graph(graph_from_osm_xml(path, network=network), max_distance=max_distance, crs=crs)

    @classmethod
    def from_place(
        cls, place: str, *, network: str = "drive", max_distance: float = 50.0, crs: Any = None
    ) -> RoadDomain:
        """Roads of a place by its name, downloaded from OpenStreetMap."""
        return cls.from_graph(graph_from_place(place, network=network), max_distance=max_distance, crs=crs)

    @property
    def graph(self) -> nx.MultiDiGraph:
        """The graph in this domain's CRS."""
        return self.network.graph

    @property
    def edges(self) -> gpd.GeoDataFrame:
        """Edge table: row i is edge i, index (u, v, key); tags of the map, ``length`` and geometry."""
        return self.network.edges

    @property
    def opposite(self) -> Ints:
        """For each edge, the edge of the same road in the other direction, or -1."""
        return self.network.opposite

    @property
    def length(self) -> float:
        """Metres of road in all."""
        return float(self.network.segments.position[-1])

    @cached_property
    def _nearest(self) -> NearestSegment:
        return NearestSegment(self.network.segments)

    def contains(self, xy: Points) -> Bools:
        """Whether each point is near enough to a road."""
        return self._nearest.near(np.asarray(xy, dtype=np.float64), self.max_distance)

    def nearest_segment(self, xy: Points) -> tuple[Ints, Floats]:
        """Nearest straight piece of road (-1 where none is near enough), and metres along it.

        The pieces are ``network.segments``.
        """
        segment, along, _ = self._nearest(np.asarray(xy, dtype=np.float64), self.max_distance)
        return segment, along

    def snap(self, xy: Points) -> tuple[Points, Bools]:
        """The nearest place on a road for each point, and whether it is near enough (NaN elsewhere)."""
        segment, along = self.nearest_segment(xy)
        inside = segment >= 0
        out = np.full((len(segment), 2), np.nan)
        out[inside] = self.network.segments.points(segment[inside], along[inside])
        return out, inside

    def nearest(self, xy: Points, *, max_distance: float = np.inf) -> tuple[Ints, Floats, Floats]:
        """Nearest edge, metres along it in its direction, and distance; edge -1 beyond ``max_distance``.

        Of the two directions of a street this names the one with the lower index; ``opposite`` has the other.
        """
        segment, along, distance = self._nearest(np.asarray(xy, dtype=np.float64), max_distance)
        segments = self.network.segments
        row = segments.first_use[np.maximum(segment, 0)]
        edge = np.where(segment >= 0, segments.use_edge[row], -1)
        return edge, np.where(segment >= 0, segments.use_offset[row] + along, 0.0), distance

    def candidates(self, xy: Points, distance: float) -> tuple[Ints, Ints, Floats, Floats]:
        """All edges, both directions, within ``distance`` metres of each point, for map matching.

        Arrays point, edge, metres along the edge, distance: one row for each pair, by point, nearest first.
        """
        segments = self.network.segments
        point, segment, along, apart = self._nearest.within(np.asarray(xy, dtype=np.float64), distance)
        first = segments.first_use[segment]
        uses = segments.first_use[segment + 1] - first
        pair = np.repeat(np.arange(point.size), uses)
        row = ragged.positions(first, uses)
        along = np.where(segments.use_forward[row], along[pair], segments.length[segment[pair]] - along[pair])
        point, apart, edge = point[pair], apart[pair], segments.use_edge[row]
        offset = segments.use_offset[row] + along
        order = _nearest_first(ragged.offsets_of_owners(point, len(xy)), edge, apart)
        return point[order], edge[order], offset[order], apart[order]

    def outline(self) -> shapely.Geometry:
        """All roads, each once."""
        kept = (self.opposite < 0) | (np.arange(self.network.size) < self.opposite)
        return shapely.multilinestrings(self.network.lines[kept])

    def describe(self) -> dict[str, Any]:
        """Public facts for provenance."""
        return {
            "kind": self.kind,
            "crs": crs_text(self.crs),
            "bounds": list(self.bounds),
            "edges": self.network.size,
            "metres": round(self.length, 3),
            "max_distance": self.max_distance,
            "fingerprint": self.network.fingerprint,
        }

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """JSON values and arrays from which ``domain_from_state`` rebuilds the domain."""
        values, arrays = self.network.to_state()
        return {"kind": self.kind, "max_distance": self.max_distance, **values}, arrays

    @classmethod
    def from_state(cls, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> RoadDomain:
        """The inverse of ``to_state``."""
        return cls(RoadNetwork.from_state(values, arrays), max_distance=values["max_distance"])

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.network, self.max_distance)  # caches stay home

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RoadDomain)
            and self.max_distance == other.max_distance
            and self.network.fingerprint == other.network.fingerprint
        )

    def __hash__(self) -> int:
        return hash((self.network.fingerprint, self.max_distance))

    def __repr__(self) -> str:
        return (
            f"RoadDomain({self.network.size} edges, {self.length / 1000:.1f} km, crs={crs_text(self.crs)!r}, "
            f"max_distance={self.max_distance:g})"
        )


def _rebuild(network: RoadNetwork, max_distance: float) -> RoadDomain:
    return RoadDomain(network, max_distance=max_distance)


@numba.njit(cache=True, nogil=True)
def _nearest_first(first: Ints, edge: Ints, apart: Floats) -> Ints:
    """Rows of each point by distance and edge; an edge that passes a point twice keeps its closest place."""
    order = np.empty(len(edge), dtype=np.int64)
    kept = 0
    for point in range(len(first) - 1):
        begin = kept
        for row in range(first[point], first[point + 1]):
            same = -1
            for at in range(begin, kept):
                if edge[order[at]] == edge[row]:
                    same = at
                    break
            if same < 0:
                same = kept
                kept += 1
            elif apart[row] >= apart[order[same]]:
                continue
            while same > begin:
                before = order[same - 1]
                if apart[before] < apart[row] or (apart[before] == apart[row] and edge[before] < edge[row]):
                    break
                order[same] = before
                same -= 1
            order[same] = row
    return order[:kept].copy()
