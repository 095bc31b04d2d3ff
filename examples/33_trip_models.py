"""Models that transport researchers train, trained on synthetic trips and tried on real ones.

    SYNTHGEO_DATA=... python examples/33_trip_models.py

Half of San Francisco's taxi trips (`sf/` in SYNTHGEO_DATA; without them, trips simulated in a made-up city)
are the private data. Three models are trained on them, and on synthetic trips of ε = 1 made from them: travel
time (share of the variance explained, R²), the next square of 1 km that a trip goes to (share guessed right),
and departures by square of 2 km and hour of the day (share of the Poisson deviance explained, D²). All are
tried on the other half, which neither has seen. Leaves examples/out/33_trip_models.png. The comparison is for
whoever holds the data: it is not private.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import d2_tweedie_score, r2_score

import synthgeo as sg
from trajectories.calendar import hour_of_week, local_seconds
from trajectories.reading.points import Trips, read_trips

matplotlib.use("Agg")

OUT = Path(__file__).parent / "out"
DATA = Path(os.environ.get("SYNTHGEO_DATA", "data")) / "sf"
TZ = "America/Los_Angeles"
SIZE = 800 if os.environ.get("SYNTHGEO_EXAMPLE_SIZE") == "small" else 12_000
CELL, ZONE = 1000.0, 2000.0  # metres


def load() -> tuple[sg.RoadDomain, pd.DataFrame]:
    """Real trips and roads where they are, simulated ones elsewhere."""
    if (DATA / "trips.parquet").exists():
        roads = sg.RoadDomain.from_graphml(DATA / "roads.graphml", max_distance=100)
        return roads, pd.read_parquet(DATA / "trips.parquet")
    graph = sg.simulate.city_graph(seed=1)
    return sg.RoadDomain.from_graph(graph), sg.simulate.city_trips(graph, trips=SIZE, seed=1)


def halves(trips: Trips, seed: int = 0) -> tuple[Trips, Trips]:
    """Two random halves of the trips."""
    order = np.random.default_rng(seed).permutation(trips.size)
    return trips.take(order[: trips.size // 2]), trips.take(order[trips.size // 2 :])


def travel_time(train: Trips, test: Trips) -> float:
    """R² of minutes, from both ends and the hour of the week."""

    def rows(trips: Trips) -> tuple[np.ndarray, np.ndarray]:
        assert trips.time is not None
        first, last = trips.start[:-1], trips.start[1:] - 1
        hour = hour_of_week(local_seconds(trips.time[first], TZ))
        columns = [trips.xy[first], trips.xy[last], hour % 24, hour // 24]
        return np.column_stack(columns), (trips.time[last] - trips.time[first]) / 60

    model = HistGradientBoostingRegressor(max_iter=150, learning_rate=0.07, random_state=0)
    model.fit(*rows(train))
    columns, minutes = rows(test)
    return float(r2_score(minutes, model.predict(columns)))


def next_cell(train: Trips, test: Trips) -> float:
    """Share of next cells guessed right from the cell before and the present one: the most frequent follower,
    of both where they were seen, else of the present one.
    """
    corner = test.xy.min(axis=0)

    def steps(trips: Trips) -> pd.DataFrame:
        column, row = np.floor((trips.xy - corner) / CELL).astype(int).T
        frame = pd.DataFrame({"trip": trips.trip, "now": column * 1000 + row})
        frame = frame[(frame["now"] != frame["now"].shift()) | (frame["trip"] != frame["trip"].shift())]
        by_trip = frame.groupby("trip")["now"]
        frame = frame.assign(before=by_trip.shift(1, fill_value=-1), after=by_trip.shift(-1))
        return frame.dropna().astype(int)

    seen, asked = steps(train), steps(test)

    def likeliest(keys: list[str]) -> pd.Series:
        counts = seen.groupby([*keys, "after"]).size().sort_values(ascending=False).reset_index()
        return counts.drop_duplicates(keys).set_index(keys)["after"]

    both, one = likeliest(["before", "now"]), likeliest(["now"])
    guess = both.reindex(pd.MultiIndex.from_frame(asked[["before", "now"]])).to_numpy()
    usual = one.reindex(asked["now"]).to_numpy()
    return float(np.mean(np.where(np.isnan(guess), usual, guess) == asked["after"].to_numpy()))


def demand(train: Trips, test: Trips) -> float:
    """D² of departures by square and hour of the day."""
    corner, size = test.xy.min(axis=0), np.ptp(test.xy, axis=0)
    columns, rows = (np.floor(size / ZONE).astype(int) + 1).tolist()

    def table(trips: Trips) -> np.ndarray:
        assert trips.time is not None
        first = trips.start[:-1]
        column, row = np.floor((trips.xy[first] - corner) / ZONE).astype(int).T
        inside = (column >= 0) & (column < columns) & (row >= 0) & (row < rows)
        hour = hour_of_week(local_seconds(trips.time[first], TZ)) % 24
        cell = (column * rows + row) * 24 + hour
        return np.bincount(cell[inside], minlength=columns * rows * 24) * (test.size / trips.size)

    x = np.column_stack([index.ravel() for index in np.indices((columns, rows, 24))])
    model = HistGradientBoostingRegressor(loss="poisson", max_iter=200, min_samples_leaf=5, random_state=0)
    model.fit(x, table(train))
    return float(d2_tweedie_score(table(test), np.maximum(model.predict(x), 1e-3), power=1))


USES: dict[str, Callable[[Trips, Trips], float]] = {
    "travel time, R²": travel_time,
    "next cell, top 1": next_cell,
    "demand, D²": demand,
}


def main() -> None:
    roads, points = load()
    unit = sg.PrivacyUnit.trajectory()
    one, other = halves(read_trips(points, roads, unit=unit))
    model = sg.TrajectorySynthesizer(domain=roads, budget=sg.PrivacyBudget(epsilon=1.0), tz=TZ)
    made = read_trips(model.fit_trips(one).sample(one.size).data, roads, unit=unit)
    table = pd.DataFrame(
        {"real": {name: use(one, other) for name, use in USES.items()},
         "synthetic": {name: use(made, other) for name, use in USES.items()}}
    )  # fmt: skip
    print(table.round(3).to_string())
    OUT.mkdir(exist_ok=True)
    ax = table.plot.bar(rot=0, figsize=(8, 4), color=["0.6", "tab:blue"])
    ax.set(title="trained on …, tried on real trips", ylim=(min(0.0, float(table.min().min())), 1.0))
    ax.figure.savefig(OUT / "33_trip_models.png", dpi=110)


if __name__ == "__main__":
    main()
