"""Taxi trips as a table over time: a place, an hour and a fare, released day by day, with corrections.

    python examples/21_table_stream.py

Some records are deleted after they were counted; the stream follows. Leaves
examples/out/21_table_stream.png; the true numbers in it would be for the curator only.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

import synthgeo as sg

matplotlib.use("Agg")
import matplotlib.pyplot as plt

OUT = Path(__file__).parent / "out"


def day(number: int, count: int) -> pd.DataFrame:
    """One private day: in the morning the south is busy, in the evening the north."""
    rng = np.random.default_rng(number)
    hour = rng.choice(24, count, p=np.where(np.arange(24) < 6, 1, 4) / 78)
    y = np.where(hour < 14, rng.beta(2, 5, count), rng.beta(5, 2, count)) * 10
    start = pd.Timestamp("2024-03-01") + pd.Timedelta(days=number)
    return pd.DataFrame(
        {
            "pickup_x": rng.random(count) * 10,
            "pickup_y": y,
            "time": start + pd.to_timedelta(hour * 3600 + rng.integers(0, 3600, count), unit="s"),
            "fare": (5 + rng.gamma(2, 4, count)).clip(0, 80),
            "op": 1,
        }
    )


def main() -> None:
    schema = sg.Schema(
        {
            "pickup": sg.Location(sg.BoxDomain(0, 0, 10, 10), cells=16),
            "time": sg.DateTime("2024-03-01", "2024-04-01", parts=("hour",)),
            "fare": sg.Numeric(0, 80, bins=[0, 8, 12, 16, 24, 80]),
        }
    )
    stream = sg.TabularStream(schema=schema, budget=sg.PrivacyBudget(1.0))
    days = [day(number, 4_000) for number in range(14)]
    totals = []
    for number, batch in enumerate(days):
        if number == 10:  # a tenth of the second day turns out to be wrong and is taken back
            batch = pd.concat([batch, days[1].iloc[:400].assign(op=-1)])
        release = stream.update(batch)
        totals.append((batch["op"].sum(), release.total))
        print(f"day {release.step:2d}: {release.total} synthetic trips")
    morning = release.data[release.data["time"].dt.hour < 14]
    evening = release.data[release.data["time"].dt.hour >= 14]
    means = [part["pickup_y"].mean() for part in (morning, evening)]
    print(f"mean y of pickups: morning {means[0]:.1f}, evening {means[1]:.1f}")
    print(f"an event pays at most {stream.costs['total'].max():g}")

    OUT.mkdir(exist_ok=True)
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    true, synthetic = np.array(totals).T
    axes[0].plot(np.arange(1, 15), true.cumsum(), "-", label="true (curator only)")
    axes[0].plot(np.arange(1, 15), synthetic, "--", label="synthetic")
    axes[0].set(xlabel="day", ylabel="trips so far")
    axes[0].legend()
    for axis, part, name in ((axes[1], morning, "before 14:00"), (axes[2], evening, "after 14:00")):
        axis.plot(part["pickup_x"], part["pickup_y"], ",", alpha=0.5)
        axis.set(title=f"synthetic pickups {name}", xlabel="x", ylabel="y", aspect="equal")
    figure.supxlabel("Good: the lines coincide; pickups move from south to north.", fontsize=9)
    figure.savefig(OUT / "21_table_stream.png", dpi=110)


if __name__ == "__main__":
    main()
