"""A road network as a domain: points snap to the nearest road, and roads are measured in metres."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import geopandas as gpd
import numba
import numpy as np
import shapely
from pyproj import CRS

from synthgeo import ragged, validate
from synthgeo.arrays import Bools, Floats, Ints, Points
from synthgeo.domain.coordinates import Bounds, crs_text
from synthgeo.domain.road_files import (
    graph_from_edges,
    graph_from_osm_xml,
    graph_from_place,
    lines_of_graph,
    reading_graph,
)
from synthgeo.domain.road_network import RoadNetwork, Segments
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


# The nearest road segment of many points.
#
# A grid of small squares remembers, for each square that some point fell into, the segments that can be
# nearest to anything in it: with d the distance of the square's centre to the nearest segment and r half its
# diagonal, these lie within d + 2r of the centre. A search tree answers that once for each square; after that
# a million points are a few numpy calls. Ties go to the lowest segment number, so the answer does not depend
# on what was asked before. All segments within a distance of a point are found likewise: those of its square
# lie within that distance + r of the centre.

_PAIRS = 1 << 20  # point-segment pairs at a time
_SQUARES = 1 << 21  # squares remembered before starting over


class _Memory(NamedTuple):
    square: Ints  # sorted
    first: Ints  # where each square's candidates begin
    size: Ints
    candidate: Ints


_NOTHING = _Memory(*(np.zeros(0, dtype=np.int64) for _ in range(4)))


class NearestSegment:
    """Answers ``(segment, metres along it, distance)`` for points."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._tree = shapely.STRtree(shapely.linestrings(np.stack([segments.start, segments.end], axis=1)))
        corners = np.vstack([segments.start, segments.end])
        self._low, self._high = corners.min(axis=0), corners.max(axis=0)
        width, height = self._high - self._low
        # About sixteen squares per segment: five candidates per point in a city, and few tree searches.
        self._side = float(np.clip(np.sqrt(width * height / (16 * len(segments.start))), 10.0, 500.0))
        self._memories: dict[float | None, _Memory] = {}  # by distance; None: for the nearest

    def __getstate__(self) -> dict[str, Segments]:
        return {"segments": self._segments}  # what was remembered tells where points fell: it stays here

    def __setstate__(self, state: dict[str, Segments]) -> None:
        self.__init__(state["segments"])  # type: ignore[misc]

    def __call__(self, xy: Points, max_distance: float = np.inf) -> tuple[Ints, Floats, Floats]:
        """Nearest segment (-1 when farther than ``max_distance``), metres along it, distance."""
        segment = np.full(len(xy), -1, dtype=np.int64)
        along, distance = np.zeros(len(xy)), np.full(len(xy), np.inf)
        near = self._reachable(xy, max_distance)
        square = self._squares_of(xy[near])
        order = np.argsort(square, kind="stable")
        near, square = near[order], square[order]
        memory = self._remember(np.unique(square))
        slot = np.searchsorted(memory.square, square)
        counts = memory.size[slot]
        ends = np.cumsum(counts)
        start = 0
        while start < near.size:
            done = ends[start - 1] if start else 0
            stop = max(int(np.searchsorted(ends, done + _PAIRS, side="right")), start + 1)
            part = slice(start, stop)
            candidate = memory.candidate[ragged.positions(memory.first[slot[part]], counts[part])]
            found = self._closest(xy[near[part]], candidate, counts[part])
            segment[near[part]], along[near[part]], distance[near[part]] = found
            start = stop
        far = distance > max_distance
        segment[far], along[far], distance[far] = -1, 0.0, np.inf
        return segment, along, distance

    def near(self, xy: Points, distance: float) -> Bools:
        """Whether any segment is within ``distance`` of each point: the first that is will do."""
        out = np.zeros(len(xy), dtype=bool)
        some = self._reachable(xy, distance)
        square = self._squares_of(xy[some])
        memory = self._remember(np.unique(square), distance)
        slot = np.searchsorted(memory.square, square)
        segments = self._segments
        out[some] = _any_within(
            xy[some], memory.first[slot], memory.size[slot], memory.candidate, segments.start, segments.end,
            distance,
        )  # fmt: skip
        return out

    def within(self, xy: Points, distance: float) -> tuple[Ints, Ints, Floats, Floats]:
        """All pairs within ``distance``: point, segment, metres along the segment, distance."""
        square = self._squares_of(xy)
        memory = self._remember(np.unique(square), distance)
        slot = np.searchsorted(memory.square, square)
        segments = self._segments
        return _pairs_within(
            xy, memory.first[slot], memory.size[slot], memory.candidate, segments.start, segments.end,
            segments.length, distance,
        )  # fmt: skip

    def _reachable(self, xy: Points, max_distance: float) -> Ints:
        # Beyond 2^29 squares their numbers would overflow; nothing on Earth is that far.
        reach = min(max_distance, 2**29 * self._side)
        with np.errstate(invalid="ignore"):
            ok = ((xy >= self._low - reach) & (xy <= self._high + reach)).all(axis=1)
        return np.flatnonzero(ok)

    def _squares_of(self, xy: Points) -> Ints:
        cell = np.floor((xy - self._low) / self._side).astype(np.int64) + 2**30
        square: Ints = (cell[:, 0] << 32) + cell[:, 1]
        return square

    def _remember(self, squares: Ints, distance: float | None = None) -> _Memory:
        """A memory that holds these squares, with the segments that can be nearest or, where a distance is
        given, that near; swapped in whole, so that threads may ask at once.
        """
        old = self._memories.get(distance, _NOTHING)
        if old.square.size + squares.size > _SQUARES:
            old = _NOTHING
        new = squares[~np.isin(squares, old.square, assume_unique=True)]
        if new.size:
            cell = np.column_stack([new >> 32, new & (2**32 - 1)]) - 2**30
            centre = shapely.points(self._low + (cell + 0.5) * self._side)
            if distance is None:
                found = self._tree.query_nearest(centre, return_distance=True, all_matches=False)
                radius = np.empty(new.size)
                radius[found[0][0]] = found[1] + self._side * np.sqrt(2)
            else:
                radius = np.full(new.size, distance + self._side / np.sqrt(2))
            radius = radius * (1 + 1e-9) + 1e-6  # a hair more, for rounding
            owner, candidate = self._tree.query(centre, predicate="dwithin", distance=radius)
            order = np.lexsort((candidate, owner))
            counts = np.bincount(owner, minlength=new.size)
            place = np.searchsorted(old.square, new)
            old = self._memories[distance] = _Memory(
                np.insert(old.square, place, new),
                np.insert(old.first, place, old.candidate.size + ragged.starts_of(counts)),
                np.insert(old.size, place, counts),
                np.concatenate([old.candidate, candidate[order]]),
            )
        return old

    def _closest(self, xy: Points, candidate: Ints, counts: Ints) -> tuple[Ints, Floats, Floats]:
        offsets = ragged.offsets_of(counts)
        point = ragged.owners_of(offsets)
        along, apart = self._project(xy[point], candidate)
        best = ragged.minima(apart, offsets, np.inf)[point]
        hit = np.flatnonzero(apart == best)
        owner = point[hit]
        hit = hit[np.concatenate([[True], owner[1:] != owner[:-1]])]
        return candidate[hit], along[hit], apart[hit]

    def _project(self, xy: Points, segment: Ints) -> tuple[Floats, Floats]:
        start = self._segments.start[segment]
        ax, ay = start[:, 0], start[:, 1]
        end = self._segments.end[segment]
        dx, dy = end[:, 0] - ax, end[:, 1] - ay
        px, py = xy[:, 0] - ax, xy[:, 1] - ay
        share = np.clip((px * dx + py * dy) / (dx * dx + dy * dy), 0.0, 1.0)
        apart: Floats = np.hypot(px - share * dx, py - share * dy)
        return share * self._segments.length[segment], apart


