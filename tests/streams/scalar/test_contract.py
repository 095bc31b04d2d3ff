"""One contract for every scalar mechanism: inputs, gaps, exhaustion, causality, seeds, save and load,
provenance.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from streams.scalar.base import NumericMechanism
from synthgeo.errors import BudgetExhausted, ConfigError, InputError, StateError
from tests.streams.scalar.examples import APPROXIMATE, COUNTS, EXAMPLES, LENGTH, MARKOV, PURE

S = sg.series

# Groups follow from the classes: a new example is in every test that its kind asks for.
MADE = {name: example.make() for name, example in EXAMPLES.items()}
ALL = list(EXAMPLES)
BATCHED = [name for name, made in MADE.items() if getattr(made, "batch", None)]  # ``update`` takes a batch
ONLINE = [name for name, made in MADE.items() if made.online and name not in BATCHED]
OFFLINE = [name for name, made in MADE.items() if not made.online]
LOCAL = [name for name, made in MADE.items() if made.guarantee.model == "local"]
NUMERIC = [name for name in ONLINE if isinstance(MADE[name], NumericMechanism)]
ENDING = [name for name, example in EXAMPLES.items() if example.ends]
ENDLESS = [name for name in ONLINE if name not in ENDING]
REPEATING = [name for name in NUMERIC if not EXAMPLES[name].predicts]


def make(name: str, seed: int = 1, **options):
    return EXAMPLES[name].make(seed, **options), EXAMPLES[name].series.copy()


def test_every_mechanism_has_an_example():
    public = {kind for kind in vars(S).values() if isinstance(kind, type) and hasattr(kind, "guarantee")}
    assert {example.kind for example in EXAMPLES.values()} == public == set(S.MECHANISMS.values())


@pytest.mark.parametrize("name", ALL)
def test_parameters_are_those_of_the_constructor_in_one_order(name):
    mechanism, _ = make(name)
    parameters = mechanism.get_params()
    assert {"budget", "noise"} <= set(parameters)
    assert parameters["budget"] == mechanism.budget
    for option, value in EXAMPLES[name].options.items():
        found = parameters if option in parameters else vars(mechanism.settings)
        assert found[option] == value
    # Public domain first, then budget and time, then the method, then what values are like, then noise.
    order = [
        ("states", "prior", "transition"),
        ("budget",),
        ("horizon", "window", "max_steps"),
        ("sensitivity", "grid_bits", "missing", "nonnegative"),
        ("noise",),
    ]
    ranks = [next((i for i, group in enumerate(order) if p in group), None) for p in parameters]
    known = [rank for rank in ranks if rank is not None]
    assert known == sorted(known)
    assert ranks[-1] == len(order) - 1


@pytest.mark.parametrize("name", ALL)
def test_the_repr_makes_an_equal_mechanism(name):
    mechanism, series = make(name)
    names = {**vars(S), "PrivacyBudget": sg.PrivacyBudget, "SeededNoise": sg.SeededNoise}
    again = eval(repr(mechanism), names)
    np.testing.assert_array_equal(mechanism.run(series), again.run(series))


@pytest.mark.parametrize("name", ALL)
def test_run_returns_one_number_a_step_and_leaves_the_input_alone(name):
    mechanism, series = make(name)
    before = series.copy()
    released = mechanism.run(series)
    assert released.shape == series.shape
    assert np.isfinite(released).all()
    np.testing.assert_array_equal(series, before)
    assert mechanism.step == LENGTH
    assert mechanism.budget.covers(mechanism.spent)


@pytest.mark.parametrize("name", ALL)
def test_series_may_be_a_list_an_array_or_a_pandas_series(name):
    outputs = [make(name)[0].run(kind(EXAMPLES[name].series)) for kind in (list, np.array, pd.Series)]
    np.testing.assert_array_equal(outputs[0], outputs[1])
    np.testing.assert_array_equal(outputs[0], outputs[2])


@pytest.mark.parametrize("name", [*ONLINE, *BATCHED])
def test_save_and_load_in_the_middle_changes_nothing(name, tmp_path):
    whole, series = make(name)
    broken, _ = make(name)
    head, tail = series[:12], series[12:]
    expected = np.concatenate([whole.run(head), whole.run(tail)])
    first = broken.run(head)
    broken.save(tmp_path / "state")
    loaded = type(broken).load(tmp_path / "state")
    assert loaded.spent == broken.spent
    assert loaded.step == 12
    np.testing.assert_array_equal(np.concatenate([first, loaded.run(tail)]), expected)
    assert loaded.spent == whole.spent


@pytest.mark.parametrize("name", OFFLINE)
def test_an_offline_mechanism_remembers_that_it_has_spent(name, tmp_path):
    mechanism, series = make(name)
    assert not mechanism.online
    with pytest.raises(ConfigError, match="whole series"):
        mechanism.update(series[0])
    assert mechanism.spent is None
    mechanism.run(series)
    mechanism.save(tmp_path / "state")
    for used in (mechanism, type(mechanism).load(tmp_path / "state")):
        with pytest.raises(BudgetExhausted, match="has released its series"):
            used.run(series)


@pytest.mark.parametrize("name", NUMERIC)
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (math.nan, "missing"),
        (math.inf, "infinite"),
        ("3", "not a number"),
        (True, "not a number"),
        (0.5, "whole number"),
        (1e300, "too large"),
        (None, "not a number"),
    ],
)
def test_a_bad_value_is_refused_and_nothing_changes(name, bad, message):
    mechanism, series = make(name)
    twin, _ = make(name)
    mechanism.update(series[0])
    twin.update(series[0])
    spent = mechanism.spent
    with pytest.raises(InputError, match=message):
        mechanism.update(bad)
    assert mechanism.spent == spent
    assert mechanism.step == 1
    assert mechanism.noise.state() == twin.noise.state()
    assert mechanism.update(series[1]) == twin.update(series[1])


@pytest.mark.parametrize("name", ALL)
def test_a_bad_row_in_a_series_is_named_and_nothing_is_spent(name):
    mechanism, series = make(name)
    state = mechanism.noise.state()
    for bad in (math.nan, math.inf, 0.5):
        series[7] = bad
        with pytest.raises(InputError, match="row 7"):
            mechanism.run(series)
    with pytest.raises(InputError, match="one dimension"):
        mechanism.run(np.zeros((2, 3)))
    with pytest.raises(InputError):
        mechanism.run("123")
    with pytest.raises(InputError):
        mechanism.run(np.array(["1", "2"]))
    assert mechanism.spent is None
    assert mechanism.step == 0
    assert mechanism.noise.state() == state


@pytest.mark.parametrize("name", [name for name in ONLINE if EXAMPLES[name].predicts is not None])
def test_a_public_gap_gets_a_prediction_and_costs_nothing(name):
    mechanism, series = make(name, missing="public")
    first = [mechanism.update(value) for value in series[:6]]
    spent = mechanism.spent
    bits = mechanism.noise.state()["bits"]
    released = mechanism.update(math.nan)
    assert mechanism.spent == spent
    assert mechanism.noise.state()["bits"] == bits
    assert mechanism.step == 7
    assert math.isfinite(released)
    if name in REPEATING:
        assert released == first[-1]


@pytest.mark.parametrize("name", NUMERIC)
def test_a_gap_before_anything_is_released_is_nan(name):
    mechanism, series = make(name, missing="public")
    assert math.isnan(mechanism.update(math.nan))
    assert mechanism.spent is None
    assert math.isfinite(mechanism.run(series[1:])[-1])


@pytest.mark.parametrize("name", ["lpa", *OFFLINE])
def test_gaps_in_a_whole_series(name):
    mechanism, series = make(name, missing="public")
    series[[3, 4, 9]] = np.nan
    released = mechanism.run(series)
    assert np.isfinite(released).all()
    if name == "lpa":
        assert released[2] == released[3] == released[4]
        assert mechanism.spent.epsilon == pytest.approx((LENGTH - 3) / LENGTH)


@pytest.mark.parametrize("name", ENDING)
def test_a_budget_that_runs_out_raises_and_changes_nothing(name):
    mechanism, series = make(name)
    mechanism.run(series)
    state, spent = mechanism.noise.state(), mechanism.spent
    value = series[: mechanism.batch] if name in BATCHED else series[0]
    with pytest.raises(BudgetExhausted):
        mechanism.update(value)
    with pytest.raises(BudgetExhausted):
        mechanism.run(series)
    assert mechanism.noise.state() == state
    assert mechanism.spent == spent
    assert mechanism.step == LENGTH


@pytest.mark.parametrize("name", ENDING)
def test_a_series_longer_than_the_budget_is_refused_before_it_starts(name):
    mechanism, series = make(name)
    with pytest.raises(BudgetExhausted):
        mechanism.run(np.concatenate([series, series]))
    assert mechanism.spent is None
    assert mechanism.step == 0
    mechanism.run(series)


@pytest.mark.parametrize("name", ENDLESS)
def test_mechanisms_without_an_end_go_on(name):
    mechanism, series = make(name)
    for _ in range(4):
        assert np.isfinite(mechanism.run(series)).all()
    assert mechanism.budget.covers(mechanism.spent)


@pytest.mark.parametrize("name", ALL)
def test_an_empty_series_spends_nothing(name):
    mechanism, _ = make(name)
    assert mechanism.run([]).size == 0
    assert mechanism.spent is None


@pytest.mark.parametrize("name", [*NUMERIC, *OFFLINE])
def test_constant_zero_negative_and_single_values(name):
    for series in (np.full(LENGTH, 50.0), np.zeros(LENGTH), np.full(LENGTH, -1000.0), np.array([3.0])):
        released = make(name)[0].run(series)
        assert released.shape == series.shape
        # One value drawn at rate 0.4 may well be none: the documented NaN.
        assert np.isfinite(released).all() or (name in ("subsampled", "filtered") and series.size == 1)


@pytest.mark.parametrize("name", [*NUMERIC, *OFFLINE])
def test_nonnegative_clips_what_is_released(name):
    plain, _ = make(name)
    clipped, _ = make(name, nonnegative=True)
    series = np.zeros(LENGTH)
    np.testing.assert_array_equal(np.maximum(plain.run(series), 0), clipped.run(series))


@pytest.mark.parametrize("name", [*NUMERIC, *OFFLINE])
def test_real_values_live_on_the_grid(name):
    mechanism, series = make(name, grid_bits=6, sensitivity=0.3)
    assert mechanism._step_sensitivity == math.ceil(0.3 * 64)
    assert np.isfinite(mechanism.run(series + 0.123)).all()


@pytest.mark.parametrize("name", ALL)
def test_provenance_is_public_and_complete(name):
    mechanism, series = make(name)
    mechanism.run(series)
    statement = mechanism.provenance()
    text = json.dumps(statement)
    assert statement["mechanism"] == type(mechanism).__name__
    assert statement["releasable"] is False
    assert statement["budget"] == mechanism.budget.to_dict()
    assert statement["guarantee"]["level"] == mechanism.guarantee.level
    assert mechanism.guarantee.protects in text
    if name not in LOCAL:
        for private in (series.sum(), series.max(), series[0]):
            assert f"{private:.0f}" not in text.replace('"horizon": 24', "")
    assert "Guarantee" in type(mechanism).__doc__


@pytest.mark.parametrize("name", ALL)
def test_system_noise_is_the_default_and_releasable(name):
    mechanism = EXAMPLES[name].make(seed=None)
    assert isinstance(mechanism.noise, sg.SystemNoise)
    assert mechanism.releasable


class FirstDraw(sg.SeededNoise):
    """Remembers how wide the first noise was asked for."""

    width = 0.0

    def _note(self, width):
        self.width = self.width or float(np.max(width))

    def discrete_laplace(self, scale, size=None):
        self._note(scale)
        return super().discrete_laplace(scale, size)

    def discrete_gaussian(self, sigma, size):
        self._note(sigma)
        return super().discrete_gaussian(sigma, size)

    def words(self, count):
        self._note(count)
        return super().words(count)


@pytest.mark.parametrize("name", [*NUMERIC, *OFFLINE])
def test_noise_on_a_grid_is_that_of_whole_steps(name):
    """1.3 on a grid of eighths is 11 steps: noise is that of whole numbers of this sensitivity."""
    example, widths = EXAMPLES[name], []
    guess = {k: v / 64 for k, v in example.options.items() if k == "process_variance"}
    for options, values in (
        ({"grid_bits": 3, "sensitivity": 1.3, **guess}, example.series / 8),
        ({"sensitivity": 11}, example.series),
    ):
        noise = FirstDraw(1)
        example.kind.from_options(budget=example.budget, noise=noise, **{**example.options, **options}).run(
            values
        )
        widths.append(noise.width)
    assert widths[0] == pytest.approx(widths[1], rel=1e-9)
    assert widths[0] > 0


@pytest.mark.parametrize("name", ["lpa", "ar1", "sip"])
def test_a_state_of_an_earlier_version_is_refused(name, tmp_path, monkeypatch):
    mechanism, _ = make(name)
    with monkeypatch.context() as earlier:
        earlier.setattr(type(mechanism), "VERSION", 2)
        mechanism.save(tmp_path / "state")
    with pytest.raises(StateError, match="begin anew"):
        type(mechanism).load(tmp_path / "state")


def test_a_state_of_another_kind_is_refused(tmp_path):
    make("lpa")[0].save(tmp_path / "state")
    with pytest.raises(StateError, match="LPA"):
        S.FAST.load(tmp_path / "state")
    (tmp_path / "state").write_bytes(b"nothing")
    with pytest.raises(StateError):
        S.LPA.load(tmp_path / "state")


def test_pandas_missing_values_and_text_are_told_apart():
    mechanism, _ = make("lpa", missing="public")
    released = mechanism.run(pd.Series([5, None, 7], dtype="Int64"))
    assert released[1] == released[0]
    with pytest.raises(InputError, match="row 1"):
        mechanism.run(pd.Series([5, "x", 7], dtype=object))


def test_a_window_longer_than_the_series_is_no_trouble():
    for kind in (S.BudgetAbsorption, S.BudgetDistribution, S.Uniform, S.Sampling):
        mechanism = kind(budget=PURE, window=1000, noise=sg.SeededNoise(1))
        assert np.isfinite(mechanism.run(COUNTS)).all()
        assert mechanism.budget.covers(mechanism.spent)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: S.LPA(budget=PURE),
        lambda: S.LPA(budget=PURE, horizon=0),
        lambda: S.LPA(budget=PURE, horizon=True),
        lambda: S.LPA(budget=PURE, horizon=3, sensitivity=0),
        lambda: S.LPA(budget=PURE, horizon=3, grid_bits=-1),
        lambda: S.LPA(budget=PURE, horizon=3, missing="drop"),
        lambda: S.LPA(budget=1.0, horizon=3),
        lambda: S.LPA(budget=PURE, horizon=3, noise=np.random.default_rng()),
        lambda: S.LPA(budget=APPROXIMATE, horizon=3),
        lambda: S.Gaussian(budget=PURE, horizon=3),
        lambda: S.FAST(budget=PURE, horizon=3, filter="wiener"),
        lambda: S.FAST(budget=PURE, horizon=3, sampling=0),
        lambda: S.FAST(budget=PURE, horizon=3, settings=sg.series.FASTSettings(gains=(1, 1, 0))),
        lambda: S.AR1Release(budget=APPROXIMATE, weights=0.5),
        lambda: S.AR1Release(budget=APPROXIMATE, horizon=5, weights=1.5),
        lambda: S.AR1Release(budget=APPROXIMATE, horizon=5, weights=[0.5, 0.5]),
        lambda: S.AR1Release(budget=PURE, horizon=5),
        lambda: S.GeometricWeights(1.0, 1.0),
        lambda: S.Sampling(budget=PURE),
        lambda: S.Sampling(budget=PURE, horizon=5),
        lambda: S.Sampling(budget=PURE, horizon=5, window=5),
        lambda: S.SubsampledRelease(budget=APPROXIMATE, max_steps=3, rate=0),
        lambda: S.SubsampledRelease(budget=PURE, max_steps=3),
        lambda: S.RandomizedResponse(budget=PURE, horizon=3, states=[1]),
        lambda: S.RandomizedResponse(budget=PURE, horizon=3, states=[1, 1]),
        lambda: S.SIPInstant(budget=PURE, horizon=3, prior=[0.5, 0.6], transition=MARKOV["transition"]),
        lambda: S.SIPInstant(budget=PURE, horizon=3, prior=[0.5, 0.5], transition=[[1, 0]]),
        lambda: S.SIPInstant(budget=PURE, horizon=3, distance="euclid", **MARKOV),
        lambda: S.SIPBatched(budget=PURE, horizon=30, batch=10, **MARKOV),
        lambda: S.SIPInstant(budget=PURE, **MARKOV),
        lambda: S.SIPInstant(budget=PURE, horizon=3, window=3, **MARKOV),
        lambda: S.SIPBatched(budget=PURE, window=4, batch=3, **MARKOV),
        lambda: S.ToPS(budget=PURE, horizon=3, states=[[0, 1], [1, 0]]),
        lambda: S.TemporalResponse(budget=PURE, horizon=3, coverage=0.0, **MARKOV),
        lambda: S.WindowResponse(budget=PURE, window=3, sharing="half"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ConfigError):
        wrong()
