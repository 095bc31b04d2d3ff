"""What the samplers promise apart from their distribution, which ``tests/statistical`` checks."""

from __future__ import annotations

import copy
import math
import multiprocessing
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from unittest import mock

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthgeo.errors import ConfigError, InputError, StateError
from synthgeo.privacy import noise as module
from synthgeo.privacy.certified import base256_digits, exp_bounds
from synthgeo.privacy.noise import FixedPoint, Noise, SeededNoise, SystemNoise, laplace_variance
from tests.conftest import Entropy


class ScriptedNoise(Noise):
    """Random bytes from a list, for looking at rare branches."""

    def __init__(self, script: bytes) -> None:
        self.script = script

    def _bytes(self, count):
        taken, self.script = self.script[:count], self.script[count:]
        assert len(taken) == count, "the script ran out"
        return np.frombuffer(taken, dtype=np.uint8)

    rng = property(lambda self: None)

    def state(self):
        return {}


class TestCertifiedBounds:
    @given(st.fractions(0, 300), st.sampled_from([8, 64, 200, 700]))
    def test_hold_and_are_tight(self, x, bits):
        low, high = exp_bounds(x, bits)
        with mpmath.workprec(bits + 1000):
            true = mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator) * mpmath.mpf(2) ** bits
            assert low <= true <= high
        assert high - low <= 2

    @pytest.mark.parametrize("logistic", [False, True])
    @pytest.mark.parametrize("x", [Fraction(1, 10**12), Fraction(1, 3), Fraction(2.7), Fraction(40)])
    def test_digits_beyond_double_precision(self, x, logistic):
        """A sampler that rounds its thresholds to 53 bits gets the eighth digit wrong."""
        with mpmath.workprec(2000):
            value = mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator)
            value = value / (1 + value) if logistic else value
            expected = int(mpmath.floor(value * mpmath.mpf(256) ** 40)).to_bytes(40, "big")
        assert bytes(base256_digits(x, 40, logistic=logistic)) == expected

    def test_refuses_a_negative_exponent(self):
        with pytest.raises(ValueError, match="x must be"):
            exp_bounds(Fraction(-1), 10)


class TestExactness:
    """The bytes on a decision boundary go the right way, at any depth."""

    @pytest.mark.parametrize("depth", [1, 2, 7, 15, 16, 17, 40])
    def test_a_tie_is_settled_by_the_next_digit(self, depth):
        scale = 1.0 / 40  # one bit row less: P(carry) is the only row
        assert module.bit_count(scale) == 0
        digits = bytes(base256_digits(Fraction(1) / Fraction(scale), depth + 1, logistic=False))
        last = digits[depth]
        assert 0 < last < 255 or depth in (1, 2, 7)
        rows, table = np.array([0]), module.first_digits(scale)
        if last > 0:
            below = ScriptedNoise(digits[:depth] + bytes([last - 1]))
            assert below._bernoulli_rows(scale, rows, table, 1)[0, 0]
        if last < 255:
            above = ScriptedNoise(digits[:depth] + bytes([last + 1]))
            assert not above._bernoulli_rows(scale, rows, table, 1)[0, 0]

    @pytest.mark.parametrize("gamma", [0.3, 1e-17, 43.0, 60.0])
    @pytest.mark.parametrize("words", [1, 2, 3])
    def test_bernoulli_exp_beyond_64_bits(self, gamma, words):
        """A word equal to the threshold's is settled by the following ones."""
        low, _ = exp_bounds(Fraction(gamma), 64 * words)
        prefix = [(low >> 64 * (words - 1 - i)) & (2**64 - 1) for i in range(words)]
        for step, answer in ((-1, True), (1, False)):
            script = list(prefix)
            script[-1] += 2 * step
            if not 0 <= script[-1] < 2**64:
                continue
            raw = b"".join(word.to_bytes(8, "little") for word in script)
            noise = ScriptedNoise(raw)
            assert bool(noise.bernoulli_exp(np.array([gamma]))[0]) is answer

    def test_what_lies_above_the_bits_is_counted_in_their_units(self):
        """Once in e^16 draws: the bits say 2, and the geometric above them says 2, in units of 16."""

        class Carrying(SeededNoise):
            answers = iter([[False, True, False, False, True], [True], [False]])

            def _bernoulli_rows(self, scale, rows, digits, count):
                return np.array(next(self.answers))[:, None]

        assert Carrying(1)._geometric(1.0, 1).tolist() == [2 + 2 * 16]

    def test_integers_of_an_awkward_range_are_not_biased(self):
        """Without leaving out a part of the words, three quarters would lie below 2^62, not two thirds."""
        drawn = SeededNoise(1).integers(3 * 2**61, 4000)
        assert abs(np.mean(drawn < 2**62) - 2 / 3) < 0.04

    def test_bernoulli_exp_at_the_ends(self):
        noise = SeededNoise(1)
        assert noise.bernoulli_exp(np.zeros(1000)).all()
        assert not noise.bernoulli_exp(np.full(1000, np.inf)).any()
        assert not noise.bernoulli_exp(np.full(1000, 1e308)).any()
        assert ScriptedNoise(b"\xff" * 8).bernoulli_exp(np.zeros(1)).all()

    def test_the_gaussian_acceptance_bound_covers_its_rounding(self):
        """The double γ lies within its error of the exact one, over six orders of magnitude of σ."""
        seen = []

        class Probe(SeededNoise):
            def bernoulli_exp_near(self, gamma, error, exact):
                seen.append((gamma, error, exact))
                return super().bernoulli_exp_near(gamma, error, exact)

        for sigma in (2.0**-40, 0.01, 0.3, 1.0, math.pi, 1e3 / 3, 1e6 / 7, 2.0**40):
            Probe(3).discrete_gaussian(sigma, 50)
            gamma, error, exact = seen[-1]
            for i in range(gamma.size):
                true = exact(i)
                assert abs(Fraction(float(gamma[i])) - true) <= Fraction(float(error[i])) / 2


