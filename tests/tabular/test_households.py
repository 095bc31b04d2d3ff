"""Households with their persons: what is kept, what is exact, and what one household can change."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import synthgeo as sg
from synthgeo.privacy.filter import PrivacyFilter
from tabular.conditional import table_of
from tabular.model.fitting import Model
from tabular.model.given import sample_given
from tabular.model.junction_tree import Layout

PARENT, CHILD = sg.simulate.household_schemas()
TABLES = sg.simulate.households(6_000, seed=1)


def made(seed: int = 3, epsilon: float = 1.0, delta: float = 1e-9, **options) -> sg.HouseholdSynthesizer:
    options = {"parent": PARENT, "child": CHILD, "max_children": 6, **options}
    return sg.HouseholdSynthesizer(
        budget=sg.PrivacyBudget(epsilon, delta), noise=sg.SeededNoise(seed), **options
    )


@pytest.fixture(scope="module")
def release() -> sg.HouseholdRelease:
    return made().fit(*TABLES).sample()


def joined(parents: pd.DataFrame, children: pd.DataFrame) -> pd.DataFrame:
    sizes = children.groupby("household_id").size().reindex(parents["household_id"], fill_value=0)
    number = parents[["household_id", *PARENT.columns]].assign(number=sizes.to_numpy())
    return children.merge(number, on="household_id").assign(age=lambda frame: frame["age"] // 5)


def distance(one: pd.DataFrame, other: pd.DataFrame, *names: str) -> float:
    a, b = (frame.value_counts(list(names), normalize=True) for frame in (one, other))
    return float(a.sub(b, fill_value=0).abs().sum() / 2)


def test_children_go_with_their_household(release):
    """Within bounds that a release with children drawn independently of households fails by far."""
    truth, found = joined(*TABLES), joined(release.parents, release.children)
    mixed = TABLES[1].assign(household_id=np.random.default_rng(0).permutation(TABLES[1]["household_id"]))
    redrawn = joined(TABLES[0], mixed)
    for pair, bound in {
        ("type", "relation"): 0.09,
        ("type", "age"): 0.18,
        ("tenure", "relation"): 0.055,
        ("number", "relation"): 0.12,
    }.items():
        assert distance(truth, found, *pair) < bound, pair
    for pair, bound in {
        ("type", "relation"): 0.3,
        ("type", "age"): 0.22,
        ("number", "relation"): 0.2,
    }.items():
        assert distance(truth, redrawn, *pair) > bound, pair


def test_numbers_of_children_are_kept_with_what_they_depend_on(release):
    truth = joined(*TABLES).drop_duplicates("household_id")
    found = joined(release.parents, release.children).drop_duplicates("household_id")
    assert distance(truth, found, "number") < 0.04
    assert distance(truth, found, "type", "number") < 0.06
    assert abs(len(release.children) / len(TABLES[1]) - 1) < 0.06


def test_first_in_their_place_come_heads(release):
    """One head for each household: what stands first in the child schema orders the children."""
    heads = release.children.query("relation == 'head'").groupby("household_id").size()
    with_children = (release.parents["children"] > 0).sum()
    assert (heads == 1).sum() > 0.85 * with_children


def test_keys_are_fresh_and_counts_exact(release):
    sizes = release.children.groupby("household_id").size()
    said = release.parents.set_index("household_id")["children"]
    assert said.index.is_unique
    assert sizes.reindex(said.index, fill_value=0).tolist() == said.tolist()
    assert said.max() <= 6
    assert not set(said.index) & set(TABLES[0]["household_id"])
    assert set(release.layers) == {"parents", "children"}


def test_a_release_is_judged_and_published_like_any_table(release, tmp_path):
    found = sg.evaluate(TABLES[0], release, ["tv_2way"], repeats=1).set_index("metric")
    assert found.loc["tv_2way", "value"] < 3 * found.loc["tv_2way", "floor"]
    model = made(epsilon=10_000.0, max_children=2, iterations=20)  # no ε that is taken may break anything
    model.noise = sg.SystemNoise()
    folder = (
        model.fit(*sg.simulate.households(60, seed=2)).sample(30).publish(tmp_path / "out", formats=("csv",))
    )
    assert {"parents.csv", "children.csv", "README.md"} <= {path.name for path in folder.iterdir()}


def test_conditions_rules_and_saving(tmp_path):
    ruled = sg.Schema(
        CHILD.columns,
        impossible=[{"relation": "child", "works": "yes"}, {"age": (0, 14), "works": "yes"}],
    )
    parents, children = TABLES
    broken = (children["works"] == "yes") & (children["relation"] == "child")
    children = children.assign(works=np.where(broken, "no", children["works"]))
    model = made(child=ruled, epsilon=2.0, max_children=4).fit(parents, children)
    model.save(tmp_path / "model")
    loaded = sg.HouseholdSynthesizer.load(tmp_path / "model")
    for one in (model, loaded):
        found = one.sample(400, given={"type": "family", "children": (3, 4), "rent": (0, 500)})
        assert (found.parents["type"] == "family").all()
        assert found.parents["children"].between(3, 4).all()
        assert found.parents["rent"].between(0, 500).all()
        rows = found.children
        assert not ((rows["works"] == "yes") & ((rows["relation"] == "child") | (rows["age"] <= 14))).any()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda p, c: (pd.concat([p, p.head(1)]), c), "earlier row"),
        (lambda p, c: (p.iloc[1:], c), "no row in the parent"),
        (lambda p, c: (p.head(0), c.head(0)), "no rows"),
        (lambda p, c: (p, c.assign(relation="cousin")), "relation"),
        (lambda p, c: (p.drop(columns="household_id"), c), "household_id"),
    ],
)
def test_tables_that_do_not_fit_are_refused_before_anything_is_spent(change, match):
    model = made()
    before = model.noise.state()
    with pytest.raises(sg.InputError, match=match):
        model.fit(*change(*(frame.copy() for frame in TABLES)))
    assert model.spent is None
    assert model.noise.state() == before


@pytest.mark.parametrize(
    "options",
    [
        {"max_children": 0},
        {"key": "region"},
        {"count": "rent"},
        {"parent_share": 1.0},
        {"child": sg.Schema({"age": sg.Numeric(0, 100, bins="auto")})},
    ],
)
def test_what_makes_no_sense_is_refused_at_once(options):
    with pytest.raises(sg.ConfigError):
        made(**options)


persons = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=5)


@settings(max_examples=40, deadline=None)
@given(st.lists(persons, min_size=1, max_size=8), persons, st.integers(1, 3))
def test_one_household_moves_one_parent_and_at_most_k_children(others, own, most):
    parent = sg.Schema({"p": sg.Categorical(range(3))})
    child = sg.Schema({"a": sg.Categorical(range(4)), "b": sg.Categorical(range(3))})

    def tables(homes):
        parents = pd.DataFrame({"household_id": range(len(homes)), "p": [len(h) % 3 for h in homes]})
        rows = [(i, a, b) for i, home in enumerate(homes) for a, b in home]
        return parents, pd.DataFrame(rows, columns=["household_id", "a", "b"]).astype(np.int64)

    model = made(parent=parent, child=child, max_children=most)
    with_it, without = (model._read(*tables(homes)) for homes in ([*others, own], others))
    for part, sizes, bound in (
        (0, model._parent.sizes, 1),
        (1, {a.name: a.size for a in model._attributes}, most),
    ):
        names = list(sizes)
        for clique in [(names[0],), tuple(names[-2:]), tuple(names)]:
            change = table_of(with_it[part], sizes, clique) - table_of(without[part], sizes, clique)
            assert np.abs(change).sum() <= bound
            assert (change >= 0).all()


def test_a_part_of_a_filter_is_divided_by_its_bound():
    event, noise = sg.PrivacyUnit.event(), sg.SeededNoise(1)
    pure = PrivacyFilter(sg.PrivacyBudget(2.0), event, noise)
    first, second = pure.part(0.25), pure.part(0.75, bound=3)
    assert first.whole == pytest.approx(0.5)
    assert second.whole == pytest.approx(0.5)
    assert pure.left == 0
    for gaussian in (False, True):
        whole = PrivacyFilter(sg.PrivacyBudget(1.0, 1e-6), event, noise, gaussian=gaussian)
        assert whole.part(0.5, bound=4).whole == pytest.approx(whole.whole / 32)
        with pytest.raises(sg.BudgetExhausted):
            whole.part(0.6)


def test_drawing_given_some_attributes_is_exact():
    """Against the joint table of a model with a loop. 60,000 draws; a deviation of 0.02 has chance < 1e-9."""
    rng = np.random.default_rng(2)
    sizes = {"a": 3, "b": 2, "c": 4, "d": 3}
    cliques = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")]
    potentials = {c: rng.normal(0, 1.2, [sizes[n] for n in c]) for c in cliques}
    model = Model(Layout(sizes, cliques), 1.0, potentials)
    joint = model.tree.marginal(tuple(sizes))
    given_codes = {"b": rng.integers(0, 2, 60_000), "d": rng.integers(0, 3, 60_000)}
    drawn = sample_given(model.tree, given_codes, rng)
    for b in range(2):
        for d in range(3):
            at = (given_codes["b"] == b) & (given_codes["d"] == d)
            expected = joint[:, b, :, d] / joint[:, b, :, d].sum()
            found = table_of({n: drawn[n][at] for n in "ac"}, sizes, ("a", "c")) / at.sum()
            assert np.abs(found.reshape(3, 4) - expected).max() < 0.03
