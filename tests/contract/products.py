"""The registry of products: one small case of each, how it is used, and what it gives back.

Everything in ``tests/contract`` runs over ``CASES``. A new product needs a case here and nothing else:
``test_products.py`` fails until each public class that takes a budget has one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import shapely

import synthgeo as sg
from tests.pinned.digest import digest
from tests.streams.scalar.examples import EXAMPLES

ONE = sg.PrivacyBudget(1.0)
BOX = sg.BoxDomain(0, 0, 1, 1)
HEXAGONS = sg.H3Domain(resolution=6, within=shapely.box(0, 0, 1, 1))
ROADS = sg.RoadDomain.from_graph(sg.simulate.city_graph(4, 4, seed=2))
SCHEMA = sg.Schema(
    {"a": sg.Categorical(list("wxyz")), "b": sg.Ordinal(range(4)), "c": sg.Numeric(0, 10, bins=5)}
)


@dataclass(frozen=True)
class Case:
    """One product.

    ``use`` gives it one input and returns what it hands out; ``numbers`` reads that as plain values.
    ``over_time``: it takes one input after the other. ``ends``: after ``inputs`` its budget is gone.
    """

    name: str
    kind: type
    options: Mapping[str, Any]
    inputs: Callable[[], list[Any]]
    bad: Callable[[], Any]
    use: Callable[[Any, Any], Any]
    numbers: Callable[[Any], Any]
    over_time: bool
    ends: bool = False
    fit: Callable[[Any, Any], Any] = lambda product, data: product.fit(data)

    def make(self, seed: int | None = 5, **more: Any) -> Any:
        """A fresh product, seeded unless ``seed`` is None."""
        noise = None if seed is None else sg.SeededNoise(seed)
        return self.kind.from_options(**{**self.options, "noise": noise, **more})

    def run(self, product: Any, inputs: list[Any] | None = None) -> list[str]:
        """Use the inputs one after the other; a digest of what each gave."""
        return [self.see(self.use(product, one)) for one in (self.inputs() if inputs is None else inputs)]

    def see(self, output: Any) -> str:
        """A digest of what was handed out."""
        return digest(self.numbers(output))


def update(product: Any, batch: Any) -> Any:
    return product.update(batch)


# Points over time.


def point_batches(steps: int = 6) -> list[pd.DataFrame]:
    frame = sg.simulate.circles(steps, 60, deletion=True, seed=4)
    return [batch.drop(columns="step") for _, batch in frame.groupby("step")]


def bad_points() -> pd.DataFrame:
    return pd.DataFrame({"x": [0.1, np.nan], "y": [0.2, 0.3]})


def points(name: str, kind: type, **options: Any) -> Case:
    options = {"domain": BOX, "budget": ONE, "max_depth": 10, **options}

    def numbers(release: Any) -> list[Any]:
        return [release.xy, release.released]

    return Case(name, kind, options, point_batches, bad_points, update, numbers, over_time=True)


# Tables.


def rows(count: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 4, count)
    return pd.DataFrame(
        {
            "a": np.array(list("wxyz"), dtype=object)[a],
            "b": (a + rng.integers(0, 2, count)) % 4,
            "c": rng.random(count) * 10,
            "user_id": rng.integers(0, 40, count),
        }
    )


def table_batches() -> list[pd.DataFrame]:
    batches = [rows(80, seed) for seed in range(5)]
    return [batch.assign(op=np.where(np.arange(len(batch)) % 7 == 6, -1, 1)) for batch in batches]


def bad_rows() -> pd.DataFrame:
    return rows(30, 0).assign(a="nobody")


def tables(name: str, kind: type, **options: Any) -> Case:
    options = {"schema": SCHEMA, "budget": ONE, "marginals_per_step": 2, **options}

    def numbers(release: Any) -> list[Any]:
        return [release.data, release.marginal("a", "b")]

    return Case(name, kind, options, table_batches, bad_rows, update, numbers, over_time=True)


def fit_table(product: Any, data: Any) -> Any:
    return product.fit(data).sample(60)


def table(name: str, **options: Any) -> Case:
    options = {"schema": SCHEMA, "budget": ONE, "iterations": 100, **options}
    return Case(
        name, sg.TabularSynthesizer, options, lambda: [rows(300, 1)], bad_rows, fit_table,
        lambda release: release.data, over_time=False, ends=True,
    )  # fmt: skip


def two_tables() -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    return [sg.simulate.households(150, seed=3)]


def bad_children() -> tuple[pd.DataFrame, pd.DataFrame]:
    parents, children = two_tables()[0]
    return parents, children.assign(household_id=-7)


def fit_households(product: Any, data: Any) -> Any:
    return product.fit(*data)


def households(name: str, **options: Any) -> Case:
    parent, child = sg.simulate.household_schemas()
    options = {
        "parent": parent,
        "child": child,
        "max_children": 3,
        "budget": ONE,
        "iterations": 50,
        **options,
    }
    return Case(
        name, sg.HouseholdSynthesizer, options, two_tables, bad_children,
        lambda product, data: fit_households(product, data).sample(60),
        lambda release: [release.parents, release.children], over_time=False, ends=True, fit=fit_households,
    )  # fmt: skip


def waves() -> list[pd.DataFrame]:
    answers = sg.simulate.panel(120, waves=5, seed=2)
    return [wave.drop(columns=["wave", "time"]) for _, wave in answers.groupby("wave")]


def panel(name: str, **options: Any) -> Case:
    unit = sg.PrivacyUnit.user(max_events=5, key="person_id")
    options = {"schema": sg.simulate.panel_schema(), "budget": ONE, "unit": unit, "iterations": 50, **options}
    return Case(
        name, sg.PanelStream, options, waves, lambda: waves()[0].assign(work="nobody"), update,
        lambda release: release.data, over_time=True,
    )  # fmt: skip


# Trips.


def trips_on_box() -> list[pd.DataFrame]:
    rng = np.random.default_rng(3)
    begin = rng.random((30, 2))
    steps = begin[:, None] + np.cumsum(rng.normal(0, 0.03, (30, 6, 2)), axis=1)
    xy = np.clip(steps, 0, 1).reshape(-1, 2)
    return [pd.DataFrame({"trip_id": np.repeat(np.arange(30), 6), "x": xy[:, 0], "y": xy[:, 1]})]


def trips_on_roads() -> list[pd.DataFrame]:
    return [sg.simulate.city_trips(ROADS, trips=30, seed=6)]


def bad_trips() -> pd.DataFrame:
    return pd.DataFrame({"trip_id": ["t", "t"], "x": [0.1, np.inf], "y": [0.1, 0.2]})


def bad_city_trips() -> pd.DataFrame:
    return trips_on_roads()[0].assign(lat=1000.0)


def fit_trips(product: Any, data: Any) -> Any:
    return product.fit(data).sample(20)


def trips(name: str, inputs: Callable[[], list[Any]], bad: Callable[[], Any], **options: Any) -> Case:
    options = {"budget": ONE, "max_depth": 5, **options}
    return Case(
        name, sg.TrajectorySynthesizer, options, inputs, bad, fit_trips,
        lambda release: release.to_pandas(), over_time=False, ends=True,
    )  # fmt: skip


def trip_batches() -> list[pd.DataFrame]:
    batch = trips_on_box()[0]
    batch[["x", "y"]] *= 1000
    return [batch.assign(trip_id=batch["trip_id"] + 30 * number) for number in range(5)]


def trip_stream(name: str, **options: Any) -> Case:
    town = sg.BoxDomain(0, 0, 1000, 1000)
    options = {"domain": town, "budget": ONE, "max_depth": 3, "calibration": 0.0, "time": None, **options}
    return Case(
        name, sg.TrajectoryStream, options, trip_batches, bad_trips, update,
        lambda release: release.to_pandas(), over_time=True,
    )  # fmt: skip


# Series: the examples of their own suite. Mechanisms that see the whole series at once take it whole.


def series(name: str) -> Case:
    example = EXAMPLES[name]
    online = getattr(example.kind, "online", True) and not hasattr(example.kind, "batch")
    online = online and example.kind.__name__ != "SIPBatched"

    def use(product: Any, value: Any) -> Any:
        return product.update(value) if online else product.run(value)

    def bad() -> Any:
        return float("nan") if online else np.full(len(example.series), np.nan)

    return Case(
        f"series {name}",
        example.kind,
        {**example.options, "budget": example.budget},
        lambda: list(example.series) if online else [example.series.copy()],
        bad,
        use,
        lambda released: np.asarray(released),
        over_time=online,
        ends=example.ends or not online,
    )


USERS = sg.PrivacyUnit.user(max_events=4, key="user_id")
CASES = [
    points("PHDStream", sg.PHDStream),
    points("PHDStream every step", sg.PHDStream, schedule="every_step", counter="binary", horizon=20),
    points("PHDStream growing", sg.PHDStream, schedule="growing", counter="kary", horizon=20),
    points("PHDStream persistent", sg.PHDStream, persist=True),
    points("PHDStream held back", sg.PHDStream, t0=3),
    points("PHDStream fanout 4", sg.PHDStream, fanout=4, max_depth=6),
    points("PHDStream on H3", sg.PHDStream, domain=HEXAGONS),
    points("PHDStream users", sg.PHDStream, unit=USERS),
    points("PHDStream of the last two steps", sg.PHDStream, lifetime=2, op="none", persist=True),
    points("PHDStream of single steps", sg.PHDStream, lifetime=1, op="none"),
    points("OfflinePrivTree", sg.baselines.OfflinePrivTree),
    points("DifferentialPrivTree", sg.baselines.DifferentialPrivTree),
    points("InitialPrivTree", sg.baselines.InitialPrivTree),
    tables("TabularStream", sg.TabularStream),
    tables("TabularStream every step", sg.TabularStream, schedule="every_step", counter="binary", horizon=9),
    tables("TabularStream users", sg.TabularStream, unit=USERS),
    tables("TabularStream of the last two steps", sg.TabularStream, lifetime=2, op="none"),
    tables(
        "TabularStream with bins to find",
        sg.TabularStream,
        schema=SCHEMA.with_column("c", sg.Numeric(0, 10, bins="auto", decimals=1)),
    ),
    tables("StreamingMWEM", sg.baselines.StreamingMWEM),
    table("TabularSynthesizer"),
    table("TabularSynthesizer zCDP", budget=sg.PrivacyBudget(1.0, delta=1e-6), selection="mwem", rounds=3),
    table("TabularSynthesizer users", unit=USERS),
    households("HouseholdSynthesizer"),
    households("HouseholdSynthesizer Gaussian", budget=sg.PrivacyBudget(1.0, delta=1e-6)),
    panel("PanelStream"),
    panel(
        "PanelStream in periods, Gaussian",
        budget=sg.PrivacyBudget(1.0, delta=1e-6),
        unit=sg.PrivacyUnit.user(max_events=2, key="person_id", per=2),
    ),
    trips("TrajectorySynthesizer on a box", trips_on_box, bad_trips, domain=BOX),
    trips("TrajectorySynthesizer on roads", trips_on_roads, bad_city_trips, domain=ROADS),
    trip_stream("TrajectoryStream"),
    trip_stream("TrajectoryStream of the last two batches", lifetime=2),
    *(series(name) for name in EXAMPLES),
]


def public_products() -> dict[str, type]:
    """The classes of ``sg`` and ``sg.series`` whose constructors take a budget and a source of noise."""
    found = {name: getattr(module, name) for module in (sg, sg.baselines) for name in module.__all__}
    found |= {name: getattr(sg.series, name) for name in sg.series.__all__}
    kinds = {name: kind for name, kind in found.items() if inspect.isclass(kind)}
    return {
        name: kind
        for name, kind in kinds.items()
        if hasattr(kind, "spent") and not issubclass(kind, sg.results.Release) and not name.endswith("Run")
    }
