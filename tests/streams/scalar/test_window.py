"""Budget absorption and distribution: no window of w steps ever pays more than ε, whatever the data says."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import synthgeo as sg

S = sg.series


class Meter(sg.SeededNoise):
    """Records the scale of every draw, step by step."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.costs: list[float] = []

    def discrete_laplace(self, scale, size=None):
        self.costs.append(1 / float(scale))
        return super().discrete_laplace(scale, size)


class Scripted(Meter):
    """Decides by script whether the dissimilarity is found to be large; publications get no noise."""

    def __init__(self, script: tuple[int, ...]) -> None:
        super().__init__(0)
        self.script = list(script)
        self.comparing = False

    def discrete_laplace(self, scale, size=None):
        self.costs.append(1 / float(scale))
        if not self.comparing:
            return np.array([0])
        self.comparing = False
        return np.array([10**9 if self.script.pop(0) else -(10**9)])


def _step(mechanism, noise, value) -> list[float]:
    """What one update really drew, as ε."""
    noise.comparing = mechanism._published is not None
    before = len(noise.costs)
    mechanism.update(value)
    return noise.costs[before:]


def _windows(per_step: list[float], window: int) -> float:
    return max(sum(per_step[i : i + window]) for i in range(len(per_step)))


@pytest.mark.parametrize("kind", [S.BudgetAbsorption, S.BudgetDistribution])
@pytest.mark.parametrize("window", [1, 2, 3, 7, 30])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_drawn_in_any_window_costs_at_most_epsilon(kind, window, seed):
    rng = np.random.default_rng(seed)
    series = np.floor(rng.choice([1, 50, 5000]) * rng.normal(0, 1, 150).cumsum())
    noise = Meter(seed)
    mechanism = kind(budget=sg.PrivacyBudget(0.7), window=window, noise=noise)
    per_step = []
    for value in series:
        before = len(noise.costs)
        mechanism.update(value)
        per_step.append(sum(noise.costs[before:]))
    worst = _windows(per_step, window)
    assert worst <= 0.7 * (1 + 1e-12)
    assert mechanism.spent.epsilon == pytest.approx(worst)


@pytest.mark.parametrize("kind", [S.BudgetAbsorption, S.BudgetDistribution])
@pytest.mark.parametrize("window", [2, 3, 4])
def test_no_pattern_of_decisions_overspends(kind, window):
    """All 2^9 patterns of publish and repeat, forced through a scripted dissimilarity."""
    for script in product((0, 1), repeat=9):
        noise = Scripted(script)
        mechanism = kind(budget=sg.PrivacyBudget(1.0), window=window, noise=noise)
        per_step = [sum(_step(mechanism, noise, 1000 * value)) for value in range(10)]
        assert _windows(per_step, window) <= 1 + 1e-12, script


def test_absorption_takes_the_unused_shares_and_then_rests():
    """w = 4: publish at 0 (one share), repeat thrice, publish at 4 with four shares, rest for three steps."""
    noise = Scripted((0, 0, 0, 1, 1, 1))
    mechanism = S.BudgetAbsorption(budget=sg.PrivacyBudget(1.0), window=4, noise=noise)
    per_step = [_step(mechanism, noise, 1000 * value) for value in range(9)]
    share = 1 / 8
    assert per_step[0] == [share]
    assert per_step[1:4] == [[share]] * 3
    assert per_step[4] == [share, 4 * share]
    assert per_step[5:8] == [[], [], []]
    assert per_step[8] == [share, share]


def test_distribution_halves_what_the_window_has_left():
    noise = Scripted((1, 1, 1, 1, 1))
    mechanism = S.BudgetDistribution(budget=sg.PrivacyBudget(1.0), window=3, noise=noise)
    published = []
    for value in range(5):
        _step(mechanism, noise, 1000 * value)
        published.append(mechanism._account._published[-1])
    assert published == pytest.approx([0.25, 0.125, 0.0625, 0.15625, 0.140625])


