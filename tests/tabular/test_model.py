"""The fit, the tree of tables, marginals of a model, samples, and the size limit."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import synthgeo as sg
from synthgeo.schema import Rule
from tabular.model.fitting import Measurement, fit, project_to_simplex
from tabular.model.junction_tree import Layout, MessagePlan, check_size, room_for, spread
from tabular.model.mirror_descent import NodeTables, Objective, Target, accelerated, interaction_of
from tabular.model.sampling import Tree

SIZES = {"a": 3, "b": 2, "c": 4, "d": 2, "e": 3}
# A tree, loops with separators of two attributes, parts that do not touch.
SHAPES = [
    [("a", "b"), ("b", "c"), ("c", "d"), ("a", "c")],
    [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("a", "e"), ("b", "e")],
    [("a", "e"), ("b", "d")],
    [("a", "b", "c"), ("b", "c", "d"), ("c", "d", "e"), ("a", "c")],
]


def random_tree(seed: int, rules: tuple[Rule, ...] = ()) -> tuple[Tree, np.ndarray]:
    """A calibrated tree and the joint distribution it stands for, by brute force."""
    rng = np.random.default_rng(seed)
    layout = Layout(SIZES, SHAPES[seed % len(SHAPES)], rules)
    logs = [(clique, rng.normal(size=[SIZES[n] for n in clique])) for clique in layout.cliques]
    joint = np.zeros(list(SIZES.values()))
    names = list(SIZES)
    for clique, table in logs:
        joint = joint + table.reshape([SIZES[n] if n in clique else 1 for n in names])
    joint = np.exp(joint)
    for rule in rules:
        joint = joint * rule.allowed.reshape([SIZES[n] if n in rule.attributes else 1 for n in names])
    with np.errstate(divide="ignore"):
        fixed = [(rule.attributes, np.log(rule.allowed.astype(float))) for rule in rules]
    tree = Tree(SIZES, layout.nodes, layout.parent).calibrate([*logs, *fixed])
    return tree, joint / joint.sum()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_every_marginal_of_the_tree_is_that_of_the_joint(seed: int, with_rule: bool) -> None:
    allowed = np.ones((3, 4), dtype=bool)
    allowed[0, 1:3] = False
    tree, joint = random_tree(seed, (Rule(("a", "c"), allowed),) if with_rule else ())
    names = list(SIZES)
    for width in (1, 2, 3, 4):
        cliques = list(combinations(names, width))
        for clique, table in tree.marginals(cliques).items():
            other = tuple(i for i, name in enumerate(names) if name not in clique)
            np.testing.assert_allclose(table, joint.sum(axis=other), atol=1e-12)
    turned = tree.marginal(("d", "a"))
    np.testing.assert_allclose(turned, tree.marginal(("a", "d")).T, atol=1e-12)


def test_factors_beyond_the_range_of_numbers_give_the_same_beliefs() -> None:
    """Two tables that all but contradict each other: what is left after 0 * 0 must still be right."""
    sizes = {"a": 2, "b": 2, "c": 2}
    plan = MessagePlan(sizes, [("a", "b"), ("b", "c")], [-1, 0])
    far = [np.array([[0.0, -900.0], [-1.0, -901.0]]), np.array([[-1500.0, -1500.0], [0.0, 1.0]])]
    for i, found in enumerate(plan.beliefs(far)):
        near = [np.array([[0.0, 0.0], [-1.0, -1.0]]), np.array([[-600.0, -600.0], [0.0, 1.0]])]
        np.testing.assert_allclose(found, plan.beliefs(near)[i], atol=1e-12)
    rng = np.random.default_rng(0)
    mild = [rng.normal(0, 3, (2, 2)), rng.normal(0, 3, (2, 2))]
    for found, expected in zip(plan.log_beliefs(mild), plan.beliefs(mild), strict=True):
        np.testing.assert_allclose(np.exp(found), expected, atol=1e-12)
    closed = [np.array([[0.0, -np.inf], [0.0, -np.inf]]), np.array([[-np.inf, -np.inf], [0.0, 0.0]])]
    assert not any(table.any() for table in plan.beliefs(closed))


def test_a_quotient_beyond_the_range_of_numbers_is_no_warning() -> None:
    plan = MessagePlan(dict.fromkeys("abcd", 2), [("c", "d"), ("b", "c"), ("a", "b")], [-1, 0, 1])
    logs = [[[-735.0, 0], [-480, -640]], [[0, 0], [-744, -480]], [[-744, -480], [-744, 0]]]
    tables = [np.array(table) for table in logs]
    for found, expected in zip(plan.beliefs(tables), plan.log_beliefs(tables), strict=True):
        np.testing.assert_allclose(found, np.exp(expected), atol=1e-12)


def test_samples_follow_the_model_closer_than_independent_draws_would() -> None:
    tree, joint = random_tree(3)
    rows = 20_000
    drawn = tree.sample(rows, np.random.default_rng(0))
    codes = np.column_stack([drawn[name] for name in SIZES])
    for pair in combinations(range(len(SIZES)), 2):
        shape = [list(SIZES.values())[i] for i in pair]
        found = (
            np.bincount(codes[:, pair[0]] * shape[1] + codes[:, pair[1]], minlength=shape[0] * shape[1])
            / rows
        )
        other = tuple(i for i in range(len(SIZES)) if i not in pair)
        assert 0.5 * np.abs(found - joint.sum(axis=other).ravel()).sum() < 0.01


def measured(seed: int = 0, sigma: float = 2.0) -> tuple[Layout, list[Measurement]]:
    rng = np.random.default_rng(seed)
    joint = rng.dirichlet(np.full(3 * 2 * 4 * 2 * 3, 0.5)).reshape(list(SIZES.values())) * 5000
    names = list(SIZES)
    layout = Layout(SIZES, [*((n,) for n in names), ("a", "b"), ("b", "c"), ("a", "c"), ("c", "d")])
    out = []
    for clique in layout.cliques:
        other = tuple(i for i, name in enumerate(names) if name not in clique)
        values = joint.sum(axis=other).ravel()
        out.append(Measurement(clique, values + rng.normal(0, sigma, values.size), sigma))
    return layout, out


@pytest.mark.parametrize(
    "wanted", [[("c", "d")], [("a", "b")], [("a",), ("d", "e")], [("a", "b"), ("c", "d")]]
)
@pytest.mark.parametrize("with_rule", [False, True])
def test_tables_without_a_measurement_may_be_left_out_of_the_loop(
    wanted: list[tuple[str, ...]], with_rule: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fit works on the part of the tree between the measured marginals: on all of it, it finds the
    same."""
    rules = [Rule(("b", "c"), np.array([[True, False, True, True], [True, True, True, False]]))] * with_rule
    _, found = measured()
    extra = Measurement(("d", "e"), np.array([900.0, 700, 400, 1500, 800, 700]), 3.0)
    layout = Layout(SIZES, [*(m.clique for m in found), ("d", "e")], rules)
    start = fit(layout, [*found, extra], total=5000, iterations=30)
    fresh = [m._replace(values=m.values[::-1].copy()) for m in [*found, extra] if m.clique in wanted]
    plain = fit(layout, fresh, total=5000, start=start, iterations=40)
    monkeypatch.setattr(MessagePlan, "between", lambda plan, homes: list(range(len(plan.nodes))))
    whole = fit(layout, fresh, total=5000, start=start, iterations=40)
    for clique in combinations(SIZES, 2):
        np.testing.assert_allclose(plain.tree.marginal(clique), whole.tree.marginal(clique), atol=1e-9)
    moved = np.abs(plain.tree.marginal(wanted[0]) - start.tree.marginal(wanted[0])).max()
    assert moved > 0.01


