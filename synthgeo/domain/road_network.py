"""A road graph as arrays: directed edges, and the straight road segments that they share.

The two directions of a street are two edges of the graph but one road. The network therefore keeps every
straight segment once, whichever way and however often edges run over it (end points equal to the
millimetre). A *position* is a number of metres along all these segments laid end to end.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any

import geopandas as gpd
import numpy as np
import pandas as pd
import shapely
from pyproj import CRS

from synthgeo import ragged
from synthgeo.arrays import Array, Bools, Floats, Ints, Points
from synthgeo.domain.coordinates import Bounds, crs_text, fingerprint, parse_crs, stretch
from synthgeo.errors import DomainError

if TYPE_CHECKING:
    import networkx as nx


# Edge attributes that survive saving: public map facts that speeds, routes and labels are made from.
TAGS = ("osmid", "highway", "oneway", "reversed", "maxspeed", "lanes", "name", "speed_kph", "travel_time")
_MILLIMETRE = 1e-3
_STRETCH = 0.02  # that metres of a CRS may differ from those on the ground
_LINE = shapely.LineString()


@dataclass(frozen=True)
class Segments:
    """Every straight piece of road once, and which edges run over it.

    Segment s goes from ``start[s]`` to ``end[s]`` and covers positions ``position[s]`` to ``position[s +
    1]``. Row r of the use table says that edge ``use_edge[r]`` runs over segment ``use_segment[r]``,
    reaching it after ``use_offset[r]`` metres, forwards or not; its rows are sorted by segment, then edge.
    """

    start: Points
    end: Points
    position: Floats
    use_segment: Ints
    use_edge: Ints
    use_offset: Floats
    use_forward: Bools

    @property
    def length(self) -> Floats:
        """Length of each segment."""
        return np.diff(self.position)

    @cached_property
    def first_use(self) -> Ints:
        """Where each segment's rows of the use table begin, and the end of the table."""
        return np.searchsorted(self.use_segment, np.arange(len(self.start) + 1))

    def points(self, segment: Ints, along: Floats) -> Points:
        """Coordinates of the places ``along`` metres into segments."""
        share = np.clip(along / self.length[segment], 0.0, 1.0)[:, None]
        start, end = self.start[segment], self.end[segment]
        out: Points = np.where(share < 1, start + share * (end - start), end)
        return out


