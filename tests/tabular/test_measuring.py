"""What is measured of a one-off table: how the budget is divided, what a record moves, what it adapts to."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import synthgeo as sg
import synthgeo.privacy.filter
import tabular.once
from synthgeo.evaluation.tables import table_scores
from synthgeo.privacy.filter import PrivacyFilter
from synthgeo.privacy.gaussian import gaussian_mu, noisy_table
from synthgeo.privacy.noise import contrast
from tabular import measuring
from tabular.allocation import Candidate, Standing, allocate, divide
from tabular.model.fitting import Measurement, fit, shrunk
from tabular.model.junction_tree import Layout
from tabular.model.mirror_descent import interaction_of
from tabular.rounds import _Rounds
from tabular.workload import Workload

BUDGET = sg.PrivacyBudget(1.0, 1e-9)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(1, 1e4), st.floats(0, 2)), min_size=1, max_size=8), st.floats(0.1, 10))
def test_no_other_division_has_less_noise(items: list[tuple[float, float]], budget: float) -> None:
    sizes, known = np.array(items).T

    def noise(added: np.ndarray) -> float:
        return float((sizes / np.sqrt(known + added + 1e-300)).sum())

    best = divide(sizes, known, budget)
    assert best.min() >= 0
    assert best.sum() == pytest.approx(budget)
    rng = np.random.default_rng(0)
    for _ in range(30):
        other = rng.dirichlet(np.ones(len(items))) * budget
        mixed = 0.9 * best + 0.1 * other
        assert noise(best) <= noise(mixed) * (1 + 1e-9)


def test_what_costs_more_noise_than_it_is_worth_is_left_out() -> None:
    standing = [Standing(("a",), 10.0, 0.01)]
    big = Candidate(("a", "b"), 5000.0, 100.0)
    small = Candidate(("a", "c"), 50.0, 100.0)
    bought = allocate([big, small], standing, 1.0, room=lambda _, __: True)
    assert set(bought) == {("a",), ("a", "b")}
    assert sum(bought.values()) == pytest.approx(1.0, rel=1e-3)
    assert ("a", "c") in allocate([big, small], standing, 1e4, room=lambda _, __: True)
    assert set(allocate([big, small], standing, 1e4, room=lambda _, __: False)) == {("a",)}
    assert len(allocate([big, small], standing, 1e4, room=lambda _, __: True, most=1)) == 2


class Ledgered(sg.SeededNoise):
    """Seeded noise that adds up the squared μ of what one record costs: in one cell of each column and table,
    and in each of the ``scores``. For noise so wide that the grid has one step per record."""

    def __init__(self, seed: int, scores: int) -> None:
        super().__init__(seed)
        self.scores = scores
        self.squared = 0.0

    def discrete_gaussian(self, sigma: float, size: int) -> Any:
        assert sigma >= 128
        self.squared += (size if size == self.scores else 1) / sigma**2
        return super().discrete_gaussian(sigma, size)

    def contrast_gaussian(self, sigma: float, shape: tuple[int, ...]) -> Any:
        assert sigma >= 128
        cell = np.zeros(shape, dtype=np.int64)
        cell[(0,) * len(shape)] = 1
        self.squared += float(((contrast(cell) / cell.size) ** 2).sum()) / sigma**2
        return contrast(sg.SeededNoise.discrete_gaussian(self, sigma, cell.size).reshape(shape))


def table(rows: int, columns: int = 6, values: int = 4, seed: int = 0) -> tuple[pd.DataFrame, sg.Schema]:
    """A chain of columns, each like the one before."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, values, (rows, columns))
    for i in range(1, columns):
        same = rng.random(rows) < 0.6
        codes[same, i] = codes[same, i - 1]
    names = [f"c{i}" for i in range(columns)]
    return pd.DataFrame(codes, columns=names), sg.Schema({n: sg.Categorical(range(values)) for n in names})


def test_all_that_is_drawn_adds_up_to_the_budget() -> None:
    """At a budget so small that no grid is needed, the squared μ of every draw is read off the noise."""
    frame, schema = table(100_000)
    budget = sg.PrivacyBudget(0.02, 1e-9)
    noise = Ledgered(1, scores=15)
    model = sg.TabularSynthesizer(schema=schema, budget=budget, noise=noise).fit(frame)
    assert any(len(clique) > 1 for clique in model.sample(0).provenance["marginals"])
    whole = gaussian_mu(budget) ** 2
    assert noise.squared == pytest.approx(whole, rel=5e-3)
    assert noise.squared <= whole


