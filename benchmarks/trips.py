"""Synthetic trips: how close, how fast. ``python -m benchmarks.trips [--only
sf|chicago|manhattan|box|land|uses|taxis|sweep|speed|walks]``.

San Francisco's taxis, Chicago's shuttles and simulated trips over Manhattan at ε = 1, beside the paper's
method and pairs on shortest paths, and what each part of the method buys and costs; San Francisco's trips
without its roads, in a box; walks simulated on land with a lake; rides, and models that are trained on
synthetic trips; New York's taxi records, known by their ends; a sweep around the defaults; the time of fit
and sample, and of conditional walks alone. Every table has its floor, two random halves of the real trips
against each other. Real data come from ``SYNTHGEO_DATA``; without it a made-up city takes Manhattan's place
and the rest is left out.

Rows are kept as they are finished, in ``unfinished_*.json``: a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import shapely

import synthgeo as sg
from benchmarks._common import RESULTS, peak_memory_mib, record, recorded
from benchmarks._grid import square_chain
from benchmarks._markdown import references
from synthgeo import ragged
from synthgeo.evaluation.rides import mobility_scores, ride_scores
from synthgeo.evaluation.trajectories import TripScores, trip_floor, trip_scores
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.polylines import Polylines
from trajectories.baselines import PaperTrips, ShortestPathTrips
from trajectories.ground.base import PlacedTrips
from trajectories.ground.plane import Inside
from trajectories.reading.points import Trips, read_ends, read_trips
from trajectories.walks.bridges import KilledBridge, exponential_steps, fixed_walks, probable_hops

DATA = Path(os.environ.get("SYNTHGEO_DATA", "data"))
UNIT = sg.PrivacyUnit.trajectory()
SEEDS = 5
AS_IS = False
BITS = 20  # the default depth of cells
COLUMNS = ("se_jsd", "fp_jsd", "qe", "tau", "f1", "trip", "diameter", "length")
#: Changes at ε = 1.
PARTS: dict[str, dict[str, Any]] = {
    "without times": {"times": 0.0},
    "without lengths": {"calibration": 0.0},
    "without recording": {"recording": 0.0},
    "weights='ends'": {"weights": "ends"},
    "length='median'": {"length": "median"},
}
#: Changes of the defaults. ``split``: cells, transitions, pairs.
SWEEP: dict[str, dict[str, Any]] = {
    "defaults": {},
    "split 0.175, 0.38, 0.445": {"split": (0.175, 0.38, 0.445)},
    "split 0.05, 0.3, 0.65": {"split": (0.05, 0.3, 0.65)},
    "split 0.05, 0.2, 0.75": {"split": (0.05, 0.2, 0.75)},
    "split 0.09, 0.5, 0.41": {"split": (0.09, 0.5, 0.41)},
    "split 0.09, 0.25, 0.66": {"split": (0.09, 0.25, 0.66)},
    "lengths 0.03": {"calibration": 0.03},
    "lengths 0.12": {"calibration": 0.12},
    "times 0.1": {"times": 0.1},
}


@dataclass(frozen=True, eq=False)
class Data:
    """Real trips on their ground."""

    name: str
    domain: Any
    real: Trips
    tz: str = "UTC"
    resample: bool = True  # give synthetic trips as many points a kilometre as the real ones have

    @cached_property
    def private(self) -> PlacedTrips:
        """The trips as the method sees them. Nothing random happens here, so one matching serves all rows."""
        setup = sg.TrajectorySynthesizer(domain=self.domain, budget=sg.PrivacyBudget(1.0), tz=self.tz)._setup
        return setup.place(setup.clean(self.real))

    @property
    def timed(self) -> bool:
        """Whether rides can be compared."""
        return self.real.time is not None


def line(name: str, scores: TripScores) -> dict[str, Any]:
    """A row of the table."""
    figures = scores.as_dict()
    return {"method": name, **{column: figures[column] for column in COLUMNS}}


def turning(edges: pd.DataFrame) -> float:
    """Share of steps that turn round on the spot; raises if a trip is not a connected directed path."""
    trip, u, v = (edges[name].to_numpy() for name in ("trip_id", "u", "v"))
    same = trip[1:] == trip[:-1]
    if not (v[:-1] == u[1:])[same].all():
        raise AssertionError("a trip is not a connected directed path")
    return float((u[:-1] == v[1:])[same].mean())


METHODS: dict[str, type[sg.TrajectorySynthesizer]] = {
    "Algorithms 16-21": PaperTrips,
    "pairs on shortest paths": ShortestPathTrips,
}


def score(
    data: Data,
    epsilon: float,
    seeds: Sequence[int],
    options: Mapping[str, Any],
    method: str = "",
    rides: bool = False,
) -> dict[str, Any]:
    """Scores of each seed, processor seconds of fit and sample and, on request, of rides and mobility."""
    found: dict[str, Any] = {"scores": [], "cpu": []}
    for seed in seeds:
        began = time.process_time()
        model = synthesizer(data, epsilon, seed, options, method)
        fitted = time.process_time()
        trips = model.sample(data.real.size)
        found["cpu"].append([fitted - began, time.process_time() - fitted])
        resample = data.resample or bool(method)
        found["scores"].append(trip_scores(data.real, trips, resample=resample).as_dict())
        if rides and seed == 0:
            found["mobility"] = mobility_scores(data.real, trips, domain=data.domain)
        if rides and not method and data.timed:
            timed = read_trips(trips.data, data.domain, unit=UNIT)
            found.setdefault("rides", []).append(ride_scores(data.real, timed, tz=data.tz).as_dict())
        if isinstance(data.domain, sg.RoadDomain):
            found.setdefault("reversals", []).append(turning(trips.edges))
        elif data.domain.kind == "polygon":
            land = data.domain.outline().buffer(1e-6 * math.sqrt(data.domain.outline().area))
            found.setdefault("outside", []).append(
                float(1 - shapely.covers(land, trips.lines.geometry).mean())
            )
    return found


def mean_line(label: str, entry: Mapping[str, Any], seeds: int | None = None) -> dict[str, Any]:
    """A row of the table: the mean over the first ``seeds`` seeds."""
    return line(label, TripScores.mean([TripScores(**one) for one in entry["scores"][:seeds]]))


def synthesizer(
    data: Data, epsilon: float, seed: int, options: Mapping[str, Any], method: str = ""
) -> sg.TrajectorySynthesizer:
    """A fitted one. ``options`` are those of the constructor."""
    kind = METHODS.get(method, sg.TrajectorySynthesizer)
    if not method:
        options = {"tz": data.tz, **options}
    model = kind.from_options(
        domain=data.domain, budget=sg.PrivacyBudget(epsilon), noise=sg.SeededNoise(seed), **options
    )  # fmt: skip
    if method == "pairs on shortest paths":
        return model.fit_trips(data.real)
    timed = data.timed and bool(model.settings.times)
    model._model = model._model_of(data.private, model._setup.shares(timed=timed))
    return model


def rows_of(name: str, seeds: int, work: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """The rows ``work`` computes, each kept when it is there."""
    file = f"unfinished_{name}"
    before = recorded(file)
    done: dict[str, Any] = before["results"] if before and before["config"]["seeds"] == seeds else {}
    for label, compute in work.items():
        if label not in done and not AS_IS:
            done[label] = compute()
            record(file, {"seeds": seeds}, done)
            figures = list(mean_line(label, done[label]).values())[1:]
            print(label, *(f"{figure:.4f}" for figure in figures), flush=True)
    return {label: done[label] for label in work if label in done}


def finish(name: str, config: dict[str, Any], results: dict[str, Any], missing: list[str]) -> None:
    """Record the table, and forget its unfinished rows if it is whole."""
    if missing:
        results["why"] += f" Not measured: {', '.join(missing)}."
    record(name, config, results)
    if not missing:
        (RESULTS / f"unfinished_{name}.json").unlink(missing_ok=True)
    print(pd.DataFrame(results["table"]).round(3).to_string(index=False), flush=True)


def compare(
    data: Data, seeds: int, few: int, extra: list[dict[str, Any]], why: str, *, parts: bool = True
) -> None:
    """The table of one data set, other methods beside ours at ε = 1 with ``few`` seeds, and what each part of
    the method buys and costs.
    """
    ours = "synthgeo, ε=1"
    work = {ours: partial(score, data, 1.0, range(seeds), {}, rides=True)}
    work |= {f"{name}, ε=1": partial(score, data, 1.0, range(few), {}, name, True) for name in METHODS}
    work["synthgeo, ε=1000"] = partial(score, data, 1000.0, range(1), {})
    if parts:
        work |= {label: partial(score, data, 1.0, range(few), options) for label, options in PARTS.items()}
    name = f"trips_{data.name}"
    done = rows_of(name, seeds, work)
    if ours not in done:
        return
    table = [line("floor (real halves)", trip_floor(data.real, repeats=2)), *extra]
    table += [mean_line(label, entry) for label, entry in done.items() if label not in PARTS]
    if parts and few < seeds:
        table.append(mean_line(f"ε=1, {few} of the seeds: all parts", done[ours], few))
    table += [mean_line(label, done[label]) for label in PARTS if label in done]
    half, rest = (
        data.real.take(np.arange(0, data.real.size, 2)),
        data.real.take(np.arange(1, data.real.size, 2)),
    )
    results: dict[str, Any] = {"why": why, "table": table}
    mobility = {"floor (real halves)": mobility_scores(half, rest, domain=data.domain)}
    mobility |= {label: entry["mobility"] for label, entry in done.items() if "mobility" in entry}
    results["mobility"] = [{"method": label, **found} for label, found in mobility.items()]
    if data.timed and "rides" in done[ours]:
        floor = ride_scores(half, rest, tz=data.tz).as_dict()
        rides = [floor, *done[ours]["rides"]]
        names = ["floor (real halves)", *(f"{ours}, seed {seed}" for seed in range(len(rides) - 1))]
        results["rides"] = [{"method": label, **found} for label, found in zip(names, rides, strict=True)]
    if isinstance(data.domain, sg.RoadDomain):
        network, placed = data.domain.network, data.private
        trip = ragged.owners_of(placed.start)
        ends = {"u": network.edge_u[placed.states], "v": network.edge_v[placed.states]}
        done = {**done, "real, matched": {"reversals": [turning(pd.DataFrame({"trip_id": trip, **ends}))]}}
    for key in ("reversals", "outside"):
        results |= {key: {label: float(np.mean(entry[key])) for label, entry in done.items() if key in entry}}
    results["spread"] = {c: float(np.std([one[c] for one in done[ours]["scores"]])) for c in COLUMNS}
    results["cpu"] = {
        label: np.mean(entry["cpu"], axis=0).tolist() for label, entry in done.items() if "cpu" in entry
    }
    shares = sg.TrajectorySynthesizer(domain=data.domain, budget=sg.PrivacyBudget(1.0))._setup.shares(
        timed=data.timed
    )
    results["epsilon"] = shares.as_dict()
    config = {"seeds": seeds, "seeds_of_others": few, "trips": data.real.size}
    finish(name, config, results, [label for label in work if label not in done])


def sf_data() -> Data:
    """12,000 trips of San Francisco's taxis, a point a minute."""
    roads = sg.RoadDomain.from_graphml(DATA / "sf" / "roads.graphml", max_distance=100)
    points = pd.read_parquet(DATA / "sf" / "trips.parquet")
    return Data("sf", roads, read_trips(points, roads, unit=UNIT), tz="America/Los_Angeles", resample=False)


