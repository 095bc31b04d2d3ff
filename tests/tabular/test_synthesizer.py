"""One table, released once."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from synthgeo.evaluation.tables import marginal_counts, table_scores, total_variation, train_on_synthetic
from synthgeo.privacy.accountant import approximate_dp_of_zcdp
from synthgeo.privacy.filter import PrivacyFilter
from synthgeo.schema.columns import Attribute
from tabular.bins import tree_edges
from tabular.model.value_groups import find_groups
from tests.tabular.conftest import small_table

EVENT = sg.PrivacyUnit.event()


def made(schema: sg.Schema, frame: Any, seed: int = 1, **options: Any) -> sg.TabularSynthesizer:
    given = {"budget": sg.PrivacyBudget(4.0), "iterations": 200, **options}
    return sg.TabularSynthesizer.from_options(schema=schema, noise=sg.SeededNoise(seed), **given).fit(frame)


@pytest.mark.parametrize("budget", [sg.PrivacyBudget(4.0), sg.PrivacyBudget(2.0, 1e-6)])
@pytest.mark.parametrize("selection", ["annealed", "mwem"])
def test_pairs_come_close(schema: sg.Schema, budget: sg.PrivacyBudget, selection: str) -> None:
    frame = small_table(4000)
    release = made(schema, frame, budget=budget, selection=selection).sample()
    scores = table_scores(frame, release)
    assert scores["tv_2way"] < 0.06
    independent = frame.assign(a=frame["a"].sample(frac=1, random_state=0).to_numpy())
    pairs = [("a", "b")]
    apart = total_variation(
        marginal_counts(frame, schema, pairs), marginal_counts(independent, schema, pairs)
    )
    assert apart["a", "b"] > 0.3  # what ignoring the dependence would cost
    assert release.provenance["budget"] == budget.to_dict()
    assert release.releasable is False


def test_a_workload_may_be_a_list_of_marginals(schema: sg.Schema) -> None:
    model = made(schema, small_table(2000), workload=[("b", "a")])
    assert [c for c in model.sample(0).provenance["marginals"] if len(c) > 1] == [["a", "b"]]
    with pytest.raises(sg.ConfigError, match="'z'"):
        made(schema, small_table(10), workload=[("a", "z")])
    with pytest.raises(sg.ConfigError, match="list of marginals"):
        made(schema, small_table(10), workload="ab")


def test_same_seed_same_table_whatever_numpy_does(schema: sg.Schema) -> None:
    frame = small_table(1000)
    np.random.seed(1)  # noqa: NPY002
    one = made(schema, frame).sample(500).data
    np.random.seed(2)  # noqa: NPY002
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    other = made(schema, frame).sample(500).data
    pd.testing.assert_frame_equal(one, other)
    assert np.array_equal(state, np.random.get_state()[1])  # noqa: NPY002
    assert not one.equals(made(schema, frame, seed=2).sample(500).data)


def test_conditions_are_met_exactly_and_change_what_depends_on_them(schema: sg.Schema) -> None:
    model = made(schema, small_table(5000))
    given = model.sample(2000, given={"a": "w"}).data
    assert set(given["a"]) == {"w"}
    assert given["b"].isin([0, 1]).mean() > 0.9  # b is a or a + 1
    narrow = model.sample(300, given={"c": (2, 4), "b": [1, 2]}).data
    assert narrow["c"].between(2, 4).all()
    assert set(narrow["b"]) <= {1, 2}
    with pytest.raises(sg.ConfigError, match="whole number"):
        model.sample(-1)


def test_a_second_fit_is_refused_and_a_refused_fit_costs_nothing(schema: sg.Schema) -> None:
    noise = sg.SeededNoise(3)
    synthesizer = sg.TabularSynthesizer(schema=schema, budget=sg.PrivacyBudget(1.0), noise=noise)
    before = noise.state()
    bad = small_table(100)
    bad.loc[40, "c"] = 11.0
    with pytest.raises(sg.InputError, match="'c', row 40"):
        synthesizer.fit(bad)
    with pytest.raises(sg.ConfigError, match="fit the synthesizer first"):
        synthesizer.sample(1)
    assert noise.state() == before
    assert synthesizer.spent is None
    synthesizer.fit(small_table(100))
    with pytest.raises(sg.BudgetExhausted):
        synthesizer.fit(small_table(100))


def test_a_ledger_that_would_refuse_is_asked_before_the_noise(schema: sg.Schema) -> None:
    class Refusing:
        def reserve(self, *entry: Any, **options: Any) -> None:
            raise sg.errors.LedgerError("cap reached")

    noise = sg.SeededNoise(3)
    before = noise.state()
    synthesizer = sg.TabularSynthesizer(
        schema=schema, budget=sg.PrivacyBudget(1.0), noise=noise, ledger=Refusing()
    )
    with pytest.raises(sg.errors.LedgerError):
        synthesizer.fit(small_table(50))
    assert noise.state() == before
    assert synthesizer.spent is None


def test_rules_hold_in_every_synthetic_row() -> None:
    rng = np.random.default_rng(0)
    schema = sg.Schema(
        {
            "sex": sg.Categorical(["F", "M"]),
            "pregnant": sg.Categorical([False, True]),
            "city": sg.Categorical(["LA", "SF", "NYC"]),
            "state": sg.Categorical(["CA", "NY"]),
        },
        impossible=[{"sex": "M", "pregnant": True}],
        depends=[("city", "state", {"LA": "CA", "SF": "CA", "NYC": "NY"})],
    )
    sex = rng.choice(["F", "M"], 800)
    city = rng.choice(["LA", "SF", "NYC"], 800)
    frame = pd.DataFrame(
        {
            "sex": sex,
            "pregnant": (sex == "F") & (rng.random(800) < 0.2),
            "city": city,
            "state": np.where(city == "NYC", "NY", "CA"),
        }
    )
    data = made(schema, frame, budget=sg.PrivacyBudget(0.5)).sample(3000).data
    assert not ((data["sex"] == "M") & data["pregnant"]).any()
    assert ((data["city"] == "NYC") == (data["state"] == "NY")).all()


def test_saved_and_loaded_it_draws_the_same(schema: sg.Schema, tmp_path: Path) -> None:
    model = made(schema, small_table(800))
    model.save(tmp_path / "model")
    again = sg.TabularSynthesizer.load(tmp_path / "model")
    pd.testing.assert_frame_equal(
        model.sample(200, given={"a": "x"}).data, again.sample(200, given={"a": "x"}).data
    )
    with pytest.raises(sg.BudgetExhausted):
        again.fit(small_table(10))


def test_users_with_many_rows_count_no_more_than_their_bound(schema: sg.Schema) -> None:
    unit = sg.PrivacyUnit.user(max_events=2, key="who")
    frame = small_table(1000).assign(who=np.repeat(["ann", "bob", "eve", "joe"], 250))
    model = made(schema, frame, unit=unit, budget=sg.PrivacyBudget(60.0))
    assert model.sample().total <= 12


def test_engines_agree(schema: sg.Schema, tmp_path: Path) -> None:
    dd = pytest.importorskip("dask.dataframe")
    frame = small_table(900)
    frame.iloc[:500].to_parquet(tmp_path / "1.parquet")
    frame.iloc[500:].to_parquet(tmp_path / "2.parquet")
    expected = made(schema, frame).sample(300).data
    pd.testing.assert_frame_equal(made(schema, str(tmp_path / "*.parquet")).sample(300).data, expected)
    pd.testing.assert_frame_equal(
        made(schema, dd.from_pandas(frame, npartitions=3)).sample(300).data, expected
    )


def test_bins_found_privately_are_fine_where_the_data_is() -> None:
    column = sg.Numeric(0, 256, bins="auto")
    values = (np.arange(10, 20) * 10_000).astype(np.int64)  # 10 to 19 at a resolution of 0.0001
    counts = np.full(10, 1000)
    edges = np.array(tree_edges(column, values, counts, epsilon=1.0, noise=sg.SeededNoise(1)))
    assert edges[0] == 0
    assert edges[-1] == 256
    assert ((edges >= 8) & (edges <= 24)).sum() > 8
    assert (edges > 64).sum() < 10

    schema = sg.Schema({"x": column, "y": sg.Categorical([0, 1])})
    rng = np.random.default_rng(0)
    x = rng.normal(60, 5, 3000).clip(0, 256)
    frame = pd.DataFrame({"x": x, "y": (x > 60).astype(int)})
    model = made(schema, frame)
    assert abs(model.sample().data["x"].mean() - 60) < 4
    assert not model.schema.pending_bins
    frame.loc[5, "y"] = 7
    fresh = sg.SeededNoise(4)
    before = fresh.state()
    with pytest.raises(sg.InputError, match="'y', row 5"):
        sg.TabularSynthesizer(schema=schema, budget=sg.PrivacyBudget(1.0), noise=fresh).fit(frame)
    assert fresh.state() == before


def test_bins_may_be_found_for_users_whose_rows_are_bounded() -> None:
    """One user holds nine rows of ten, all at one place: bounded, they must not draw the bins there."""
    schema = sg.Schema({"x": sg.Numeric(0, 256, bins="auto", missing=True), "y": sg.Categorical([0, 1])})
    rng = np.random.default_rng(0)
    many = pd.DataFrame({"x": 200.5, "y": 1, "who": "one"}, index=range(27_000))
    few = pd.DataFrame(
        {"x": rng.normal(60, 5, 3000), "y": 0, "who": np.repeat([f"u{i}" for i in range(1500)], 2)}
    )
    few.loc[::50, "x"] = np.nan
    frame = pd.concat([many, few], ignore_index=True)
    budget = sg.PrivacyBudget(8.0)
    bounded = made(schema, frame, unit=sg.PrivacyUnit.user(max_events=2, key="who"), budget=budget)
    edges = np.array(bounded.schema.columns["x"].edges)
    assert ((edges > 45) & (edges < 75)).sum() > 6
    assert ((edges > 190) & (edges < 210)).sum() <= 2
    assert abs(bounded.sample().total - 3002) < 150
    everybody = made(schema, frame, budget=budget)
    edges = np.array(everybody.schema.columns["x"].edges)
    assert ((edges > 190) & (edges < 210)).sum() > 4


def test_a_workload_too_large_for_the_finest_bins_is_refused_before_the_bins_are_paid_for() -> None:
    schema = sg.Schema({"x": sg.Numeric(0, 1, bins="auto"), "y": sg.Ordinal(range(300))})
    noise = sg.SeededNoise(5)
    before = noise.state()
    synthesizer = sg.TabularSynthesizer(
        schema=schema,
        budget=sg.PrivacyBudget(1.0),
        workload=[("x", "y")],
        settings=sg.TableSettings(max_cells=50_000),
        noise=noise,
    )
    frame = pd.DataFrame({"x": [0.5] * 10, "y": range(10)})
    with pytest.raises(sg.ConfigError, match="76,800 cells"):
        synthesizer.fit(frame)
    assert noise.state() == before
    assert synthesizer.schema is schema


def test_users_in_files_are_told_apart_by_their_canonical_ids(schema: sg.Schema, tmp_path: Path) -> None:
    """1 and 1.0 are one user in a CSV, 1e0 and 2 are others."""
    rows = small_table(1200)
    rows.assign(who=np.tile(["1", "1.0", "1e0", "2"], 300)).to_csv(tmp_path / "rows.csv", index=False)
    unit = sg.PrivacyUnit.user(max_events=100, key="who")
    options = {"unit": unit, "budget": sg.PrivacyBudget(2000.0)}
    assert abs(made(schema, str(tmp_path / "rows.csv"), **options).sample().total - 300) < 20
    stream = sg.TabularStream.from_options(
        schema=schema, noise=sg.SeededNoise(1), **{**options, "budget": sg.PrivacyBudget(4000.0)}
    )
    assert abs(stream.update(str(tmp_path / "rows.csv")).total - 150) < 20


def test_groups_hold_enough_rows_and_come_back_in_proportion() -> None:
    counts = np.array([100.0, 3, 2, 5, 400, 1, 2, 3, 250, 4])
    groups = find_groups(Attribute("x", 10, True), counts, least=50, total=counts.sum(), keep=False)
    sums = np.bincount(groups.group, weights=counts)
    assert (np.diff(groups.group) >= 0).all()
    assert sums.min() >= 50
    np.testing.assert_allclose(groups.members().sum(axis=1), 1)
    np.testing.assert_allclose(groups.share * sums[groups.group], counts, rtol=1e-9)
    rare = find_groups(Attribute("x", 10), counts, least=50, total=counts.sum(), keep=False)
    assert rare.size == 4
    assert find_groups(Attribute("x", 10), counts, least=50, total=counts.sum(), keep=True).size == 10


def test_rare_codes_are_merged_in_their_order_into_several_groups() -> None:
    counts = np.array([30.0, 30, 400, 30, 30, 30, 30, 5])
    groups = find_groups(Attribute("x", 8), counts, least=50, total=counts.sum(), keep=False)
    assert groups.group.tolist() == [0, 0, 3, 1, 1, 2, 2, 2]


def test_missing_values_and_zeros_are_merged_with_nothing() -> None:
    counts = np.array([30.0, 400, 30, 5, 2, 1])
    for attribute in (
        Attribute("x", 6, ordered=True, apart=(0, 5)),
        Attribute("x", 6, numbered=True, apart=(0, 5)),
    ):
        groups = find_groups(attribute, counts, least=50, total=counts.sum(), keep=False)
        held = np.bincount(groups.group)[groups.group]
        assert held[[0, 5]].tolist() == [1, 1]
        assert (groups.group[2:5] == groups.group[2]).all()


def test_codes_of_a_codebook_are_numbered_and_its_words_stay_apart() -> None:
    ages = sg.Categorical([*map(str, range(100)), "N"], missing=True).attributes("age")[0]
    assert ages.numbered
    assert not ages.ordered
    assert ages.apart == (100, 101)
    words = sg.Categorical(["a", "b", "7"]).attributes("word")[0]
    assert not words.numbered
    assert words.apart == ()
    assert not sg.Categorical([5, 1, 4, 2]).attributes("shuffled")[0].numbered
    assert sg.Ordinal(range(4), missing=True).attributes("x")[0].apart == (4,)
    assert sg.Numeric(0, 9, bins=3, missing=True).attributes("x")[0].apart == (3,)


def test_relations_survive_where_ages_are_declared_as_codes() -> None:
    """One group of all rare codes lost them: the relation's total variation was above 0.4."""
    rng = np.random.default_rng(3)
    age = rng.integers(0, 100, 8000)
    status = (age + rng.normal(0, 6, 8000)) // 20
    frame = pd.DataFrame({"age": age.astype(str), "status": np.clip(status, 0, 4).astype(int), "of": age % 2})
    decade = age // 10
    error = {}
    for name, column in (
        ("codes", sg.Categorical([str(i) for i in range(100)])),
        ("words", sg.Categorical([f"{i:02d} years" for i in range(100)])),
    ):
        given = frame if name == "codes" else frame.assign(age=[f"{i:02d} years" for i in age])
        schema = sg.Schema({"age": column, "status": sg.Categorical(range(5)), "of": sg.Categorical([0, 1])})
        budget = sg.PrivacyBudget(1.0, 1e-9)
        drawn = sg.TabularSynthesizer(schema=schema, budget=budget, noise=sg.SeededNoise(1)).fit(given)
        data = drawn.sample(8000).data
        found = data["age"].str[:2].str.strip().astype(int) // 10
        sides = [
            np.histogram2d(a, b.astype(int), bins=[np.arange(11), np.arange(6)])[0] / 8000
            for a, b in ((decade, frame["status"]), (found, data["status"]))
        ]
        error[name] = float(np.abs(sides[0] - sides[1]).sum() / 2)
    assert max(error.values()) < 0.12, error