@pytest.mark.parametrize("kind", [S.BudgetAbsorption, S.BudgetDistribution])
def test_a_constant_series_is_published_rarely_and_stays_close(kind):
    mechanism = kind(budget=sg.PrivacyBudget(2.0), window=5, noise=sg.SeededNoise(4))
    released = mechanism.run(np.full(300, 10_000.0))
    assert mechanism.publications < 150
    assert np.abs(released - 10_000).mean() < 50


def test_a_jump_is_followed():
    series = np.concatenate([np.full(50, 100.0), np.full(50, 5000.0)])
    for kind in (S.BudgetAbsorption, S.BudgetDistribution):
        released = kind(budget=sg.PrivacyBudget(2.0), window=5, noise=sg.SeededNoise(4)).run(series)
        assert abs(np.median(released[60:]) - 5000) < 100


# Vectors
# ----------------------------------------------------------------------------------------------------------

BOTH = [S.BudgetAbsorption, S.BudgetDistribution]
HISTOGRAMS = np.floor(np.random.default_rng(3).gamma(2, 40, (60, 5)).cumsum(axis=0) / 10)


@pytest.mark.parametrize("kind", BOTH)
def test_a_vector_of_one_is_a_number(kind):
    series = HISTOGRAMS[:, 0]
    budget = sg.PrivacyBudget(1.0)
    plain = kind(budget=budget, window=6, noise=sg.SeededNoise(2)).run(series)
    vector = kind(budget=budget, window=6, dimensions=1, noise=sg.SeededNoise(2)).run(series[:, None])
    np.testing.assert_array_equal(vector[:, 0], plain)


@pytest.mark.parametrize("kind", BOTH)
def test_vectors_cost_no_more_than_numbers_and_survive_a_save(kind, tmp_path):
    budget = sg.PrivacyBudget(1.0)
    noise = Meter(4)
    mechanism = kind(budget=budget, window=6, dimensions=5, noise=noise)
    per_step = []
    for row in HISTOGRAMS:
        before = len(noise.costs)
        released = mechanism.update(row)
        assert released.shape == (5,)
        # One draw compares; a publication draws five numbers in one call, at L1 sensitivity 1.
        per_step.append(sum(noise.costs[before:]))
    assert _windows(per_step, 6) <= 1.0 * (1 + 1e-12)
    assert mechanism.spent.epsilon == pytest.approx(_windows(per_step, 6))
    whole, half = (kind(budget=budget, window=6, dimensions=5, noise=sg.SeededNoise(7)) for _ in range(2))
    expected = whole.run(HISTOGRAMS)
    first = half.run(HISTOGRAMS[:25])
    half.save(tmp_path / "state")
    rest = kind.load(tmp_path / "state").run(HISTOGRAMS[25:])
    np.testing.assert_array_equal(np.concatenate([first, rest]), expected)


@pytest.mark.parametrize("kind", BOTH)
def test_vectors_are_checked_row_by_row(kind):
    mechanism = kind(budget=sg.PrivacyBudget(1.0), window=6, dimensions=5, missing="public")
    wrong = HISTOGRAMS.copy()
    wrong[3, 2] = np.inf
    with pytest.raises(sg.InputError, match="row 3 is infinite"):
        mechanism.run(wrong)
    with pytest.raises(sg.InputError, match="5 numbers per row"):
        mechanism.run(HISTOGRAMS[:, :4])
    with pytest.raises(sg.InputError, match="5 numbers per row"):
        mechanism.update(3.0)
    assert mechanism.spent is None
    gaps = HISTOGRAMS.copy()
    gaps[10] = np.nan
    released = mechanism.run(gaps)
    np.testing.assert_array_equal(released[10], released[9])
    assert mechanism.run([]).shape == (0, 5)


# Rounding: numbers of a vector round down one by one
# ----------------------------------------------------------------------------------------------------------


def _crossing(d: int, change: float) -> tuple[np.ndarray, np.ndarray]:
    """Two vectors ``change`` apart in L1, each of whose numbers crosses a grid step: the worst that rounding
    does.
    """
    one = np.zeros(d)
    one[0] = 5 - 2.0**-40
    other = np.full(d, -(2.0**-45))
    other[0] = one[0] + change - (d - 1) * 2.0**-45
    assert np.abs(other - one).sum() <= change
    return one, other