@numba.njit(cache=True, nogil=True)
def _foot(x: float, y: float, start: Floats, end: Floats) -> tuple[float, float]:
    """How much of a segment lies before its point nearest to (x, y), and how far that is."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    px, py = x - start[0], y - start[1]
    share = min(max((px * dx + py * dy) / (dx * dx + dy * dy), 0.0), 1.0)
    return share, np.hypot(px - share * dx, py - share * dy)


@numba.njit(cache=True, nogil=True)
def _any_within(
    xy: Points, first: Ints, size: Ints, candidate: Ints, start: Points, end: Points, distance: float
) -> Bools:
    """Whether one of the candidates of each point is near enough."""
    out = np.zeros(len(xy), dtype=np.bool_)
    for i in range(len(xy)):
        for j in range(first[i], first[i] + size[i]):
            s = candidate[j]
            if _foot(xy[i, 0], xy[i, 1], start[s], end[s])[1] <= distance:
                out[i] = True
                break
    return out


@numba.njit(cache=True, nogil=True)
def _pairs_within(
    xy: Points, first: Ints, size: Ints, candidate: Ints, start: Points, end: Points, length: Floats,
    distance: float,
) -> tuple[Ints, Ints, Floats, Floats]:  # fmt: skip
    """The candidates of each point that are near enough, in their order."""
    most = size.sum()
    point, segment = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    along, apart = np.empty(most), np.empty(most)
    found = 0
    for i in range(len(xy)):
        for j in range(first[i], first[i] + size[i]):
            s = candidate[j]
            share, away = _foot(xy[i, 0], xy[i, 1], start[s], end[s])
            if away <= distance:
                point[found], segment[found] = i, s
                along[found], apart[found] = share * length[s], away
                found += 1
    return point[:found].copy(), segment[:found].copy(), along[:found].copy(), apart[:found].copy()
