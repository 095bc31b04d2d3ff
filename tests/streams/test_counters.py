"""Banks of counters: what they put out, how slots live and die, saved state, bad input."""

from __future__ import annotations

import numpy as np
import pytest

from streams.counters import KINDS, LAPLACE_KINDS, bank_from_state, expected_rmse, make_bank
from streams.counters.bounded import best_tree, mean_digit_sum
from synthgeo.errors import ConfigError, InputError, StateError
from synthgeo.privacy.noise import Noise, SeededNoise

ALL = (*LAPLACE_KINDS, "toeplitz")


class ConstantNoise(SeededNoise):
    """Every draw is the same number, so the noise of an output does not depend on the order of the draws."""

    def __init__(self, value: int) -> None:
        super().__init__(0)
        self.value = value

    def discrete_laplace(self, scale, size=None):
        return np.full(np.size(scale) if size is None else size, self.value, dtype=np.int64)

    def discrete_gaussian(self, sigma, size):
        return np.full(size, self.value, dtype=np.int64)


def bank_of(kind, noise, *, horizon=20, privacy=1.0, grid_bits=0):
    named = {"rho": privacy} if kind == "toeplitz" else {"epsilon": privacy}
    return make_bank(kind, noise=noise, horizon=horizon, grid_bits=grid_bits, **named)


@pytest.mark.parametrize(
    ("horizon", "expected"),
    [
        (365, {"kary": 10.3, "block": 11.9, "simple": 18.4, "binary": 25.7}),
        (2**16, {"kary": 24.7, "block": 44.7, "simple": 245.6, "binary": 68.0}),
    ],
)
def test_expected_error_of_the_design(horizon, expected):
    found = {kind: round(expected_rmse(kind, epsilon=1.0, horizon=horizon), 1) for kind in expected}
    assert found == expected


def test_tree_shapes_of_the_design():
    assert best_tree(365) == (29, 2)
    assert best_tree(2**16) == (21, 4)
    assert make_bank("binary", epsilon=1.0, horizon=365, noise=SeededNoise(0)).levels == 9
    assert make_bank("binary", epsilon=1.0, horizon=512, noise=SeededNoise(0)).levels == 10


def test_toeplitz_against_a_binary_tree_with_gaussian_noise():
    """3.11 against 7.42 at ρ = 0.5 and 1024 steps; 11 levels need σ² = 11 / (2 ρ) in each node."""
    assert round(expected_rmse("toeplitz", rho=0.5, horizon=1024), 2) == 3.11
    ones = np.bitwise_count(np.arange(1, 1025))
    assert round(float(np.sqrt(11 * ones.mean())), 2) == 7.42


