"""Streams of points: the circles of the PHDStream experiments, check-ins, taxi pickups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from synthgeo import ragged, validate
from synthgeo.arrays import Array
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.hierarchy.keys import ROOT
from synthgeo.simulate.checks import generator, microseconds, timestamp, zipf_weights

if TYPE_CHECKING:
    from synthgeo.domain.roads import RoadDomain
    from synthgeo.domain.spatial import SpatialDomain

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
    from synthgeo.domain.coordinates import transform
    from synthgeo.domain.crs import crs_text
    from synthgeo.domain.roads import RoadDomain
    from synthgeo.simulate.city import city_graph

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