def sf(seeds: int) -> None:
    """Taxis, as they are recorded: 60-s points against 60-s points."""
    if not (DATA / "sf").exists():
        return
    known = references()["adatrace_sf"]
    extra = [{"method": "AdaTrace, other drivers (elsewhere)", **known["scores"]}]
    why = (
        f"Points of ours come as often as those of the data, and are compared as they are. {known['source']}"
    )
    compare(sf_data(), seeds, 1, extra, why)


def box(seeds: int) -> None:
    """San Francisco's trips where no road is known."""
    if not (DATA / "sf").exists():
        return
    why = "San Francisco's trips without the roads, in a box."
    compare(box_data(), seeds, 1, [], why, parts=False)


def box_data() -> Data:
    """San Francisco's trips in a box."""
    data = sf_data()
    plane = sg.BoxDomain(*data.domain.bounds, crs=data.domain.crs)
    return Data("box", plane, data.real, data.tz, resample=False)


def land(seeds: int) -> None:
    """Walks on land with bays and a lake."""
    domain, real = walks_on_land(4000, seed=5)
    why = (
        "Simulated walks on land with seven bays and a lake, place to place by the shortest way, a point "
        "a minute. `outside` is the share of trips whose line leaves the land."
    )
    compare(Data("land", domain, real, resample=False), seeds, 1, [], why, parts=False)