@pytest.mark.parametrize("rare", [(2,), (0, 2), (4,)])
def test_rare_categories_come_back_as_themselves(rare: tuple[int, ...]) -> None:
    shares = np.array([3.0, 1.0, 2.0, 4.0, 2.0])
    shares[list(rare)] = 0.02
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"k": rng.choice(5, 20_000, p=shares / shares.sum()), "v": rng.integers(0, 2, 20_000)}
    )
    schema = sg.Schema({"k": sg.Categorical(range(5)), "v": sg.Categorical([0, 1])})
    data = made(schema, frame, budget=sg.PrivacyBudget(1.0)).sample().data
    found = data["k"].value_counts(normalize=True).reindex(range(5), fill_value=0).to_numpy()
    assert np.abs(found - shares / shares.sum()).sum() < 0.05


def test_a_filter_never_gives_more_than_it_holds() -> None:
    spending = PrivacyFilter(sg.PrivacyBudget(1.0), EVENT, sg.SeededNoise(1))
    spending.measure(np.zeros(3, dtype=np.int64), 0.7)
    with pytest.raises(sg.BudgetExhausted):
        spending.measure(np.zeros(3, dtype=np.int64), 0.4)
    spending.choose([0.0, 1.0], 1.0, spending.left)
    assert spending.left == 0


