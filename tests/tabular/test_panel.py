"""Panels: transitions are kept, persons persist, and a person changes one record of each of its waves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import synthgeo as sg
from tabular import discovery
from tabular.conditional import table_of
from tabular.over_time.panel import PanelMechanism, before, staying

SCHEMA = sg.simulate.panel_schema()
WAVES = 5
ANSWERS = sg.simulate.panel(6_000, waves=WAVES, seed=1)


def batches(frame: pd.DataFrame = ANSWERS) -> list[pd.DataFrame]:
    return [wave.drop(columns=["wave", "time"]) for _, wave in frame.groupby("wave")]


def made(epsilon: float = 1.0, delta: float = 1e-9, schema=SCHEMA, **unit) -> sg.PanelStream:
    options = {"max_events": 12, "key": "person_id", **unit}
    return sg.PanelStream(
        schema=schema,
        budget=sg.PrivacyBudget(epsilon, delta),
        unit=sg.PrivacyUnit.user(**options),
        settings=sg.TableSettings(iterations=300),
        noise=sg.SeededNoise(2),
    )


@pytest.fixture(scope="module")
def released() -> pd.DataFrame:
    """At the noise of a panel of twelve waves, of which five are run."""
    stream = made()
    waves = [stream.update(wave).data.assign(wave=i) for i, wave in enumerate(batches(), start=1)]
    return pd.concat(waves, ignore_index=True)


def transitions(frame: pd.DataFrame, name: str) -> pd.Series:
    """How often each answer followed each other one, over all waves."""
    coded = frame[["person_id", "wave", name]].copy()
    if name == "pay":
        coded[name] = np.digitize(coded[name], SCHEMA.columns["pay"].edges)
    after = coded.assign(wave=coded["wave"] - 1).rename(columns={name: "next"})
    return coded.merge(after, on=["person_id", "wave"]).value_counts([name, "next"], normalize=True)


def distance(a: pd.Series, b: pd.Series) -> float:
    return float(a.sub(b, fill_value=0).abs().sum() / 2)


def test_transitions_from_wave_to_wave_are_kept(released):
    """Within bounds that persons whose answers are drawn independently in each wave fail by far."""
    rng = np.random.default_rng(0)
    parts = []
    for _, wave in ANSWERS.groupby("wave"):
        mixed = wave[list(SCHEMA.columns)].iloc[rng.permutation(len(wave))].set_index(wave.index)
        parts.append(wave[["person_id", "wave"]].join(mixed))
    redrawn = pd.concat(parts)
    for name, bound in {"region": 0.06, "work": 0.06, "health": 0.07, "pay": 0.12}.items():
        truth = transitions(ANSWERS, name)
        assert distance(truth, transitions(released, name)) < bound, name
        assert distance(truth, transitions(redrawn, name)) > 0.35, name


def test_persons_persist_join_and_leave(released):
    """Ids are stable, and persons stay about as long as in the data."""
    ids = [set(wave["person_id"]) for _, wave in released.groupby("wave")]
    true = [set(wave["person_id"]) for _, wave in ANSWERS.groupby("wave")]
    for number in range(WAVES - 1):
        stayed = len(ids[number] & ids[number + 1]) / len(ids[number])
        expected = len(true[number] & true[number + 1]) / len(true[number])
        assert abs(stayed - expected) < 0.05
    assert len(ids[-1] - ids[0]) > 200  # joined
    assert not set(released["person_id"]) & set(ANSWERS["person_id"])
    for wave in (1, WAVES):
        assert abs((released["wave"] == wave).sum() / (ANSWERS["wave"] == wave).sum() - 1) < 0.05


def test_a_number_stays_as_long_as_its_bin(released):
    edges = SCHEMA.columns["pay"].edges
    first = released[released["wave"] == 1].set_index("person_id")["pay"]
    second = released[released["wave"] == 2].set_index("person_id")["pay"]
    both = pd.concat([first, second], axis=1, keys=["a", "b"]).dropna()
    same = np.digitize(both["a"], edges) == np.digitize(both["b"], edges)
    assert same.mean() > 0.8
    assert (both["a"] == both["b"])[same].all()


def test_rules_hold_in_every_wave():
    schema = sg.Schema(SCHEMA.columns, impossible=[{"work": w, "pay": (10, 8_000)} for w in ("student",)])
    stream = made(schema=schema)
    for wave in batches()[:3]:
        rows = stream.update(wave).data
        assert not ((rows["work"] == "student") & (rows["pay"] > 9)).any()


def test_windows_runs_and_one_row_per_person(tmp_path):
    frame = sg.simulate.panel(150, waves=3, seed=4)
    doubled = pd.concat([frame, frame.head(40)])
    releases = list(made().run(doubled, time="time", every="1MS", start="2025-01-01", end="2025-04-01"))
    assert [release.step for release in releases] == [1, 2, 3]
    counted = made().count(pd.concat([batches(frame)[0]] * 3))
    assert len(counted.counts.now["work"]) == len(batches(frame)[0])
    with sg.StreamRun.open(tmp_path / "run", made(delta=0.0)) as run:
        stored = run.step(batch_id="1", batch=batches(frame)[0])
        assert stored.data.columns[0] == "person_id"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"unit": sg.PrivacyUnit.event()}, "protects persons"),
        ({"unit": sg.PrivacyUnit.user(max_events=2, key="work")}, "ids are made afresh"),
        ({"unit": sg.PrivacyUnit.user(max_trajectories=2)}, "protects persons"),
    ],
)
def test_what_makes_no_sense_is_refused(options, match):
    with pytest.raises(sg.ConfigError, match=match):
        sg.PanelStream.from_options(schema=SCHEMA, budget=sg.PrivacyBudget(1.0), **options)


def test_what_a_wave_gets_of_the_budget():
    for per, pure, gaussian in ((None, 4, 4), (4, 6, 8)):
        options = {"schema": SCHEMA, "max_cells": 1000, "iterations": 1, "noise": sg.SeededNoise(1)}
        unit = sg.PrivacyUnit.user(max_events=4, per=per)
        plain = PanelMechanism(budget=sg.PrivacyBudget(1.0), unit=unit, **options)
        assert plain._wave.whole == plain.answer_epsilon == pytest.approx(1 / pure)
        budget = sg.PrivacyBudget(1.0, 1e-6)
        alone = PanelMechanism(budget=budget, unit=sg.PrivacyUnit.user(max_events=1), **options)
        found = PanelMechanism(budget=budget, unit=unit, **options)
        assert found._wave.whole == pytest.approx(alone._wave.whole / gaussian)
        assert found.answer_epsilon < alone.answer_epsilon == pytest.approx(1.0, rel=1e-3)


history = st.lists(st.one_of(st.none(), st.integers(0, 2)), min_size=4, max_size=4)


@settings(max_examples=40, deadline=None)
@given(st.lists(history, min_size=1, max_size=5), history, st.sampled_from([None, 2]))
def test_a_person_moves_one_record_of_each_of_its_waves(others, own, per):
    """Of a person's life or, with periods of two waves, of its answers in the first of them."""
    schema = sg.Schema({"q": sg.Categorical(range(3))})
    sizes = {before("q"): 4, "q": 3}
    bound = 4 if per is None else 2

    def tables(people):
        stream = made(schema=schema, max_events=bound, per=per)
        for wave in range(4):
            rows = [(i, person[wave]) for i, person in enumerate(people) if person[wave] is not None]
            counted = stream.count(pd.DataFrame(rows, columns=["person_id", "q"]).astype(np.int64))
            codes = {**counted.counts.now, **counted.counts.before}
            yield table_of(codes, sizes, (before("q"), "q"))
            stream._now = replace(stream._now, bounder=counted.bounder, clock=counted.clock)

    without = [None] * 4 if per is None else [None, None, *own[2:]]
    changes = [
        np.abs(a - b).sum() for a, b in zip(tables([*others, own]), tables([*others, without]), strict=True)
    ]
    if per is None:
        assert max(changes) <= 1
    else:
        assert max(changes[:2]) <= 1
        assert changes[2] <= 2
        assert changes[3] == 0


