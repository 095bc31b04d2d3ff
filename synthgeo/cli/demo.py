"""``synthgeo demo``: a small city, released."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from synthgeo.cli.options import Json
from synthgeo.cli.output import emit, say, show_facts, words

if TYPE_CHECKING:
    from streams.points import PointRelease


def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for the datasets.")] = Path("demo"),
    epsilon: Annotated[float, typer.Option("--epsilon", help="The privacy budget ε.")] = 1.0,
    rows: Annotated[int, typer.Option("--rows", help="How many taxi pickups to simulate.")] = 20_000,
    as_json: Json = False,
) -> None:
    """Simulate taxi pickups in an invented city, release them with differential privacy, write GeoParquet."""
    import synthgeo as sg

    say(f"simulating {rows:,} taxi pickups in an invented city")
    roads = sg.RoadDomain.from_graph(sg.simulate.city_graph(seed=7))
    pickups = sg.simulate.taxi_stream(rows, roads=roads, days=1, seed=7)
    stream = sg.PHDStream(domain=roads, budget=sg.PrivacyBudget(epsilon=epsilon))
    say(f"releasing a snapshot at ε = {epsilon:g}")
    release = cast("PointRelease", stream.update(pickups))
    out.mkdir(parents=True, exist_ok=True)
    points, cells = out / "pickups.parquet", out / "pickups_cells.parquet"
    release.to_parquet(points)
    from synthgeo.release import write_parquet

    write_parquet(release.cells, cells, release.provenance)
    facts = {
        "points": str(points),
        "cells": str(cells),
        "synthetic points": f"{len(release.xy):,}",
        "spent": words(release.spent),
        "may be published": "yes" if release.releasable else "no",
    }
    if as_json:
        emit({"points": str(points), "cells": str(cells), "provenance": release.provenance})
    else:
        show_facts("released", facts)
