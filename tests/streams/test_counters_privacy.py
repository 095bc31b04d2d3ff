"""What an event pays, and how large the noise is, read off the counters from the outside.

A stub noise source in which one draw is 1 and all others are 0 shows with which coefficient each output uses
each draw. Outputs are (true sums) + C (draws), so two streams that differ by one event at τ give the same
outputs when the draws are shifted by some s with C s = (0 before τ, 1 from τ on). The cheapest such shift is
a linear programme, and its price, the sum of |s| / scale, is exactly what pure differential privacy charges.
Nothing here trusts what a bank says about itself.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from streams.counters import LAPLACE_KINDS, make_bank
from streams.counters.bounded import BinaryBank
from synthgeo.privacy.noise import SeededNoise, laplace_variance


class OneDraw(SeededNoise):
    """All draws are 0 but one; remembers the scales."""

    def __init__(self, which: int, size: int = 1) -> None:
        super().__init__(0)
        self.which = which
        self.size = size
        self.scales: list[float] = []

    def discrete_laplace(self, scale, size=None):
        scales = np.broadcast_to(scale, np.size(scale) if size is None else size)
        out = np.zeros(scales.size, dtype=np.int64)
        place = self.which - len(self.scales)
        if 0 <= place < out.size:
            out[place] = self.size
        self.scales += scales.tolist()
        return out

    def discrete_gaussian(self, sigma, size):
        return self.discrete_laplace(sigma, size)


def uses(make, steps, size=1):
    """C (one row a step, one column a draw) and the scale of each draw."""
    columns = []
    while True:
        noise = OneDraw(len(columns), size)
        bank = make(noise)
        slot = bank.add(1)
        columns.append([int(bank.step(slot, [0])[0]) for _ in range(steps)])
        if len(columns) == len(noise.scales):
            return np.array(columns, dtype=float).T / size, np.array(noise.scales)


def price(coefficients, scales, tau, event=1.0):
    """The cheapest shift of the draws that hides an event at ``tau``: sum of |shift| / scale."""
    wanted = -event * (np.arange(1, coefficients.shape[0] + 1) >= tau)
    both = np.hstack([coefficients, -coefficients])
    found = linprog(np.tile(1 / scales, 2), A_eq=both, b_eq=wanted, bounds=(0, None), method="highs")
    assert found.status == 0, "no shift of the noise hides this event"
    return found.fun


def bank_maker(kind, epsilon=0.7, horizon=13, grid_bits=0):
    return lambda noise: make_bank(kind, epsilon=epsilon, horizon=horizon, grid_bits=grid_bits, noise=noise)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LAPLACE_KINDS)
@pytest.mark.parametrize("horizon", [5, 13, 32])
def test_no_event_pays_more_than_epsilon(kind, horizon):
    """Linear programme <= what the bank says <= ε, for every event time, far past the horizon too."""
    steps = 45
    make = bank_maker(kind, horizon=horizon)
    coefficients, scales = uses(make, steps)
    said = make(SeededNoise(0)).event_cost(steps)
    assert said.shape == (steps,)
    assert np.all(said <= 0.7)
    prices = np.array([price(coefficients, scales, tau) for tau in range(1, steps + 1)])
    assert np.all(prices <= said * (1 + 1e-9))
    assert prices.max() == pytest.approx(0.7, rel=1e-6), "part of the budget is never used"


def test_a_binary_tree_with_the_printed_scale_is_caught():
    """Scale log2(T) / ε, as Kumar's dissertation prints it: the first event of 32 pays 6/5 of ε."""

    def broken(noise):
        bank = BinaryBank(epsilon=0.7, horizon=32, noise=noise)
        bank.scale = math.log2(32) / 0.7
        return bank

    coefficients, scales = uses(broken, 32)
    assert price(coefficients, scales, 1) == pytest.approx(0.7 * 6 / 5)
    fixed, good = uses(bank_maker("binary", horizon=32), 32)
    assert price(fixed, good, 1) == pytest.approx(0.7)


