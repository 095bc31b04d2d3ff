"""The auditor itself: its bounds are valid, it repeats itself, and it says what it cannot see."""

from __future__ import annotations

import functools
import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from audits.twins import laplace_count
from synthgeo.auditing.blackbox import audit, clopper_pearson, delta_bound, detectable_epsilon, epsilon_bound
from synthgeo.auditing.events import with_low_bits
from synthgeo.errors import ConfigError
from synthgeo.privacy.budget import PrivacyBudget


def randomised_response(bit, noise, n, *, epsilon=1.0):
    lie = noise.bernoulli_exp(np.full(n, math.log1p(math.exp(epsilon))))  # P = 1 / (1 + e^ε)
    return np.where(lie, 1 - bit, bit)[:, None]


class TestBounds:
    @pytest.mark.parametrize("true", [0.0, 0.001, 0.3, 0.999, 1.0])
    def test_clopper_pearson_covers(self, true):
        """Exactly: the probability of a miss, summed over all outcomes, is at most what is stated."""
        runs, miss = 60, 0.01
        hits = np.arange(runs + 1)
        low, high = clopper_pearson(hits, runs, miss)
        mass = stats.binom.pmf(hits, runs, true)
        assert mass[low > true].sum() <= miss * (1 + 1e-9)
        assert mass[high < true].sum() <= miss * (1 + 1e-9)

    def test_the_ends(self):
        low, high = clopper_pearson([0, 10], 10, 0.01)
        assert low[0] == 0
        assert high[1] == 1
        assert 0 < high[0] < 1
        assert 0 < low[1] < 1

    def test_epsilon_bound_covers_exactly(self):
        """Over all pairs of outcomes of a mechanism with ε = 1, the bound exceeds 1 with probability below 1
        %.
        """
        runs = 80
        p, q = 0.6, 0.6 / math.e
        a, b = np.meshgrid(np.arange(runs + 1), np.arange(runs + 1), indexing="ij")
        bound = epsilon_bound(a, b, runs, confidence=0.99)
        mass = stats.binom.pmf(a, runs, p) * stats.binom.pmf(b, runs, q)
        assert mass[bound > 1.0].sum() <= 0.01

    def test_delta_bound_covers_exactly(self):
        runs, epsilon = 80, 0.5
        p, q = 0.5, 0.2
        a, b = np.meshgrid(np.arange(runs + 1), np.arange(runs + 1), indexing="ij")
        bound = delta_bound(a, b, runs, confidence=0.99, epsilon=epsilon)
        mass = stats.binom.pmf(a, runs, p) * stats.binom.pmf(b, runs, q)
        assert mass[bound > p - math.exp(epsilon) * q].sum() <= 0.01

    def test_no_hits_show_nothing(self):
        assert epsilon_bound(0, 0, 100, confidence=0.9) == 0
        assert epsilon_bound(5, 90, 100, confidence=0.9) == 0

    def test_delta_lowers_the_bound(self):
        plain = epsilon_bound(500, 20, 1000, confidence=0.99)
        assert 0 < epsilon_bound(500, 20, 1000, confidence=0.99, delta=0.2) < plain


class TestPower:
    def test_more_runs_see_more(self):
        seen = [detectable_epsilon(runs, confidence=0.999, claimed=1.0) for runs in (500, 5000, 500_000)]
        assert seen[0] > seen[1] > seen[2] > 1.0
        assert seen[2] < 1.03

    def test_hopeless_is_said(self):
        """ε = 9 needs an event with odds of 8000 to 1: 400 runs cannot show that, whatever the mechanism."""
        assert detectable_epsilon(400, confidence=0.999, claimed=9.0) == math.inf

    @pytest.mark.statistical
    def test_what_is_called_detectable_is_detected(self):
        """Nine in ten by construction, so fewer than 7 of 20 have probability below 1e-9. An ε that is caught
        one time in ten is rejected with probability above 0.99.
        """
        epsilon = detectable_epsilon(8000, confidence=0.99, claimed=1.0)
        mechanism = functools.partial(randomised_response, epsilon=epsilon)
        caught = sum(
            audit(
                mechanism, (0, 1), runs=8000, confidence=0.99, claimed=1.0, batched=True, seed=seed
            ).violates
            for seed in range(20)
        )
        assert caught >= 7


