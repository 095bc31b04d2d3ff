"""FAST: how often it reads, what it pays, and the controller."""

from __future__ import annotations

import math

import numpy as np
import pytest

import synthgeo as sg
from streams.scalar.fast import PIDSampler
from synthgeo.privacy.accountant import zcdp_of
from synthgeo.privacy.noise import laplace_variance

S = sg.series
WALK = np.floor(20_000 + np.cumsum(np.random.default_rng(1).normal(0, 316, 400)))


class CountingNoise(sg.SeededNoise):
    """Records the scale of every Laplace draw: what was really paid."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.scales: list[float] = []

    def discrete_laplace(self, scale, size=None):
        self.scales.extend([float(scale)] * (size or 1))
        return super().discrete_laplace(scale, size)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"process_variance": 1e5},
        {"max_samples": 3},
        {"sensitivity": 5},
        {"sampling": 7},
        {"sampling": "adaptive"},
        {"filter": "kalman"},
        {"filter": "particle"},
        {"filter": "kalman", "max_samples": 3},
    ],
)
def test_what_is_drawn_never_costs_more_than_the_budget(options):
    noise = CountingNoise(3)
    mechanism = S.FAST.from_options(budget=sg.PrivacyBudget(0.3), horizon=400, noise=noise, **options)
    mechanism.run(WALK)
    mechanism.run(WALK)  # past the horizon
    delta = options.get("sensitivity", 1)
    assert len(noise.scales) == mechanism.samples <= (mechanism.max_samples or 400)
    assert sum(delta / scale for scale in noise.scales) <= 0.3 * (1 + 1e-12)
    assert sum(delta / scale for scale in noise.scales) == pytest.approx(mechanism.spent.epsilon)


def test_defaults_follow_the_paper():
    kalman = S.FAST(budget=sg.PrivacyBudget(1.0), horizon=1000, filter="kalman")
    assert (kalman.max_samples, kalman.sampling, kalman.process_variance) == (150, "adaptive", 1e5)
    assert S.FAST(budget=sg.PrivacyBudget(1.0), horizon=1000, filter="particle").max_samples == 250
    assert S.FAST(budget=sg.PrivacyBudget(1.0), horizon=1000, sampling=5).max_samples == 200
    assert kalman._filter.measurement_variance == laplace_variance(150.0)
    assert (
        S.FAST(
            budget=sg.PrivacyBudget(1.0),
            horizon=1000,
            filter="kalman",
            settings=sg.series.FASTSettings(measurement_variance=1e6),
        )._filter.measurement_variance
        == 1e6
    )


def test_only_sampled_steps_are_read():
    """At a fixed rate, values in between cannot change a release."""
    other = WALK.copy()
    other[np.arange(400) % 5 != 0] += 10_000
    runs = [
        S.FAST(budget=sg.PrivacyBudget(1.0), horizon=400, sampling=5, noise=sg.SeededNoise(1)).run(s)
        for s in (WALK, other)
    ]
    np.testing.assert_array_equal(*runs)


def test_after_the_last_sample_it_predicts_for_ever():
    mechanism = S.FAST(budget=sg.PrivacyBudget(1.0), horizon=10, sampling=1, noise=sg.SeededNoise(1))
    released = mechanism.run(WALK[:50])
    assert mechanism.samples == 10
    assert len(set(released[9:])) == 1
    assert mechanism.spent == sg.PrivacyBudget(1.0)


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"measurement_variance": 1e6}, 'filter="kalman"'),
        ({"filter": "particle", "measurement_variance": 1e6}, 'filter="kalman"'),
        ({"filter": "kalman", "particles": 100}, 'filter="particle"'),
        ({"particles": 500}, 'filter="particle"'),
        ({"sampling": 5, "theta": 9.0}, 'sampling="adaptive"'),
        ({"sampling": 5, "filter": "kalman", "pace": 0.5}, 'sampling="adaptive"'),
        ({"gains": (1, 0, 0)}, 'sampling="adaptive"'),
        ({"sanity": 2.0}, 'sampling="adaptive"'),
    ],
)
def test_settings_without_effect_are_refused(options, where):
    with pytest.raises(sg.ConfigError, match=f"has no effect here: it is for {where}"):
        S.FAST.from_options(budget=sg.PrivacyBudget(1.0), horizon=100, **options)


def test_learnt_sampling_reads_every_step_of_a_restless_series_and_few_of_a_quiet_one():
    rng = np.random.default_rng(1)
    restless, quiet = np.rint(rng.normal(50_000, 20_000, 400)), np.full(400, 50_000.0)
    samples = {}
    for name, series in (("restless", restless), ("quiet", quiet)):
        for epsilon in (0.001, 0.1, 100.0):
            mechanism = S.FAST(budget=sg.PrivacyBudget(epsilon), horizon=400, noise=sg.SeededNoise(1))
            mechanism.run(series)
            samples[name, epsilon] = mechanism.samples
            assert mechanism.spent.epsilon == pytest.approx(epsilon)
    # Changes of 28,000: more than the noise of every step until ε = 0.1, far less at 0.001.
    assert samples["restless", 100.0] == samples["restless", 0.1] == 400
    assert samples["restless", 0.001] < 200
    assert samples["quiet", 0.1] < 40


def test_a_series_is_expected_to_move_by_a_part_of_its_first_value():
    """At first: what it does decides soon, and a saved mechanism goes on the same."""
    for first, epsilon in ((50_000.0, 10.0), (50_000.0, 0.01)):
        mechanism = S.FAST(budget=sg.PrivacyBudget(epsilon), horizon=400, noise=sg.SeededNoise(1))
        released = mechanism.update(first)
        bank = mechanism._filter
        centre = np.log10(bank.process_variances) @ bank.weights
        assert centre == pytest.approx(2 * np.log10(0.1 * abs(released)), abs=0.2)
    still = S.FAST(budget=sg.PrivacyBudget(10.0), horizon=400, noise=sg.SeededNoise(1))
    still.run(np.full(100, 50_000.0))
    bank = still._filter
    assert np.log10(bank.process_variances) @ bank.weights < 2 * np.log10(5000) - 3


def test_a_first_value_that_noise_hides_is_read_again_and_paid_for():
    """Two readings of it, the second with a tenth of what the first left; visible values are read once."""
    shares = {}
    for epsilon in (0.1, 100.0):
        noise = CountingNoise(1)
        mechanism = S.FAST(budget=sg.PrivacyBudget(epsilon), horizon=400, noise=noise)
        mechanism.update(WALK[0])
        shares[epsilon] = [1 / scale / epsilon for scale in noise.scales]
        assert mechanism.spent.epsilon == pytest.approx(epsilon * sum(shares[epsilon]))
    assert shares[100.0] == pytest.approx([1 / 400])
    assert shares[0.1] == pytest.approx([1 / 400, 0.1 * 399 / 400])
    for options in (
        {"max_samples": 3},
        {"process_variance": 1.0},
    ):  # samples are counted, or a guess says how much
        noise = CountingNoise(1)
        S.FAST.from_options(budget=sg.PrivacyBudget(0.1), horizon=400, noise=noise, **options).update(WALK[0])
        assert len(noise.scales) == 1
    only = S.FAST(budget=sg.PrivacyBudget(0.1), horizon=1, noise=sg.SeededNoise(1))
    only.update(3)
    assert (only.samples, only.spent) == (1, sg.PrivacyBudget(0.1))


def test_all_of_the_budget_is_spent_by_the_horizon_and_nothing_after_it():
    mechanism = S.FAST(budget=sg.PrivacyBudget(1.0), horizon=50, noise=sg.SeededNoise(1))
    mechanism.run(WALK[:50])
    spent, samples = mechanism.spent, mechanism.samples
    assert spent.epsilon == pytest.approx(1.0)
    after = mechanism.run(WALK[50:100])
    assert (mechanism.spent, mechanism.samples) == (spent, samples)
    assert len(set(after)) == 1


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 20.0])
def test_it_is_not_worse_than_noise_at_every_step_or_a_fixed_rate(epsilon):
    """Ten runs on a random walk, the same guess for both filters; the benchmark has ten series."""
    budget = sg.PrivacyBudget(epsilon)

    def error(make):
        runs = (make(sg.SeededNoise(seed)).run(WALK) for seed in range(10))
        return np.mean([S.metrics.relative_error(WALK, released) for released in runs])

    ours = error(
        lambda n: S.FAST(
            budget=budget, horizon=400, settings=sg.series.FASTSettings(process_variance=1e5), noise=n
        )
    )
    plain = error(lambda n: S.LPA(budget=budget, horizon=400, noise=n))
    fixed = error(lambda n: S.FAST(budget=budget, horizon=400, filter="kalman", sampling=10, noise=n))
    assert ours < 1.05 * min(plain, fixed)


def test_a_public_guess_of_the_process_variance_helps_at_the_start():
    quiet = np.full(300, 40.0)
    errors = {}
    for guess in (None, 1.0):
        runs = [
            S.FAST(
                budget=sg.PrivacyBudget(0.05),
                horizon=300,
                settings=sg.series.FASTSettings(process_variance=guess),
                noise=sg.SeededNoise(s),
            ).run(quiet)
            for s in range(20)
        ]
        errors[guess] = np.mean([np.abs(r - 40).mean() for r in runs])
    assert errors[1.0] < 0.7 * errors[None]


class Costs(sg.SeededNoise):
    """Records what every draw costs: ε of Laplace noise, ρ of Gaussian noise, by step."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.step, self.costs = 0, {}

    def discrete_laplace(self, scale, size=None):
        self.costs[self.step] = self.costs.get(self.step, 0.0) + 1 / float(scale)
        return super().discrete_laplace(scale, size)

    def discrete_gaussian(self, sigma, size):
        self.costs[self.step] = self.costs.get(self.step, 0.0) + 1 / (2 * float(sigma) ** 2)
        return super().discrete_gaussian(sigma, size)


