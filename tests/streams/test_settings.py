"""What a stream was made with: known at every step, so that a run can refuse other settings."""

from __future__ import annotations

import json

import pandas as pd
import pytest

import synthgeo as sg
from synthgeo.sources import open_source

SCHEMA = sg.Schema({"a": sg.Categorical(["x", "y"]), "b": sg.Categorical(["u", "v", "w"])})
ROWS = pd.DataFrame({"a": ["x", "y"] * 20, "b": ["u", "v", "w", "u"] * 10, "who": range(40)})
POINTS = pd.DataFrame({"east": [0.1, 0.5], "north": [0.2, 0.6], "who": ["p", "q"]})


def points(**options):
    usual = {"domain": sg.BoxDomain(0, 0, 1, 1), "budget": sg.PrivacyBudget(1.0), "max_depth": 8}
    return sg.PHDStream.from_options(
        **(usual | {"x": "east", "y": "north", "noise": sg.SeededNoise(1)} | options)
    )


def table(**options):
    return sg.TabularStream.from_options(
        **({"schema": SCHEMA, "budget": sg.PrivacyBudget(1.0), "noise": sg.SeededNoise(1)} | options)
    )


@pytest.mark.parametrize(("make", "batch"), [(points, POINTS), (table, ROWS)], ids=["points", "table"])
def test_settings_are_plain_and_stay_the_same_for_life(make, batch, tmp_path):
    fresh, used = make(), make()
    used.update(batch)
    used.save(tmp_path / "state")
    assert json.loads(json.dumps(fresh.choices())) == fresh.choices()
    assert used.choices() == fresh.choices()
    assert type(used).load(tmp_path / "state").choices() == fresh.choices()


USERS = sg.PrivacyUnit.user(max_events=3, key="who")
CHANGES = [
    (points, {"budget": sg.PrivacyBudget(2.0)}),
    (points, {"unit": USERS}),
    (points, {"domain": sg.BoxDomain(0, 0, 1, 2)}),
    (points, {"max_depth": 9}),
    (points, {"fanout": 4}),
    (points, {"theta": 1.0}),
    (points, {"t0": 2}),
    (points, {"schedule": "every_step"}),
    (points, {"structure_share": 0.4}),
    (points, {"persist": True}),
    (points, {"deletions": False}),
    (points, {"counter": "kary", "horizon": 9}),
    (points, {"x": "lon"}),
    (points, {"crs": "EPSG:4326"}),
    (points, {"outside": "error"}),
    (points, {"noise": sg.SeededNoise(2)}),
    (points, {"noise": sg.SystemNoise()}),
    (table, {"budget": sg.PrivacyBudget(2.0)}),
    (table, {"unit": USERS}),
    (table, {"workload": [("a",)]}),
    (table, {"marginals_per_step": 2}),
    (table, {"counter": "kary", "horizon": 9}),
    (table, {"schedule": "every_step"}),
    (table, {"op": "sign"}),
    (table, {"noise": sg.SystemNoise()}),
]


@pytest.mark.parametrize(("make", "change"), CHANGES, ids=[f"{m.__name__} {[*c]}" for m, c in CHANGES])
def test_every_choice_is_among_the_settings(make, change):
    assert make(**change).choices() != make().choices()


def test_columns_are_checked_without_a_row():
    assert points().check_columns(open_source(POINTS)) == ["east", "north"]
    assert points(unit=USERS).check_columns(open_source(POINTS)) == ["east", "north", "who"]
    assert table(unit=USERS).check_columns(open_source(ROWS)) == ["a", "b", "who"]
    for stream in (points(x="lon"), points(unit=sg.PrivacyUnit.user(max_events=2, key="nobody"))):
        with pytest.raises(sg.InputError, match=r"lon|nobody"):
            stream.check_columns(open_source(POINTS))