def test_under_pure_privacy_all_that_is_drawn_adds_up_to_epsilon() -> None:
    class Watched(sg.SeededNoise):
        spent = 0.0

        def discrete_laplace(self, scale: float, size: int) -> Any:
            self.spent += (15 if size == 15 else 1) / scale  # a record moves all 15 scores
            return super().discrete_laplace(scale, size)

    frame, schema = table(20_000)
    noise = Watched(1)
    model = sg.TabularSynthesizer(schema=schema, budget=sg.PrivacyBudget(0.7), noise=noise).fit(frame)
    assert model.sample(0).provenance["selection"] == "scores"
    assert 0.7 * (1 - 1e-9) < noise.spent <= 0.7


@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_more_rows_or_more_budget_measure_more_marginals(delta: float) -> None:
    def pairs(rows: int, epsilon: float) -> int:
        frame, schema = table(rows)
        budget = sg.PrivacyBudget(epsilon, delta)
        model = sg.TabularSynthesizer(schema=schema, budget=budget, noise=sg.SeededNoise(2)).fit(frame)
        return sum(len(clique) == 2 for clique in model.sample(0).provenance["marginals"])

    assert pairs(300, 0.1) < pairs(20_000, 1.0)
    assert pairs(20_000, 1.0) >= 5
    assert pairs(100_000, 8.0) == 15  # all of them


def test_yes_no_columns_are_measured_in_all_pairs() -> None:
    frame, schema = table(20_000, columns=8, values=2)
    model = sg.TabularSynthesizer(schema=schema, budget=BUDGET, noise=sg.SeededNoise(1)).fit(frame)
    release = model.sample()
    assert sum(len(c) == 2 for c in release.provenance["marginals"]) == 28
    assert table_scores(frame, release)["tv_2way"] < 0.006


