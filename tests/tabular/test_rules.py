"""Numbers, dates and rules of a table: kept in every synthetic row, after saving, under conditions, in
streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from synthgeo.sources import open_source

STATE = {"LA": "CA", "SF": "CA", "NYC": "NY", "Buffalo": "NY"}


def rentals(rows: int = 3000, seed: int = 0) -> pd.DataFrame:
    """Rentals with dates, amounts that are mostly zero, a sum, and cities in states."""
    rng = np.random.default_rng(seed)
    city = rng.choice(list(STATE), rows, p=[0.4, 0.25, 0.3, 0.05])
    start = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 200, rows), unit="D")
    tip = np.where(rng.random(rows) < 0.6, 0.0, rng.choice([1.0, 2.0, 3.37], rows))
    fare = np.round(5 + 20 * rng.random(rows) ** 2, 2)
    return pd.DataFrame(
        {
            "city": city,
            "state": [STATE[name] for name in city],
            "start": start,
            "end": start + pd.to_timedelta(rng.integers(0, 9, rows), unit="D"),
            "tip": tip,
            "fare": fare,
            "total": np.round(tip + fare, 2),
            "late": np.where(fare > 20, rng.choice(["yes", "no"], rows), "no"),
        }
    )


def schema(**options: Any) -> sg.Schema:
    columns: dict[str, Any] = {
        "id": sg.Identifier(prefix="r", digits=5),
        "city": sg.Categorical(list(STATE)),
        "state": sg.Categorical(["CA", "NY"]),
        "start": sg.Date("2024-01-01", "2024-12-31", bins=12),
        "end": sg.Date("2024-01-01", "2024-12-31", bins=12),
        "tip": sg.Numeric(0, 50, bins="auto", decimals=2),
        "fare": sg.Numeric(0, 50, bins=10, decimals=2),
        "total": sg.Numeric(0, 100, decimals=2),
        "late": sg.Categorical(["yes", "no"]),
    }
    return sg.Schema(
        columns | options.pop("columns", {}),
        depends=[("city", "state", STATE)],
        relations=["start <= end", "end - start <= 8", "total == tip + fare"],
        impossible=[{"late": "yes", "fare": (0, 20)}],
        **options,
    )


def broken(frame: pd.DataFrame) -> int:
    """Rows that break a rule."""
    days = (frame["end"] - frame["start"]).dt.days
    good = days.between(0, 8) & (frame["state"] == frame["city"].map(STATE))
    good &= np.isclose(frame["total"], frame["tip"] + frame["fare"], atol=1e-9)
    good &= ~((frame["late"] == "yes") & (frame["fare"] <= 20))
    return int((~good).sum())


@pytest.fixture(scope="module")
def model() -> sg.TabularSynthesizer:
    budget = sg.PrivacyBudget(2.0, 1e-6)
    return sg.TabularSynthesizer(schema=schema(), budget=budget, noise=sg.SeededNoise(3)).fit(rentals())


def test_no_synthetic_row_breaks_a_rule(model: sg.TabularSynthesizer, tmp_path: Path) -> None:
    frame = model.sample(4000).data
    assert broken(frame) == 0
    assert broken(frame.assign(end=frame["end"].sample(frac=1, random_state=0).to_numpy())) > 1000  # can fail
    model.save(tmp_path / "model")
    again = sg.TabularSynthesizer.load(tmp_path / "model")
    assert broken(again.sample(4000).data) == 0
    assert again.schema.fingerprint() == model.schema.fingerprint()


def test_conditions_hold_in_every_row_together_with_the_rules(model: sg.TabularSynthesizer) -> None:
    asked = {
        "start": ("2024-02-10", "2024-03-05"),
        "fare": [(7, 9.5), 12.25],
        "state": "NY",
        "total": (7.5, 13),
    }
    frame = model.sample(300, given=asked).data
    assert broken(frame) == 0
    assert frame["start"].between("2024-02-10", "2024-03-05").all()
    assert (frame["fare"].between(7, 9.5) | (frame["fare"] == 12.25)).all()
    assert set(frame["state"]) == {"NY"}
    assert frame["total"].between(7.5, 13).all()
    with pytest.raises(sg.ConfigError, match="no row can meet"):
        model.sample(5, given={"late": "yes", "fare": (1, 3)}).data  # noqa: B018


def test_values_that_many_rows_share_are_found_and_amounts_keep_their_decimals(
    model: sg.TabularSynthesizer,
) -> None:
    frame, real = model.sample(5000).data, rentals()
    assert abs((frame["tip"] == 0).mean() - (real["tip"] == 0).mean()) < 0.03
    assert abs(frame["tip"].isin([1.0, 2.0, 3.37]).mean() - real["tip"].isin([1.0, 2.0, 3.37]).mean()) < 0.05
    assert np.allclose(frame["fare"], frame["fare"].round(2), atol=1e-12)
    # Half of all fares are in the bin from 5 to 10, near 5, and beside an empty bin nothing tells where:
    # the mean is that of the bins' middles (12.1; of the fares themselves 11.7).
    middles = 5 * np.floor(real["fare"] / 5) + 2.5
    assert abs(frame["fare"].mean() - middles.mean()) < 0.6
    assert frame["id"].tolist()[:2] == ["r00001", "r00002"]
    assert (frame["start"] == frame["start"].dt.normalize()).all()


def test_a_column_and_what_follows_from_it_keep_their_relations() -> None:
    """286 values of which five are frequent: the coarse column's relation must not drown in the fine one's
    noise.
    """
    rng = np.random.default_rng(2)
    rows = 8000
    fine = np.where(rng.random(rows) < 0.7, rng.integers(0, 5, rows), rng.integers(0, 286, rows))
    coarse = fine % 2
    target = np.where(rng.random(rows) < 0.95, coarse, 1 - coarse)
    frame = pd.DataFrame({"fine": fine, "coarse": coarse, "target": target})
    made = sg.Schema(
        {
            "fine": sg.Categorical(range(286)),
            "coarse": sg.Categorical([0, 1]),
            "target": sg.Categorical([0, 1]),
        },
        depends=[("fine", "coarse", {i: i % 2 for i in range(286)})],
    )
    budget = sg.PrivacyBudget(1.0, 1e-9)
    out = sg.TabularSynthesizer(schema=made, budget=budget, noise=sg.SeededNoise(1)).fit(frame).sample().data
    assert (out["coarse"] == out["fine"] % 2).all()
    assert (out["coarse"] == out["target"]).mean() > 0.93
    assert abs((out["fine"] < 5).mean() - (frame["fine"] < 5).mean()) < 0.03


def test_streams_keep_the_rules(tmp_path: Path) -> None:
    made = schema(columns={"tip": sg.Numeric(0, 50, bins=[0, 0.01, 5, 50], decimals=2)})
    stream = sg.TabularStream(schema=made, budget=sg.PrivacyBudget(5.0), noise=sg.SeededNoise(1))
    stream.update(rentals(800))
    stream.save(tmp_path / "stream")
    release = sg.TabularStream.load(tmp_path / "stream").update(rentals(800, seed=1))
    assert broken(release.data) == 0
    assert broken(release.sample(200, given={"start": ("2024-01-10", "2024-04-10")})) == 0


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("end", pd.Timestamp("2023-12-31"), "outside the bounds"),
        ("state", "CA", "impossible"),
        ("total", 1.0, "not the sum"),
        ("start", pd.Timestamp("2024-12-31"), "breaks a relation"),
    ],
)
def test_private_rows_that_break_a_rule_are_refused_with_column_and_row(
    column: str, value: Any, says: str
) -> None:
    frame = rentals(50)
    frame.loc[7, ["city", "state"]] = "NYC", "NY"
    frame.loc[7, column] = value
    made = schema(columns={"tip": sg.Numeric(0, 50, bins=4, decimals=2)})
    with pytest.raises(sg.InputError, match=says) as caught:
        made.encode(open_source(frame).read(made.inputs))
    assert "row 7" in str(caught.value)


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"relations": "start <= end"}, "must be a list"),
        ({"relations": ["start <= end <= 5"]}, "one comparison"),
        ({"relations": ["start <= fine"]}, "no column of numbers"),
        ({"relations": ["start * end <= 3"]}, "multiply by numbers"),
        ({"relations": ["start + 1 == end + start"]}, "column == sum"),
        ({"impossible": {"a": 1}}, "must be a list"),
        ({"impossible": [["start", 1]]}, "maps columns to values"),
        ({"impossible": [{"start": {"from": 1}, "end": 2}]}, '"range"'),
        ({"depends": [{"fine": "start", "coarse": "end"}]}, '"mapping"'),
        ({"depends": [["start", "end", [1, 2]]]}, "fine, coarse, mapping"),
    ],
)
def test_rules_of_the_wrong_shape_are_refused_with_a_line(rules: dict[str, Any], says: str) -> None:
    columns = {name: {"type": "numeric", "low": 0, "high": 9, "bins": 3} for name in ("start", "end")}
    columns["fine"] = {"type": "categorical", "values": ["a", "b"]}
    with pytest.raises(sg.ConfigError, match=says):
        sg.Schema.from_json({"columns": columns, **rules})


def test_ranges_in_rules_survive_a_file() -> None:
    made = sg.Schema(
        {"x": sg.Numeric(0, 10, bins=4), "y": sg.Numeric(0, 10, bins=4)},
        impossible=[{"x": (1, 3), "y": (2.5, 7.5)}],
        depends=[("x", "y", {(0, 5): (0, 5), (5, 10): (5, 10)})],
    )
    again = sg.Schema.from_json(made.to_json())
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": 10 * rng.random(400), "y": 10 * rng.random(400)})

    def fits(one: sg.Schema, row: pd.DataFrame) -> bool:
        try:
            one.encode(open_source(row).read(one.inputs))
        except sg.InputError:
            return False
        return True

    for i in range(60):
        row = frame.iloc[i : i + 1]
        x, y = row.iloc[0]
        wanted = (x < 5) == (y < 5) and not (1 <= x <= 3 and 2.5 <= y <= 7.5)
        assert fits(made, row) == fits(again, row) == wanted


def test_values_inside_a_bin_follow_the_slope_of_its_neighbours() -> None:
    """Four bins of a density that falls linearly to 0: even values inside bins would miss it by more."""
    column = sg.Numeric(0, 1, bins=4)
    share = np.array([7, 5, 3, 1]) / 16
    codes = np.random.default_rng(0).choice(4, 200_000, p=share)
    rng = np.random.default_rng(1)
    sloped = column.draw(codes, rng, masses=share)
    even = column.draw(codes, rng)
    exact = np.sort(1 - np.sqrt(1 - (np.arange(200_000) + 0.5) / 200_000))
    assert np.abs(np.sort(sloped) - exact).mean() < 0.2 * np.abs(np.sort(even) - exact).mean()
    assert (column.encode("x", {"x": sloped})[:, 0] == codes).all()


@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_signed_amounts_with_long_tails_keep_quantiles_and_zeros(delta: float) -> None:
    """One column whose bins are found: what they cost is not there for its counts."""
    rng = np.random.default_rng(5)
    money = np.where(rng.random(6000) < 0.5, 0.0, rng.choice([-1, 1], 6000) * np.exp(rng.normal(6, 2, 6000)))
    frame = pd.DataFrame({"money": money.clip(-1e6, 1e6).round(2)})
    made = sg.Schema({"money": sg.Numeric(-1e6, 1e6, bins="auto", decimals=2)})
    table = sg.TabularSynthesizer(schema=made, budget=sg.PrivacyBudget(1.0, delta), noise=sg.SeededNoise(2))
    out = table.fit(frame).sample(6000).data["money"]
    assert abs((out == 0).mean() - (frame["money"] == 0).mean()) < 0.02
    for share in (0.05, 0.2, 0.8, 0.95):
        found, true = np.arcsinh(out.quantile(share)), np.arcsinh(frame["money"].quantile(share))
        assert abs(found - true) < 0.4


def test_dates_times_of_day_and_durations_come_back_as_they_were() -> None:
    rng = np.random.default_rng(0)
    minutes = rng.integers(0, 1440, 500)
    frame = pd.DataFrame(
        {
            "day": [
                f"{m}/{d}/2020"
                for m, d in zip(rng.integers(1, 13, 500), rng.integers(1, 28, 500), strict=True)
            ],
            "seen": pd.Timestamp("2020-03-01 12:00", tz="UTC") + pd.to_timedelta(minutes, unit="min"),
            "at": [f"{m // 60:02d}:{m % 60:02d}" for m in minutes],
            "took": pd.to_timedelta(rng.integers(0, 7200, 500), unit="s"),
            "ok": rng.random(500) < 0.3,
        }
    )
    frame.loc[3, "at"] = None
    made = sg.Schema(
        {
            "day": sg.Date("2020-01-01", "2020-12-31", bins=12, format="%-m/%-d/%Y"),
            "seen": sg.DateTime("2020-03-01", "2020-03-04", parts=("weekday", "hour"), tz="Europe/Berlin"),
            "at": sg.TimeOfDay(bins=8, missing=True),
            "took": sg.Duration("0s", "2h", bins=6),
            "ok": sg.Categorical([True, False]),
        }
    )
    reading = sg.Reading(time_format="%m/%d/%Y")
    table = sg.TabularSynthesizer(
        schema=made, budget=sg.PrivacyBudget(50.0), noise=sg.SeededNoise(2), reading=reading
    ).fit(frame)
    out = table.sample(500).data
    assert pd.to_datetime(out["day"], format="%m/%d/%Y").dt.year.eq(2020).all()
    assert str(out["seen"].dt.tz) == "Europe/Berlin"
    local = frame["seen"].dt.tz_convert("Europe/Berlin").dt.hour
    assert abs((out["seen"].dt.hour < 12).mean() - (local < 12).mean()) < 0.05
    assert out["at"].dropna().str.fullmatch(r"[0-2]\d:[0-5]\d").all()
    assert out["took"].dtype.kind == "m"
    assert out["took"].max() <= pd.Timedelta("2h")
    assert out["ok"].dtype == bool
    assert sg.Schema.from_json(made.to_json()).fingerprint() == made.fingerprint()
    noon = table.sample(
        50, given={"at": ("11:30", "12:10"), "seen": ("2020-03-02 03:15", "2020-03-02 04:45")}
    )
    assert noon.data["at"].between("11:30", "12:10").all()
    zone = {"tz": "Europe/Berlin"}
    assert (
        noon.data["seen"]
        .between(pd.Timestamp("2020-03-02 03:15", **zone), pd.Timestamp("2020-03-02 04:45", **zone))
        .all()
    )
    assert table.sample(20, given={"at": None}).data["at"].isna().all()
    dates = sg.Schema({"d": sg.DateTime("2020-01-01", "2021-01-01", parts=("month", "weekday"))})
    drawn = dates.decode(np.array([[2, 3], [7, 0]]), rng)["d"]
    assert (drawn == drawn.dt.normalize()).all()
    assert drawn.dt.month.tolist() == [3, 8]
    assert drawn.dt.day_of_week.tolist() == [3, 0]


@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_a_value_whose_released_count_is_zero_can_be_asked_for(delta: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = [f"operator {i}" for i in range(120)]
    share = 1 / np.arange(1, 121) ** 1.5
    frame = pd.DataFrame(
        {"operator": rng.choice(names, 2000, p=share / share.sum()), "speed": rng.integers(0, 9, 2000)}
    )
    columns = {"operator": sg.Categorical(names), "speed": sg.Numeric(0, 99, bins=100, integer=True)}
    model = sg.TabularSynthesizer(
        schema=sg.Schema(columns), budget=sg.PrivacyBudget(1.0, delta), noise=sg.SeededNoise(1)
    ).fit(frame)
    model.save(tmp_path / "model")
    counts = model.sample().marginal("operator")
    absent = [name for name, count in zip(names, counts, strict=True) if not count]
    assert len(absent) > 5
    for drawn in (model, sg.TabularSynthesizer.load(tmp_path / "model")):
        rows = drawn.sample(50, given={"operator": absent[:2], "speed": (90, 99)}).data
        assert set(rows["operator"]) == set(absent[:2])
        assert rows["speed"].between(90, 99).all()


@pytest.mark.parametrize("seed", range(6))
def test_rules_hold_where_noise_leaves_values_that_never_agree(seed: int) -> None:
    frame = rentals(300)
    model = sg.TabularSynthesizer(
        schema=schema(), budget=sg.PrivacyBudget(0.001), noise=sg.SeededNoise(seed)
    ).fit(frame)
    assert broken(model.sample(200).data) == 0


def test_amounts_have_no_negative_zero() -> None:
    column = sg.Numeric(-1, 1, bins=[-1, -0.004, 0.004, 1], decimals=2)
    zeros = column.draw(np.ones(50, dtype=np.int64), np.random.default_rng(0))
    assert np.all(zeros == 0)
    assert not np.signbit(zeros).any()
