"""From a file to a product and back: equal products."""

from __future__ import annotations

import random

import pytest
import shapely

import synthgeo as sg
from synthgeo.errors import ConfigError
from synthgeo.schema import Schema

BOX = sg.BoxDomain(8.4, 47.3, 8.7, 47.5, crs="EPSG:4326")
COLUMNS = {
    "age": sg.Numeric(0, 100, bins=5, integer=True),
    "pay": sg.Numeric(0, 10, bins=[0, 1, 10], decimals=2, missing=True),
    "sex": sg.Categorical(["F", "M"]),
    "level": sg.Ordinal([1, 2, 3], missing=True),
    "since": sg.DateTime("2026-01-01", "2026-02-01", parts=["date", "hour"]),
    "day": sg.Date("2026-01-01", "2026-02-01", bins=4),
    "home": sg.Location(BOX, cells=16),
    "id": sg.Identifier(),
}
RULES = {
    "impossible": [{"sex": "F", "level": [1, 2]}, {"age": (0, 20), "level": 3}, {"sex": "M", "level": None}],
    "depends": [("level", "sex", {1: "F", 2: "F", 3: "M"})],
    "relations": ["pay <= age"],
}


def schema(rng, *, rules=True):
    names = rng.sample(list(COLUMNS), rng.randint(3, len(COLUMNS)))
    names = [*dict.fromkeys([*names, "age", "sex", "level", "pay"])]
    return Schema({name: COLUMNS[name] for name in names}, **(RULES if rules else {}))


def some(rng, options):
    return {name: rng.choice(values) for name, values in options.items() if rng.random() < 0.5}


def products(seed):
    """One product of each kind, with some of its options."""
    rng = random.Random(seed)
    budget = sg.PrivacyBudget(rng.choice([0.1, 1.0, 2.5]))
    unit = rng.choice([None, sg.PrivacyUnit.user(max_events=4, key="who", per=rng.choice([None, "1MS", 3]))])
    reading = rng.choice([None, sg.Reading(decimal=",", missing=("", "n/a"), quote=None, tz="Europe/Berlin")])
    noise = rng.choice([None, sg.SeededNoise(3)])
    common = {"budget": budget, "reading": reading, "noise": noise}
    common = {name: value for name, value in common.items() if value is not None}
    whose = {} if unit is None else {"unit": unit}
    yield sg.PHDStream.from_options(
        domain=BOX, **common, **whose, **some(rng, {"lifetime": [1, 30], "max_depth": [9], "x": ["lon"]})
    )
    yield sg.TabularSynthesizer.from_options(
        schema=schema(rng), **common, **some(rng, {"rounds": [4], "max_cells": [9_000]})
    )
    yield sg.TabularStream.from_options(
        schema=schema(rng, rules=False), **common, **whose, **some(rng, {"marginals_per_step": [2]})
    )
    yield sg.HouseholdSynthesizer.from_options(
        parent=schema(rng), child=Schema({"sex": COLUMNS["sex"]}), max_children=6, **common,
        **some(rng, {"key": ["hh"], "public_total": [500]}),
    )  # fmt: skip
    yield sg.PanelStream.from_options(
        schema=schema(rng, rules=False), unit=sg.PrivacyUnit.user(max_events=3, key="who"), **common
    )
    yield sg.TrajectorySynthesizer.from_options(
        domain=BOX, **common, **some(rng, {"weights": ["ends"], "max_speed": [90.0]})
    )
    yield sg.TrajectoryStream.from_options(
        domain=BOX, **common, **some(rng, {"lifetime": [4], "trip": ["ride"]})
    )


def plain(value):
    """What two equal products have in common."""
    if isinstance(value, Schema):
        return value.to_json()
    if isinstance(value, sg.SeededNoise):
        return value.state()
    return repr(value) if value.__class__.__module__.startswith("synthgeo") else value


def parameters(product):
    return type(product), {name: plain(value) for name, value in product.get_params().items()}


@pytest.mark.parametrize("seed", range(12))
def test_file_product_file_product(seed):
    for product in products(seed):
        file = sg.ReleaseFile.from_product(product)
        made = file.product()
        usual = {"reading": sg.Reading(), "noise": sg.SystemNoise()}
        first, second = parameters(product), parameters(made)
        for name, value in usual.items():  # what is not said is the default
            if first[1][name] is None:
                first[1][name] = plain(value)
        assert first == second
        again = sg.ReleaseFile.from_product(made)
        assert again.canonical() == file.canonical()


def test_a_domain_that_is_no_box_needs_its_file():
    land = sg.PolygonDomain(shapely.box(0, 0, 1, 1))
    stream = sg.PHDStream(domain=land, budget=sg.PrivacyBudget(1))
    with pytest.raises(ConfigError, match="give place="):
        sg.ReleaseFile.from_product(stream)
    file = sg.ReleaseFile.from_product(
        stream, place={"land": "land.geojson"}, title="Land", data={"files": "*.csv"}
    )
    assert file.place.land == "land.geojson"
    assert (file.title, file.data.files) == ("Land", "*.csv")


def test_a_product_that_no_file_can_describe():
    with pytest.raises(ConfigError, match="cannot describe"):
        sg.ReleaseFile.from_product(sg.series.LPA(budget=sg.PrivacyBudget(1), horizon=3))


def test_a_plan_is_made_for_what_check_accepts():
    """A bound per month, bins that are to be found, rules that follow from rules, trips step by step."""
    cities = Schema(
        {
            "city": sg.Categorical(["a", "b", "c"]), "canton": sg.Categorical(["x", "y"]),
            "land": sg.Categorical(["l", "m"]), "pay": sg.Numeric(0, 10, bins="auto"),
        },
        depends=[
            ("city", "canton", {"a": "x", "b": "x", "c": "y"}),
            ("canton", "land", {"x": "l", "y": "m"}),
        ],
    )  # fmt: skip
    budget = sg.PrivacyBudget(1.0)
    per_month = sg.PrivacyUnit.user(max_events=4, per="1MS", key="who")
    days = {"time": {"every": "1D", "start": "2026-01-01"}, "columns": {"time": "when"}}
    walks = sg.TripSettings(max_depth=6)
    for product, sections in (
        (sg.TabularSynthesizer(schema=cities, budget=budget), {}),
        (sg.PHDStream(domain=BOX, budget=budget, unit=per_month), days),
        (sg.TrajectoryStream(domain=BOX, budget=budget, settings=walks), {}),
    ):
        file = sg.ReleaseFile.from_product(product, **sections)
        found = file.plan(rows=200, repeats=1, epsilons=[4.0])
        assert found.rows == 200
        assert len(found.table) == 1