class TestAudit:
    @pytest.mark.parametrize(
        "first", ["", "import synthgeo.auditing.blackbox;", "from synthgeo.auditing import blackbox;"]
    )
    def test_is_the_public_name_whatever_was_imported_before(self, first):
        code = (
            f"{first}import synthgeo as sg;"
            "coin = lambda bit, noise, n: noise.integers(2, n)[:, None];"
            "print(sg.auditing.audit(coin, (0, 1), runs=400, batched=True, seed=1, classifier=False).runs)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "400"

    @pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
    def test_randomised_response_is_measured_closely(self, epsilon):
        mechanism = functools.partial(randomised_response, epsilon=epsilon)
        result = audit(mechanism, (0, 1), runs=200_000, confidence=0.999, batched=True, seed=1)
        assert epsilon - 0.1 < result.epsilon_lower <= epsilon

    def test_the_same_seed_gives_the_same_audit_on_any_number_of_workers(self):
        run = functools.partial(audit, laplace_count, (0, 1), runs=70_000, batched=True, claimed=1.0)
        one, two, other = run(seed=3), run(seed=3, workers=2), run(seed=4)
        assert one.hits == two.hits
        assert one.epsilon_lower == two.epsilon_lower
        assert one.hits != other.hits

    def test_the_order_of_the_neighbours_does_not_matter_much(self):
        there = audit(laplace_count, (0, 1), runs=60_000, batched=True, seed=5).epsilon_lower
        back = audit(laplace_count, (1, 0), runs=60_000, batched=True, seed=5).epsilon_lower
        assert there == pytest.approx(back, abs=0.05)

    def test_equal_inputs_show_nothing(self):
        result = audit(laplace_count, (5, 5), runs=20_000, confidence=1 - 1e-9, batched=True, seed=6)
        assert result.epsilon_lower == 0

    def test_labels_and_single_runs(self):
        def mechanism(bit, noise):
            return "yes" if int(noise.integers(4, 1)[0]) < 3 - 2 * bit else "no"

        result = audit(mechanism, (0, 1), runs=4000, seed=7)
        assert 0.8 < result.epsilon_lower <= math.log(3)

    def test_features_make_rows_of_anything(self):
        def mechanism(bit, noise):
            return {"points": [1.0] * int(5 + bit + noise.discrete_laplace(0.3)[0])}

        with pytest.raises(ConfigError, match="features"):
            audit(lambda bit, noise: [1.0] * int(5 + noise.integers(3, 1)[0]), (0, 1), runs=400, seed=1)
        result = audit(mechanism, (0, 1), runs=4000, features=lambda out: len(out["points"]), seed=7)
        assert 2.0 < result.epsilon_lower <= 1 / 0.3

    def test_nan_is_an_output_like_any_other(self):
        """A mechanism that answers NaN for one input only has no privacy, and comparisons with NaN must not
        hide it.
        """

        def mechanism(bit, noise, n):
            out = noise.discrete_laplace(1.0, n).astype(float)
            out[noise.integers(2, n) < bit] = np.nan
            return out[:, None]

        assert audit(mechanism, (0, 1), runs=20_000, claimed=1.0, batched=True, seed=1).violates

    def test_a_claim_with_delta_is_audited_at_that_delta(self):
        """Shows the input with probability 0.05, else nothing: (0, 0.05)-private, and not purely so."""

        def mechanism(bit, noise, n):
            return np.where(noise.integers(20, n) == 0, bit, -1)[:, None]

        pure = audit(mechanism, (0, 1), runs=40_000, claimed=1.0, batched=True, seed=1)
        fair = audit(mechanism, (0, 1), runs=40_000, claimed=PrivacyBudget(1.0, 0.05), batched=True, seed=1)
        assert pure.violates
        assert 0.03 < pure.delta_lower <= 0.05
        assert not fair.violates

    def test_the_default_noise_is_the_systems(self):
        one = audit(laplace_count, (0, 1), runs=20_000, batched=True)
        two = audit(laplace_count, (0, 1), runs=20_000, batched=True)
        assert one.hits != two.hits or one.event != two.event
        assert one.seed is None

    def test_says_what_it_did(self):
        result = audit(laplace_count, (0, 1), runs=2000, claimed=1.0, batched=True, seed=1)
        assert "not refuted" in str(result)
        assert result.to_dict()["claimed"] == {"epsilon": 1.0, "delta": 0.0}
        assert result.measured == 1000
        assert result.detectable_epsilon > 1.0

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"neighbours": (0,)}, "neighbours"),
            ({"neighbours": 3}, "neighbours"),
            ({"runs": 10}, "runs"),
            ({"runs": 1e4}, "runs"),
            ({"confidence": 1.0}, "confidence"),
            ({"confidence": 0}, "confidence"),
            ({"confidence": "high"}, "confidence"),
            ({"workers": 0}, "workers"),
            ({"seed": -1}, "seed"),
            ({"claimed": -1.0}, "epsilon"),
        ],
    )
    def test_refuses(self, options, message):
        call = {"neighbours": (0, 1), "runs": 1000, "batched": True, **options}
        with pytest.raises(ConfigError, match=message):
            audit(laplace_count, **call)

    def test_refuses_what_cannot_be_sent_to_workers_or_has_wrong_rows(self):
        with pytest.raises(ConfigError, match="picklable"):
            audit(lambda x, noise, n: np.zeros((n, 1)), (0, 1), runs=1000, batched=True, workers=2)
        with pytest.raises(ConfigError, match="rows"):
            audit(lambda x, noise, n: np.zeros(3), (0, 1), runs=1000, batched=True)


def test_low_bits():
    rows = np.array([[0.75, 3.0], [2.0**-40, 4.0], [0.0, 5.0], [1.0, 6.0]])
    seen = with_low_bits(rows)
    assert seen.shape == (4, 3)
    assert seen[:, 2].tolist() == [-2.0, -40.0, 2000.0, 0.0]
    whole = rows[:, 1:]
    assert with_low_bits(whole) is whole
