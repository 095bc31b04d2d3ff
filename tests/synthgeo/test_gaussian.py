"""Gaussian noise accounted exactly: the closed form, discrete noise beside it, and interactions of tables."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import synthgeo as sg
from synthgeo.privacy.accountant import zcdp_of
from synthgeo.privacy.filter import PrivacyFilter
from synthgeo.privacy.gaussian import (
    TAU,
    gaussian_delta,
    gaussian_mu,
    grid_bits,
    interaction_cost,
    noisy_table,
)
from synthgeo.privacy.noise import contrast

EVENT = sg.PrivacyUnit.event()
BUDGETS = [sg.PrivacyBudget(1.0, 1e-9), sg.PrivacyBudget(0.3, 1e-6), sg.PrivacyBudget(8.0, 1e-12)]


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("pure", [(), (0.05,) * 4, (0.02, 0.1)])
def test_the_closed_form_is_what_googles_accountant_finds(
    budget: sg.PrivacyBudget, pure: tuple[float, ...]
) -> None:
    """dp-accounting composes discretised privacy losses: its ε is a little above the exact one."""
    common = pytest.importorskip("dp_accounting.pld.common")
    from dp_accounting.pld import privacy_loss_distribution as pld

    mu = gaussian_mu(budget, pure)
    options = {"value_discretization_interval": 1e-4}
    found = pld.from_gaussian_mechanism(1 / mu, **options)
    for epsilon in pure:
        response = common.DifferentialPrivacyParameters(epsilon, 0.0)
        found = found.compose(pld.from_privacy_parameters(response, **options))
    assert found.get_epsilon_for_delta(budget.delta) == pytest.approx(budget.epsilon, rel=2e-3)
    # and there is nothing left to gain
    assert gaussian_delta(mu * 1.001, budget.epsilon) > budget.delta * (1 + 1e-6) or pure


def test_it_gives_less_noise_than_zcdp_and_the_pure_parts_cost_some_of_it() -> None:
    for budget in BUDGETS:
        mu = gaussian_mu(budget)
        assert mu > 1.03 * math.sqrt(2 * zcdp_of(budget))
        assert gaussian_mu(budget, (0.1,)) < mu
    with pytest.raises(sg.ConfigError, match="delta > 0"):
        gaussian_mu(sg.PrivacyBudget(1.0))
    with pytest.raises(sg.ConfigError, match="leave nothing"):
        gaussian_mu(sg.PrivacyBudget(1.0, 1e-9), (2.0,))


def law(sigma: float, reach: int) -> np.ndarray:
    """The discrete Gaussian on -reach, ..., reach."""
    steps = np.arange(-reach, reach + 1)
    found = np.exp(-(steps**2) / (2 * sigma**2))
    return found / found.sum()


def delta_of(found: np.ndarray, shift: int, epsilon: float) -> float:
    """The exact δ of noise with this law on integers that neighbours move by ``shift``."""
    other = np.concatenate([np.zeros(shift), found[: found.size - shift]])
    return float(np.maximum(found - math.exp(epsilon) * other, 0).sum())


@pytest.mark.parametrize("s", [4.0, 10.0, 64.0])
def test_discrete_noise_is_as_private_as_the_gaussian_it_rounds(s: float) -> None:
    """δ by summation, against the closed form at 1/s; a σ that forgets τ is caught where σ is small."""
    found = law(math.hypot(s, TAU), int(12 * s) + 40)
    for epsilon in (0.1 / s, 1 / s, 3 / s, 5 / s):
        assert delta_of(found, 1, epsilon) <= gaussian_delta(1 / s, epsilon) * (1 + 1e-9)
    without = law(s, int(12 * s) + 40)
    worst = max(delta_of(without, 1, x / s) / gaussian_delta(1 / s, x / s) for x in (0.5, 2, 4, 5, 6))
    assert worst > 1


@pytest.mark.parametrize("s", [8.0, 20.0])
@pytest.mark.parametrize("axes", [2, 3])
def test_an_interaction_costs_as_little_as_it_says(s: float, axes: int) -> None:
    """The contrast of a table of yes/no columns is the sum of all draws under signs: of two columns it costs
    a quarter of the whole, of three an eighth.
    """
    found = law(math.hypot(s, TAU), int(10 * s) + 40)
    for _ in range(axes):
        found = np.convolve(found, found)
    mu = math.sqrt(interaction_cost((2,) * axes)) / s
    for x in (0.1, 1.0, 3.0, 5.0):
        assert delta_of(found, 1, x * mu) <= gaussian_delta(mu, x * mu) * (1 + 1e-6)
    # the twin: half of the cost is not enough
    less = mu / math.sqrt(2)
    assert delta_of(found, 1, 3 * less) > gaussian_delta(less, 3 * less)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(2, 6), min_size=2, max_size=3), st.integers(0, 10**6))
def test_contrasts_are_exact_and_forget_the_margins(shape: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 10**6, shape)
    found, exact = contrast(table), table.astype(np.float64)
    for axis in range(len(shape)):
        exact = exact - exact.mean(axis, keepdims=True)
    np.testing.assert_allclose(found / table.size, exact, atol=1e-6)
    for axis in range(len(shape)):  # what does not differ along an axis
        margin = rng.integers(0, 1000, [1 if k == axis else size for k, size in enumerate(shape)])
        assert np.array_equal(contrast(table + margin), found)  # to the last bit
    cell = np.zeros(shape, dtype=np.int64)
    cell[tuple(rng.integers(size) for size in shape)] = 1
    moved = (contrast(table + cell) - found) / table.size
    assert (moved**2).sum() == pytest.approx(interaction_cost(shape))


def test_the_grid_is_fine_enough_for_the_proofs() -> None:
    for sigma, longest, axes in itertools.product([0.01, 0.5, 3.0, 100.0], [2, 30, 2000], [1, 2, 3]):
        steps = sigma * 2 ** grid_bits(sigma, (longest, *[2] * (axes - 1)))
        assert steps >= 64
        assert steps**2 >= 5.5 * axes * longest
    assert grid_bits(1e6, (10, 3)) == 0


@pytest.mark.parametrize("shape", [(2, 3), (2, 2, 2), (2, 3, 2)])
def test_no_vector_of_the_dual_lattice_is_shorter_than_the_proof_says(shape: tuple[int, ...]) -> None:
    """|w|² >= Σ |m_k|² / (d s_k) for w = (I - P)v, v integer, and w is 0 where all of its sums m_k are."""
    rng, axes = np.random.default_rng(0), range(len(shape))
    tables = [rng.integers(-1, 2, shape) for _ in range(2000)]
    tables += [np.eye(1, math.prod(shape), i, dtype=np.int64).reshape(shape) for i in range(math.prod(shape))]
    shortest = math.inf
    for v in tables:
        w = v - contrast(v) / v.size
        sums = [w.sum(axis=k) for k in axes]
        for k in axes:
            np.testing.assert_allclose(sums[k], v.sum(axis=k), atol=1e-9)
        length, least = (w**2).sum(), sum((sums[k] ** 2).sum() / (len(shape) * shape[k]) for k in axes)
        assert length >= least - 1e-9
        assert (length > 1e-9) == (least > 1e-9)
        shortest = min(shortest, length if length > 1e-9 else math.inf)
    assert shortest >= 1 / (len(shape) * max(shape)) - 1e-9


@pytest.mark.statistical
@pytest.mark.parametrize("interaction", [False, True])
def test_noise_on_tables_has_the_variance_it_states(interaction: bool) -> None:
    """20,000 tables of 3 x 4: within 6 standard errors (flake below 1e-8); 10 per cent off is 14 or more."""
    noise, sigma, count = sg.SeededNoise(5), 2.5, 20_000
    table = np.arange(12).reshape(3, 4) ** 2
    exact = contrast(table) / table.size if interaction else table
    drawn = np.array([noisy_table(table, sigma, noise, interaction=interaction) for _ in range(count)])
    stated = sigma**2 * (interaction_cost((3, 4)) if interaction else 1.0)
    error = stated * math.sqrt(2 / (count * (6 if interaction else 12)))
    found = float(((drawn - exact) ** 2).mean())
    assert abs(found - stated) < 6 * error + 0.002 * stated
    assert abs(found - 1.1 * stated) > 6 * error


def test_a_filter_divides_the_gaussian_budget() -> None:
    budget = sg.PrivacyBudget(1.0, 1e-9)
    spending = PrivacyFilter(budget, EVENT, sg.SeededNoise(1), gaussian=True)
    mu = gaussian_mu(budget)
    assert spending.whole == pytest.approx(mu**2)
    assert spending.sigma(0.25) == pytest.approx(2 / mu)
    assert spending.sigma_of_interaction(0.25, (2, 2)) == pytest.approx(1 / mu)
    users = sg.PrivacyUnit.user(max_events=3)
    assert PrivacyFilter(budget, users, sg.SeededNoise(1), gaussian=True).whole == pytest.approx(mu**2 / 9)
    beside = PrivacyFilter(budget, users, sg.SeededNoise(1), gaussian=True, pure=(0.02,))
    assert beside.whole == pytest.approx((gaussian_mu(budget, (0.06,)) / 3) ** 2)
    spending.measure_interaction(np.zeros((2, 3), dtype=np.int64), 0.6)
    with pytest.raises(sg.BudgetExhausted):
        spending.measure_scores(np.zeros(4, dtype=np.int64), 0.5)