def test_stayers_agree_with_what_was_measured():
    rng = np.random.default_rng(1)
    codes = {"a": rng.integers(0, 3, 9_000), "b": rng.integers(0, 2, 9_000)}
    rate = np.array([0.9, 0.6, 0.95])[codes["a"]]
    true = rng.random(9_000) < rate
    noisy = {
        name: np.append(np.bincount(found[true]), 300) + rng.normal(0, 20, found.max() + 2)
        for name, found in codes.items()
    }
    stays = staying(codes, noisy, 20.0, rng)
    found = np.bincount(codes["a"][stays]) / np.bincount(codes["a"])
    np.testing.assert_allclose(found, [0.9, 0.6, 0.95], atol=0.03)


FINDING = sg.Schema(
    {"a": sg.Numeric(0, 8, bins="auto", integer=True), "b": sg.Categorical("private", other="rest")}
)
PERSON = sg.PrivacyUnit.user(max_events=2, key="person_id")


AMPLE = sg.PrivacyBudget(8.0, 1e-4)


def finding(budget: sg.PrivacyBudget = AMPLE, **options) -> sg.PanelStream:
    options = {"schema": FINDING, "unit": PERSON, "noise": sg.SeededNoise(1), "iterations": 20, **options}
    return sg.PanelStream.from_options(budget=budget, **options)