def _costs(series, **options):
    noise = Costs(2)
    mechanism = S.FAST.from_options(noise=noise, **options)
    for step, value in enumerate(series):
        noise.step = step
        mechanism.update(value)
    return mechanism, np.array([noise.costs.get(step, 0.0) for step in range(len(series))])


@pytest.mark.parametrize("window", [1, 7, 40])
@pytest.mark.parametrize("guess", [None, 1.0, 1e9])
def test_no_window_costs_more_than_epsilon(window, guess):
    quiet_then_restless = np.concatenate([np.full(200, 500.0), WALK[:100], np.full(100, 20_000.0)])
    mechanism, costs = _costs(
        quiet_then_restless, budget=sg.PrivacyBudget(0.5), window=window, process_variance=guess
    )
    dearest = max(costs[i : i + window].sum() for i in range(costs.size))
    assert dearest <= 0.5 * (1 + 1e-9)
    assert mechanism.spent.epsilon == pytest.approx(dearest, rel=1e-6)
    assert mechanism.guarantee.level == "w-event"
    assert np.isfinite(mechanism.run(WALK)).all()


@pytest.mark.parametrize("max_steps", [1, 5])
def test_a_user_in_few_steps_pays_an_equal_share_at_each(max_steps):
    mechanism, costs = _costs(WALK[:60], budget=sg.PrivacyBudget(0.5), max_steps=max_steps)
    np.testing.assert_allclose(costs, 0.5 / max_steps, rtol=1e-9)
    assert mechanism.spent == sg.PrivacyBudget(0.5)
    assert mechanism.guarantee.level == ("event" if max_steps == 1 else "user")


