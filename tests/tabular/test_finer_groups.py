"""Values that are rare in a column and still stand out in a closely related pair: finer groups for that pair
alone."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from synthgeo.evaluation.tables import marginal_counts, total_variation
from synthgeo.privacy.filter import PrivacyFilter
from synthgeo.privacy.gaussian import gaussian_mu
from synthgeo.schema import Attribute
from tabular import measuring
from tabular.allocation import Candidate, Standing, allocate
from tabular.model.value_groups import coarse_of, find_groups, finer_groups
from tests.tabular.test_measuring import Ledgered

BUDGET = sg.PrivacyBudget(1.0, 1e-9)


def operators(times: int = 1, rare: int = 30) -> tuple[pd.DataFrame, sg.Schema]:
    """Two large operators with mixed fleets, and small ones that fly one type each; hours have nothing to do
    with either."""
    rng = np.random.default_rng(0)
    names = ["big", "large", *(f"small {i}" for i in range(rare))]
    counts = np.array([4000, 3000, *([100] * rare)]) * times
    operator = np.repeat(np.arange(rare + 2), counts)
    fleet = np.where(operator < 2, rng.integers(0, 2, operator.size), operator)
    frame = pd.DataFrame(
        {
            "operator": np.array(names)[operator],
            "type": np.array([f"T{i}" for i in range(rare + 2)])[fleet],
            "hour": rng.integers(0, 4, operator.size),
        }
    )
    columns = {
        "operator": sg.Categorical(names),
        "type": sg.Categorical([f"T{i}" for i in range(rare + 2)]),
        "hour": sg.Categorical(range(4)),
    }
    return frame, sg.Schema(columns)


def fitted(seed: int = 1, **options: object) -> sg.TabularSynthesizer:
    frame, schema = operators()
    noise = sg.SeededNoise(seed)
    return sg.TabularSynthesizer.from_options(schema=schema, budget=BUDGET, noise=noise, **options).fit(frame)  # type: ignore[arg-type]


def error(model: sg.TabularSynthesizer, *pair: str) -> float:
    frame, schema = operators()
    sides = [marginal_counts(data, schema, [pair]) for data in (frame, model.sample().data)]
    return float(total_variation(*sides)[pair])


def test_small_operators_keep_their_types(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted()
    assert set(model.sample(0).provenance["marginals"][-1]) <= {"operator", "type", "hour"}
    assert error(model, "operator", "type") < 0.1
    monkeypatch.setattr(measuring, "FINER_SHARE", 2.0)  # never
    assert error(fitted(), "operator", "type") > 0.2


def test_finer_groups_survive_a_file_and_meet_conditions(tmp_path: Path) -> None:
    model = fitted()
    model.save(tmp_path / "model")
    again = sg.TabularSynthesizer.load(tmp_path / "model")
    pairs = list(combinations(model.schema.sizes, 2))
    before, after = (one.sample(0).marginals(pairs) for one in (model, again))
    for pair in pairs:
        np.testing.assert_allclose(before[pair], after[pair])
        assert before[pair].sum() == pytest.approx(before["operator", "type"].sum())
    rows = again.sample(400, given={"operator": ["small 3", "small 4"]}).data
    assert set(rows["operator"]) == {"small 3", "small 4"}
    assert (rows["type"].str[1:].astype(int) == rows["operator"].str[6:].astype(int) + 2).mean() > 0.6


def test_scores_of_finer_tables_are_paid_for() -> None:
    """At a budget so small that no grid is needed, the squared μ of every draw is read off the noise: a
    record moves the three scores of pairs, and those of their finer tables."""
    frame, schema = operators(times=100)
    budget = sg.PrivacyBudget(0.02, 1e-9)
    noise = Ledgered(1, scores=6)
    model = sg.TabularSynthesizer(
        schema=schema, budget=budget, noise=noise, settings=sg.TableSettings(rounds=3)
    ).fit(frame)
    assert model.to_state()[0]["finer"] == {"operator": "operator+", "type": "type+"}
    whole = gaussian_mu(budget) ** 2
    assert whole * 0.99 < noise.squared <= whole


def test_the_errors_of_finer_tables_are_taken_against_noisy_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    measure = PrivacyFilter.measure_scores

    def watched(self: PrivacyFilter, scores: np.ndarray, fraction: float) -> np.ndarray:
        asked.append(scores)
        return measure(self, scores, fraction)

    monkeypatch.setattr(PrivacyFilter, "measure_scores", watched)
    fitted(rounds=3)
    (scores,) = asked
    assert scores.size == 6  # of three pairs, and of each with finer groups
    assert scores[0] > 5000  # operator x type
    assert 2000 < scores[3] < 3000  # the rows of small operators with the types of other small ones
    assert max(scores[4:]) < 500


def noisy_columns() -> tuple[measuring.MeasuredColumns, sg.Schema]:
    """The columns of the table as they are measured, which are merged without another look at it."""
    frame, schema = operators()
    codes = schema.encode(frame.to_dict("series"))
    exact = {
        (name,): np.bincount(codes[:, i], minlength=size)
        for i, (name, size) in enumerate(schema.sizes.items())
    }
    spending = PrivacyFilter(BUDGET, sg.PrivacyUnit.event(), sg.SeededNoise(0), gaussian=True)
    columns = measuring.MeasuredColumns(
        spending, schema.attributes, schema.rules, exact, max_cells=10**5, refined=True
    )
    columns.measure(dict.fromkeys(schema.sizes, 0.1))
    columns.exact = {}
    columns.merge_values(10_000, 30.0, measuring.CLARITY)
    columns.find_finer(10_000, 30.0)
    return columns, schema


def test_finer_groups_follow_from_noisy_columns_alone() -> None:
    columns, _ = noisy_columns()
    assert set(columns.finer) == {"operator+", "type+"}
    assert 3 < columns.groups["operator"].size < 15  # the rare ones in runs of their order
    assert columns.finer["operator+"].size > 20


def test_one_record_moves_what_coarse_groups_hide_by_at_most_one() -> None:
    columns, schema = noisy_columns()
    shape = tuple(schema.sizes[name] for name in ("operator", "type"))
    rng = np.random.default_rng(0)
    moves = []
    for _ in range(300):
        counts = rng.poisson(rng.choice([0.2, 3.0, 40.0]), shape)
        counts[rng.random(shape) < rng.random()] = 0
        seen = []
        for more in (0, 1):
            counts[tuple(rng.integers(0, shape))] += more

            def count(groups: Any, cliques: Any, counts: Any = counts) -> Any:
                table = np.zeros((groups["operator"].size, groups["type"].size), dtype=np.int64)
                np.add.at(table, (groups["operator"].group[:, None], groups["type"].group[None]), counts)
                return {clique: table.ravel() for clique in cliques}

            exact = columns.count(count, [("operator", "type")])
            assert exact["operator", "type"].sum() == exact["operator+", "type+"].sum() == counts.sum()
            seen.append(columns.hidden(("operator", "type"), exact, 10_000.0))
        moves.append(abs(seen[1] - seen[0]))
    assert max(moves) == 1  # and not more: the sum of absolute differences itself moves by nearly 2


def test_finer_groups_lie_in_the_coarse_ones() -> None:
    attribute = Attribute("operator", 40, False)
    noisy = np.array([900.0, 700.0, *np.linspace(1, 90, 38)])
    coarse = find_groups(attribute, noisy, least=300, total=noisy.sum(), keep=False)
    finer = finer_groups(attribute, coarse, noisy, least=50, total=noisy.sum(), worth=0.03)
    assert finer is not None
    assert np.array_equal(coarse_of(finer, coarse)[finer.group], coarse.group)
    held = np.bincount(finer.group)[finer.group]
    assert (held[noisy >= 50] == 1).all()
    assert finer.size > coarse.size + 10
    codes = Attribute("operator", 40, numbered=True)
    assert finer_groups(codes, coarse, noisy, least=50, total=noisy.sum(), worth=0.03) is None
    ordered = Attribute("age", 40, True)
    assert finer_groups(ordered, coarse, noisy, least=50, total=noisy.sum(), worth=0.03) is None
    assert finer_groups(attribute, coarse, noisy, least=50, total=noisy.sum(), worth=0.9) is None


def test_of_two_tables_of_one_pair_at_most_one_is_chosen() -> None:
    standing = [Standing(("a",), 10.0, 0.01)]
    coarse = Candidate(("a", "b"), 500.0, 20.0)
    finer = Candidate(("a+", "b"), 900.0, 40.0, ("a", "b"))
    useless = Candidate(("a+", "b"), 510.0, 4000.0, ("a", "b"))
    assert set(allocate([coarse, finer], standing, 1.0, room=lambda _, __: True)) == {("a",), ("a+", "b")}
    assert set(allocate([coarse, useless], standing, 1.0, room=lambda _, __: True)) == {("a",), ("a", "b")}
    narrow = allocate([coarse, finer], standing, 1.0, room=lambda _, clique: "a+" not in clique)
    assert set(narrow) == {("a",), ("a", "b")}