def first_wave(persons: int = 600) -> pd.DataFrame:
    who = np.arange(persons)
    words = np.where(who % 3 == 0, "often", np.where(who % 2 == 0, "also", [f"own {i}" for i in who]))
    return pd.DataFrame({"person_id": who, "a": who % 8, "b": words})


def test_the_first_wave_finds_bins_and_values_and_later_ones_keep_them(tmp_path):
    panel = finding()
    assert panel.check(first_wave()).ok
    found = panel.update(first_wave()).data
    assert panel.schema.columns["b"].values == ("also", "often", "rest")  # nobody's own
    assert set(found["b"]) <= {"also", "often", "rest"}
    assert panel.schema.columns["a"].bins > 2
    panel.save(tmp_path / "panel")
    loaded = sg.PanelStream.load(tmp_path / "panel")
    assert loaded.choices() == panel.choices()
    later = first_wave().assign(b="new")  # what the first wave did not know is the rest
    for one in (panel, loaded):
        release = one.update(later)
        assert one.schema.columns["b"].values == ("also", "often", "rest")
        assert (release.data["b"] == "rest").mean() > 0.8
    pd.testing.assert_frame_equal(panel.release.data, loaded.release.data)
    fresh = finding()
    fresh.save(tmp_path / "fresh")
    again = sg.PanelStream.load(tmp_path / "fresh")
    assert again.schema.pending_bins == ["a"]
    pd.testing.assert_frame_equal(again.update(first_wave()).data, found)


def test_one_person_is_one_row_of_what_the_first_wave_finds():
    crowd = first_wave(30)
    own = pd.DataFrame({"person_id": [99] * 3, "a": [1, 2, 3], "b": ["x", "y", "often"]})
    held = []
    for frame in (crowd, pd.concat([crowd, own], ignore_index=True)):
        unknown = finding().count(frame).counts.unknown
        words = pd.Series(unknown.words["b"][1], unknown.words["b"][0])
        numbers = pd.Series(unknown.numbers["a"].weights[:, 0], unknown.numbers["a"].keys)
        held.append((words, numbers))
    for one, other in zip(*held, strict=True):
        assert other.sub(one, fill_value=0).abs().sum() == 1


@pytest.mark.parametrize("delta", [0.0, 1e-4])
def test_what_the_first_wave_finds_is_paid_once_and_waves_with_the_rest(monkeypatch, delta):
    asked = []

    def edges(column, *_, epsilon, **__):
        asked.append((epsilon, 0.0))
        return [column.low, column.high]

    def listed(column, *_, counts, delta, **__):
        assert counts.bound == 1
        asked.append((counts.epsilon, delta))
        return column.with_values(["often"])

    monkeypatch.setattr(discovery, "tree_edges", edges)
    monkeypatch.setattr(discovery, "find_values", listed)
    free = {} if delta else {"candidates": ["often", "also"]}
    schema = FINDING.with_column("b", sg.Categorical("private", other="rest", **free))
    panel = finding(sg.PrivacyBudget(2.0, delta), schema=schema)
    for _ in range(2):
        panel.update(first_wave())
    assert len(asked) == 2  # once, in the first wave
    assert sum(epsilon for epsilon, _ in asked) == pytest.approx(0.2)
    assert sum(part for _, part in asked) == pytest.approx(0.1 * delta)
    alone = sg.PanelStream(
        schema=panel.schema, budget=sg.PrivacyBudget(1.8, 0.9 * delta), unit=PERSON, noise=sg.SeededNoise(1)
    )
    assert panel.epsilon == pytest.approx(alone.epsilon)
    assert panel.costs["total"].tolist() == pytest.approx([panel.epsilon + 0.2, panel.epsilon])


def test_values_without_candidates_need_a_delta():
    with pytest.raises(sg.ConfigError, match="delta > 0, or candidates="):
        finding(sg.PrivacyBudget(1.0))
