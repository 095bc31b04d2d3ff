"""Trips over time and trips with attributes. ``python -m benchmarks.trip_streams [--only
sf|manhattan|city|attributes]``.

San Francisco's taxis by week; simulated trips over Manhattan, and over a small made-up city, by month, whose
hot spots drift and where a busy street is closed in month 7. Every month is released by a stream of lifetime
1 that borrows from earlier releases, by one-off fits of the month alone at ε and at ε divided by the number
of months, and by a stream of all trips so far. All are compared with the real trips of the month; two random
halves of these are the floor.

New York's taxi trips, known by their ends, are released with fare, distance, passengers and payment.

A run that is stopped goes on at the month where it was. Real data come from ``SYNTHGEO_DATA``; without it
only the made-up city is measured.
"""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

import synthgeo as sg
from benchmarks._common import record
from benchmarks.trips import BITS, COLUMNS, DATA, UNIT, line, manhattan_roads
from synthgeo.evaluation.trajectories import trip_floor, trip_scores
from trajectories.ground import ground_of
from trajectories.ground.base import PlacedTrips
from trajectories.over_time.counting import CountedTrips
from trajectories.reading.cleaning import clean
from trajectories.reading.points import Trips, read_trips
from trajectories.release import TrajectoryRelease

EPSILON = 1.0
SPACING = 25.0  # metres between points: lines are compared, not how they were recorded
SAMPLED = 50_000  # trips with attributes: as many as there are real ones, or drawing them would show
MONTHS, TRIPS, CLOSED = 12, 10_000, 7
SEEDS = 3  # of real data: three weeks, and one table of attributes, are soon released again
RISING = ("tau", "f1")  # more is better
ABOVE = 0.01
LEFT = 0.05  # of its trips, what a closed street may seem to keep
STREAM, ONCE, SPLIT, ALL = (
    "stream of lifetime 1, borrowing", "one-off, ε", "one-off, ε / months", "stream of all so far",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Month:
    """The real trips of one month, and the same as the method sees them."""

    real: Trips
    private: PlacedTrips

    @classmethod
    def of(cls, points: pd.DataFrame, roads: sg.RoadDomain) -> Month:
        real = read_trips(points, roads, unit=UNIT)
        return cls(real, ground_of(roads, BITS).place(clean(real, domain=roads), method="hmm"))


class Progress:
    """The rows and streams of the months so far, in a folder: a run that was stopped goes on there."""

    def __init__(self, name: str, seed: int) -> None:
        self.folder = Path(tempfile.gettempdir()) / f"synthgeo-trip-streams-{name}-{seed}"
        self.folder.mkdir(exist_ok=True)
        rows = self.folder / "rows.json"
        self.rows: list[dict[str, Any]] = json.loads(rows.read_text()) if rows.exists() else []

    @property
    def months(self) -> int:
        """How many months are done."""
        return max((row["month"] for row in self.rows), default=0)

    def stream(self, roads: sg.RoadDomain, lifetime: int | None, seed: int) -> sg.TrajectoryStream:
        """A stream as the last month left it."""
        path = self.folder / f"{lifetime}-{self.months}.state"
        if self.months:
            return sg.TrajectoryStream.load(path)
        return sg.TrajectoryStream(
            domain=roads, settings=sg.TripSettings(times=0.0), budget=sg.PrivacyBudget(EPSILON),
            lifetime=lifetime, columns=sg.ColumnNames(time=None),
            noise=sg.SeededNoise(seed),
        )  # fmt: skip

    def keep(self, rows: list[dict[str, Any]], streams: dict[str, sg.TrajectoryStream]) -> None:
        """One month more."""
        self.rows += rows
        for stream in streams.values():
            stream.save(self.folder / f"{stream.lifetime}-{self.months}.state")
        unfinished = self.folder / "rows.part"
        unfinished.write_text(json.dumps(self.rows))
        unfinished.replace(self.folder / "rows.json")

    def over(self) -> None:
        """Everything is recorded."""
        shutil.rmtree(self.folder)


def releases(
    roads: sg.RoadDomain, month_of: Callable[[int], Month], number: int, seed: int, before: Progress
) -> Iterator[tuple[int, Month, dict[str, TrajectoryRelease], dict[str, sg.TrajectoryStream]]]:
    """The releases of each month that is left, by method."""
    given: dict[str, Any] = {"domain": roads, "times": 0.0}
    budget = sg.PrivacyBudget(EPSILON)
    streams = {name: before.stream(roads, lifetime, seed) for name, lifetime in ((STREAM, 1), (ALL, None))}
    nothing = pd.DataFrame({"trip_id": np.empty(0, np.int64), "x": np.empty(0), "y": np.empty(0)})
    for at in range(before.months + 1, number + 1):
        month, made = month_of(at), {}
        for name, stream in streams.items():
            stream.take(
                replace(stream.count(nothing), counts=CountedTrips(replace(month.private, departure=None)))
            )
            made[name] = stream.sample(month.real.size, spacing=SPACING)
        for name, share in ((ONCE, 1), (SPLIT, number)):
            model = sg.TrajectorySynthesizer.from_options(
                **given, budget=budget / share, noise=sg.SeededNoise(1000 * seed + at)
            )
            model._model = model._model_of(month.private, model._setup.shares(timed=False))
            made[name] = model.sample(month.real.size, spacing=SPACING)
        yield at, month, made, streams


def excess(row: Mapping[str, Any], floor: Mapping[str, Any]) -> dict[str, float]:
    """By how much each figure is worse than the floor; 0 where it is not."""
    return {name: max((floor[name] - row[name]) * (1 if name in RISING else -1), 0.0) for name in COLUMNS}


def share(row: Mapping[str, Any], alone: Mapping[str, Any], floor: Mapping[str, Any]) -> float:
    """The mean share of the one-off's excess that a method leaves, over the figures where there is one: by
    more than ``ABOVE``, which two halves differ by anyway.
    """
    ours, theirs = excess(row, floor), excess(alone, floor)
    return float(np.mean([ours[name] / theirs[name] for name in COLUMNS if theirs[name] > ABOVE]))


def shared(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The table with those shares in each row of a method."""
    known = {(row["month"], row["method"]): row for row in table}
    return [
        row
        if row["method"] == "floor"
        else row | {"of_excess": share(row, known[row["month"], ONCE], known[row["month"], "floor"])}
        for row in table
    ]


def through(release: TrajectoryRelease, closed: tuple[int, int]) -> float:
    """Share of the trips that drive a street, in either direction."""
    edges = release.edges
    inside = edges["u"].isin(closed) & edges["v"].isin(closed)
    return float(edges.loc[inside, "trip_id"].nunique() / max(release.total, 1))


def really_through(month: Month, roads: sg.RoadDomain, closed: tuple[int, int]) -> float:
    """The same of matched real trips."""
    network, private = roads.network, month.private
    on = np.isin(network.edge_u, closed) & np.isin(network.edge_v, closed)
    passing = np.repeat(np.arange(private.size), np.diff(private.start))[on[private.states]]
    return float(len(np.unique(passing)) / private.size)


def table_of(
    place: str,
    roads: sg.RoadDomain,
    month_of: Callable[[int], Month],
    number: int,
    seed: int,
    closed: tuple[int, int] | None,
) -> list[dict[str, Any]]:
    progress = Progress(place, seed)
    for at, month, made, streams in releases(roads, month_of, number, seed, progress):
        floor = line("floor", trip_floor(month.real, repeats=2))
        lines = {name: line(name, trip_scores(month.real, release)) for name, release in made.items()}
        rows: list[dict[str, Any]] = [{"month": at, **floor}]
        for name, release in made.items():
            row: dict[str, Any] = {"month": at, **lines[name]}
            if closed is not None:
                row |= {
                    "closed": through(release, closed),
                    "closed_really": really_through(month, roads, closed),
                }
            rows.append(row)
        progress.keep(shared(rows), streams)
        print(pd.DataFrame(progress.rows[-5:]).round(3).to_string(index=False), flush=True)
    return progress.rows


def summary(table: list[dict[str, Any]], first: int) -> dict[str, float]:
    """The mean share of the one-off's excess from a month on, by method; of several seeds that of their mean
    figures, since the one-off's excess is chance, too.
    """
    figures = pd.DataFrame(table).groupby(["month", "method"])[list(COLUMNS)].mean()
    months = [month for month in figures.index.unique("month") if month >= first]
    return {
        name: float(
            np.mean([share(*(figures.loc[at, one] for one in (name, ONCE, "floor"))) for at in months])
        )
        for name in (STREAM, SPLIT, ALL)
    }


def san_francisco(seed: int) -> None:
    """Three weeks of real taxi trips."""
    if not (DATA / "sf").exists():
        return
    roads = sg.RoadDomain.from_graphml(DATA / "sf" / "roads.graphml")
    points = pd.read_parquet(DATA / "sf" / "trips.parquet")
    last = points.groupby("trip_id")["time"].transform("max")
    week = (last - last.min().floor("D")).dt.days // 7
    month = functools.cache(lambda at: Month.of(points[week == at - 1], roads))
    seeds = range(seed, seed + SEEDS)
    table = [{"seed": one} | row for one in seeds for row in table_of("sf", roads, month, 3, one, None)]
    config = {"epsilon": EPSILON, "weeks": 3, "seeds": list(seeds)}
    record("trip_streams_sf", config, {"table": table, "of_excess": summary(table, 3)})
    for one in seeds:
        Progress("sf", one).over()


def street(
    graph: nx.MultiDiGraph, roads: sg.RoadDomain, drive: Callable[[nx.MultiDiGraph], pd.DataFrame]
) -> tuple[int, int]:
    """The busiest street that trips really leave when it is closed, of one stretch of each street that has a
    name. Of many they do not, as far as points a minute apart can tell: they drive around the block.
    """
    network = roads.network
    names = network.tags.get("name", list(range(network.size)))
    month = some(drive(graph), roads)
    tried = set()
    for edge in np.argsort(-np.bincount(month.private.states, minlength=network.size)):
        closed = int(network.edge_u[edge]), int(network.edge_v[edge])
        if str(names[edge]) in tried or not nx.is_strongly_connected(without(graph, closed)):
            continue
        tried.add(str(names[edge]))
        left = really_through(some(drive(shut(graph, closed)), roads), roads, closed)
        print(f"closed {closed}: {left:.4f} of {really_through(month, roads, closed):.4f}", flush=True)
        if left < LEFT * really_through(month, roads, closed):
            return closed
    raise AssertionError("every street is needed")


def some(points: pd.DataFrame, roads: sg.RoadDomain) -> Month:
    """The first of many trips."""
    return Month.of(points[points["trip_id"] < 2_000], roads)


def without(graph: nx.MultiDiGraph, closed: tuple[int, int]) -> nx.MultiDiGraph:
    """The graph without a street."""
    return nx.restricted_view(graph, [], between_nodes(graph, closed))


def shut(graph: nx.MultiDiGraph, closed: tuple[int, int]) -> nx.MultiDiGraph:
    """The graph with a street that nobody would drive: what drivers like of all others stays as it was."""
    other = graph.copy()
    for edge in between_nodes(graph, closed):
        other.edges[edge]["maxspeed"] = "0.01"
    return other


def between_nodes(graph: nx.MultiDiGraph, ends: tuple[int, int]) -> list[tuple[int, int, int]]:
    """A street's edges, in both directions."""
    pairs = (ends, ends[::-1])
    return [(u, v, key) for u, v in pairs if graph.has_edge(u, v) for key in graph[u][v]]


def manhattan(seed: int) -> None:
    """Twelve months over Manhattan."""
    import osmnx as ox

    path = DATA / "nyc" / "manhattan_roads.graphml"
    if path.exists():
        by_month("manhattan", ox.load_graphml(path), MONTHS, TRIPS, seed)


def city(seed: int) -> None:
    """The same over a small made-up city, with fewer trips: minutes instead of hours."""
    by_month("city", sg.simulate.city_graph(16, 12, seed=11), 8, 500, seed)


def by_month(name: str, graph: nx.MultiDiGraph, months: int, size: int, seed: int) -> None:
    """So many months of so many trips each, which drift from some hot spots to others."""
    graph = graph.subgraph(max(nx.strongly_connected_components(graph), key=len)).copy()
    roads = sg.RoadDomain.from_graph(graph)

    @functools.cache
    def drive(roads_now: nx.MultiDiGraph, hot: int = 3) -> pd.DataFrame:
        return sg.simulate.city_trips(roads_now, trips=months * size, seed=hot, interval=60.0)

    closed = street(graph, roads, drive)
    cut_off = shut(graph, closed)
    whole, cut = ({hot: drive(open_roads, hot) for hot in (3, 4)} for open_roads in (graph, cut_off))

    def month(at: int) -> Month:
        moved = round(size * 0.5 * (at - 1) / (months - 1))  # trips between the other hot spots
        kind = whole if at < CLOSED else cut
        low = (at - 1) * size
        ranges = ((3, low, low + size - moved), (4, low, low + moved))
        frames = [kind[hot][kind[hot]["trip_id"].between(first, last - 1)] for hot, first, last in ranges]
        frames[1] = frames[1].assign(trip_id=frames[1]["trip_id"] + months * size)
        return Month.of(pd.concat(frames, ignore_index=True), roads)

    table = table_of(name, roads, month, months, seed, closed)
    config = {"epsilon": EPSILON, "months": months, "trips": size, "closed in month": CLOSED, "seed": seed}
    record(f"trip_streams_{name}", config, {"table": table, "of_excess": summary(table, 3)})
    Progress(name, seed).over()


FARES = [
    0,
    *np.arange(2.25, 12.5, 0.5).tolist(),
    13,
    14,
    16,
    18,
    20,
    25,
    30,
    40,
    60,
]  # a meter of half dollars
MILES = [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 7, 10, 30]
TAXIS = sg.Schema(
    {
        "trip_distance": sg.Numeric(0, 30, bins=MILES, outside="clip"),
        "fare_amount": sg.Numeric(0, 60, bins=FARES, outside="clip"),
        "passenger_count": sg.Ordinal(range(10)),
        "payment_type": sg.Categorical([1, 2, 3, 4]),
    }
)


def attributes(seed: int) -> None:
    """New York's taxis with what else was recorded of each trip, at ε = 1."""
    path = DATA / "nyc" / "taxi_trips.parquet"
    if not path.exists():
        return
    ends = ("pickup_lon", "pickup_lat"), ("dropoff_lon", "dropoff_lat")
    times = "tpep_pickup_datetime", "tpep_dropoff_datetime"
    private = pd.read_parquet(path, columns=[*ends[0], *ends[1], *times, *TAXIS.kinds])
    real = private.assign(hour=private[times[0]].dt.hour)
    shuffled = real.assign(payment_type=real["payment_type"].sample(frac=1, random_state=0).to_numpy())
    frames = {"real": real, "real, payments shuffled": shuffled}
    seeds = range(seed, seed + SEEDS)
    for one in seeds:
        model = sg.TrajectorySynthesizer(
            domain=manhattan_roads(), budget=sg.PrivacyBudget(EPSILON), attributes=TAXIS,
            tz="America/New_York", noise=sg.SeededNoise(one),
        ).fit(
            private, origin=ends[0], destination=ends[1], departure=times[0], arrival=times[1],
        )  # fmt: skip
        made = model.sample(SAMPLED).trips
        frames[f"synthetic, seed {one}"] = made.assign(hour=made["departure"].dt.hour)
    table = [
        {"trips": name, **told(frame), "payment_by_hour_tv": between(frame, real)}
        for name, frame in frames.items()
    ]
    print(pd.DataFrame(table).round(3).to_string(index=False), flush=True)
    config = {"epsilon": EPSILON, "seeds": list(seeds), "sampled": SAMPLED}
    record("trip_attributes", config, {"table": table})


def told(trips: pd.DataFrame) -> dict[str, float]:
    """What fares are, and how they go with distances."""
    fare, miles = (trips[name].astype(float) for name in ("fare_amount", "trip_distance"))
    return {"correlation": float(np.corrcoef(fare, miles)[0, 1]), "median_fare": float(fare.median())}


def between(trips: pd.DataFrame, real: pd.DataFrame) -> float:
    """Total variation of payment in each hour, the mean over the real hours."""
    shares = [
        pd.crosstab(frame["hour"], frame["payment_type"].astype(int), normalize="index").reindex(
            index=range(24), columns=[1, 2, 3, 4], fill_value=0.0
        )
        for frame in (trips, real)
    ]
    hours = real["hour"].value_counts(normalize=True).reindex(range(24), fill_value=0.0)
    return float((np.abs(shares[0] - shares[1]).sum(axis=1) / 2 * hours).sum())


PARTS = (("sf", san_francisco), ("manhattan", manhattan), ("city", city), ("attributes", attributes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=[name for name, _ in PARTS])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for name, work in PARTS:
        if options.only in (None, name):
            print(f"-- {name}", flush=True)
            work(options.seed)


if __name__ == "__main__":
    main()