@pytest.mark.slow
def test_the_fit_agrees_with_the_estimator_of_mbi() -> None:
    """Same optimum as mbi's own mirror descent, which shares none of our code; interactions among them."""
    layout, found = measured()
    rng = np.random.default_rng(5)
    alone = interaction_of(rng.normal(0, 20, (2, 3))).ravel()
    found = [*found, Measurement(("d", "e"), alone, 3.0, interaction=True)]
    layout = Layout(SIZES, [*layout.cliques, ("d", "e")])
    own = fit(layout, found, total=5000, iterations=3000, tolerance=0.0)
    theirs = fit(layout, found, total=5000, iterations=3000, estimator="mbi")
    for clique in [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]:
        np.testing.assert_allclose(own.tree.marginal(clique), theirs.tree.marginal(clique), atol=2e-4)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_tables_by_halves_are_tables_one_by_one(seed: int) -> None:
    """What a node sums and reads by products of matrices, against broadcasting and sums."""
    rng = np.random.default_rng(seed)
    names = tuple("abcdef"[: rng.integers(1, 7)])
    sizes = {name: int(rng.integers(1, 6)) for name in names}
    every = [c for width in (1, 2, 3) for c in combinations(names, width)]
    cliques = [c for c in every if rng.random() < 0.7]
    potentials = {c: rng.normal(size=[sizes[name] for name in c]) for c in cliques}
    ends = np.cumsum([0, *(values.size for values in potentials.values())]).tolist()
    where = {c: slice(*ends) for c, ends in zip(cliques, pairwise(ends), strict=True)}
    node = NodeTables(names, sizes, where)
    table = rng.random([sizes[name] for name in names])
    total = np.zeros(table.shape)
    for clique, values in potentials.items():
        total = total + spread(values, clique, names)
    flat = np.concatenate([np.zeros(0), *(values.ravel() for values in potentials.values())])
    np.testing.assert_allclose(node.assemble(flat), total, atol=1e-12)
    found = np.full(ends[-1], np.nan)
    node.gather(table, found)
    for clique, place in where.items():
        axes = tuple(i for i, name in enumerate(names) if name not in clique)
        np.testing.assert_allclose(found[place], table.sum(axis=axes).ravel(), atol=1e-12)