def walks_on_land(trips: int, seed: int) -> tuple[sg.PolygonDomain, Trips]:
    """The land, and walks between places that people like, around what is not land."""
    rng = np.random.default_rng(seed)
    angle = np.linspace(0, 2 * np.pi, 280, endpoint=False)
    radius = 2000 * (1 + 0.35 * np.sin(7 * angle))
    lake = 400 * np.column_stack([np.cos(angle), np.sin(angle)])
    shore = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    domain = sg.PolygonDomain(shapely.Polygon(shore, [lake]))
    places = _on_land(domain, rng.uniform(-2700, 2700, (400, 2)))[:25]
    chosen = places[rng.choice(25, (trips, 2), p=rng.dirichlet(np.ones(25)))]
    ends = chosen.reshape(-1, 2) + rng.normal(0, 120, (2 * trips, 2))
    ends = np.where(domain.contains(ends)[:, None], ends, chosen.reshape(-1, 2))
    lines = Inside(domain.outline()).keep(Polylines(ends, 2 * np.arange(trips + 1)))
    minutes = np.maximum(np.rint(lines.lengths / rng.normal(80, 10, trips).clip(50)), 1).astype(np.int64)
    xy, start = lines.cut(minutes)
    hour = rng.choice([8, 9, 12, 17, 18], trips) + 24 * rng.integers(0, 7, trips)
    departure = pd.Timestamp("2026-05-04").timestamp() + 3600 * (hour + rng.random(trips))
    time_ = departure[ragged.owners_of(start)] + 60.0 * ragged.ranks_of(np.diff(start))
    return domain, Trips(xy, start, time_)