def test_a_filter_turns_the_budget_into_the_noise_it_promises() -> None:
    users = sg.PrivacyUnit.user(max_events=3)
    pure = PrivacyFilter(sg.PrivacyBudget(1.5), users, sg.SeededNoise(1))
    assert pure.whole == pytest.approx(0.5)
    mixed = PrivacyFilter(sg.PrivacyBudget(1.0, 1e-9), EVENT, sg.SeededNoise(1))
    assert approximate_dp_of_zcdp(mixed.whole, 1e-9) <= 1.0
    assert approximate_dp_of_zcdp(mixed.whole * 1.01, 1e-9) > 1.0
    assert PrivacyFilter(sg.PrivacyBudget(1.0, 1e-9), users, sg.SeededNoise(1)).whole == pytest.approx(
        mixed.whole / 9
    )
    assert mixed.sigma(0.5) == pytest.approx(math.sqrt(1 / mixed.whole))


@pytest.mark.statistical
@pytest.mark.parametrize("budget", [sg.PrivacyBudget(0.2), sg.PrivacyBudget(1.0, 1e-6)])
def test_the_noise_of_a_measurement_has_the_variance_it_states(budget: sg.PrivacyBudget) -> None:
    """40,000 draws: the sample variance is within 7 standard errors (flake below 1e-11); 20 % off is 15
    or more.
    """
    n = 40_000
    spending = PrivacyFilter(budget, EVENT, sg.SeededNoise(11))
    noisy = spending.measure(np.zeros(n, dtype=np.int64), 0.5)
    stated = spending.sigma(0.5) ** 2
    kurtosis = 6.0 if budget.is_pure else 3.0
    error = stated * math.sqrt((kurtosis - 1) / n)
    assert abs(noisy.var() - stated) < 7 * error
    assert abs(noisy.var() - 1.2 * stated) > 7 * error  # the twin: a scale 10 % too small must be seen