@pytest.mark.parametrize("who", [{"horizon": 60}, {"window": 20}, {"max_steps": 5}])
def test_gaussian_noise_for_a_budget_with_a_delta(who):
    budget = sg.PrivacyBudget(0.5, 1e-6)
    mechanism, costs = _costs(WALK[:60], budget=budget, **who)
    count = next(iter(who.values()))
    np.testing.assert_allclose(costs, zcdp_of(budget) / count, rtol=1e-9)
    assert mechanism.spent.epsilon == pytest.approx(0.5, rel=1e-6)
    more = mechanism.run(WALK[60:80])
    assert mechanism.samples == (60 if "horizon" in who else 80)
    assert (len(set(more)) == 1) == ("horizon" in who)


def test_gaussian_noise_is_far_less_than_laplace_noise_over_a_long_horizon():
    errors = {}
    for delta in (0.0, 1e-6):
        runs = [
            S.FAST(budget=sg.PrivacyBudget(0.5, delta), horizon=400, noise=sg.SeededNoise(s)).run(WALK)
            for s in range(5)
        ]
        errors[delta] = np.mean([S.metrics.mean_absolute_error(WALK, r) for r in runs])
    assert errors[1e-6] < 0.5 * errors[0.0]


@pytest.mark.parametrize(
    "who", [{}, {"horizon": 9, "window": 3}, {"window": 3, "max_steps": 1}, {"window": 3, "sampling": 5}]
)
def test_who_is_protected_is_said_once(who):
    with pytest.raises(sg.ConfigError, match=r"exactly one|need a horizon"):
        S.FAST.from_options(budget=sg.PrivacyBudget(1.0), **who)
    with pytest.raises(sg.ConfigError, match="pure budget"):
        S.FAST(budget=sg.PrivacyBudget(1.0, 1e-6), horizon=9, filter="kalman")