def _loss(mechanism, noise, pair) -> float:
    """What a publication after a comparison tells two vectors apart by, exactly, where outputs tell most.

    Both threshold and output lie beyond either world's numbers, where Laplace tails have one ratio.
    """
    losses = []
    for vector in pair:
        trial = mechanism()
        noise.comparing = False
        first = trial.update(np.zeros(trial.dimensions))
        noise.costs.clear()
        noise.comparing = True
        released = trial.update(vector)
        losses.append((released, np.abs(released - first).sum(), list(noise.costs)))
    (one, near, costs), (other, far, same) = losses
    assert costs == same
    assert len(costs) == 2
    steps = 2.0**trial.grid_bits
    return steps * float(costs[0] * (far - near) + costs[1] * np.abs(other - one).sum())


def _scripted(kind, twin=None, **options):
    noise = Scripted((1,) * 10)

    def make():
        made = kind(budget=sg.PrivacyBudget(1.0), window=1, noise=noise, **options)
        if twin is not None:
            made._step_sensitivity = twin
        return made

    return make, noise


@pytest.mark.parametrize(("kind", "cost"), [(S.BudgetAbsorption, 1.0), (S.BudgetDistribution, 0.75)])
@pytest.mark.parametrize(
    ("d", "bits", "change"), [(1000, 10, 1.0), (5, 3, 0.90625), (2, 1, 0.625), (1, 4, 1.0)]
)
def test_a_vector_whose_numbers_all_cross_a_grid_step_costs_no_more_than_its_share(
    kind, cost, d, bits, change
):
    options = {"dimensions": d, "sensitivity": change, "grid_bits": bits}
    pair = _crossing(d, change)
    assert _loss(*_scripted(kind, **options), pair) == pytest.approx(cost)
    if d > 1:  # noise for ceil(change 2^bits) steps, as if the vector were one number, is not enough
        twin = _scripted(kind, twin=int(np.ceil(change * 2**bits)), **options)
        assert _loss(*twin, pair) > 1.15 * cost


@pytest.mark.parametrize("kind", BOTH)
def test_a_grid_too_coarse_for_a_vector_is_refused(kind):
    """One step of noise for a thousand numbers that move by one each: 250 at ε = 1 before the comparison."""
    options = {"budget": sg.PrivacyBudget(1.0), "window": 1, "dimensions": 1000}
    with pytest.raises(sg.ConfigError, match="too coarse for 1000 numbers"):
        kind(grid_bits=4, sensitivity=2.0**-4, **options)
    kind(grid_bits=10, **options)
    assert kind(**options)._step_sensitivity == 1  # whole numbers do not round


@given(
    st.integers(1, 12),
    st.integers(1, 12),
    st.floats(1e-3, 50),
    st.integers(0, 2**32),
)
def test_no_two_vectors_round_further_apart_than_the_noise_is_for(d, bits, change, seed):
    if d - 1 > np.ceil(change * 2**bits):
        return
    mechanism = S.BudgetAbsorption(
        budget=sg.PrivacyBudget(1.0), window=2, dimensions=d, sensitivity=change, grid_bits=bits
    )
    rng = np.random.default_rng(seed)
    one = np.rint(rng.normal(0, 9, d) * 2**bits) / 2**bits - rng.choice([0.0, 2.0**-40], d)
    moves = rng.dirichlet(np.full(d, rng.choice([0.02, 1.0]))) * rng.choice([-1, 1], d)
    other = one + (1 - 1e-9) * change * moves
    steps, _ = mechanism._to_grid(np.array([one, other]))
    assert np.abs(steps[1] - steps[0]).sum() <= mechanism._step_sensitivity


@pytest.mark.parametrize("kind", BOTH)
def test_distances_beyond_64_bits_are_exact(kind):
    noise = Scripted((0, 0))
    mechanism = kind(budget=sg.PrivacyBudget(1.0), window=4, dimensions=4096, noise=noise)
    mechanism.update(np.full(4096, -(2.0**51)))
    mechanism._published = np.full(4096, -(2**51))
    noise.comparing = True
    mechanism.update(np.full(4096, 2.0**51))  # the distance is 2^64, which 64 bits hold as 0
    assert mechanism.publications == 2
