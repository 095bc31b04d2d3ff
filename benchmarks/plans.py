"""Plans against releases: what ``sg.plan`` says from public numbers, beside what the data then gave.

``python -m benchmarks.plans [NAME ...]`` measures the named sets (all without a name) and keeps the others as
they are recorded. Both numbers are those of the plan: the standard deviation of the noise in one released
count, and the total variation distance over places or over all pairs of columns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pandas as pd

import synthgeo as sg
from benchmarks import spatial
from benchmarks._common import record, recorded
from benchmarks._tabular_data import coded, wages
from benchmarks.trips import manhattan_roads
from synthgeo.domain.coordinates import coordinates_of
from synthgeo.planning import pairs_apart, places_apart

EPSILON = 1.0
TRIPS = 5_000


def points(name: str) -> dict[str, Any]:
    """A stream of points."""
    data = spatial.DATASETS[name]()
    stream = sg.PHDStream(domain=data.domain, budget=sg.PrivacyBudget(EPSILON))
    live = stream.clone().set_params(noise=sg.SeededNoise(1))
    release: Any = [live.update(batch) for batch in data.batches][-1]
    noise = float(release.expected_error().set_index("quantity").loc["one cell (mean)", "standard_deviation"])
    error = places_apart(data.domain, data.truth[max(data.truth)], release.xy)
    return compared(stream, sum(map(len, data.batches)), len(data.batches), noise, error)


def table(frame: pd.DataFrame, schema: sg.Schema) -> dict[str, Any]:
    """A table, once, at (1, 1e-9)."""
    budget = sg.PrivacyBudget(EPSILON, 1e-9)
    model = sg.TabularSynthesizer(schema=schema, budget=budget, progress=False, noise=sg.SeededNoise(1))
    release = model.clone().fit(frame).sample()
    error = pairs_apart(schema, schema.encode(frame), schema.encode(release.data))
    return compared(model, len(frame), 1, float(release.expected_error().iloc[:, 1].mean()), error)


def unseen() -> dict[str, Any]:
    """Answers to the General Social Survey, which no stand-in was made with."""
    schema, batches = wages()
    return table(pd.concat(batches, ignore_index=True), schema)


def trips() -> dict[str, Any]:
    """Simulated trips on Manhattan's streets."""
    roads = manhattan_roads()
    rows = sg.simulate.city_trips(roads, trips=TRIPS, seed=3)
    model = sg.TrajectorySynthesizer(domain=roads, budget=sg.PrivacyBudget(EPSILON), noise=sg.SeededNoise(1))
    release = model.clone().fit(rows).sample(TRIPS)
    by_trip = rows.groupby("trip_id")[["lon", "lat"]]
    made = (release.xy[release.start[:-1]], release.xy[release.start[1:] - 1])
    real = (coordinates_of(ends.reset_index(drop=True), roads) for ends in (by_trip.first(), by_trip.last()))
    apart = [places_apart(roads, a, b) for a, b in zip(real, made, strict=True)]
    noise = float(release.expected_error()["standard_deviation"].iloc[0])
    return compared(model, TRIPS, 1, noise, sum(apart) / 2)


def compared(product: Any, rows: int, steps: int, noise: float, error: float) -> dict[str, Any]:
    """What was measured, and what the plan for as many rows says."""
    plan = sg.plan(product, rows=rows, steps=steps, epsilons=(EPSILON,), repeats=2).table.iloc[0]
    return {
        "rows": rows,
        "steps": steps,
        "noise": noise,
        "planned_noise": float(plan["noise"]),
        "error": error,
        "planned_error": float(plan["error"]),
    }


SETS: dict[str, Callable[[], dict[str, Any]]] = {
    "circles": lambda: points("circles"),
    "check-ins": lambda: points("checkins"),
    "Adult": lambda: table(*coded("adult")),
    "Manhattan": trips,
    "NLTCS": lambda: table(*coded("nltcs")),
    "Titanic": lambda: table(*coded("titanic")),
    "wages": unseen,
}


def main() -> None:
    """Measure what was asked for; keep the rest."""
    before = recorded("plans")
    found: dict[str, Any] = {} if before is None else dict(before["results"])
    for name in sys.argv[1:] or SETS:
        found[name] = SETS[name]()
        print(name, found[name], flush=True)
        ordered = {known: found[known] for known in SETS if known in found}
        record("plans", {"epsilon": EPSILON, "repeats": 2, "trips": TRIPS}, ordered)


if __name__ == "__main__":
    main()
