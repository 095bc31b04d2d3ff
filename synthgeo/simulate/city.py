"""A street network made offline that osmnx accepts as one of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import shapely

from synthgeo import ragged, validate
from synthgeo.arrays import Array, Floats
from synthgeo.errors import ConfigError
from synthgeo.hierarchy.base import ROOT, hierarchy_of

if TYPE_CHECKING:
    import networkx as nx

    from synthgeo.domain.box import SpatialDomain
    from synthgeo.domain.roads import RoadDomain


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


# Streams of points: the circles of the PHDStream experiments, check-ins, taxi pickups.

_DAY = 86_400.0
# Share of a day's pickups in each hour: a night low, a morning rise, an evening peak.
_PICKUPS_BY_HOUR = np.array(
    [
        *(3.6, 2.6, 1.9, 1.4, 1.1, 1.0, 2.2, 3.8, 4.8, 4.8, 4.5, 4.6),
        *(4.9, 4.8, 5.0, 4.8, 4.2, 5.0, 6.1, 6.4, 6.0, 5.8, 5.6, 5.1),
    ]
)


def circles(steps: int = 150, points: int = 500, *, deletion: bool = True, seed: int) -> pd.DataFrame:
    """Points on two concentric circles in the unit square, ``points`` events per step.

    The artificial streams of Kumar (*Differentially Private Synthetic Data Generation of Data Collected
    Over Time*, §3.6.1.4), with a constant batch size. ``deletion=False``: both circles grow, half of the
    points on each. ``deletion=True``: the mass moves from the outer to the inner circle. The first third of
    the steps insert, 95 % of the points on the outer circle; after that half of a step's events insert, 95
    % on the inner circle, and the other half delete the oldest points, so that at the end the first third
    is gone and the number of points is what it was.

    Columns: ``step`` (from 0), ``x``, ``y``, ``op`` (+1 insert, -1 delete), ``user_id`` (one for each point;
    its deletion has the same). Rows are in order of time. Domain: ``BoxDomain(0, 0, 1, 1)``.
    """
    rng = generator(seed)
    steps, points = validate.whole(steps, "steps", low=1), validate.whole(points, "points", low=1)
    inserts = np.full(steps, points)
    inner_share = np.full(steps, 0.5)
    if deletion:
        growing = max(1, steps // 3)
        inserts[growing:] = points - points // 2
        inner_share[:growing], inner_share[growing:] = 0.05, 0.95
    born = np.repeat(np.arange(steps), inserts)
    inner = rng.random(born.size) < inner_share[born]
    radius = np.where(inner, 0.2, 0.4) + np.clip(rng.normal(0, 0.01, born.size), -0.05, 0.05)
    angle = rng.uniform(0, 2 * np.pi, born.size)
    frame = pd.DataFrame(
        {
            "step": born,
            "x": 0.5 + radius * np.cos(angle),
            "y": 0.5 + radius * np.sin(angle),
            "op": np.int64(1),
            "user_id": np.arange(born.size),
        }
    )
    died = np.repeat(np.arange(steps), points - inserts)
    gone = frame.iloc[: died.size].assign(step=died, op=np.int64(-1))
    return pd.concat([frame, gone]).sort_values("step", kind="stable", ignore_index=True)


def checkins(
    points: int = 50_000,
    *,
    days: int = 120,
    users: int | None = None,
    deletion: bool = False,
    lifetime: int = 30,
    domain: SpatialDomain | None = None,
    bounds: tuple[float, float, float, float] = (-124.0, 25.0, -67.0, 49.0),
    start: Any = "2009-04-01",
    seed: int,
) -> pd.DataFrame:
    """Check-ins of a growing social network: few towns, places and users have most of them.

    Daily numbers grow tenfold over the ``days``, with a weekly rhythm. Towns and the places in them are
    popular by a power law, and so are users, who mostly stay in their own town. With ``deletion=True``
    every check-in is taken back ``lifetime`` days later (an infection reported, then recovered), if that is
    within the stream.

    Columns: ``time``, ``lon``, ``lat``, ``user_id``, ``op`` (+1, -1); with a ``domain`` the towns lie in it
    and ``x``, ``y`` in its CRS take the place of ``lon``, ``lat``. Rows are in order of time.
    """
    rng = generator(seed)
    points, days = validate.whole(points, "points", low=1), validate.whole(days, "days", low=1)
    lifetime = validate.whole(lifetime, "lifetime", low=1)
    users = max(1, points // 12) if users is None else validate.whole(users, "users", low=1)
    begin = timestamp(start)
    if domain is None:
        from synthgeo.domain.box import BoxDomain

        names, area = ("lon", "lat"), BoxDomain(*bounds, crs="EPSG:4326")
    else:
        from synthgeo.domain.polygon import as_domain

        names, area = ("x", "y"), as_domain(domain)
    places, town_of_place, popularity = _places(area, rng)
    towns = int(town_of_place[-1]) + 1

    day = np.arange(days)
    daily = 10.0 ** (day / max(1, days - 1)) * np.where((day + begin.day_of_week) % 7 >= 5, 1.4, 1.0)
    hour = rng.choice(24, size=points, p=np.roll(_PICKUPS_BY_HOUR, -1) / _PICKUPS_BY_HOUR.sum())
    seconds = rng.choice(days, size=points, p=daily / daily.sum()) * _DAY + (hour + rng.random(points)) * 3600
    seconds.sort()

    user = rng.choice(users, size=points, p=zipf_weights(users, 0.8))
    home = rng.choice(towns, size=users, p=zipf_weights(towns, 1.1))
    town = np.where(
        rng.random(points) < 0.85, home[user], rng.choice(towns, size=points, p=zipf_weights(towns, 1.1))
    )
    place = _place_in_town(town, town_of_place, popularity, rng)
    width = min(area.bounds[2] - area.bounds[0], area.bounds[3] - area.bounds[1])
    xy = _inside(area, places[place], rng.normal(0, 2e-5 * width, (points, 2)))
    frame = pd.DataFrame(
        {
            "time": microseconds(begin, seconds),
            names[0]: xy[:, 0],
            names[1]: xy[:, 1],
            "user_id": user,
            "op": np.int64(1),
        }
    )
    if not deletion:
        return frame
    over = frame.assign(time=frame["time"] + pd.Timedelta(days=lifetime), op=np.int64(-1))
    over = over[over["time"] < begin + pd.Timedelta(days=days)]
    return pd.concat([frame, over]).sort_values("time", kind="stable", ignore_index=True)


def taxi_stream(
    points: int = 50_000,
    *,
    roads: RoadDomain | Any | None = None,
    days: int = 14,
    taxis: int = 400,
    start: Any = "2015-01-05",
    gps_noise: float = 5.0,
    seed: int,
) -> pd.DataFrame:
    """Taxi pickups along the roads of a city, with the rhythm of days and weeks.

    ``roads`` is a ``RoadDomain`` or an osmnx graph; without it, a small ``city_graph`` is made from the
    seed. Pickups gather around centres that are busy at different hours, and lie within GPS noise (metres)
    of a road.

    Columns: ``time``, ``lon``, ``lat``, ``taxi_id``. Rows are in order of time.
    """
    from synthgeo.domain.coordinates import crs_text, transform
    from synthgeo.domain.roads import RoadDomain

    rng = generator(seed)
    points, days, taxis = (
        validate.whole(points, "points", low=1),
        validate.whole(days, "days", low=1),
        validate.whole(taxis, "taxis", low=1),
    )
    begin = timestamp(start)
    if roads is None:
        roads = city_graph(seed=seed)
    domain = roads if isinstance(roads, RoadDomain) else RoadDomain.from_graph(roads)

    weekend = (np.arange(days) + begin.day_of_week) % 7 >= 5
    daily = np.where(weekend, 0.85, 1.0)
    day = rng.choice(days, size=points, p=daily / daily.sum())
    late = np.roll(_PICKUPS_BY_HOUR, 2)  # at weekends the city goes to bed later
    by_hour = np.stack([_PICKUPS_BY_HOUR / _PICKUPS_BY_HOUR.sum(), late / late.sum()])
    hour = _draw_rows(by_hour.cumsum(axis=1), weekend[day].astype(np.int64), rng)
    seconds = day * _DAY + (hour + rng.random(points)) * 3600

    # Candidate places on the roads, each with a pull that depends on the hour.
    places = hierarchy_of(domain).sample(ROOT, 0, np.array([max(2_000, points // 10)]), rng)
    centres = places[rng.choice(len(places), size=8, replace=False)]
    size = np.sqrt((domain.bounds[2] - domain.bounds[0]) * (domain.bounds[3] - domain.bounds[1]))
    reach = rng.uniform(0.04, 0.15, size=8) * size
    closeness = np.exp(-np.hypot(*(places[:, None] - centres[None]).transpose(2, 0, 1)) / reach)
    peak = rng.choice(24, size=8)
    busy = 0.15 + np.exp(np.cos((np.arange(24)[:, None] - peak) * np.pi / 12) * 1.5) / 4.5
    pull = busy * zipf_weights(8, 0.7) @ closeness.T + 0.002
    place = _draw_rows(np.cumsum(pull / pull.sum(axis=1, keepdims=True), axis=1), hour, rng)
    xy = places[place] + rng.normal(0, 15.0, (points, 2))  # a stop, not the same doorstep every time
    snapped, near = domain.snap(xy)
    xy = np.where(near[:, None], snapped, places[place]) + rng.normal(0, gps_noise, (points, 2))
    degrees = transform(xy, crs_text(domain.crs), "EPSG:4326")
    order = np.argsort(seconds, kind="stable")
    return pd.DataFrame(
        {
            "time": microseconds(begin, seconds[order]),
            "lon": degrees[order, 0],
            "lat": degrees[order, 1],
            "taxi_id": rng.choice(taxis, size=points, p=zipf_weights(taxis, 0.3)),
        }
    )


def _places(area: SpatialDomain, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Places, the town of each (sorted), and its popularity in town; the first towns are the largest."""
    towns = 60
    centre = hierarchy_of(area).sample(ROOT, 0, np.array([towns]), rng)
    sizes = np.maximum(8, (3_000 * zipf_weights(towns, 1.0)).astype(np.int64))
    town = np.repeat(np.arange(towns), sizes)
    width = min(area.bounds[2] - area.bounds[0], area.bounds[3] - area.bounds[1])
    spread = (0.004 + 0.012 * np.sqrt(sizes / sizes[0])) * width
    places = _inside(area, centre[town], rng.standard_t(4, (town.size, 2)) * spread[town, None])
    return places, town, np.concatenate([zipf_weights(int(size), 0.9) for size in sizes])