def test_training_on_synthetic_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    x = rng.integers(0, 6, 6000)
    frame = pd.DataFrame({"x": x, "y": (rng.random(6000) < np.where(x > 2, 0.9, 0.1)).astype(int)})
    schema = sg.Schema({"x": sg.Ordinal(range(6)), "y": sg.Categorical([0, 1])})
    data = made(schema, frame.iloc[:4000]).sample().data
    found = train_on_synthetic(frame.iloc[:4000], data, frame.iloc[4000:], schema=schema, target="y")
    assert found["kept"] > 0.9
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_info

    threads: list[int] = []
    fit = HistGradientBoostingClassifier.fit

    def watched(self: Any, *args: Any) -> Any:
        threads.extend(pool["num_threads"] for pool in threadpool_info())
        return fit(self, *args)

    monkeypatch.setattr(HistGradientBoostingClassifier, "fit", watched)
    noise = frame.assign(y=rng.integers(0, 2, 6000))
    assert (
        train_on_synthetic(frame.iloc[:4000], noise, frame.iloc[4000:], schema=schema, target="y")["kept"]
        < 0.9
    )
    assert set(threads) == {1}


@pytest.mark.realdata
@pytest.mark.slow
def test_adult_once(data_folder: Path) -> None:
    """The promise of the one-off release: pairs of all 14 columns at (1, 1e-9)."""
    import json

    folder = data_folder / "adult"
    sizes = json.loads((folder / "adult-domain.json").read_text())
    frame = pd.read_csv(folder / "adult.csv")
    schema = sg.Schema({name: sg.Ordinal(range(size)) for name, size in sizes.items()})
    release = made(schema, frame, budget=sg.PrivacyBudget(1.0, 1e-9)).sample()
    assert table_scores(frame, release)["tv_2way"] < 0.085
    assert abs(release.total - len(frame)) < 1000


