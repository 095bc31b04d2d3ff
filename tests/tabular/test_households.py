"""Households with their persons: what is kept, what is exact, and what one household can change."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import synthgeo as sg
from synthgeo.privacy.filter import PrivacyFilter
from synthgeo.privacy.gaussian import gaussian_mu
from tabular import discovery
from tabular.conditional import table_of
from tabular.discovery import Unknown
from tabular.model.fitting import Model
from tabular.model.junction_tree import Layout
from tabular.model.sampling import sample_given

PARENT, CHILD = sg.simulate.household_schemas()
TABLES = sg.simulate.households(6_000, seed=1)


def made(seed: int = 3, epsilon: float = 1.0, delta: float = 1e-9, **options) -> sg.HouseholdSynthesizer:
    options = {"parent": PARENT, "child": CHILD, "max_children": 6, **options}
    return sg.HouseholdSynthesizer.from_options(
        budget=sg.PrivacyBudget(epsilon, delta), noise=sg.SeededNoise(seed), **options
    )


@pytest.fixture(scope="module")
def release() -> sg.results.HouseholdRelease:
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
        {"child": sg.Schema({"job": sg.Categorical("private")}), "delta": 0.0},
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
    declared = model.tables
    with_it, without = (
        model._read(*tables(homes), declared).codes(declared) for homes in ([*others, own], others)
    )
    for part, sizes, bound in (
        (0, declared.counted.sizes, 1),
        (1, {a.name: a.size for a in declared.attributes}, most),
    ):
        names = list(sizes)
        for clique in [(names[0],), tuple(names[-2:]), tuple(names)]:
            change = table_of(with_it[part], sizes, clique) - table_of(without[part], sizes, clique)
            assert np.abs(change).sum() <= bound
            assert (change >= 0).all()


FINDING = sg.Schema({"a": sg.Numeric(0, 4, bins="auto", integer=True), "b": sg.Categorical("private")})


@settings(max_examples=40, deadline=None)
@given(st.lists(persons, min_size=1, max_size=8), persons, st.integers(1, 3))
def test_one_household_moves_what_is_found_by_at_most_k_rows_and_k_values(others, own, most):
    """Bins: k rows in all. Values: each by one household, and at most k of them."""

    def unknown(homes):
        parents = pd.DataFrame({"household_id": range(len(homes)), "b": [f"p{len(h)}" for h in homes]})
        rows = [(i, a, f"w{b}") for i, home in enumerate(homes) for a, b in home]
        frame = pd.DataFrame(rows, columns=["household_id", "a", "b"])
        model = made(parent=sg.Schema({"b": FINDING.columns["b"]}), child=FINDING, max_children=most)
        trial = model.tables.trial()
        private = model._read(parents, frame.astype({"a": np.int64, "b": object}), trial)
        both = zip(model.tables.both, (private.parents, private.children), trial.both, strict=True)
        return [Unknown.of(*each) for each in both]

    for with_it, without, bound in zip(unknown([*others, own]), unknown(others), (1, most), strict=True):
        for name in with_it.numbers:
            held = [u.numbers[name] for u in (with_it, without)]
            counts = [pd.Series(found.weights[:, 0], found.keys) for found in held]
            assert counts[0].sub(counts[1], fill_value=0).abs().sum() <= bound
        held = [dict(zip(u.words["b"][0], u.words["b"][1].tolist(), strict=True)) for u in (with_it, without)]
        moved = {word: held[0].get(word, 0) - held[1].get(word, 0) for word in {*held[0], *held[1]}}
        assert set(moved.values()) <= {0, 1}
        assert sum(moved.values()) <= bound


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_what_is_found_is_paid_for_a_household(monkeypatch, delta):
    """The ε of each tree and list, k times over for children, and what the tables get make the budget."""
    asked, parts = [], []

    def edges(column, *_, epsilon, **__):
        asked.append(epsilon)
        return [column.low, column.high]

    def listed(column, *_, counts, delta, **__):
        asked.append((counts, delta))
        return column.with_values(["x"])

    monkeypatch.setattr(discovery, "tree_edges", edges)
    monkeypatch.setattr(discovery, "find_values", listed)
    part = PrivacyFilter.part

    def watched(self, fraction, *, bound=1):
        parts.append((fraction * self.whole, bound, self.kind))
        return part(self, fraction, bound=bound)

    monkeypatch.setattr(PrivacyFilter, "part", watched)
    free = {"candidates": ["x", "y"]} if not delta else {}
    tables = sg.Schema({"a": FINDING.columns["a"], "b": sg.Categorical("private", **free)})
    parents = pd.DataFrame({"household_id": range(30), "a": np.arange(30) % 4, "b": "x"})
    children = pd.DataFrame({"household_id": np.repeat(np.arange(30), 2), "a": np.arange(60) % 4, "b": "y"})
    made(epsilon=2.0, delta=delta, parent=tables, child=tables, max_children=3, iterations=5).fit(
        parents, children
    )
    (words, _), tree, (child_words, each), child_tree = asked
    assert (words.bound, child_words.bound) == (1, 3)
    assert child_tree == pytest.approx(tree / 3)
    total = sum(amount for amount, _, _ in parts)
    assert [bound for _, bound, _ in parts] == [1, 3]
    if not delta:
        for_finding = words.epsilon + tree + child_words.epsilon + 3 * child_tree
        assert child_words.epsilon == pytest.approx(words.epsilon)
        assert total + for_finding == pytest.approx(2.0)
        return
    assert each == pytest.approx(delta / 4)  # two lists share half of δ
    # A household moves one word of its own and at most three of its children's.
    assert 3 / child_words.sigma**2 == pytest.approx(1 / words.sigma**2)
    total += 1 / words.sigma**2 + 3 / child_words.sigma**2
    pure = (tree, 3 * child_tree)
    assert total == pytest.approx(gaussian_mu(sg.PrivacyBudget(2.0, delta / 2), pure) ** 2, rel=1e-6)


def test_bins_and_values_are_found_and_saved(tmp_path):
    """Frequent values of both tables come out, and none that fewer households hold than the threshold."""
    parents, children = TABLES
    rng = np.random.default_rng(1)
    shares = np.r_[[0.4, 0.3, 0.2], np.full(200, 0.1 / 200)]
    jobs = rng.choice([f"job {i}" for i in range(203)], len(children), p=shares)
    children = children.assign(job=jobs)
    parents = parents.assign(landlord=rng.choice(["city", "coop", "me"], len(parents), p=[0.6, 0.399, 0.001]))
    above = sg.Schema({**PARENT.columns, "rent": sg.Numeric(0, 3000, bins="auto", integer=True),
                       "landlord": sg.Categorical("private", other="rest")})  # fmt: skip
    below = sg.Schema({**CHILD.columns, "age": sg.Numeric(0, 100, bins="auto", integer=True),
                       "job": sg.Categorical("private", other="rest")})  # fmt: skip
    model = made(epsilon=8.0, delta=1e-6, parent=above, child=below, max_children=4, iterations=100)
    assert model.check(parents, children).ok
    model.fit(parents, children)
    assert model.parent.columns["landlord"].values == ("city", "coop", "rest")
    found = set(model.child.columns["job"].values)
    assert found >= {"job 0", "job 1", "job 2", "rest"}
    holders = children.groupby("job")["household_id"].nunique()
    assert max(holders.drop(["job 0", "job 1", "job 2"])) < 40
    assert len(found) == 4  # none of 200 rare ones
    assert model.child.columns["age"].bins > 8
    model.save(tmp_path / "model")
    for one in (model, sg.HouseholdSynthesizer.load(tmp_path / "model")):
        release = one.sample(2_000)
        made_jobs = release.children["job"].value_counts(normalize=True)
        assert abs(made_jobs["job 0"] - 0.4) < 0.05
        assert set(made_jobs.index) <= found
        assert abs(release.children["age"].median() - children["age"].median()) < 5
        assert abs((release.parents["rent"] == 0).mean() - (parents["rent"] == 0).mean()) < 0.05


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


def test_unattended_use_counts_a_household_once_by_its_own_rows():
    """A doubled parent used to refuse the whole fit. Other households must not decide what is kept."""
    parents, children = sg.simulate.households(150, seed=3)
    parent, child = sg.simulate.household_schemas()

    def fitted(parents, children, **reading):
        model = sg.HouseholdSynthesizer(
            parent=parent, child=child, max_children=3, budget=sg.PrivacyBudget(1.0),
            settings=sg.TableSettings(iterations=20), reading=sg.Reading(**reading), noise=sg.SeededNoise(5),
        )  # fmt: skip
        release = model.fit(parents, children).sample(40)
        return pd.concat([release.parents, release.children]).to_csv()

    other = parents[:1].assign(region=parents.region.iloc[1])
    doubled = pd.concat([parents[:1], other, parents[1:]])
    assert fitted(doubled, children, unattended=True) == fitted(parents, children)
    without = children[children.household_id != parents.household_id.iloc[0]]
    assert fitted(parents[1:], children, unattended=True) == fitted(parents[1:], without)
    for data in ((doubled, children), (parents[1:], children)):
        with pytest.raises(sg.InputError, match="parent table"):
            fitted(*data, bad_rows="drop")