def test_momentum_comes_further_than_plain_descent() -> None:
    """300 passes with momentum against 300 without, on a loop of columns that hang together closely."""
    rng = np.random.default_rng(3)
    hidden = rng.integers(0, 12, 20_000)
    codes = {name: (hidden + (rng.random(hidden.size) < 0.2) * 3) % 12 for name in "pqrst"}
    pairs = [("p", "q"), ("q", "r"), ("r", "s"), ("s", "t"), ("p", "t")]
    layout = Layout(dict.fromkeys("pqrst", 12), pairs)
    plan = MessagePlan(layout.sizes, layout.nodes, layout.parent)
    targets = {}
    for a, b in pairs:
        table = np.bincount(codes[a] * 12 + codes[b], minlength=144).reshape(12, 12)
        targets[a, b] = Target(table.astype(np.float64), 20.0, False)
    objective = Objective(plan, [np.zeros(shape) for shape in plan.shapes], targets, 2e4)
    with_momentum = objective(accelerated(objective, 1e-3, 300, 0.0))[0]
    point, step = np.zeros(objective.wanted.size), 1e-3
    value, gradient = objective(point)
    for _ in range(299):
        new_value, new_gradient = objective(point - step * gradient)
        if new_value <= value:
            point, value, gradient, step = point - step * gradient, new_value, new_gradient, 1.25 * step
        else:
            step *= 0.5
    assert with_momentum < 0.5 * value, (with_momentum, value)


def test_structural_zeros_stay_empty_in_both_fits() -> None:
    allowed = np.array([[True, False], [True, True], [False, True]])
    _, found = measured()
    layout = Layout(SIZES, [m.clique for m in found], [Rule(("a", "b"), allowed)])
    for estimator in ("own", "mbi"):
        model = fit(layout, found, total=5000, iterations=50, estimator=estimator)
        assert model.tree.marginal(("a", "b"))[~allowed].max() == 0
        drawn = model.tree.sample(2000, np.random.default_rng(0))
        assert allowed[drawn["a"], drawn["b"]].all()


def test_conditions_are_met_by_inference() -> None:
    layout, found = measured()
    model = fit(layout, found, total=5000, iterations=100)
    joint = model.tree.marginal(("a", "d"))
    accepted = np.array([True, False, True])
    tree = model.conditioned({"a": accepted})
    expected = joint * accepted[:, None]
    np.testing.assert_allclose(tree.marginal(("a", "d")), expected / expected.sum(), atol=1e-12)
    with pytest.raises(sg.ConfigError, match="contradict"):
        model.conditioned({"a": np.zeros(3, dtype=bool)})


@given(st.lists(st.floats(-50, 100), min_size=1, max_size=20), st.floats(1, 500))
def test_projection_onto_the_simplex(values: list[float], total: float) -> None:
    point = project_to_simplex(np.array(values), total)
    assert point.min() >= 0
    assert point.sum() == pytest.approx(total)
    # Optimality: what stays positive moved by the same amount, what became 0 would have gone below.
    shift = point - np.array(values)
    moved = shift[point > 0]
    assert np.ptp(moved) <= 1e-6 * total + 1e-9
    assert (shift[point == 0] >= moved.max() - 1e-6 * total - 1e-9).all()


def test_a_model_that_is_too_big_is_refused_with_its_cost_and_culprit() -> None:
    sizes = {"x": 3200, "y": 3200, "z": 4}
    with pytest.raises(sg.ConfigError, match=r"\('x', 'y'\) alone has 10,240,000 cells.*GiB.*max_cells"):
        check_size(sizes, [("x", "y")], (), max_cells=200_000)
    ring = dict.fromkeys("pqrs", 60)
    loop = [("p", "q"), ("q", "r"), ("r", "s"), ("p", "s")]
    with pytest.raises(sg.ConfigError, match="the largest over"):
        check_size(ring, loop, (), max_cells=200_000)
    check_size(ring, loop[:3], (), max_cells=200_000)