@pytest.mark.parametrize(
    "wrong",
    [
        {"selection": "best"},
        {"rounds": 0},
        {"public_total": -5},
        {"budget": 1.0},
        {"noise": 3},
        {"unit": sg.PrivacyUnit.trajectory()},
        {"schema": {}},
    ],
)
def test_settings_that_make_no_sense_are_refused(schema: sg.Schema, wrong: dict[str, Any]) -> None:
    with pytest.raises(sg.ConfigError):
        sg.TabularSynthesizer.from_options(**{"schema": schema, "budget": sg.PrivacyBudget(1.0), **wrong})


def test_a_named_marginal_that_is_too_large_is_refused_and_a_merged_one_is_not() -> None:
    schema = sg.Schema({"x": sg.Numeric(0, 1, bins=3200), "y": sg.Numeric(0, 1, bins=3200)})
    workload = sg.all_k_way(schema, 2)
    with pytest.raises(sg.ConfigError, match=r"\('x', 'y'\) alone has 10,240,000 cells"):
        sg.TabularSynthesizer(schema=schema, budget=sg.PrivacyBudget(1.0), workload=workload)
    with pytest.raises(sg.ConfigError, match="at most 10 cells"):
        sg.all_k_way(schema, 2, max_cells=10)
    rng = np.random.default_rng(0)
    x = rng.random(2000)
    data = made(schema, pd.DataFrame({"x": x, "y": x}), budget=sg.PrivacyBudget(50.0)).sample().data
    assert np.corrcoef(data["x"], data["y"])[0, 1] > 0.5
