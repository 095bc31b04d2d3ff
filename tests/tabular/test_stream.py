"""Tables over time: both schedules and the baseline."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from synthgeo.evaluation.tables import marginal_counts, workload_errors
from tests.tabular.conftest import small_table

KINDS: list[tuple[type, dict[str, Any]]] = [
    (sg.TabularStream, {}),
    (sg.TabularStream, {"schedule": "every_step", "marginals_per_step": 2}),
    (sg.baselines.StreamingMWEM, {"marginals_per_step": 2}),
]
NAMES = ["auto", "every_step", "baseline"]
each_kind = pytest.mark.parametrize(("kind", "options"), KINDS, ids=NAMES)


def make(kind: type, options: dict[str, Any], schema: sg.Schema, seed: int = 1, **more: Any) -> Any:
    given = {"budget": sg.PrivacyBudget(2.0), "noise": sg.SeededNoise(seed), **options, **more}
    return kind.from_options(schema=schema, **given)


@each_kind
def test_a_release_has_the_columns_and_types_of_the_schema(
    kind: type, options: dict[str, Any], schema: sg.Schema
) -> None:
    stream = make(kind, options, schema)
    for i in range(4):
        release = stream.update(small_table(600, seed=i))
    data = release.data
    assert list(data.columns) == ["a", "b", "c"]
    assert set(data["a"]) <= set("wxyz")
    assert data["b"].between(0, 3).all()
    assert data["c"].between(0, 10).all()
    assert abs(len(data) - 2400) < 400
    assert release.step == 4
    assert release.spent == sg.PrivacyBudget(2.0)
    assert not release.releasable
    assert not release.expected_error().empty
    assert stream.costs["total"].max() <= 2.0 + 1e-9
    real = pd.concat([small_table(600, seed=i) for i in range(4)])
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    truth = marginal_counts(real, schema, pairs)
    assert workload_errors(truth, release.marginals(pairs)).avg_we < 0.02
    uniform = {pair: np.full(vector.size, 2400 / vector.size) for pair, vector in truth.items()}
    assert workload_errors(truth, uniform).avg_we > 0.02


@each_kind
def test_saved_mid_stream_it_goes_on_bit_for_bit(
    kind: type, options: dict[str, Any], schema: sg.Schema, tmp_path: Path
) -> None:
    stream = make(kind, options, schema)
    for i in range(3):
        stream.update(small_table(400, seed=i))
    stream.save(tmp_path / "state")
    again = kind.load(tmp_path / "state")
    for i in range(3, 6):
        one, other = stream.update(small_table(400, seed=i)), again.update(small_table(400, seed=i))
        pd.testing.assert_frame_equal(one.data, other.data)
        assert one.marginal("a", "b").tobytes() == other.marginal("a", "b").tobytes()
    pd.testing.assert_frame_equal(stream.costs, again.costs)
    with pytest.raises(sg.errors.StateError):
        sg.PHDStream.load(tmp_path / "state")


@each_kind
def test_same_seed_same_output_and_later_batches_change_no_earlier_one(
    kind: type, options: dict[str, Any], schema: sg.Schema
) -> None:
    one, other = make(kind, options, schema), make(kind, options, schema)
    first = [one.update(small_table(300, seed=i)) for i in range(3)]
    second = [other.update(small_table(300, seed=i)) for i in range(2)]
    other.update(small_table(900, seed=77))
    for a, b in zip(first[:2], second, strict=True):
        pd.testing.assert_frame_equal(a.data, b.data)


@each_kind
def test_a_refused_batch_spends_nothing_and_changes_nothing(
    kind: type, options: dict[str, Any], schema: sg.Schema, tmp_path: Path
) -> None:
    stream = make(kind, options, schema)
    stream.update(small_table(300))
    stream.save(tmp_path / "before")
    bad = small_table(50)
    bad.loc[17, "a"] = "unseen"
    with pytest.raises(sg.InputError, match="'a', row 17"):
        stream.update(bad)
    with pytest.raises(sg.InputError, match="missing column 'c'"):
        stream.update(small_table(5).drop(columns="c"))
    with pytest.raises(sg.InputError, match="'op', row 2"):
        stream.update(small_table(4).assign(op=[1, -1, 0, 1]))
    stream.save(tmp_path / "after")
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()


@each_kind
def test_empty_batches_and_batches_of_deletions_are_steps(
    kind: type, options: dict[str, Any], schema: sg.Schema
) -> None:
    stream = make(kind, options, schema)
    release = stream.update(small_table(0))
    assert release.step == 1
    assert len(release.data) < 200
    stream.update(small_table(2000, seed=3))
    before = stream.update(small_table(0)).total
    after = stream.update(small_table(1500, seed=3).assign(op=-1))
    assert after.step == 4
    assert (
        after.total < before - 700 or kind is sg.baselines.StreamingMWEM
    )  # the baseline cannot take rows back
    assert (after.data["b"] >= 0).all()


def test_a_structure_that_was_complete_is_looked_at_again() -> None:
    """Independent columns at first, so nothing is chosen; much later two of them go together."""
    schema = sg.Schema({name: sg.Categorical([0, 1]) for name in "abcde"})
    stream = sg.TabularStream(schema=schema, budget=sg.PrivacyBudget(10.0), noise=sg.SeededNoise(1))
    rng = np.random.default_rng(0)
    complete, held = [], []
    for step in range(30):
        frame = pd.DataFrame(rng.integers(0, 2, (4000, 5)), columns=list("abcde"))
        if step >= 4:
            frame["b"] = frame["a"]
        release = stream.update(frame)
        complete.append(stream.mechanism.complete)
        held.append(("a", "b") in stream.mechanism.slots)
        assert stream.costs["total"].iloc[-1] == pytest.approx(10.0)
    assert True in complete[:4]
    assert not any(held[:4])
    assert held[-1]
    table = release.marginal("a", "b")
    assert (table[0, 0] + table[1, 1]) / table.sum() > 0.75


def test_a_stream_takes_up_as_many_pairs_as_are_worth_their_noise() -> None:
    """Yes/no columns that hang together: more pairs than columns; fewer for less ε."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, (40_000, 8))
    for i in range(1, 8):
        same = rng.random(len(codes)) < 0.6
        codes[same, i] = codes[same, i - 1]
    frame = pd.DataFrame(codes, columns=list("abcdefgh"))
    schema = sg.Schema({name: sg.Categorical([0, 1]) for name in frame})

    def pairs(epsilon: float) -> int:
        budget = sg.PrivacyBudget(epsilon)
        stream = sg.TabularStream(schema=schema, budget=budget, noise=sg.SeededNoise(1))
        for begin in range(0, len(frame), 4_000):
            stream.update(frame.iloc[begin : begin + 4_000])
        return sum(len(clique) > 1 for clique in stream.mechanism.slots)

    assert pairs(2.0) > 12
    assert pairs(0.01) == 0


