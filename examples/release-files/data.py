"""Make the data that the release files beside this script describe.

    python examples/release-files/data.py

Then, for any of them: ``synthgeo run examples/release-files/points.toml``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import osmnx
import pandas as pd

import synthgeo as sg

FOLDER = Path(__file__).resolve().parent / "data"


def main() -> None:
    """Write all files."""
    FOLDER.mkdir(exist_ok=True)
    rng = np.random.default_rng(7)
    for month in ("2026-03", "2026-04"):
        when = pd.Timestamp(f"{month}-01") + pd.to_timedelta(rng.integers(0, 28 * 1440, 600), unit="min")
        pickups = pd.DataFrame(
            {
                "lon": rng.normal(8.55, 0.03, 600).round(5),
                "lat": rng.normal(47.38, 0.02, 600).round(5),
                "when": when.strftime("%d.%m.%Y %H:%M"),
                "cab": rng.integers(0, 100, 600),
            }
        )
        pickups.to_csv(FOLDER / f"pickups-{month}.csv", sep=";", decimal=",", encoding="latin-1", index=False)

    people = sg.simulate.census(800, steps=1, seed=7)
    people["taxes"] = people["income"] // 5
    people[["age", "sex", "status", "income", "taxes"]].to_csv(FOLDER / "people.csv", index=False)

    parents, children = sg.simulate.households(300, seed=7)
    parents.to_csv(FOLDER / "households.csv", index=False)
    children.to_csv(FOLDER / "persons.csv", index=False)

    sg.simulate.panel(400, waves=3, seed=7).drop(columns="time").to_csv(FOLDER / "panel.csv", index=False)

    city = sg.simulate.city_graph(seed=1)
    osmnx.save_graphml(city, FOLDER / "city.graphml")
    trips = sg.simulate.city_trips(city, trips=150, seed=1)
    trips["fare"] = 4 + trips["trip_id"] % 20
    trips.to_csv(FOLDER / "trips.csv", index=False)
    ends = trips.groupby("trip_id").agg(["first", "last"])
    pd.DataFrame(
        {
            "from_lon": ends["lon", "first"], "from_lat": ends["lat", "first"],
            "to_lon": ends["lon", "last"], "to_lat": ends["lat", "last"],
            "left": ends["time", "first"], "arrived": ends["time", "last"],
        }
    ).to_csv(FOLDER / "journeys.csv", index=False)  # fmt: skip

    days = pd.date_range("2026-01-01", periods=90).date
    pd.DataFrame({"day": days, "visits": rng.poisson(400, 90)}).to_csv(FOLDER / "visits.csv", index=False)


if __name__ == "__main__":
    main()