@pytest.mark.parametrize(("horizon", "k", "h"), [(364, 27, 2), (100, 5, 4), (7, 3, 3), (1000, 3, 7)])
def test_mean_digit_sum_is_the_mean(horizon, k, h):
    total = 0
    for t in range(1, horizon + 1):
        rest = t
        while rest:
            digit = (rest + k // 2) % k - k // 2
            total += abs(digit)
            rest = (rest - digit) // k
    assert mean_digit_sum(horizon, k, h) == pytest.approx(total / horizon, rel=1e-12)


@pytest.mark.parametrize("kind", ALL)
def test_without_noise_it_counts_exactly_at_all_clocks(kind):
    """Joins, drops and steps of random subsets, well past the horizon of 20."""
    rng = np.random.default_rng(3)
    bank = bank_of(kind, ConstantNoise(0))
    truth: dict[int, int] = {}
    for _ in range(150):
        for slot in bank.add(int(rng.integers(0, 4))):
            assert slot not in truth
            truth[int(slot)] = 0
        alive = np.array(sorted(truth), dtype=np.int64)
        slots = rng.permutation(alive[rng.random(alive.size) < 0.7])
        values = rng.integers(-3, 50, slots.size)
        for slot, value in zip(slots, values, strict=True):
            truth[int(slot)] += int(value)
        out = bank.step(slots, values)
        assert out.dtype == np.int64
        assert out.tolist() == [truth[int(slot)] for slot in slots]
        gone = rng.permutation(alive)[: int(rng.random() < 0.5)]
        bank.drop(gone)
        for slot in gone:
            del truth[int(slot)]
        assert bank.size == len(truth)


@pytest.mark.parametrize("kind", ALL)
def test_a_slot_does_not_feel_its_neighbours(kind):
    """Constant noise makes an output a function of the slot's own clock; compare with a bank of one."""
    alone = bank_of(kind, ConstantNoise(1 << 20))
    slot = alone.add(1)
    expected = [int(alone.step(slot, [2])[0]) for _ in range(70)]
    together = bank_of(kind, ConstantNoise(1 << 20))
    slots = together.add(12)
    rng = np.random.default_rng(4)
    for _ in range(100):
        some = slots[rng.random(12) < np.linspace(0.1, 0.7, 12)]
        out = together.step(some, np.full(some.size, 2))
        assert out.tolist() == [expected[t - 1] for t in together.clock[some]]
    assert np.unique(together.clock).size > 5


@pytest.mark.parametrize("kind", ALL)
def test_dropped_slots_are_erased_and_used_again(kind):
    bank = bank_of(kind, SeededNoise(5))
    slots = bank.add(6)
    for _ in range(30):
        bank.step(slots, np.full(6, 1000))
    bank.drop(slots[[1, 4]])
    assert bank.size == 4
    assert bank.clock.tolist() == [30, -1, 30, 30, -1, 30]
    _, arrays = bank.to_state()
    for name, array in arrays.items():
        if name not in ("free", "clock"):
            assert not array[..., [1, 4]].any(), name
    again = bank.add(3)
    assert sorted(again) == [1, 4, 6]
    assert bank.clock[again].tolist() == [0, 0, 0]
    fresh = bank_of(kind, ConstantNoise(0))
    fresh.noise, bank.noise = bank.noise, fresh.noise
    assert bank.step(again, [1, 2, 3]).tolist() == [1, 2, 3]


@pytest.mark.parametrize("kind", ALL)
def test_saved_state_goes_on_bit_for_bit(kind):
    rng = np.random.default_rng(6)
    noise = SeededNoise(7)
    bank = bank_of(kind, noise, grid_bits=4)
    slots = bank.add(9)
    for step in range(33):
        some = slots[: 1 + step % 9]
        bank.step(some, rng.integers(0, 16, some.size))
        if step == 20:
            bank.drop(slots[:1])
            slots = np.concatenate([slots[1:], bank.add(2)])
    bank.drop(slots[-1:])
    slots = slots[:-1]
    values, arrays = bank.to_state()
    twin = bank_from_state(values, arrays, Noise.from_state(noise.state()))
    assert (twin.kind, twin.size, twin.horizon, twin.grid_bits) == (bank.kind, bank.size, 20, 4)
    for _ in range(40):
        feed = rng.integers(0, 16, slots.size)
        assert np.array_equal(bank.step(slots, feed), twin.step(slots, feed))
        new, twin_new = bank.add(1), twin.add(1)
        assert np.array_equal(new, twin_new)
        slots = np.concatenate([slots, new])
    mine, theirs = bank.to_state(), twin.to_state()
    assert mine[0] == theirs[0]
    assert all(np.array_equal(mine[1][name], theirs[1][name]) for name in mine[1])


@pytest.mark.parametrize("kind", ALL)
def test_state_arrays_are_copies(kind):
    bank = bank_of(kind, SeededNoise(5))
    slots = bank.add(2)
    bank.step(slots, [1, 1])
    _, arrays = bank.to_state()
    before = {name: array.copy() for name, array in arrays.items()}
    bank.step(slots, [1, 1])
    assert all(np.array_equal(before[name], arrays[name]) for name in arrays)


def _damage(values, arrays, how):
    arrays = dict(arrays)
    if how == "missing array":
        del arrays["total"]
    elif how == "extra array":
        arrays["more"] = arrays["total"]
    elif how == "floats":
        arrays["total"] = arrays["total"].astype(float)
    elif how == "short":
        arrays["noise"] = arrays["noise"][:-1]
    elif how == "clock":
        arrays["clock"] = arrays["clock"] - 9
    elif how == "free":
        arrays["free"] = np.array([0])
    elif how == "kind":
        values = {**values, "kind": "elliptic"}
    elif how == "no kind":
        values = {name: value for name, value in values.items() if name != "kind"}
    elif how == "parameter":
        values = {**values, "speed": 3}
    elif how == "epsilon":
        values = {**values, "epsilon": -1.0}
    return values, arrays


DAMAGE = (
    "missing array",
    "extra array",
    "floats",
    "short",
    "clock",
    "free",
    "kind",
    "no kind",
    "parameter",
    "epsilon",
)


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("kind", ["kary", "hybrid", "toeplitz"])
def test_damaged_state_is_refused(kind, how):
    bank = bank_of(kind, SeededNoise(5))
    bank.step(bank.add(3), [1, 2, 3])
    values, arrays = _damage(*bank.to_state(), how)
    with pytest.raises(StateError):
        bank_from_state(values, arrays, SeededNoise(5))


def test_auto_takes_the_least_error():
    for horizon in (1, 10, 30, 60, 365, 5000, 2**16):
        best = min(LAPLACE_KINDS, key=lambda kind: expected_rmse(kind, epsilon=0.5, horizon=horizon))
        assert make_bank("auto", epsilon=0.5, horizon=horizon, noise=SeededNoise(1)).kind == best
    assert make_bank("auto", epsilon=1.0, noise=SeededNoise(1)).kind == "unbounded_kary"
    assert make_bank("auto", epsilon=1.0, horizon=10, noise=SeededNoise(1)).kind == "simple"


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("fancy", {"epsilon": 1.0}),
        ("simple", {"epsilon": 0.0}),
        ("simple", {"epsilon": -1.0}),
        ("simple", {"epsilon": float("nan")}),
        ("simple", {"epsilon": float("inf")}),
        ("simple", {"epsilon": True}),
        ("simple", {"epsilon": "1"}),
        ("simple", {}),
        ("simple", {"epsilon": 1.0, "rho": 1.0}),
        ("simple", {"rho": 1.0}),
        ("auto", {"rho": 1.0}),
        ("auto", {"epsilon": 0.0, "horizon": 10}),
        ("auto", {"epsilon": 1.0, "horizon": 0}),
        ("toeplitz", {"epsilon": 1.0, "horizon": 10}),
        ("toeplitz", {"rho": 0.0, "horizon": 10}),
        ("toeplitz", {"rho": 1.0}),
        ("toeplitz", {"rho": 1e-12, "horizon": 10, "grid_bits": 20}),
        ("block", {"epsilon": 1.0}),
        ("binary", {"epsilon": 1.0}),
        ("kary", {"epsilon": 1.0}),
        ("kary", {"epsilon": 1.0, "horizon": 0}),
        ("kary", {"epsilon": 1.0, "horizon": 2.5}),
        ("kary", {"epsilon": 1.0, "horizon": True}),
        ("kary", {"epsilon": 1.0, "horizon": 10, "grid_bits": -1}),
        ("kary", {"epsilon": 1.0, "horizon": 10, "grid_bits": 99}),
        ("kary", {"epsilon": 1e-13, "horizon": 10}),
        ("simple", {"epsilon": 1.0, "noise": np.random.default_rng(1)}),
    ],
)
def test_bad_parameters(kind, options):
    with pytest.raises(ConfigError):
        make_bank(kind, **{"noise": SeededNoise(1), **options})