class TestParameters:
    @pytest.mark.parametrize("scale", [0, -1, math.nan, math.inf, 2.0**41, "x", None, [1.0, 0.0], [math.nan]])
    def test_refuses_a_bad_scale(self, scale):
        with pytest.raises(ConfigError, match="scale"):
            SystemNoise().discrete_laplace(scale)

    @pytest.mark.parametrize("sigma", [0, -1, math.nan, math.inf, 2.0**41, 1e-300, "x"])
    def test_refuses_a_bad_sigma(self, sigma):
        with pytest.raises(ConfigError, match="sigma"):
            SystemNoise().discrete_gaussian(sigma, 3)

    @pytest.mark.parametrize("size", [-1, 2.5, "3", True])
    def test_refuses_a_bad_size(self, size):
        with pytest.raises(ConfigError, match="size"):
            SystemNoise().discrete_laplace(1.0, size)
        with pytest.raises(ConfigError, match="size"):
            SystemNoise().discrete_gaussian(1.0, size)

    def test_refuses_sizes_that_do_not_fit(self):
        with pytest.raises(ConfigError, match="2 scales for 3 draws"):
            SystemNoise().discrete_laplace([1.0, 2.0], 3)

    @pytest.mark.parametrize("gamma", [-1e-9, math.nan, [0.0, -1.0], "x"])
    def test_refuses_a_bad_gamma(self, gamma):
        with pytest.raises(ConfigError, match="gamma"):
            SystemNoise().bernoulli_exp(gamma)

    @pytest.mark.parametrize("high", [0, -1, 2**63 + 1])
    def test_refuses_bad_integers(self, high):
        with pytest.raises(ConfigError, match="high"):
            SystemNoise().integers(high, 1)

    @pytest.mark.parametrize("seed", [-1, 1.5, "7", None, True])
    def test_refuses_a_bad_seed(self, seed):
        with pytest.raises(ConfigError, match="seed"):
            SeededNoise(seed)

    def test_nothing_is_drawn_for_a_refused_call(self):
        noise = SeededNoise(5)
        before = noise.state()
        for call in (
            lambda: noise.discrete_laplace([1.0, math.nan]),
            lambda: noise.discrete_gaussian(0, 4),
            lambda: noise.bernoulli_exp([0.1, -1]),
        ):
            with pytest.raises(ConfigError):
                call()
        assert noise.state() == before

    def test_shapes(self):
        noise = SeededNoise(1)
        assert noise.discrete_laplace(2.0).shape == (1,)
        assert noise.discrete_laplace(2.0, 0).shape == noise.discrete_laplace([], 0).shape == (0,)
        assert noise.discrete_laplace(np.full((3, 4), 2.0)).shape == (3, 4)
        assert noise.discrete_gaussian(2.0, 0).shape == (0,)
        assert noise.permutation(0).shape == noise.integers(3, 0).shape == (0,)
        assert noise.discrete_laplace(2.0, 5).dtype == noise.discrete_gaussian(2.0, 5).dtype == np.int64

    @pytest.mark.parametrize("scale", [1e-300, 1e-3, 2.0**40])
    def test_extreme_scales_work(self, scale):
        draws = SeededNoise(1).discrete_laplace(scale, 1000)
        assert np.all(draws == 0) if scale < 1 else 1e11 < np.abs(draws).mean() < 1e13

    def test_the_largest_integers(self):
        draws = SeededNoise(1).integers(2**63, 1000)
        assert draws.min() >= 0
        assert draws.max() > 2**62
        assert not SeededNoise(1).integers(1, 10).any()