def test_an_extra_level_past_the_horizon_would_be_caught():
    """A tree for 8 steps has 4 levels at scale 4 / ε; a fifth level at that scale pays 5/4 of ε."""

    def broken(noise):
        bank = BinaryBank(epsilon=1.0, horizon=16, noise=noise)
        bank.scale = 4.0
        return bank

    coefficients, scales = uses(broken, 16)
    assert price(coefficients, scales, 1) == pytest.approx(5 / 4)


@pytest.mark.parametrize("kind", LAPLACE_KINDS)
def test_variance_is_that_of_the_draws_in_use(kind):
    steps = 60
    make = bank_maker(kind)
    coefficients, scales = uses(make, steps)
    expected = coefficients**2 @ np.array([laplace_variance(scale) for scale in scales])
    bank = make(SeededNoise(0))
    assert bank.variance(np.arange(1, steps + 1)) == pytest.approx(expected, rel=1e-12)
    assert float(bank.variance(17)) == pytest.approx(expected[16], rel=1e-12)


@pytest.mark.parametrize("kind", LAPLACE_KINDS)
def test_a_finer_grid_costs_the_same(kind):
    """One event is worth 2^6 grid steps there."""
    make = bank_maker(kind, grid_bits=6)
    coefficients, scales = uses(make, 30)
    prices = [price(coefficients, scales, tau, event=64.0) for tau in range(1, 31)]
    assert max(prices) == pytest.approx(0.7, rel=1e-6)
    assert np.all(make(SeededNoise(0)).event_cost(30) <= 0.7)


@pytest.mark.parametrize(("kind", "most"), [("kary", 1.3), ("unbounded_kary", 1.6), ("hybrid", 1.0)])
def test_a_step_draws_about_one_number(kind, most):
    noise = OneDraw(-1)
    bank = make_bank(kind, epsilon=1.0, horizon=365, noise=noise)
    slot = bank.add(1)
    for _ in range(365):
        bank.step(slot, [1])
    assert len(noise.scales) <= most * 365


@pytest.mark.parametrize("kind", [kind for kind in LAPLACE_KINDS if kind not in ("kary", "unbounded_kary")])
def test_memory_grows_with_the_levels_only(kind):
    bank = make_bank(kind, epsilon=1.0, horizon=1000, noise=SeededNoise(1))
    slot = bank.add(1)
    for _ in range(1000):
        bank.step(slot, [1])
    assert sum(array.size for array in bank.to_state()[1].values()) <= 3 + math.log2(1000) + 1


def test_memory_of_the_trees_with_subtraction():
    """One number for each part that may have to be given back."""
    for kind, most in (("kary", 3 + 2 * (1 + 6)), ("unbounded_kary", 4 + 1.5 * math.sqrt(1000))):
        bank = make_bank(kind, epsilon=1.0, horizon=1000, noise=SeededNoise(1))
        slot = bank.add(1)
        for _ in range(1000):
            bank.step(slot, [1])
        assert sum(array.size for array in bank.to_state()[1].values()) <= most


@pytest.mark.parametrize("grid_bits", [0, 5])
def test_toeplitz_pays_at_most_rho(grid_bits):
    """C is square here, so the shift that hides an event is unique; zCDP charges |shift|² / (2 σ²)."""
    rho, horizon, steps = 0.4, 12, 36  # three whole epochs

    def make(noise):
        return make_bank("toeplitz", rho=rho, horizon=horizon, grid_bits=grid_bits, noise=noise)

    coefficients, sigmas = uses(make, steps, size=1 << 45)
    said = make(SeededNoise(0)).event_cost(steps)
    paid = []
    for tau in range(1, steps + 1):
        shift = np.linalg.solve(coefficients, 2.0**grid_bits * (np.arange(1, steps + 1) >= tau))
        paid.append(float(np.sum(shift**2 / (2 * sigmas**2))))
    assert np.array(paid) == pytest.approx(said, rel=1e-6)
    assert np.all(said <= rho)
    assert said.max() == pytest.approx(rho, rel=1e-9)
    expected = coefficients**2 @ sigmas**2
    variance = make(SeededNoise(0)).variance(np.arange(1, steps + 1))
    assert variance == pytest.approx(expected, rel=1e-6)