@pytest.mark.parametrize("seed", range(3))
def test_what_there_is_room_for_never_makes_the_model_larger_than_the_limit(seed: int) -> None:
    """Also where the junction tree is larger than the estimate, and held marginals always have room."""
    rng = np.random.default_rng(seed)
    sizes = dict(zip("abcdefgh", [40, 30, 25, 20, 12, 8, 5, 3], strict=True))
    pairs = list(combinations(sizes, 2))
    held: list[tuple[str, ...]] = []
    while True:
        layout = Layout(sizes, held)
        assert layout.cells <= 8000
        fits = dict(zip(pairs, room_for(layout, pairs, max_cells=8000), strict=True))
        assert all(fits[pair] for pair in held)
        open_to = [pair for pair in pairs if fits[pair] and pair not in held]
        if not open_to:
            break
        held.append(open_to[int(rng.integers(len(open_to)))])
    assert 5 < len(held) < len(pairs)


@pytest.mark.slow
def test_jax_keeps_its_settings_outside_the_fit() -> None:
    code = (
        "import jax, numpy as np, jax.numpy as jnp\n"
        "from tabular.model.fitting import Measurement, fit\n"
        "from tabular.model.junction_tree import Layout\n"
        "m = [Measurement(('a','b'), np.arange(4.0), 1.0)]\n"
        "fit(Layout({'a': 2, 'b': 2}, [('a','b')]), m, total=6.0, iterations=5, estimator='mbi')\n"
        "assert jnp.arange(3.0).dtype == jnp.float32, jnp.arange(3.0).dtype\n"
        "assert not jax.config.jax_enable_x64\n"
    )
    subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code], check=True, timeout=120)


@given(st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_the_junction_tree_is_one_and_no_larger_than_the_one_of_mbi(seed: int) -> None:
    import mbi

    rng = np.random.default_rng(seed)
    names = [f"c{i}" for i in range(rng.integers(2, 12))]
    sizes = {name: int(rng.integers(1, 7)) for name in names}
    count = int(rng.integers(0, 2 * len(names)))
    widths = rng.integers(1, 4, count)
    cliques = [tuple(rng.choice(names, min(int(w), len(names)), replace=False).tolist()) for w in widths]
    layout = Layout(sizes, cliques)
    nodes = [set(node) for node in layout.nodes]
    assert all(any(set(clique) <= node for node in nodes) for clique in [*cliques, *((n,) for n in names)])
    assert not any(a < b for a in nodes for b in nodes)
    for i, above in enumerate(layout.parent):  # running intersection: parents come first
        seen = set().union(*nodes[:i]) if i else set()
        assert above < i
        assert nodes[i] & seen <= (nodes[above] if above >= 0 else set())
    domain = mbi.Domain(tuple(sizes), tuple(sizes.values()))
    order = mbi.junction_tree.greedy_order(domain, sorted(set(layout.cliques)))[0]
    tree, _ = mbi.junction_tree.make_junction_tree(domain, sorted(set(layout.cliques)), order)
    assert {frozenset(node) for node in tree.nodes} == {frozenset(node) for node in nodes}


def test_fitting_imports_nothing_heavy() -> None:
    code = (
        "import sys, numpy as np\n"
        "from tabular.model.fitting import Measurement, fit\n"
        "from tabular.model.junction_tree import Layout\n"
        "m = [Measurement(('a','b'), np.arange(4.0), 1.0)]\n"
        "fit(Layout({'a': 2, 'b': 2}, [('a','b')]), m, total=6.0, iterations=5)\n"
        "assert not {'jax', 'mbi', 'dp_accounting'} & set(sys.modules), 'heavy'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_part_of_the_table_without_any_measurement_keeps_what_it_was() -> None:
    layout = Layout(SIZES, [("a", "b"), ("d", "e")])
    rng = np.random.default_rng(0)
    before = [
        Measurement(("a", "b"), rng.random(6) * 500, 2.0),
        Measurement(("d", "e"), rng.random(6) * 500, 2.0),
    ]
    start = fit(layout, before, total=1500, iterations=50)
    model = fit(layout, before[:1], total=1500, start=start, iterations=50)
    np.testing.assert_allclose(model.tree.marginal(("d", "e")), start.tree.marginal(("d", "e")), atol=1e-12)