def test_a_table_that_moves_without_growing_is_followed(schema: sg.Schema) -> None:
    """As many deletions as insertions: the number of rows says nothing, the number of events does."""
    stream = make(sg.TabularStream, {}, schema, budget=sg.PrivacyBudget(8.0))
    rows = small_table(6000)
    first, second = rows[rows["a"].isin(["w", "x"])], rows[rows["a"].isin(["y", "z"])]
    before = stream.update(first)
    assert before.marginal("a")[:2].sum() > 2500
    for i in range(10):
        old, new = first.iloc[i * 280 : (i + 1) * 280], second.iloc[i * 280 : (i + 1) * 280]
        release = stream.update(pd.concat([new.assign(op=1), old.assign(op=-1)]))
    assert release.marginal("a")[2:].sum() > 2200
    assert release.marginal("a")[:2].sum() < 800


def test_deletions_can_be_ruled_out(schema: sg.Schema) -> None:
    stream = make(sg.TabularStream, {}, schema, deletions=False)
    with pytest.raises(sg.InputError, match="deletions=False"):
        stream.update(small_table(3).assign(op=[1, 1, -1]))


@each_kind
def test_a_release_holds_no_private_counts(kind: type, options: dict[str, Any], schema: sg.Schema) -> None:
    """Pickled, it is as large after a batch as the model: nothing of the stream's pending sums travels
    with it.
    """
    stream = make(kind, options, schema)
    release = stream.update(small_table(500))
    names = _attribute_names(release)
    assert not names & {"pending", "period", "slots", "bank", "counted", "remainder", "mechanism", "bounder"}
    pickle.loads(pickle.dumps(release.marginal("a")))


