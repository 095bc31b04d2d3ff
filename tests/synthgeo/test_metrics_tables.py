"""Errors of tables in detail, against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from synthgeo.evaluation.tables import TableOf

SCHEMA = sg.Schema(
    {
        "id": sg.Identifier(),
        "group": sg.Categorical(["a", "b"]),
        "flag": sg.Categorical([True, False]),
        "x": sg.Numeric(0, 100, bins=10),
        "day": sg.Date("2020-01-01", "2020-12-31", bins=12, format="%d.%m.%Y"),
    }
)


def rows(n: int = 400, *, shift: float = 0.0, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b"], n, p=[0.8, 0.2])
    return pd.DataFrame(
        {
            "group": group,
            "flag": (group == "a") ^ (rng.random(n) < 0.1),
            "x": (80 * rng.random(n) + shift).clip(0, 100),
            "day": pd.Timestamp("2020-03-01") + pd.to_timedelta(rng.integers(0, 200, n), unit="D"),
        }
    )


def test_a_table_against_itself_has_no_error() -> None:
    frame = rows()
    same = TableOf(SCHEMA, frame)
    assert (sg.metrics.column_errors(frame, same)["tv"] == 0).all()
    assert (sg.metrics.pair_errors(frame, same)["tv"] == 0).all()
    assert (sg.metrics.group_errors(frame, same)["tv"] == 0).all()
    assert sg.metrics.wasserstein(frame, same) == {"x": 0.0, "day": 0.0}
    floors = sg.metrics.pair_errors(frame, same)["tv_floor"]
    assert floors.between(0.01, 0.5).all()


def test_a_shift_is_measured_in_quartile_ranges_and_errors_name_their_columns() -> None:
    frame, moved = rows(), TableOf(SCHEMA, rows(shift=10))
    width = frame["x"].quantile(0.75) - frame["x"].quantile(0.25)
    assert sg.metrics.wasserstein(frame, moved)["x"] == pytest.approx(10 / width, rel=1e-6)
    worst = sg.metrics.column_errors(frame, moved).set_index("column")["tv"]
    assert worst.idxmax() == "x"
    assert (worst.drop("x") == 0).all()


def test_the_group_that_fares_worst_is_found() -> None:
    frame = rows()
    broken = frame.copy()
    broken.loc[broken["group"] == "b", "flag"] = True
    found = sg.metrics.group_errors(frame, TableOf(SCHEMA, broken))
    hurt = found[(found["column"] == "group") & (found["value"] == "b")]["tv"].iloc[0]
    spared = found[(found["column"] == "group") & (found["value"] == "a")]["tv"].iloc[0]
    assert spared == 0
    share = (frame[frame["group"] == "b"]["flag"] == False).mean()  # noqa: E712
    assert hurt == pytest.approx(share / 3)  # one of three other columns is off by that share


def test_rows_that_are_told_apart_by_chance_score_low_and_shifted_ones_high() -> None:
    pytest.importorskip("sklearn")
    frame = rows()
    alike = sg.metrics.propensity(frame, TableOf(SCHEMA, rows(seed=1)))
    apart = sg.metrics.propensity(frame, TableOf(SCHEMA, rows(shift=60, seed=1)))
    assert alike < 0.2 < 0.5 < apart
    good = sg.metrics.efficacy(frame, TableOf(SCHEMA, rows(seed=1)))
    noise = rows(seed=1)
    noise["flag"] = ~noise["flag"]
    assert good > 0.8 > sg.metrics.efficacy(frame, TableOf(SCHEMA, noise))


def test_evaluate_gives_a_floor_beside_each_metric() -> None:
    frame = rows()
    table = sg.TabularSynthesizer(schema=SCHEMA, budget=sg.PrivacyBudget(50.0), noise=sg.SeededNoise(1))
    found = sg.evaluate(frame, table.fit(frame).sample(), repeats=1).set_index("metric")
    assert {"tv_2way", "max_rel_we", "k_marginal", "worst_group", "wasserstein"} <= set(found.index)
    assert "pmse" not in found.index
    assert found["floor"].notna().all()
    assert found.loc["k_marginal", "value"] == pytest.approx(1000 * (1 - found.loc["tv_3way", "value"]))
    assert found.loc["tv_2way", "value"] < 2 * found.loc["tv_2way", "floor"]


def test_metadata_for_sdmetrics_says_what_columns_are() -> None:
    found = sg.metrics.sdmetrics_metadata(SCHEMA)["columns"]
    assert {name: facts["sdtype"] for name, facts in found.items()} == {
        "id": "id",
        "group": "categorical",
        "flag": "boolean",
        "x": "numerical",
        "day": "datetime",
    }
    assert found["day"]["datetime_format"] == "%d.%m.%Y"