@pytest.mark.parametrize(
    ("slots", "values"),
    [
        ([0, 1], [1]),
        ([0, 1], [1.0, 2.0]),
        ([0, 1], [True, False]),
        ([0, 1], [[1, 2]]),
        ([0, 0], [1, 2]),
        ([0, 3], [1, 2]),
        ([0, -1], [1, 2]),
        ([0, 2], [1, 2]),
        ([0.0, 1.0], [1, 2]),
        ([[0], [1]], [[1], [2]]),
        ([], [1]),
    ],
)
@pytest.mark.parametrize("kind", ALL)
def test_a_refused_step_changes_and_draws_nothing(kind, slots, values):
    bank = bank_of(kind, SeededNoise(8))
    bank.step(bank.add(3), [4, 5, 6])
    bank.drop([2])
    _, before = bank.to_state()
    state = bank.noise.state()
    with pytest.raises(InputError):
        bank.step(slots, values)
    _, after = bank.to_state()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert bank.noise.state() == state


def test_empty_steps_and_empty_banks():
    for kind in ALL:
        bank = bank_of(kind, SeededNoise(1))
        assert bank.add(0).size == 0
        assert bank.step([], []).dtype == np.int64
        bank.drop([])
        assert bank.size == 0
        assert bank.variance(0) == 0.0


@pytest.mark.parametrize("count", [-1, 1.5, True, "3"])
def test_bad_counts(count):
    with pytest.raises(ConfigError):
        make_bank("simple", epsilon=1.0, noise=SeededNoise(1)).add(count)


def test_the_repr_shows_no_sums():
    bank = bank_of("kary", ConstantNoise(0))
    bank.step(bank.add(2), [987654, 123456])
    assert "987654" not in repr(bank)
    assert "2 counters" in repr(bank)


def test_a_finer_grid_scales_the_noise():
    for kind in LAPLACE_KINDS:
        coarse = expected_rmse(kind, epsilon=0.01, horizon=50)
        fine = expected_rmse(kind, epsilon=0.01, horizon=50, grid_bits=10)
        assert fine == pytest.approx(1024 * coarse, rel=1e-4)


def test_kinds_are_complete():
    assert {*ALL, "auto"} == set(KINDS)