def _attribute_names(thing: Any, depth: int = 0) -> set[str]:
    if depth > 5 or not hasattr(thing, "__dict__"):
        return set()
    names = set(vars(thing))
    for value in vars(thing).values():
        names |= _attribute_names(value, depth + 1)
    return names


def test_conditions_hold_in_every_sampled_row(schema: sg.Schema) -> None:
    stream = make(sg.TabularStream, {}, schema)
    for i in range(3):
        release = stream.update(small_table(1500, seed=i))
    drawn = release.sample(500, given={"a": ["w", "x"], "c": (2, 4)})
    assert len(drawn) == 500
    assert set(drawn["a"]) == {"w", "x"}
    assert drawn["c"].between(2, 4).all()
    with pytest.raises(sg.ConfigError, match="not a value"):
        release.sample(5, given={"a": "nobody"})
    with pytest.raises(sg.ConfigError, match="does not have"):
        release.sample(5, given={"z": 1})


def test_users_are_bounded(schema: sg.Schema) -> None:
    unit = sg.PrivacyUnit.user(max_events=4, key="who")
    stream = make(sg.TabularStream, {}, schema, unit=unit, budget=sg.PrivacyBudget(40.0))
    assert stream.epsilon == 10.0
    frame = small_table(2000).assign(who=np.repeat(np.arange(20), 100))
    release = stream.update(frame)
    # 20 users, 4 places each, half of them kept for deletions that may come
    assert abs(release.total - 40) < 25
    with pytest.raises(sg.InputError, match="who"):
        stream.update(small_table(10))


def test_files_and_frames_give_the_same_release(schema: sg.Schema, tmp_path: Path) -> None:
    batch = small_table(3000)
    for part in range(3):
        batch.iloc[part * 1000 : (part + 1) * 1000].to_parquet(tmp_path / f"part{part}.parquet")
    frame = make(sg.TabularStream, {}, schema).update(batch)
    files = make(sg.TabularStream, {}, schema).update(str(tmp_path / "*.parquet"))
    pd.testing.assert_frame_equal(frame.data, files.data)


def test_two_hundred_columns() -> None:
    rng = np.random.default_rng(0)
    names = [f"c{i:03d}" for i in range(200)]
    wide = sg.Schema({name: sg.Categorical([0, 1]) for name in names})
    frame = pd.DataFrame(rng.integers(0, 2, (400, 200)), columns=names)
    stream = sg.TabularStream(
        schema=wide,
        budget=sg.PrivacyBudget(50.0),
        workload=sg.all_k_way(wide, 2, max_cells=4),
        noise=sg.SeededNoise(1),
    )
    release = stream.update(frame)
    assert release.data.shape[1] == 200


def test_marginals_that_are_too_large_are_refused_before_anything_is_spent() -> None:
    wide = sg.Schema({"x": sg.Numeric(0, 1, bins=3200), "y": sg.Numeric(0, 1, bins=3200)})
    with pytest.raises(sg.ConfigError, match=r"\('x', 'y'\) alone has 10,240,000 cells"):
        sg.TabularStream(schema=wide, budget=sg.PrivacyBudget(1.0))


