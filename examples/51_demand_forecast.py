"""Train a demand forecaster on synthetic pickups, test it on real ones of the week after.

    SYNTHGEO_DATA=... python examples/51_demand_forecast.py

Reads nyc/taxi_trips.parquet and nyc/manhattan_roads.graphml from SYNTHGEO_DATA; without them it simulates a
street network and pickups on it. The forecaster predicts pickups in a zone in an hour from place, weekday and
hour. One trained on synthetic pickups alone may be published; the test reads real pickups, so its result, and
the picture examples/out/51_demand_forecast.png, are for the curator only.
"""

from __future__ import annotations

import os
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import shapely
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import d2_tweedie_score, mean_absolute_error
from threadpoolctl import threadpool_limits

import synthgeo as sg

matplotlib.use("Agg")
import matplotlib.pyplot as plt

OUT = Path(__file__).parent / "out"
START, SPLIT, END = (pd.Timestamp(day) for day in ("2015-01-05", "2015-01-19", "2015-01-26"))
ZONES = 64  # public: Morton cells of the roads' frame
FEATURES = ["x", "y", "weekday", "hour"]


def load() -> tuple[sg.RoadDomain, pd.DataFrame]:
    """Roads, and pickups of three weeks with columns lon, lat and time."""
    folder = Path(os.environ.get("SYNTHGEO_DATA", "data")) / "nyc"
    if (folder / "taxi_trips.parquet").exists():
        roads = sg.RoadDomain.from_graphml(folder / "manhattan_roads.graphml", max_distance=50)
        trips = pd.read_parquet(folder / "taxi_trips.parquet")
        columns = ["pickup_lon", "pickup_lat", "tpep_pickup_datetime"]
        pickups = trips[columns].set_axis(["lon", "lat", "time"], axis=1)
    else:
        roads = sg.RoadDomain.from_graph(sg.simulate.city_graph(seed=1), max_distance=50)
        pickups = sg.simulate.taxi_stream(30_000, roads=roads, days=21, start=START, seed=1)
    return roads, pickups[(pickups["time"] >= START) & (pickups["time"] < END)]


def zones_of(roads: sg.RoadDomain) -> sg.Location:
    """The public zones, as the column of a schema. Places off the roads are a zone of their own."""
    return sg.Location(roads, cells=ZONES, columns=("lon", "lat"), outside="category")


def demand(pickups: pd.DataFrame, zones: sg.Location, start: pd.Timestamp, end: pd.Timestamp) -> pd.DataFrame:
    """Pickups by zone and hour, one row for each zone and each hour between start and end; most are 0."""
    pickups = pickups.dropna(subset=["lon", "lat"])
    zone = zones.encode("pickup", {"lon": pickups["lon"].to_numpy(), "lat": pickups["lat"].to_numpy()})[:, 0]
    hours = pd.date_range(start, end, freq="h", inclusive="left")
    when = ((pickups["time"] - start) // pd.Timedelta("1h")).to_numpy()
    known = zone < zones.prefix.size
    counts = np.zeros((zones.prefix.size, len(hours)))
    np.add.at(counts, (zone[known], when[known]), 1)
    place = shapely.centroid(zones.geometry())
    return pd.DataFrame(
        {
            "zone": np.repeat(np.arange(len(counts)), len(hours)),
            "x": np.repeat(shapely.get_x(place), len(hours)),
            "y": np.repeat(shapely.get_y(place), len(hours)),
            "weekday": np.tile(hours.day_of_week, len(counts)),
            "hour": np.tile(hours.hour, len(counts)),
            "pickups": counts.ravel(),
        }
    )


def forecast(table: pd.DataFrame, ahead: pd.DataFrame) -> np.ndarray:
    """Train on one table of demand, predict another's by place, weekday and hour."""
    model = HistGradientBoostingRegressor(loss="poisson", max_iter=150, min_samples_leaf=50, random_state=0)
    with threadpool_limits(1):  # the table is small: on a busy machine threads would only wait for each other
        return model.fit(table[FEATURES], table["pickups"]).predict(ahead[FEATURES])


def main() -> None:
    roads, pickups = load()
    zones = zones_of(roads)
    before, after = pickups[pickups["time"] < SPLIT], pickups[pickups["time"] >= SPLIT]

    schema = sg.Schema({"pickup": zones, "time": sg.DateTime(START, SPLIT, parts=("weekday", "hour"))})
    model = sg.TabularSynthesizer(schema=schema, budget=sg.PrivacyBudget(epsilon=1.0)).fit(before)
    release = model.sample()
    synthetic = release.to_pandas()

    truth = demand(after, zones, SPLIT, END)
    real_demand = demand(before, zones, START, SPLIT)
    made_demand = demand(synthetic, zones, START, SPLIT)
    forecasts = {
        "trained on real pickups": forecast(real_demand, truth),
        "trained on synthetic pickups, ε = 1": forecast(made_demand, truth),
        "the same number for all": np.full(len(truth), real_demand["pickups"].mean()),
    }
    print(f"{release.total:,} synthetic pickups; the table below is for the curator only")
    for name, guess in forecasts.items():
        error = mean_absolute_error(truth["pickups"], guess)
        explained = d2_tweedie_score(truth["pickups"], guess, power=1)
        print(f"{name:38} mean absolute error {error:.3f} pickups, explained deviance {explained:6.1%}")

    OUT.mkdir(exist_ok=True)
    figure, axes = plt.subplots(2, 1, figsize=(11, 8), layout="constrained")
    busiest = truth.groupby("zone")["pickups"].sum().idxmax()
    for axis, chosen, title in (
        (axes[0], np.ones(len(truth), dtype=bool), "all zones"),
        (axes[1], (truth["zone"] == busiest).to_numpy(), "the busiest zone"),
    ):
        size = len(truth[chosen]) // len(truth[chosen]["zone"].unique())

        def total(values: np.ndarray, chosen: np.ndarray = chosen, size: int = size) -> np.ndarray:
            return np.asarray(values)[chosen].reshape(-1, size).sum(axis=0)

        axis.plot(total(truth["pickups"]), color="0.6", label="real (curator only)")
        for (name, guess), style in zip(list(forecasts.items())[:2], ("-", "--"), strict=True):
            axis.plot(total(guess), style, lw=1.3, label=name)
        axis.set(title=title, xlabel=f"hours since {SPLIT:%d %b %Y}", ylabel="pickups an hour")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figure.supxlabel("Good: the two forecasts lie on each other and follow the real week.", fontsize=9)
    figure.savefig(OUT / "51_demand_forecast.png", dpi=110)
    print(f"wrote {OUT / '51_demand_forecast.png'}")


if __name__ == "__main__":
    main()