def _inside(area: SpatialDomain, xy: Array, shift: Array) -> Array:
    """Shifted points; one that leaves the area stays where it was."""
    moved = xy + shift
    inside = area.contains(moved)
    return np.where(inside[:, None], moved, xy)


def _place_in_town(town: Array, town_of_place: Array, popularity: Array, rng: np.random.Generator) -> Array:
    """A place in each given town, drawn by popularity (which sums to 1 in every town)."""
    reach = ragged.cumulative(popularity)
    first = np.searchsorted(town_of_place, np.arange(town_of_place[-1] + 2))
    low, high = reach[first[town]], reach[first[town + 1]]
    place = np.searchsorted(reach, low + rng.random(town.size) * (high - low), side="right") - 1
    return np.asarray(np.clip(place, first[town], first[town + 1] - 1))


def _draw_rows(cumulative: Array, row: Array, rng: np.random.Generator) -> Array:
    """One draw from the distribution in each given row of a table of cumulative probabilities."""
    stacked = (cumulative / cumulative[:, -1:] + np.arange(len(cumulative))[:, None]).ravel()
    drawn = np.searchsorted(stacked, row + rng.random(row.size), side="right")
    return np.asarray(np.clip(drawn - row * cumulative.shape[1], 0, cumulative.shape[1] - 1))


# Checks that the simulators share.


def generator(seed: int) -> np.random.Generator:
    """A generator of its own for one call."""
    return np.random.default_rng(validate.whole(seed, "seed", low=0, high=None))


def timestamp(start: object) -> pd.Timestamp:
    """A start time."""
    try:
        moment = pd.Timestamp(start)  # type: ignore[arg-type]
    except (ValueError, TypeError) as problem:
        raise ConfigError(f"start must be a date, got {start!r}") from problem
    if pd.isna(moment):
        raise ConfigError(f"start must be a date, got {start!r}")
    return moment


def zipf_weights(count: int, exponent: float) -> np.ndarray:
    """Shares that fall like rank^-exponent."""
    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum())


def microseconds(start: pd.Timestamp, seconds: np.ndarray) -> np.ndarray:
    """``start`` plus seconds as datetime64."""
    offset = np.rint(np.asarray(seconds) * 1e6).astype("timedelta64[us]")
    return np.asarray(np.datetime64(start.to_datetime64(), "us") + offset)