def test_a_sample_due_in_a_gap_is_taken_at_the_next_step_there_is():
    mechanism = S.FAST(
        budget=sg.PrivacyBudget(1.0), horizon=20, sampling=5, missing="public", noise=sg.SeededNoise(1)
    )
    series = WALK[:20].copy()
    series[[5, 6]] = math.nan
    for step, value in enumerate(series):
        before = mechanism.samples
        mechanism.update(value)
        assert (mechanism.samples > before) == (step in (0, 7, 12, 17))


def test_filtering_without_sampling_improves_on_the_observations():
    noisy = S.LPA(budget=sg.PrivacyBudget(1.0), horizon=400, noise=sg.SeededNoise(1)).run(WALK)
    fast = S.FAST(budget=sg.PrivacyBudget(1.0), horizon=400, sampling=1, noise=sg.SeededNoise(1)).run(WALK)
    assert S.metrics.mean_absolute_error(WALK, fast) < S.metrics.mean_absolute_error(WALK, noisy)


def test_the_controller_is_the_formula_of_the_paper():
    sampler = PIDSampler(gains=(0.5, 0.3, 0.2), integral_window=3, theta=4, set_point=0.2)
    errors, steps = [0.1, 0.05, 0.3], [0, 1, 2]
    assert [sampler.feedback(k, e) for k, e in zip(steps[:2], errors[:2], strict=True)] == [1, 2]
    control = 0.5 * 0.3 + 0.3 * np.mean(errors) + 0.2 * (0.3 - 0.05) / 1
    interval = max(1.0, 1 + 4 * (1 - math.exp((control - 0.2) / 0.2)))
    assert sampler.feedback(2, 0.3) == 2 + round(interval)
    assert sampler.interval == pytest.approx(interval)


def test_larger_errors_mean_more_frequent_samples():
    """The direction that the text wants and that the printed equation 32 has upside down."""
    intervals = []
    for error in (0.0, 0.05, 0.1, 0.2, 1.0, 1e9):
        sampler = PIDSampler(gains=(1, 0, 0), integral_window=1, theta=10, set_point=0.1)
        sampler.interval = 5.0
        intervals.append(sampler.feedback(0, error))
    assert intervals == sorted(intervals, reverse=True)
    assert intervals[0] > 5 == intervals[2]
    assert intervals[-1] == 1


def test_a_quiet_series_is_sampled_less_than_a_jumpy_one():
    quiet = np.full(400, 20_000.0)
    jumpy = np.where(np.arange(400) // 7 % 2, 60_000.0, 20_000.0)
    samples = []
    for series in (quiet, jumpy):
        mechanism = S.FAST(
            budget=sg.PrivacyBudget(5.0),
            horizon=400,
            filter="kalman",
            settings=sg.series.FASTSettings(max_samples=300, process_variance=1e7),
            noise=sg.SeededNoise(1),
        )
        mechanism.run(series)
        samples.append(mechanism.samples)
    assert samples[0] < samples[1] / 2


def test_pace_keeps_samples_for_the_end_of_the_horizon():
    """A lively series: the paper's controller has spent all before the middle, with pace 1 it lasts."""
    lively = np.floor(5000 + 4000 * np.sin(np.arange(600) / 5))
    last = {}
    for pace in (0.0, 1.0):
        mechanism = S.FAST(
            budget=sg.PrivacyBudget(5.0),
            horizon=600,
            filter="kalman",
            settings=sg.series.FASTSettings(process_variance=1e6, pace=pace),
            noise=sg.SeededNoise(1),
        )
        for step, value in enumerate(lively):
            before = mechanism.samples
            mechanism.update(value)
            if mechanism.samples > before:
                last[pace] = step
    assert last[0.0] < 300
    assert last[1.0] > 590
    with pytest.raises(sg.ConfigError, match="pace"):
        S.FAST(
            budget=sg.PrivacyBudget(1.0),
            horizon=10,
            filter="kalman",
            settings=sg.series.FASTSettings(pace=1.5),
        )