def test_of_all_pairs_those_too_large_are_left_out_and_named() -> None:
    """Nobody asked for that one; where somebody does, it is refused."""
    sizes = {"place": 300, "job": 250, "sex": 2}
    schema = sg.Schema({name: sg.Categorical(range(size)) for name, size in sizes.items()})
    with pytest.warns(UserWarning, match=r"1 of 3 pairs have more than max_cells=50,000 .*\(place x job\)"):
        stream = sg.TabularStream(schema=schema, budget=sg.PrivacyBudget(1.0), noise=sg.SeededNoise(1))
    assert list(stream.workload) == [("place", "sex"), ("job", "sex")]
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.integers(0, size, 500) for name, size in sizes.items()})
    assert list(stream.update(frame).data.columns) == list(sizes)
    with pytest.raises(sg.ConfigError, match="alone has 75,000 cells"):
        sg.TabularStream(schema=schema, budget=sg.PrivacyBudget(1.0), workload=[("place", "job")])


@each_kind
def test_a_model_without_room_for_more_marginals_goes_on_with_what_it_has(
    kind: type, options: dict[str, Any]
) -> None:
    schema = sg.Schema({name: sg.Ordinal(range(20)) for name in "abcd"})
    stream = make(kind, {**options, "marginals_per_step": 4}, schema, max_cells=1000)
    rng = np.random.default_rng(0)
    for _ in range(4):
        release = stream.update(pd.DataFrame(rng.integers(0, 20, (500, 4)), columns=list("abcd")))
    assert release.data.shape[1] == 4
    assert stream.mechanism.model.layout.cells <= 1000
    assert stream.costs["total"].max() <= 2.0 + 1e-9


def test_a_constant_column_is_a_column() -> None:
    schema = sg.Schema({"k": sg.Categorical(["only"]), "v": sg.Categorical([0, 1, 2])})
    stream = sg.TabularStream(schema=schema, budget=sg.PrivacyBudget(4.0), noise=sg.SeededNoise(2))
    release = stream.update(pd.DataFrame({"k": ["only"] * 900, "v": np.arange(900) % 3}))
    assert set(release.data["k"]) == {"only"}
    assert release.data["v"].value_counts(normalize=True).max() < 0.5


def test_windows_of_time_and_places(tmp_path: Path) -> None:
    city = sg.BoxDomain(0, 0, 4, 4)
    schema = sg.Schema(
        {
            "pickup": sg.Location(city, cells=16),
            "when": sg.DateTime("2020-01-01", "2020-01-08", parts=("weekday", "hour")),
            "fare": sg.Numeric(0, 50, bins=5),
        }
    )
    rng = np.random.default_rng(0)
    n = 3000
    frame = pd.DataFrame(
        {
            "pickup_x": rng.random(n) * 2,
            "pickup_y": rng.random(n) * 4,
            "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.random(n) * 4 * 86400, unit="s"),
            "fare": rng.random(n) * 50,
        }
    )
    stream = sg.TabularStream(schema=schema, budget=sg.PrivacyBudget(20.0), noise=sg.SeededNoise(1))
    releases = list(stream.run(frame, time="when", every="1D", start="2020-01-01", end="2020-01-06"))
    assert len(releases) == 5
    data = releases[-1].data
    assert list(data.columns) == ["pickup_x", "pickup_y", "when", "fare"]
    assert (data["pickup_x"] < 2).mean() > 0.8
    releases[-1].to_parquet(tmp_path / "table.parquet")


@pytest.mark.parametrize(
    "wrong",
    [
        {"budget": sg.PrivacyBudget(1.0, 1e-6)},
        {"marginals_per_step": 0},
        {"counter": "toeplitz"},
        {"schedule": "sometimes"},
        {"schedule": "once"},
        {"structure_share": 1.0},
        {"noise": 7},
        {"unit": sg.PrivacyUnit.trajectory()},
    ],
)
def test_settings_that_make_no_sense_are_refused(schema: sg.Schema, wrong: dict[str, Any]) -> None:
    with pytest.raises(sg.ConfigError):
        sg.TabularStream.from_options(schema=schema, **{"budget": sg.PrivacyBudget(1.0), **wrong})