def test_everything_is_measured_without_scores_where_noise_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns, pairs and triples of yes/no columns: the squared μ of all tables adds up to the budget."""
    spent: list[tuple[tuple[int, ...], float]] = []

    def watched(table: Any, sigma: float, noise: Any, *, interaction: bool = False) -> Any:
        cell = np.zeros(table.shape, dtype=np.int64)
        cell[(0,) * cell.ndim] = 1
        moved = contrast(cell) / cell.size if interaction else cell
        spent.append((table.shape, float((moved**2).sum()) / sigma**2))
        return noisy_table(table, sigma, noise, interaction=interaction)

    monkeypatch.setattr(synthgeo.privacy.filter, "noisy_table", watched)
    frame, schema = table(20_000, columns=8, values=2)
    model = sg.TabularSynthesizer(schema=schema, budget=BUDGET, noise=sg.SeededNoise(1)).fit(frame)
    assert [len(shape) for shape, _ in spent if shape[0] == 2] == [1] * 16 + [2] * 28 + [3] * 56
    assert not any(shape == (28,) for shape, _ in spent)  # no scores
    whole = gaussian_mu(BUDGET) ** 2
    assert whole * (1 - 1e-6) < sum(cost for _, cost in spent) <= whole
    assert len(model.sample(0).provenance["marginals"]) == 8 + 28 + 56


def test_triples_that_pairs_do_not_tell_are_kept_where_pairs_are_done() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, (20_000, 6))
    codes[:, 2] = codes[:, 0] ^ codes[:, 1] ^ (rng.random(20_000) < 0.1)  # every pair is independent
    frame = pd.DataFrame(codes, columns=list("abcdef"))
    schema = sg.Schema({name: sg.Categorical([0, 1]) for name in "abcdef"})

    def kept(rows: int) -> float:
        model = sg.TabularSynthesizer(schema=schema, budget=BUDGET, noise=sg.SeededNoise(1))
        data = model.fit(frame[:rows]).sample(4000).data
        return float(((data["a"] ^ data["b"]) == data["c"]).mean())

    assert kept(20_000) > 0.85
    assert abs(kept(300) - 0.5) < 0.1  # so few rows need their budget for pairs


def test_noise_in_triples_is_taken_back_and_what_stands_out_of_it_is_kept() -> None:
    rng, sizes = np.random.default_rng(1), dict.fromkeys("abcdef", 2)
    layout = Layout(sizes, list(combinations("abcdef", 2)))
    model = fit(layout, [Measurement(("a",), np.array([5000.0, 5000.0]), 1.0)], total=1e4)
    triples = list(combinations("abcdef", 3))
    noise = {c: interaction_of(rng.normal(0, 50, (2, 2, 2))).ravel() for c in triples}
    alone = shrunk([Measurement(c, noise[c], 50.0, interaction=True) for c in triples], model)
    assert sum(float((m.values**2).sum()) for m in alone) < 0.3 * sum(
        float((x**2).sum()) for x in noise.values()
    )
    sign = np.array([1, -1, -1, 1, -1, 1, 1, -1]) * 1000.0
    clear = shrunk([Measurement(c, sign + noise[c], 50.0, interaction=True) for c in triples], model)
    for m in clear:
        np.testing.assert_allclose(m.values, sign, atol=150)


@pytest.mark.parametrize("budget", [BUDGET, sg.PrivacyBudget(2.0)])
def test_marginals_of_three_columns_may_be_asked_for(budget: sg.PrivacyBudget) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, (2, 30_000))
    frame = pd.DataFrame({"a": a, "b": b, "c": a ^ b})  # every pair is independent
    schema = sg.Schema({name: sg.Categorical([0, 1]) for name in "abc"})
    model = sg.TabularSynthesizer(
        schema=schema, budget=budget, workload=[("a", "b", "c")], noise=sg.SeededNoise(1)
    )
    data = model.fit(frame).sample().data
    assert ((data["a"] ^ data["b"]) == data["c"]).mean() > 0.97


def test_many_columns_are_chosen_instead_of_scored() -> None:
    frame, schema = table(4000, columns=40, values=3)
    budget = sg.PrivacyBudget(2.0, 1e-6)
    release = (
        sg.TabularSynthesizer(
            schema=schema, budget=budget, noise=sg.SeededNoise(1), settings=sg.TableSettings(iterations=100)
        )
        .fit(frame)
        .sample()
    )
    assert release.provenance["selection"] == "choice"
    pairs = [tuple(c) for c in release.provenance["marginals"] if len(c) > 1]
    neighbours = [pair for pair in pairs if abs(int(pair[0][1:]) - int(pair[1][1:])) == 1]
    assert len(neighbours) >= 35  # of 39


@pytest.mark.parametrize("one_to_one", [True, False])
def test_what_a_rule_tells_is_not_measured(one_to_one: bool) -> None:
    """A pair that a rule fixes; and the pairs of a column that is another one under a different name."""
    rng = np.random.default_rng(0)
    code = rng.integers(0, 4, 20_000)
    image = {i: f"n{i if one_to_one else i // 2}" for i in range(4)}
    frame = pd.DataFrame(
        {"code": code, "name": [image[i] for i in code], "kind": (code + (rng.random(20_000) < 0.3)) % 4}
    )
    columns = {
        "code": sg.Categorical(range(4)),
        "name": sg.Categorical(sorted(set(image.values()))),
        "kind": sg.Categorical(range(4)),
    }
    for budget in (BUDGET, sg.PrivacyBudget(1.0)):
        schema = sg.Schema(columns, depends=[("code", "name", image)])
        release = (
            sg.TabularSynthesizer(schema=schema, budget=budget, noise=sg.SeededNoise(1)).fit(frame).sample()
        )
        measured = {tuple(c) for c in release.provenance["marginals"] if len(c) > 1}
        assert ("code", "kind") in measured
        assert ("code", "name") not in measured
        assert not (one_to_one and ("name", "kind") in measured)
        assert (release.data["name"] == release.data["code"].map(image)).all()
        assert table_scores(frame, release)["tv_2way"] < 0.02


def test_rounds_bound_how_many_marginals_are_measured() -> None:
    frame, schema = table(5000)
    for budget in (BUDGET, sg.PrivacyBudget(1.0)):
        model = sg.TabularSynthesizer(
            schema=schema, budget=budget, settings=sg.TableSettings(rounds=3), noise=sg.SeededNoise(1)
        ).fit(frame)
        assert sum(len(c) > 1 for c in model.sample(0).provenance["marginals"]) <= 3


def test_a_table_of_one_column_spends_everything_on_it() -> None:
    frame, schema = table(2000, columns=1)
    for budget in (BUDGET, sg.PrivacyBudget(1.0)):
        model = sg.TabularSynthesizer(schema=schema, budget=budget, noise=sg.SeededNoise(1)).fit(frame)
        (sigma,) = model.sample(0).expected_error()["standard_error_per_cell"]
        expected = math.sqrt(2) if budget.is_pure else 1 / gaussian_mu(budget)
        assert sigma == pytest.approx(expected, rel=0.1)


@pytest.mark.slow
def test_the_estimator_of_mbi_may_be_chosen() -> None:
    frame, schema = table(5000, columns=4)
    options: dict[str, Any] = {"schema": schema, "budget": BUDGET, "iterations": 400}
    own, theirs = (
        sg.TabularSynthesizer.from_options(**options, estimator=name, noise=sg.SeededNoise(3))
        .fit(frame)
        .sample(0)
        for name in ("own", "mbi")
    )
    for pair in combinations(schema.sizes, 2):
        one, other = (release.marginals([pair])[pair] / 5000 for release in (own, theirs))
        assert 0.5 * np.abs(one - other).sum() < 0.02


@pytest.mark.parametrize("selection", ["auto", "mwem", "annealed"])
def test_choices_have_the_sensitivity_of_the_largest_weight(monkeypatch, selection):
    """Among too many marginals to score them all, and in rounds, the exponential mechanism picks."""
    asked, choose = [], PrivacyFilter.choose
    drawn, measure = [], PrivacyFilter.measure
    kept, add = [], _Rounds._add

    def watched(self, scores, sensitivity, fraction):
        asked.append(sensitivity)
        return choose(self, scores, sensitivity, fraction)

    def measured(self, counts, fraction):
        drawn.append(measure(self, counts, fraction))
        return drawn[-1]

    def noted(self, fresh):
        kept.append(fresh.values)
        add(self, fresh)

    monkeypatch.setattr(PrivacyFilter, "measure", measured)
    monkeypatch.setattr(_Rounds, "_add", noted)
    monkeypatch.setattr(tabular.once, "few_enough", lambda *_: False)
    monkeypatch.setattr(PrivacyFilter, "choose", watched)
    schema = sg.Schema({name: sg.Categorical(["0", "1"]) for name in "abc"})
    workload = Workload((("a", "b"), ("b", "c")), (1.0, 3.0))
    made = sg.TabularSynthesizer(
        schema=schema,
        budget=sg.PrivacyBudget(4.0),
        workload=workload,
        settings=sg.TableSettings(selection=selection, iterations=5),
        noise=sg.SeededNoise(1),
    )
    made.fit({name: ["0", "1"] * 200 for name in "abc"})
    assert asked[0] == 3.0
    if selection != "auto":
        assert set(asked) == {3.0}
        assert kept  # and the numbers that rounds keep are those that were drawn
        assert all(any(values is one for one in drawn) for values in kept)


def test_a_model_is_given_what_was_measured_of_pairs_and_no_count(monkeypatch):
    """Under δ pairs are measured by their interaction: those numbers, bit for bit, are all that is kept."""
    drawn, kept = [], []
    measure, made = PrivacyFilter.measure_interaction, measuring.Measurement

    def measured(self, counts, fraction):
        drawn.append(measure(self, counts, fraction))
        return drawn[-1]

    def noted(*given, interaction=False, **more):
        found = made(*given, interaction=interaction, **more)
        if interaction:
            kept.append(found.values)
        return found

    monkeypatch.setattr(PrivacyFilter, "measure_interaction", measured)
    monkeypatch.setattr(measuring, "Measurement", noted)
    rows = pd.DataFrame({name: ["x", "y", "z"] * 400 for name in "abc"})
    schema = sg.Schema({name: sg.Categorical(["x", "y", "z"]) for name in "abc"})
    budget = sg.PrivacyBudget(1.0, 1e-6)
    sg.TabularSynthesizer(
        schema=schema,
        budget=budget,
        settings=sg.TableSettings(iterations=5),
        noise=sg.SeededNoise(1),
        progress=False,
    ).fit(rows)
    assert len(kept) == len(drawn) > 1
    for one, other in zip(kept, drawn, strict=True):
        np.testing.assert_array_equal(one, other.ravel())


def test_under_pure_privacy_few_rows_are_not_spent_on_scores_that_drown() -> None:
    def way(rows: int) -> str:
        frame, schema = table(rows)
        budget = sg.PrivacyBudget(1.0)
        model = sg.TabularSynthesizer(schema=schema, budget=budget, noise=sg.SeededNoise(2)).fit(frame)
        return str(model.sample(0).provenance["selection"])

    assert way(200) == "columns"  # fifteen scores of at most 400, with noise of scale 150
    assert way(5000) == "scores"