@dataclass(frozen=True, eq=False)
class RoadNetwork:
    """Directed edges with their lines, in a projected CRS whose unit is the metre."""

    crs: CRS
    node_id: Array
    node_xy: Points
    edge_u: Array
    edge_v: Array
    edge_key: Ints
    edge_length: Floats  # the graph's own `length`, metres on the ground
    coordinates: Points  # vertices of all edges, one edge after the other
    first_vertex: Ints  # where each edge's vertices begin, and the end
    tags: dict[str, list[Any]]

    @classmethod
    def from_graph(cls, graph: nx.MultiDiGraph, *, crs: Any = None) -> RoadNetwork:
        """Check a graph with osmnx's own rules and project it to metres (UTM unless ``crs`` says
        otherwise). Metres that are not those of the ground, such as Web Mercator's, become UTM too.
        """
        import networkx as nx
        import osmnx as ox

        check_graph(graph)
        target = parse_crs(crs)
        source = CRS.from_user_input(graph.graph["crs"])
        if target is not None and target != source:
            projected = ox.projection.project_graph(graph, to_crs=target)
        elif target is None and not (_in_metres(source) and _true(graph, source)):
            degrees = graph if source.is_geographic else ox.projection.project_graph(graph, to_latlong=True)
            west, _, east, _ = _bounds(degrees)
            if east - west > 180 or east > 180:
                raise DomainError("the roads cross the antimeridian: project them, and give crs=")
            try:
                projected = ox.projection.project_graph(degrees)
            except RuntimeError as problem:  # near the poles there is none
                raise DomainError("no zone of UTM holds the roads: project them, and give crs=") from problem
        else:
            projected = graph.copy()
        found = CRS.from_user_input(projected.graph["crs"])
        if not _in_metres(found):
            raise DomainError(f"roads need a CRS in metres, {crs_text(found)} is none; leave crs= out")
        if not _true(projected, found):
            raise DomainError(
                f"a metre of {crs_text(found)} is not one on the ground here; leave crs= out for UTM"
            )
        nodes, edges = ox.convert.graph_to_gdfs(projected)
        lines = edges.geometry.to_numpy()
        coordinates, owner = shapely.get_coordinates(lines, return_index=True)
        if not np.isfinite(coordinates).all():
            row = int(owner[np.argmin(np.isfinite(coordinates).all(axis=1))])
            raise DomainError(f"edge {edges.index[row]}: no finite coordinates in {crs_text(found)}")
        network = cls(
            crs=found,
            node_id=_ids(nodes.index, nodes.index),
            node_xy=nodes[["x", "y"]].to_numpy(dtype=np.float64),
            edge_u=_ids(edges.index.get_level_values(0), nodes.index),
            edge_v=_ids(edges.index.get_level_values(1), nodes.index),
            edge_key=edges.index.get_level_values(2).to_numpy().astype(np.int64),
            edge_length=edges["length"].to_numpy(dtype=np.float64),
            coordinates=coordinates,
            first_vertex=np.searchsorted(owner, np.arange(len(lines) + 1)),
            tags={name: [_plain(tag) for tag in edges[name]] for name in TAGS if name in edges.columns},
        )
        names = dict(zip(nodes.index.tolist(), network.node_id.tolist(), strict=True))
        if any(name is not node and name != node for node, name in names.items()):
            projected = nx.relabel_nodes(projected, names)  # or trips would name edges that are not in it
        network.__dict__["graph"] = projected  # keeps attributes that the arrays do not
        return network

    @cached_property
    def graph(self) -> nx.MultiDiGraph:
        """The projected graph (rebuilt from the arrays after loading)."""
        import networkx as nx

        graph = nx.MultiDiGraph(crs=crs_text(self.crs), simplified=True)
        streets = pd.Series(np.concatenate([self.edge_u, self.edge_v])).value_counts()
        for node, (x, y) in zip(self.node_id.tolist(), self.node_xy.tolist(), strict=True):
            graph.add_node(node, x=x, y=y, street_count=int(streets.get(node, 0)))
        names = list(self.tags)
        rows = zip(*self.tags.values(), strict=True) if names else ((),) * self.size
        for u, v, key, length, line, row in zip(
            self.edge_u.tolist(), self.edge_v.tolist(), self.edge_key.tolist(), self.edge_length.tolist(),
            self.lines, rows, strict=True,
        ):  # fmt: skip
            kept = {name: tag for name, tag in zip(names, row, strict=True) if tag is not None}
            graph.add_edge(u, v, key=key, **{"osmid": 0, **kept}, length=length, geometry=line)
        return graph

    @property
    def size(self) -> int:
        """Number of directed edges."""
        return len(self.edge_u)

    @cached_property
    def lines(self) -> Array:
        """The line of each edge, in its direction."""
        owner = ragged.owners_of(self.first_vertex)
        lines: Array = shapely.linestrings(self.coordinates, indices=owner)
        return lines

    @cached_property
    def edges(self) -> gpd.GeoDataFrame:
        """Edge table: row i is edge i; index (u, v, key); the graph's tags, ``length`` and geometry."""
        index = pd.MultiIndex.from_arrays([self.edge_u, self.edge_v, self.edge_key], names=["u", "v", "key"])
        frame = pd.DataFrame({**self.tags, "length": self.edge_length}, index=index)
        return gpd.GeoDataFrame(frame, geometry=self.lines, crs=self.crs)

    @cached_property
    def segments(self) -> Segments:
        """The distinct straight segments. Overlapping lines with different vertices stay apart."""
        edge = ragged.owners_of(self.first_vertex)
        inner = edge[1:] == edge[:-1]
        start, end, edge = self.coordinates[:-1][inner], self.coordinates[1:][inner], edge[:-1][inner]
        length = np.hypot(*(end - start).T)
        reached = np.cumsum(length) - length
        offset = reached - reached[np.searchsorted(edge, edge)]
        real = length > _MILLIMETRE
        start, end, edge, offset, length = start[real], end[real], edge[real], offset[real], length[real]
        if not len(start):
            raise DomainError("the road network has no length: every edge is a single point")
        a, b = np.rint(start / _MILLIMETRE).astype(np.int64), np.rint(end / _MILLIMETRE).astype(np.int64)
        forward = (a[:, 0] < b[:, 0]) | ((a[:, 0] == b[:, 0]) & (a[:, 1] <= b[:, 1]))
        ends = np.where(forward[:, None], np.hstack([a, b]), np.hstack([b, a]))
        segment = pd.DataFrame(ends).groupby([0, 1, 2, 3], sort=False).ngroup().to_numpy(dtype=np.int64)
        first = np.unique(segment, return_index=True)[1]
        order = np.lexsort((edge, segment))
        return Segments(
            start=start[first],
            end=end[first],
            position=ragged.cumulative(length[first]),
            use_segment=segment[order],
            use_edge=edge[order],
            use_offset=offset[order],
            use_forward=(forward == forward[first][segment])[order],
        )

    @cached_property
    def opposite(self) -> Ints:
        """For each edge, the edge of the same road in the other direction, or -1 on a one-way street."""
        segments = self.segments
        # Edges on the same road run over the same set of segments: compare sets by the sum of mixed ids.
        mixed = (segments.use_segment.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        road = np.zeros(self.size, dtype=np.uint64)
        np.add.at(road, segments.use_edge, mixed)
        here = pd.DataFrame({"u": self.edge_u, "v": self.edge_v, "road": road, "edge": np.arange(self.size)})
        here["rank"] = here.groupby(["u", "v", "road"]).cumcount()
        there = here.rename(columns={"u": "v", "v": "u", "edge": "other"})
        found = here.merge(there, on=["u", "v", "road", "rank"], how="left")["other"]
        other = found.fillna(-1).to_numpy(dtype=np.int64)
        return np.where(other == np.arange(self.size), -1, other)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the geometry and of how it is connected."""
        return fingerprint(
            crs_text(self.crs),
            self.node_id,
            self.edge_u,
            self.edge_v,
            self.edge_key,
            self.first_vertex,
            self.coordinates,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*_ARRAYS, "crs", "tags")}  # caches stay home

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """JSON values and arrays."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return {"crs": crs_text(self.crs), "tags": self.tags}, arrays

    @classmethod
    def from_state(cls, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> RoadNetwork:
        """The inverse of ``to_state``."""
        crs = parse_crs(values["crs"])
        assert crs is not None
        return cls(crs=crs, tags=dict(values["tags"]), **{name: arrays[name] for name in _ARRAYS})


_ARRAYS = (
    "node_id", "node_xy", "edge_u", "edge_v", "edge_key", "edge_length", "coordinates", "first_vertex",
)  # fmt: skip


def check_graph(graph: Any) -> None:
    """Raise ``DomainError`` unless osmnx itself accepts the graph."""
    import networkx as nx
    import osmnx as ox

    if not isinstance(graph, nx.Graph):
        raise DomainError(f"a road graph is a graph of networkx, not {type(graph).__name__!r}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about optional attributes, which are not needed here
        try:
            ox.convert.validate_graph(graph, strict=False)
        except Exception as problem:  # osmnx's own class of error moved between versions
            if type(problem).__name__ not in ("ValidationError", "GraphValidationError"):
                raise
            raise DomainError(f"not a road graph that osmnx accepts: {problem}") from problem
    for node, values in graph.nodes(data=True):
        if not (_is_number(values["x"]) and _is_number(values["y"])):
            raise DomainError(f"node {node!r}: x and y must be finite numbers")
    for u, v, key, tags in graph.edges(keys=True, data=True):
        if not (_is_number(tags["length"]) and isinstance(key, int | np.integer)):
            raise DomainError(f"edge {(u, v, key)}: its length must be a finite number, its key a whole one")
        if not isinstance(tags.get("geometry", _LINE), shapely.LineString):
            raise DomainError(f"edge {(u, v, key)}: its geometry must be a LineString")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


def _bounds(graph: nx.MultiDiGraph) -> Bounds:
    xy = np.array([(values["x"], values["y"]) for _, values in graph.nodes(data=True)], dtype=np.float64)
    (minx, miny), (maxx, maxy) = xy.min(axis=0), xy.max(axis=0)
    return float(minx), float(miny), float(maxx), float(maxy)


def _true(graph: nx.MultiDiGraph, crs: CRS) -> bool:
    """Whether metres of the CRS are metres on the ground, about."""
    return all(abs(one - 1) < _STRETCH for one in stretch(_bounds(graph), crs))


def _in_metres(crs: CRS) -> bool:
    return bool(crs.is_projected) and all(
        abs(axis.unit_conversion_factor - 1) < 1e-9 for axis in crs.axis_info
    )


def _ids(index: pd.Index, nodes: pd.Index) -> Array:
    """Names of some of the nodes: whole numbers, or text. Where a number reads like the text of another node,
    text is quoted.
    """
    if nodes.to_numpy().dtype.kind in "iu":
        return np.asarray(index)
    name = str if len({str(node) for node in nodes}) == len(nodes) else repr
    return np.array([name(value) for value in index.tolist()])


def _plain(tag: Any) -> Any:
    """A tag as JSON can hold it."""
    if isinstance(tag, np.generic):
        tag = tag.item()
    if isinstance(tag, float) and tag != tag:
        return None
    try:
        json.dumps(tag)
    except (TypeError, ValueError):
        return str(tag)
    return tag


# Free-flow speeds of roads, from what a map says of them.

# km/h where the map tells the kind of road and no limit.
_USUAL = {
    "motorway": 90, "trunk": 70, "primary": 45, "secondary": 40, "tertiary": 35,
    "unclassified": 30, "residential": 25, "living_street": 10, "service": 15,
}  # fmt: skip
_FALLBACK = 30.0


def edge_speeds(network: RoadNetwork) -> Floats:
    """Free-flow speed of each edge in km/h, from ``maxspeed``, else ``highway``, else a usual one."""
    limits = network.tags.get("maxspeed", [None] * network.size)
    kinds = network.tags.get("highway", [None] * network.size)
    return np.array([_speed(limit, kind) for limit, kind in zip(limits, kinds, strict=True)])


def _speed(limit: Any, kind: Any) -> float:
    text = limit[0] if isinstance(limit, list) and limit else limit
    number, _, unit = str(text).strip().partition(" ")
    if number.replace(".", "", 1).isdigit() and float(number) > 0:
        return float(number) * (1.609 if unit == "mph" else 1.0)
    name = kind[0] if isinstance(kind, list) and kind else kind
    return float(_USUAL.get(str(name).removesuffix("_link"), _FALLBACK))
