"""A street network made offline that osmnx accepts as one of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import shapely

from synthgeo import validate
from synthgeo.arrays import Floats
from synthgeo.simulate.checks import generator

if TYPE_CHECKING:
    import networkx as nx

_UTM = "EPSG:32632"  # metres around 9 degrees east, where the city stands
_CORNER = np.array([492_000.0, 5_316_000.0])

# Kind of street: the tag `highway`, the speed limit in km/h, lanes.
_KINDS = {
    "primary": ("50", "4"),
    "secondary": ("50", "2"),
    "residential": ("30", "1"),
}


# From node, to node, kind, one-way, name.
Street = tuple[int, int, str, bool, str]


def city_graph(
    columns: int = 20, rows: int = 16, *, block: float = 130.0, one_way: float = 0.5, seed: int
) -> nx.MultiDiGraph:
    """An invented town: irregular blocks, arterials, a diagonal avenue, a park, curves, one-way streets.

    ``columns`` by ``rows`` blocks of about ``block`` metres. Every fourth street is a two-way arterial
    (``primary``), the diagonal avenue is ``secondary``, the rest is ``residential``; of those whole
    streets, a share ``one_way`` is one-way, in alternating directions. Like a download from OpenStreetMap,
    the graph is a ``MultiDiGraph`` in EPSG:4326 with ``x``, ``y``, ``street_count`` at nodes and ``osmid``,
    ``highway``, ``oneway``, ``reversed``, ``maxspeed``, ``lanes``, ``name``, ``length`` (metres) and
    ``geometry`` on edges. It is strongly connected.
    """
    rng = generator(seed)
    columns, rows = validate.whole(columns, "columns", low=2), validate.whole(rows, "rows", low=2)
    block = validate.finite(block, "block (metres)", low=10, high=10_000)
    one_way = validate.share(one_way, "one_way", zero=True, one=True)
    place = _crossings(columns, rows, block, rng)
    streets = _streets(columns, rows, one_way, rng)
    return _graph(place, streets, block, rng)


def _crossings(columns: int, rows: int, block: float, rng: np.random.Generator) -> Floats:
    """Crossings in metres, by column and row: uneven blocks, jittered, turned and gently bent."""
    across = np.concatenate([[0.0], np.cumsum(rng.uniform(0.7, 1.4, columns))]) * block
    up = np.concatenate([[0.0], np.cumsum(rng.uniform(0.5, 1.0, rows))]) * block
    x, y = np.meshgrid(across, up, indexing="ij")
    x = x + rng.normal(0, 0.05 * block, x.shape) + 0.15 * block * np.sin(y / (6 * block))
    y = y + rng.normal(0, 0.05 * block, y.shape) + 0.15 * block * np.sin(x / (7 * block))
    turn = np.deg2rad(rng.uniform(10, 35))
    return np.stack([x * np.cos(turn) - y * np.sin(turn), x * np.sin(turn) + y * np.cos(turn)], axis=-1)


def _streets(columns: int, rows: int, one_way: float, rng: np.random.Generator) -> list[Street]:
    """Blocks of street as (from, to, kind, one-way, name), nodes numbered column by column."""

    def node(column: int, row: int) -> int:
        return column * (rows + 1) + row

    found: list[Street] = []
    for line in range(columns + 1):
        arterial = line % 4 == 0 or line == columns
        single = not arterial and bool(rng.random() < one_way)
        kind, name = ("primary", f"Avenue {line}") if arterial else ("residential", f"Lane {line}")
        for row in range(rows):
            ends = (node(line, row), node(line, row + 1))
            found.append((*(ends if line % 2 else ends[::-1]), kind, single, name))
    for line in range(rows + 1):
        arterial = line % 4 == 0 or line == rows
        single = not arterial and bool(rng.random() < one_way)
        kind, name = ("primary", f"Street {line}") if arterial else ("residential", f"Row {line}")
        for column in range(columns):
            ends = (node(column, line), node(column + 1, line))
            found.append((*(ends if line % 2 else ends[::-1]), kind, single, name))
    # A park closes the streets inside it, and a few blocks elsewhere are built over.
    left, bottom = int(rng.integers(0, columns // 2 + 1)), int(rng.integers(0, rows // 2 + 1))
    wide, high = max(1, columns // 5), max(1, rows // 5)
    park = {node(c, r) for c in range(left + 1, left + wide) for r in range(bottom + 1, bottom + high)}
    found = [
        street
        for street in found
        if not {street[0], street[1]} & park and (street[2] == "primary" or rng.random() < 0.95)
    ]
    diagonal = min(columns, rows)
    return found + [
        (node(k, k), node(k + 1, k + 1), "secondary", False, "Diagonal")
        for k in range(diagonal)
        if not {node(k, k), node(k + 1, k + 1)} & park
    ]


def _graph(
    place: Floats,
    streets: list[Street],
    block: float,
    rng: np.random.Generator,
) -> nx.MultiDiGraph:
    import networkx as nx
    from pyproj import Geod

    from synthgeo.domain.coordinates import transform

    metres = place.reshape(-1, 2) + _CORNER
    begin, end = metres[[street[0] for street in streets]], metres[[street[1] for street in streets]]
    # A third of the blocks bend: four vertices between the ends, pushed sideways along a half sine.
    bend = np.where(rng.random(len(streets)) < 1 / 3, rng.normal(0, 0.06 * block, len(streets)), 0.0)
    share = np.linspace(0, 1, 6)
    side = np.stack([-(end - begin)[:, 1], (end - begin)[:, 0]], axis=1)
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    curve = begin[:, None] + share[None, :, None] * (end - begin)[:, None]
    curve += (bend[:, None] * np.sin(np.pi * share))[:, :, None] * side[:, None]
    curve[:, 0], curve[:, -1] = begin, end
    degrees = transform(curve.reshape(-1, 2), _UTM, "EPSG:4326").reshape(curve.shape)
    steps = Geod(ellps="WGS84").inv(*degrees[:, :-1].reshape(-1, 2).T, *degrees[:, 1:].reshape(-1, 2).T)[2]
    length = np.asarray(steps).reshape(len(streets), -1).sum(axis=1)
    nodes = transform(metres, _UTM, "EPSG:4326")

    graph = nx.MultiDiGraph(crs="epsg:4326", simplified=True, created_with="synthgeo.simulate.city_graph")
    for i, (u, v, kind, single, name) in enumerate(streets):
        line = degrees[i] if bend[i] else degrees[i][[0, -1]]
        speed, lanes = _KINDS[kind]
        tags = {
            "osmid": i + 1,
            "highway": kind,
            "oneway": single,
            "maxspeed": speed,
            "lanes": lanes,
            "name": name,
        }
        tags["length"] = float(length[i])
        graph.add_edge(u + 1, v + 1, **tags, reversed=False, geometry=shapely.LineString(line))
        if not single:
            graph.add_edge(v + 1, u + 1, **tags, reversed=True, geometry=shapely.LineString(line[::-1]))
    keep = max(nx.strongly_connected_components(graph), key=len)
    graph.remove_nodes_from([node for node in graph if node not in keep])
    for node in graph:
        neighbours = {*graph.successors(node), *graph.predecessors(node)}
        x, y = nodes[node - 1].tolist()
        graph.nodes[node].update(x=x, y=y, street_count=len(neighbours))
    return graph
