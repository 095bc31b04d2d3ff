"""Street graphs from OpenStreetMap files and, online, from OpenStreetMap itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import geopandas as gpd
import numpy as np
import shapely

from synthgeo.errors import ConfigError, DomainError, SynthGeoError

if TYPE_CHECKING:
    import networkx as nx

# What readers of a graph may raise about its file; errors of XML are SyntaxErrors.
_SURPRISES = (
    ValueError,
    LookupError,
    SyntaxError,
    TypeError,
    AttributeError,
    RecursionError,
    OSError,
)
_MILLIMETRE = 1e-3
# Values of `oneway`: along the line, against it, or both ways.
_ONE_WAY = (
    dict.fromkeys(("true", "yes", "1", "1.0"), 1)
    | dict.fromkeys(("-1", "-1.0", "reverse"), -1)
    | dict.fromkeys(
        ("false", "no", "0", "0.0", "", "none", "nan", "<na>", "nat", "reversible", "alternating"), 0
    )
)
_GEOFABRIK = {"f": 1, "t": -1, "b": 0}
# Values of the tag `highway` that no car may or can use.
_NOT_DRIVEN = frozenset(
    (
        *(
            "abandoned",
            "bridleway",
            "bus_guideway",
            "busway",
            "construction",
            "corridor",
            "cycleway",
            "elevator",
        ),
        *("escalator", "footway", "no", "path", "pedestrian", "planned", "platform", "proposed", "raceway"),
        *("razed", "rest_area", "services", "steps", "track"),
    )
)


@contextmanager
def reading_graph(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Errors about a street graph's file as ours. XML with a document type is refused: it can define entities
    that grow without end, and no program writes one into these files.
    """
    import networkx as nx

    name = os.fspath(path)
    if not Path(path).is_file():
        raise DomainError(f"no file {name!r}")
    with Path(path).open("rb") as file:
        if b"<!doctype" in file.read(1 << 16).lower():
            raise DomainError(f"{name!r} is not {what}: it defines a document type")
    try:
        yield
    except SynthGeoError:
        raise
    except (*_SURPRISES, nx.NetworkXException, shapely.errors.ShapelyError) as problem:
        reason = str(problem).partition("\n")[0]
        raise DomainError(f"{name!r} is not {what}: {reason}") from problem


def graph_from_osm_xml(path: str | os.PathLike[str], *, network: str = "drive") -> nx.MultiDiGraph:
    """The street graph of an OpenStreetMap XML file (``.osm``, also gzip or bzip2)."""
    import networkx as nx
    import osmnx as ox

    _check_network(network)
    with reading_graph(path, "an OpenStreetMap XML file"):
        graph = ox.graph.graph_from_xml(Path(path), simplify=False, retain_all=True)
    # Such a file holds buildings, rivers and borders too.
    graph.remove_edges_from(
        [(u, v, key) for u, v, key, tags in graph.edges(keys=True, data=True) if not _is_road(tags, network)]
    )
    graph.remove_nodes_from(list(nx.isolates(graph)))
    if not graph.number_of_edges():
        raise DomainError(f"{os.fspath(path)!r} holds no road")
    return ox.simplification.simplify_graph(graph)


def graph_from_place(place: str, *, network: str = "drive") -> nx.MultiDiGraph:
    """The street graph of a place by its name; needs the internet."""
    import osmnx as ox
    import requests

    _check_network(network)
    try:
        return ox.graph.graph_from_place(place, network_type=network)
    except (requests.exceptions.RequestException, OSError) as problem:
        raise DomainError(
            f"cannot reach OpenStreetMap for {place!r}: from_place needs the internet; offline, use "
            "RoadDomain.from_graphml or RoadDomain.from_osm_xml with a file"
        ) from problem
    except (ValueError, TypeError) as problem:  # osmnx's errors about places it does not find
        raise DomainError(f"OpenStreetMap has no roads for {place!r}: {problem}") from problem