class TestSources:
    def test_seeded_noise_repeats_itself_and_only_itself(self):
        draw = lambda seed: SeededNoise(seed).discrete_laplace(10.0, 200).tolist()  # noqa: E731
        assert draw(3) == draw(3) != draw(4)

    def test_the_two_streams_of_a_seed_are_separate(self):
        """Post-processing must not shift the noise: how much is sampled may depend on released data only."""
        plain, busy = SeededNoise(3), SeededNoise(3)
        busy.rng.random(1000)
        assert plain.discrete_laplace(5.0, 50).tolist() == busy.discrete_laplace(5.0, 50).tolist()

    @settings(max_examples=20)
    @given(st.integers(0, 2**64), st.integers(0, 50))
    def test_seeded_state_goes_on_bit_for_bit(self, seed, before):
        noise = SeededNoise(seed)
        noise.discrete_laplace(3.0, before)
        noise.rng.random(before)
        twin = Noise.from_state(noise.state())
        assert twin.discrete_laplace(3.0, 20).tolist() == noise.discrete_laplace(3.0, 20).tolist()
        assert twin.rng.random(5).tolist() == noise.rng.random(5).tolist()
        assert repr(twin) == repr(noise)

    @pytest.mark.parametrize(
        "state", [{}, {"kind": "seeded"}, {"kind": "seeded", "seed": 1, "bits": 3, "rng": 4}]
    )
    def test_a_damaged_state_is_refused(self, state):
        with pytest.raises(StateError):
            Noise.from_state(state)

    def test_only_the_systems_noise_may_be_released(self):
        assert SystemNoise().releasable
        assert not SeededNoise(1).releasable
        assert isinstance(Noise.from_state(SystemNoise().state()), SystemNoise)

    @pytest.mark.entropy
    def test_copies_of_system_noise_share_nothing(self):
        noise = SystemNoise()
        first = noise.rng.random(4).tolist()
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            assert pickle.loads(pickle.dumps(noise, protocol)).rng.random(4).tolist() != first
        assert copy.deepcopy(noise).rng is not noise.rng

    @pytest.mark.entropy
    def test_a_forked_process_draws_its_own(self):
        """A fork copies memory: anything buffered would be drawn twice, once in each process."""
        noise = SystemNoise()
        noise.rng.random()
        context = multiprocessing.get_context("fork")
        receive, send = context.Pipe(duplex=False)

        def child() -> None:
            send.send((noise.discrete_laplace(1e6, 8).tolist(), noise.rng.random(8).tolist()))

        import warnings

        with (
            warnings.catch_warnings()
        ):  # other tests may have left threads behind; this child uses none of them
            warnings.simplefilter("ignore")
            process = context.Process(target=child)
            process.start()
        theirs = receive.recv()
        process.join()
        ours = (noise.discrete_laplace(1e6, 8).tolist(), noise.rng.random(8).tolist())
        assert theirs[0] != ours[0]
        assert theirs[1] != ours[1]

    @pytest.mark.entropy
    def test_threads_may_share_a_source(self):
        noise = SystemNoise()
        with ThreadPoolExecutor(8) as pool:
            draws = list(pool.map(lambda _: noise.discrete_laplace(1e9, 500), range(16)))
        together = np.concatenate(draws)
        assert np.unique(together).size > 7900  # repeats of whole blocks would halve this


@pytest.mark.entropy
def test_the_systems_noise_is_drawn_from_the_system(monkeypatch):
    drawn = []
    monkeypatch.setattr(os, "urandom", lambda count, real=os.urandom: drawn.append(count) or real(count))
    SystemNoise().discrete_laplace(1e6, 4)
    assert sum(drawn) >= 16
    before = len(drawn)
    assert SystemNoise().rng.random() != SystemNoise().rng.random()
    assert drawn[before:] == [32, 32]


def test_other_tests_draw_the_same_every_time():
    def draw(name):
        with mock.patch.object(module, "os", Entropy(name)):
            noise = SystemNoise()
            return [*noise.discrete_laplace(1e6, 4).tolist(), noise.rng.random(), SystemNoise().rng.random()]

    assert draw("a") == draw("a")
    assert set(draw("a")).isdisjoint(draw("b"))
    assert isinstance(module.os, Entropy)


class TestFixedPoint:
    @given(st.floats(-1e6, 1e6), st.integers(0, 30))
    def test_rounding_never_adds(self, value, bits):
        grid = FixedPoint(bits)
        rounded = float(grid.value(grid.floor(value)))
        assert abs(rounded) <= abs(value) < abs(rounded) + 1 / grid.one

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30])
    def test_refuses_what_has_no_place_on_the_grid(self, value):
        with pytest.raises(InputError, match="contribution 1"):
            FixedPoint(20).floor([0.5, value])


@pytest.mark.parametrize("scale", [0.001, 0.2, 1.0, 7.0, 2.0**40])
def test_laplace_variance(scale):
    """Against the sum over the support."""
    if scale > 100:
        assert laplace_variance(scale) == pytest.approx(2 * scale**2, rel=1e-6)
        return
    x = np.arange(1, 2000)
    weight = np.exp(-x / scale)
    total = 1 + 2 * weight.sum()
    assert laplace_variance(scale) == pytest.approx(2 * (x**2 * weight).sum() / total, rel=1e-9, abs=1e-300)


def test_the_systems_noise_stays_the_systems_wherever_it_is_sent():
    for sent in (pickle.loads(pickle.dumps(SystemNoise())), copy.deepcopy(SystemNoise())):
        assert type(sent) is SystemNoise
        assert sent.releasable