def _on_land(domain: sg.PolygonDomain, xy: np.ndarray) -> np.ndarray:
    return xy[domain.contains(xy)]


def uses(seeds: int) -> None:
    """Models trained on synthetic trips of one half, tried on the other; and origin-destination shares."""
    if not (DATA / "sf").exists():
        return
    path = Path(__file__).parents[1] / "examples" / "33_trip_models.py"
    spec = importlib.util.spec_from_file_location("trip_models", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    data = sf_data()
    one, other = example.halves(data.real)
    rows = []
    for label, seed in (
        ("real half", None),
        *((f"synthgeo, ε=1, seed {seed}", seed) for seed in range(seeds)),
    ):
        made = one
        if seed is not None:
            model = sg.TrajectorySynthesizer(
                domain=data.domain, budget=sg.PrivacyBudget(1.0), noise=sg.SeededNoise(seed), tz=data.tz
            )
            made = read_trips(model.fit_trips(one).sample(one.size).data, data.domain, unit=UNIT)
        row = {"trained on": label, **{name: use(made, other) for name, use in example.USES.items()}}
        row["od by 4 hours, tv"] = ride_scores(other, made, tz=data.tz).place_hour_blocks
        row |= {
            f"{what} at 250 m, tv": end_error(other, made, at)
            for what, at in (("origins", 0), ("destinations", -1))
        }
        rows.append(row)
        print(row, flush=True)
        why = "Six thousand of San Francisco's trips are the private data, the other six thousand the test."
        record("trips_uses", {"seeds": seeds, "trips": one.size}, {"why": why, "table": rows})


def end_error(real: Trips, made: Trips, at: int) -> float:
    """Total variation of first (0) or last (-1) points by squares of 250 metres."""
    corner = real.xy.min(axis=0)
    keys = []
    for trips in (real, made):
        xy = trips.xy[trips.start[:-1] if at == 0 else trips.start[1:] - 1]
        column, row = np.floor((xy - corner) / 250).astype(np.int64).T
        keys.append(column * 1_000_000 + row)
    names = np.unique(np.concatenate(keys))
    one, two = (np.bincount(np.searchsorted(names, key), minlength=len(names)) / len(key) for key in keys)
    return float(np.abs(one - two).sum() / 2)


def chicago_data() -> Data:
    """889 real trips of campus shuttles."""
    roads = sg.RoadDomain.from_graphml(DATA / "chicago" / "roads.graphml", max_distance=80)
    points = pd.read_parquet(DATA / "chicago" / "trips.parquet")
    return Data("chicago", roads, read_trips(points, roads, unit=UNIT), tz="America/Chicago")


def chicago(seeds: int) -> None:
    """Real trips that do not take shortest paths."""
    if not (DATA / "chicago").exists():
        return
    extra = [
        {"method": f"{name}, ε=1 (elsewhere)", **references()[key]["scores"]}
        for name, key in (("AdaTrace", "adatrace_chicago"), ("PrivTrace", "privtrace_chicago"))
    ]
    why = (
        "The first settings were chosen on these trips, with other seeds: these are not figures of unseen "
        "data. One seed differs from the next by much (`spread`, in the file)."
    )
    compare(chicago_data(), seeds, 2, extra, why)


def manhattan_roads() -> sg.RoadDomain:
    """Manhattan, or a made-up city."""
    path = DATA / "nyc" / "manhattan_roads.graphml"
    if path.exists():
        return sg.RoadDomain.from_graphml(path)
    return sg.RoadDomain.from_graph(sg.simulate.city_graph(40, 32, seed=11))


def manhattan(seeds: int) -> None:
    """20,000 simulated trips whose drivers do not all take the shortest path."""
    why = "Simulated trips whose drivers do not all take the shortest path."
    compare(manhattan_data(), seeds, 1, [], why, parts=False)


def manhattan_data() -> Data:
    """Simulated trips in Manhattan."""
    roads = manhattan_roads()
    points = sg.simulate.city_trips(roads, trips=20_000, seed=3)
    return Data("manhattan", roads, read_trips(points, roads, unit=UNIT))


def sweep(seeds: int) -> None:
    """Why these defaults: one change at a time, in several cities and without roads, and what would be chosen
    for each by the others.
    """
    city = sg.RoadDomain.from_graph(sg.simulate.city_graph(30, 24, seed=11))
    points = sg.simulate.city_trips(city, trips=4_000, seed=3)
    land, walked = walks_on_land(4000, seed=5)
    kinds = [
        Data("city", city, read_trips(points, city, unit=UNIT)),
        Data("land", land, walked, resample=False),
    ]
    if (DATA / "chicago").exists():
        kinds.append(chicago_data())
    if (DATA / "sf").exists():
        kinds += [sf_data(), box_data()]
    if (DATA / "nyc").exists():
        kinds.append(manhattan_data())
    work = {
        f"{data.name}: {label}": partial(score, data, 1.0, range(100, 100 + seeds), options)
        for label, options in SWEEP.items()
        for data in kinds
    }
    done = rows_of("sweep_trips", seeds, work)
    table = [mean_line(label, entry) for label, entry in done.items()]
    whole = [label for label in SWEEP if all(f"{data.name}: {label}" in done for data in kinds)]
    results: dict[str, Any] = {"table": table}
    if "defaults" in whole:
        results["leave_one_out"] = leave_one_out(
            {data.name: {label: done[f"{data.name}: {label}"] for label in whole} for data in kinds}
        )
    results["why"] = (
        "One change of the defaults at a time, ε = 1: a made-up city of 720 crossings (4,000 trips), walks "
        "on land (4,000), Chicago (889), San Francisco with roads and without (12,000), Manhattan (20,000). "
        f"The mean of {seeds} seeds of its own; differences of a few hundredths (tenths, for qe) are chance."
    )
    missing = [label for label in work if label not in done]
    finish("sweep_trips", {"seeds": seeds, "epsilon": 1.0}, results, missing)


def leave_one_out(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """For each data set the setting that the others choose, and how much worse it is there, and the defaults
    are, than the setting that is best there: by the geometric mean of the eight errors.
    """

    def errors(entry: Mapping[str, Any]) -> np.ndarray:
        figures = mean_line("", entry)
        return np.array([1 - figures[c] if c in ("tau", "f1") else figures[c] for c in COLUMNS])

    logs = {
        name: {label: float(np.log(errors(entry)).mean()) for label, entry in by_label.items()}
        for name, by_label in found.items()
    }
    rows = []
    for name, own in logs.items():
        others = [one for other, one in logs.items() if other != name]
        chosen = min(own, key=lambda label: sum(one[label] - one["defaults"] for one in others))
        best = min(own, key=lambda label: own[label])
        rows.append(
            {
                "left out": name,
                "chosen by the others": chosen,
                "worse than the best by": math.expm1(own[chosen] - own[best]),
                "best": best,
                "defaults worse by": math.expm1(own["defaults"] - own[best]),
            }
        )
    return rows


def taxis(seeds: int) -> None:
    """New York's taxi records: two ends only."""
    path = DATA / "nyc" / "taxi_trips.parquet"
    if not path.exists():
        return
    roads, frame = manhattan_roads(), pd.read_parquet(path)
    real = read_ends(
        frame,
        roads,
        unit=UNIT,
        origin=("pickup_lon", "pickup_lat"),
        destination=("dropoff_lon", "dropoff_lat"),
    )
    inside = (roads.nearest(real.xy)[2] <= roads.max_distance).reshape(-1, 2).all(axis=1)
    seen = real.take(np.asarray(inside))
    rows = [line("floor (real halves)", trip_floor(seen))]
    for epsilon in (1.0, 2.0):
        scores = []
        for seed in range(seeds):
            model = sg.TrajectorySynthesizer(
                domain=roads,
                budget=sg.PrivacyBudget(epsilon),
                noise=sg.SeededNoise(seed),
                settings=sg.TripSettings(times=0.0),
            )
            made = model.fit_trips(real, ends_only=True).sample(seen.size)
            two = Trips(made.xy, made.start).ends()
            scores.append(trip_scores(seen, two, resample=False))
        rows.append(line(f"synthgeo, ε={epsilon:g}", TripScores.mean(scores)))
    kept = ("method", "se_jsd", "trip", "diameter")
    rows = [{name: row[name] for name in kept} for row in rows]
    record("trips_taxis", {"seeds": seeds}, {"table": rows})
    print(pd.DataFrame(rows).round(3).to_string(index=False), flush=True)


def speed() -> None:
    """20,000 trips in, 20,000 out; then 10^6 to a file."""
    roads = manhattan_roads()
    points = sg.simulate.city_trips(roads, trips=20_000, seed=3, interval=60.0)
    small = sg.simulate.city_trips(roads, trips=200, seed=4)
    sg.TrajectorySynthesizer(domain=roads, budget=sg.PrivacyBudget(1.0)).fit(small).sample(50)  # compiles
    rows = []
    bits = 13
    prefix = np.arange(1 << bits, dtype=np.uint64)
    measure = hierarchy_of(roads).measure(prefix, bits)
    from synthgeo.hierarchy.cells import Partition

    given = Partition(prefix[measure > 0], np.full(int((measure > 0).sum()), bits), measure[measure > 0])
    kinds: tuple[tuple[str, dict[str, Any]], ...] = (
        ("private cells", {}),
        (f"{given.size} given cells", {"partition": given}),
    )
    for name, options in kinds:
        model = sg.TrajectorySynthesizer.from_options(domain=roads, budget=sg.PrivacyBudget(1.0), **options)
        fit, sample = (took(partial(model.fit, points)), took(partial(model.sample, 20_000)))
        rows.append({"what": name, "fit_s": fit[0], "sample_s": sample[0], "fit_cpu": fit[1]})
        rows[-1]["sample_cpu"] = sample[1]
    target = Path("trips_speed.parquet.tmp")
    sample = took(partial(model.sample_to_parquet, target, 1_000_000))
    rows.append({"what": "10^6 trips to a file", "fit_s": 0.0, "sample_s": sample[0], "fit_cpu": 0.0})
    rows[-1]["sample_cpu"] = sample[1]
    target.unlink()
    why = (
        "Seconds by the clock (`_s`), which other work on the machine lengthens, and of its processors "
        "(`_cpu`), which it does not."
    )
    record("trips_speed", {"points": len(points)}, {"why": why, "table": rows, "peak_mib": peak_memory_mib()})
    print(pd.DataFrame(rows).round(1).to_string(index=False), flush=True)


def took(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds by the clock and of processors."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


def walks() -> None:
    """10^5 conditional walks to 1,000 destinations on a 10^4-cell graph."""
    rng, side = np.random.default_rng(0), 100
    chain = square_chain(side, rng)
    destination = rng.choice(side * side, 1000, replace=False)[rng.integers(0, 1000, 100_000)]
    origin = rng.integers(0, side * side, 100_000)
    KilledBridge(chain).walks(origin[:1], destination[:1], rng)
    fixed_walks(chain, origin[:1], destination[:1], np.array([99]), rng)
    began = time.perf_counter()
    KilledBridge(chain).walks(origin, destination, rng)
    killed = time.perf_counter() - began
    began = time.perf_counter()
    steps_wanted = exponential_steps(probable_hops(chain, origin, destination), rng)
    fixed_walks(chain, origin, destination, steps_wanted, rng)
    rows = [
        {"walks": "killed", "seconds": killed},
        {"walks": "median", "seconds": time.perf_counter() - began},
    ]
    record("trips_walks", {"cells": side * side, "destinations": 1000, "walks": 100_000}, {"table": rows})
    print(pd.DataFrame(rows).round(1).to_string(index=False), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = ("sf", "chicago", "manhattan", "box", "land", "uses", "taxis", "sweep", "speed", "walks")
    parser.add_argument("--only", choices=names)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--as-is", action="store_true", help="record the rows that are there, compute none")
    options = parser.parse_args()
    global AS_IS
    AS_IS = options.as_is
    parts: tuple[tuple[str, Callable[[], None]], ...] = (
        ("sf", lambda: sf(options.seeds)),
        ("chicago", lambda: chicago(options.seeds)),
        ("manhattan", lambda: manhattan(min(options.seeds, 2))),
        ("box", lambda: box(min(options.seeds, 2))),
        ("land", lambda: land(min(options.seeds, 2))),
        ("uses", lambda: uses(min(options.seeds, 3))),
        ("taxis", lambda: taxis(min(options.seeds, 2))),
        ("sweep", lambda: sweep(options.seeds)),
        ("speed", speed),
        ("walks", walks),
    )
    for name, work in parts:
        if options.only in (None, name):
            print(f"-- {name}", flush=True)
            work()


if __name__ == "__main__":
    main()