def graph_from_edges(edges: gpd.GeoDataFrame) -> nx.MultiDiGraph:
    """The street graph of a table of lines: nodes are where lines end, equal to the millimetre."""
    import networkx as nx

    if not isinstance(edges, gpd.GeoDataFrame) or not len(edges):
        raise DomainError("edges must be a GeoDataFrame with a line in each row")
    if edges.crs is None:
        raise DomainError("the edges have no CRS: set it (GeoDataFrame.set_crs)")
    levels = [name for name in ("u", "v") if name in edges.index.names and name not in edges.columns]
    frame = edges.reset_index(level=levels) if levels else edges
    directed = {"u", "v"} <= {*frame.columns}
    west, _, east, _ = frame.total_bounds
    if frame.crs.is_geographic and (east - west > 180 or east > 180):
        raise DomainError("the roads cross the antimeridian: project them (GeoDataFrame.to_crs)")
    try:
        frame = frame.to_crs(frame.estimate_utm_crs()).explode(ignore_index=True)
    except RuntimeError as problem:  # near the poles there is none
        raise DomainError("no zone of UTM holds the roads: make a graph of them, and give crs=") from problem
    lines = frame.geometry.to_numpy()
    if not (shapely.get_type_id(lines) == shapely.GeometryType.LINESTRING).all():
        raise DomainError("edges must be lines: LineString or MultiLineString in each row")
    ends = np.concatenate([shapely.get_coordinates(shapely.get_point(lines, at)) for at in (0, -1)])
    places, node = np.unique(np.rint(ends / _MILLIMETRE).astype(np.int64), axis=0, return_inverse=True)
    node = node.ravel()
    labels = _labels(node, frame, len(places)) if directed else list(range(len(places)))
    tail, head = ([labels[number] for number in half] for half in node.reshape(2, -1).tolist())
    graph = nx.MultiDiGraph(crs=frame.crs, simplified=True)
    for label, (x, y) in zip(labels, (places * _MILLIMETRE).tolist(), strict=True):
        graph.add_node(label, x=x, y=y)
    names = [name for name in frame.columns if name not in (frame.geometry.name, "u", "v", "key", "length")]
    both = np.zeros(len(frame), dtype=np.int64)
    undirected = _directions(frame["oneway"]) if "oneway" in names and not directed else both
    way = both + 1 if directed else undirected
    length = shapely.length(lines).tolist()
    back = shapely.reverse(lines)
    rows = frame[names].to_dict("records") if names else [{}] * len(frame)
    for row, tags in enumerate(rows):
        facts = {"osmid": row, **tags, "length": length[row]}
        if way[row] >= 0:
            graph.add_edge(tail[row], head[row], **facts, geometry=lines[row])
        if way[row] <= 0:
            graph.add_edge(head[row], tail[row], **facts, geometry=back[row])
    return graph


def _labels(node: np.ndarray, frame: gpd.GeoDataFrame, size: int) -> list[Any]:
    """What a table of osmnx's calls its nodes; numbers, where a name is that of two places or has two."""
    named = set(zip(node.tolist(), [*frame["u"].tolist(), *frame["v"].tolist()], strict=True))
    labels = dict(named)
    one_to_one = len(named) == len(labels) == len(set(labels.values()))
    return [labels[number] for number in range(size)] if one_to_one else list(range(size))


def lines_of_graph(graph: nx.Graph) -> gpd.GeoDataFrame:
    """The roads of an undirected graph as lines, straight where an edge has no geometry."""
    if "crs" not in graph.graph:
        raise DomainError("the graph has no CRS: set graph.graph['crs']")
    try:
        place = {node: (float(values["x"]), float(values["y"])) for node, values in graph.nodes(data=True)}
    except (KeyError, TypeError, ValueError):
        raise DomainError("every node of a road graph needs numbers x and y") from None
    rows = [
        {"geometry": shapely.LineString([place[u], place[v]]), **tags}
        for u, v, tags in graph.edges(data=True)
    ]
    if not rows:
        raise DomainError("the graph has no edges")
    return gpd.GeoDataFrame(rows, geometry="geometry", crs=graph.graph["crs"]).drop(
        columns=["oneway"], errors="ignore"
    )


def _directions(values: Any) -> np.ndarray:
    """Values of a column ``oneway``: 1 as the line is drawn, -1 against it, 0 both ways. They are
    OpenStreetMap's, or those of Geofabrik's files (F forwards, T backwards, B both).
    """
    words = [str(value).strip().lower() for value in values]
    known = _ONE_WAY | _GEOFABRIK if "b" in words else _ONE_WAY
    strange = sorted({word for word in words if word not in known})
    if strange:
        raise DomainError(
            f"oneway: cannot tell what {strange[0]!r} means; give true, false, or -1 for against the line"
        )
    return np.array([known[word] for word in words], dtype=np.int64)


def _check_network(network: str) -> None:
    if network not in ("drive", "all"):
        raise ConfigError(f"network must be 'drive' or 'all', got {network!r}")


def _is_road(tags: dict[str, Any], network: str) -> bool:
    highway = tags.get("highway")
    kinds = set(highway if isinstance(highway, list) else [highway]) - {None}
    return bool(kinds) and (network == "all" or not kinds <= _NOT_DRIVEN)
