"""``synthgeo demo``: an invented city, three products, one ledger."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from synthgeo.cli.options import Json
from synthgeo.cli.output import emit, say, show_facts, words
from synthgeo.errors import ConfigError
from synthgeo.extras import require

# Days of check-ins, months of the register: enough to see a stream move, few enough for a coffee.
_DAYS, _MONTHS = 12, 5


def demo(
    out: Annotated[
        Path, typer.Option("--out", help="Folder for the datasets; must not hold a demo yet.")
    ] = Path("demo"),
    epsilon: Annotated[
        float, typer.Option("--epsilon", help="The budget ε of each of the three products.")
    ] = 1.0,
    quick: Annotated[
        bool, typer.Option("--quick", help="A fifth of the data: to see that it works.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Simulate a city's check-ins, residents and taxi trips; release all three privately, with a report."""
    import synthgeo as sg

    if (out / "ledger.sqlite").exists():
        raise ConfigError(f"{out} holds a demo already: remove it, or choose another folder with --out")
    for module in ("jinja2", "matplotlib"):  # of the reports, which come last
        require(module, extra="report")
    out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    size = 0.2 if quick else 1.0
    budget = sg.PrivacyBudget(epsilon=epsilon)
    say("simulating an invented city: its streets, check-ins that come and go, residents, taxi trips")
    graph = sg.simulate.city_graph(seed=7)
    roads = sg.RoadDomain.from_graph(graph, max_distance=50)
    with sg.Ledger.open(out / "ledger.sqlite", dataset="demo city", cap=budget * 3.5) as ledger:
        real: dict[str, Any] = {}
        released: dict[str, Any] = {}
        real["Check-ins"], released["Check-ins"] = _checkins(out, roads, budget, ledger, int(12_000 * size))
        real["Residents"], released["Residents"] = _residents(out, budget, ledger, int(6_000 * size))
        real["Taxi trips"], released["Taxi trips"] = _trips(
            out, graph, roads, budget, ledger, int(3_000 * size)
        )
        say("writing the two reports")
        title = "An invented city"
        sg.report(real, released, out / "report-curator-only.html", ledger=ledger, title=title, repeats=2)
        sg.report(None, released, out / "report-public.html", public=True, ledger=ledger, title=title)
        _picture(out / "city.png", real, released)
        facts = {
            "synthetic check-ins": f"{released['Check-ins'][-1].total:,} points after {_DAYS} days",
            "synthetic residents": f"{released['Residents'][-1].total:,} rows after {_MONTHS} months",
            "synthetic trips": f"{len(released['Taxi trips'].lines):,} on the streets",
            "spent": words(ledger.spent),
            "may be published": "yes" if all(_last(r).releasable for r in released.values()) else "no",
            "files": ", ".join(
                sorted(p.name for p in out.glob("*.*") if p.suffix in (".parquet", ".html", ".png"))
            ),
            "took": f"{time.perf_counter() - began:.0f} s",
        }
    if as_json:
        emit({"folder": str(out), "facts": facts})
    else:
        show_facts(f"released into {out}", facts)


def _last(release: Any) -> Any:
    return release[-1] if isinstance(release, list) else release


def _checkins(out: Path, roads: Any, budget: Any, ledger: Any, points: int) -> tuple[list[Any], list[Any]]:
    """Check-ins on the streets, taken back after some days, as a durable run with one step a day."""
    import synthgeo as sg

    say(f"check-ins: a durable run of {_DAYS} days on the street network")
    events = sg.simulate.checkins(points, days=_DAYS, deletion=True, lifetime=5, domain=roads, seed=7)
    day = (events["time"] - events["time"].min().normalize()).dt.days
    stream = sg.PHDStream(domain=roads, budget=budget, settings=sg.PointSettings(persist=True))
    real, released = [], []
    with sg.StreamRun.open(out / "runs" / "checkins", stream, ledger=ledger, parts=("data", "cells")) as run:
        for number in range(_DAYS):
            batch = events[day == number].drop(columns="time")
            released.append(run.step(f"day-{number + 1:02d}", batch))
            there = events[day <= number].groupby(["x", "y"])["op"].sum()
            real.append(there[there > 0].reset_index()[["x", "y"]])
    released[-1].to_parquet(out / "checkins.parquet")
    return real, released


def _residents(out: Path, budget: Any, ledger: Any, people: int) -> tuple[list[Any], list[Any]]:
    """A register of residents, as a durable run with one step a month."""
    import synthgeo as sg

    say(f"residents: a durable run of {_MONTHS} months")
    events = sg.simulate.census(people, steps=_MONTHS, seed=7)
    schema = sg.simulate.census_schema()
    columns = list(schema.columns)
    stream = sg.TabularStream(schema=schema, budget=budget)
    real, released = [], []
    with sg.StreamRun.open(out / "runs" / "residents", stream, ledger=ledger) as run:
        for month, batch in events.groupby("step"):
            released.append(run.step(f"month-{month + 1:02d}", batch[[*columns, "op"]]))
            so_far = events[events["step"] <= month]
            gone = so_far.loc[so_far["op"] == -1, "person_id"]
            real.append(so_far[(so_far["op"] == 1) & ~so_far["person_id"].isin(gone)][columns])
    released[-1].to_parquet(out / "residents.parquet")
    return real, released


def _trips(out: Path, graph: Any, roads: Any, budget: Any, ledger: Any, trips: int) -> tuple[Any, Any]:
    """Taxi trips, fitted once; the saved model is all that sampling needs."""
    import synthgeo as sg

    say("taxi trips: matching to the streets, fitting, sampling")
    points = sg.simulate.city_trips(graph, trips=trips, seed=7)
    model = sg.TrajectorySynthesizer(domain=roads, budget=budget, ledger=ledger).fit(points)
    model.save(out / "trips.model")
    release = model.sample(trips)
    release.to_parquet(out / "trips.parquet")
    return points, release


def _picture(path: Path, real: dict[str, Any], released: dict[str, Any]) -> None:
    """True and synthetic check-ins and trips, side by side. The city is invented, so this may be shown."""
    import matplotlib

    matplotlib.use("Agg")
    import geopandas as gpd
    import matplotlib.pyplot as plt

    from synthgeo.reporting.columns import true_lines

    figure, axes = plt.subplots(2, 2, figsize=(11, 10), layout="constrained")
    released["Check-ins"][-1].plot(true=real["Check-ins"][-1], ax=axes[0])
    trips = released["Taxi trips"]
    driven = gpd.GeoSeries(true_lines(real["Taxi trips"], trips).shapes())
    for ax, lines, name, colour in (
        (axes[1, 0], driven, "true trips (curator only)", "#b3471d"),
        (axes[1, 1], trips.lines.geometry, "synthetic trips", "#0b6e99"),
    ):
        lines.iloc[:300].plot(ax=ax, color=colour, linewidth=0.6, alpha=0.4)
        ax.set(title=name, xlabel="x (m)", ylabel="y (m)")
        ax.tick_params(labelsize=7)
    figure.savefig(path, dpi=100)
    plt.close(figure)
