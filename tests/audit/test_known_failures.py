"""Failures that other privacy libraries have had in public, as tests of this one.

The issues are named so that a reader can compare; the tests are about this toolkit only.
"""

from __future__ import annotations

import inspect
import math

import numpy as np
import pandas as pd
import pytest

import streams.scalar as series
import synthgeo as sg
import tabular.once
from synthgeo.errors import ConfigError, InputError
from synthgeo.privacy.accountant import Accountant
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.privacy.noise import SeededNoise, SystemNoise
from synthgeo.privacy.selection import exponential_mechanism
from synthgeo.sources import open_source

BOX = sg.BoxDomain(0, 0, 1, 1)
BUDGET = sg.PrivacyBudget(1.0)


class TestNaN:
    """opendp#2935: NaN treated as a value, where clamping and sorting do not see it."""

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_a_stream_refuses_it_and_spends_nothing(self, bad):
        noise = SeededNoise(1)
        stream = sg.PHDStream(domain=BOX, budget=BUDGET, noise=noise)
        before = noise.state()
        with pytest.raises(InputError, match="row 1"):
            stream.update(pd.DataFrame({"x": [0.5, bad], "y": [0.5, 0.5]}))
        assert stream.spent is None
        assert stream.step == 0
        assert noise.state() == before

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_a_series_refuses_it(self, bad):
        mechanism = series.LPA(budget=BUDGET, horizon=3, noise=SeededNoise(1))
        with pytest.raises(InputError):
            mechanism.run([1.0, bad, 2.0])
        assert mechanism.spent is None

    def test_a_score_of_nan_is_refused(self):
        with pytest.raises(InputError):
            exponential_mechanism([0.0, math.nan], epsilon=1.0, sensitivity=1.0, noise=SystemNoise())

    def test_a_table_refuses_a_number_that_is_none(self):
        schema = sg.Schema({"age": sg.Numeric(0, 100, bins=4)})
        model = sg.TabularSynthesizer(schema=schema, budget=BUDGET, noise=SeededNoise(1))
        with pytest.raises(InputError, match="age"):
            model.fit(pd.DataFrame({"age": [3.0, math.inf]}))
        assert model.spent is None


class TestContributionBounding:
    """google/differential-privacy PR#84: bounding that goes wrong for users far above the bound."""

    def test_what_is_kept_of_a_user_depends_on_that_user_alone(self):
        unit = sg.PrivacyUnit.user(max_events=3)
        mine = np.arange(50, dtype=np.uint64)
        alone = ContributionBounder(unit).admit(np.full(50, 7), mine, np.ones(50, dtype=np.int64))
        rng = np.random.default_rng(1)
        for crowd in (0, 10, 1000):
            others = rng.integers(100, 200, crowd)
            users = np.concatenate([others[: crowd // 2], np.full(50, 7), others[crowd // 2 :]])
            keys = np.concatenate([np.zeros(crowd // 2), mine, np.ones(crowd - crowd // 2)]).astype(np.uint64)
            kept = ContributionBounder(unit).admit(users, keys, np.ones(users.size, dtype=np.int64))
            assert np.array_equal(kept[users == 7], alone)
            assert kept[users == 7].sum() == 3

    def test_the_bound_holds_over_the_life_of_a_stream(self):
        bounder = ContributionBounder(sg.PrivacyUnit.user(max_events=3))
        kept = sum(
            int(bounder.admit(np.full(5, 7), np.arange(5, dtype=np.uint64), np.ones(5, dtype=np.int64)).sum())
            for _ in range(10)
        )
        assert kept == 3


class TestZeroSensitivity:
    """smartnoise-sdk#128 and #317: a sensitivity of zero that means "no noise"."""

    @pytest.mark.parametrize("sensitivity", [0, 0.0, -1.0, math.nan])
    def test_is_refused_everywhere(self, sensitivity):
        noise = SystemNoise()
        calls = (
            lambda: noise.discrete_laplace(sensitivity / 1.0, 3),
            lambda: exponential_mechanism([1.0, 2.0], epsilon=1.0, sensitivity=sensitivity, noise=noise),
            lambda: Accountant(sg.PrivacyBudget(1.0, 1e-6)).charge_gaussian(1.0, sensitivity, "x"),
            lambda: series.LPA(budget=BUDGET, horizon=3, sensitivity=sensitivity),
            lambda: series.DFT(budget=BUDGET, sensitivity=sensitivity),
        )
        for call in calls:
            with pytest.raises(ConfigError):
                call()


class TestDefaultSeed:
    """DataSynthesizer PR#46: a fixed default seed, so that everybody can subtract the noise."""

    @pytest.mark.parametrize(
        "kind",
        [
            sg.PHDStream,
            sg.TabularStream,
            sg.TabularSynthesizer,
            sg.TrajectorySynthesizer,
            series.LPA,
            series.FAST,
        ],
    )
    def test_no_product_has_one(self, kind):
        names = set()
        for base in kind.__mro__:
            names |= set(inspect.signature(base.__init__).parameters) if "__init__" in vars(base) else set()
        assert "noise" in names
        assert not any("seed" in name for name in names)

    def test_two_streams_draw_differently(self):
        batch = np.full((100, 2), 0.3)
        totals = {
            float(sg.PHDStream(domain=BOX, budget=BUDGET).update(batch).released.sum())
            for _ in range(30)  # two totals agree less than half the time: 30 do not by chance
        }
        assert len(totals) > 1

    def test_the_default_is_the_systems_noise(self):
        stream = sg.PHDStream(domain=BOX, budget=BUDGET)
        assert isinstance(stream.noise, SystemNoise)
        assert stream.update(np.full((10, 2), 0.3)).releasable


class TestPreprocessing:
    """smartnoise-sdk#485: a preprocessing step that spends budget unseen, or is charged and not spent."""

    def test_bins_found_in_the_data_are_paid_from_the_same_budget(self, monkeypatch):
        taken = []

        class Watched(tabular.once.PrivacyFilter):
            def _take(self, fraction):
                amount = super()._take(fraction)
                taken.append(amount)
                return amount

        monkeypatch.setattr(tabular.once, "PrivacyFilter", Watched)
        fit = tabular.once.fit
        monkeypatch.setattr(
            tabular.once,
            "fit",
            lambda *args, **options: fit(*args, **{**options, "iterations": 3}),
        )
        schema = sg.Schema({"age": sg.Numeric(0, 100, bins="auto"), "sex": sg.Categorical(["F", "M"])})
        frame = pd.DataFrame({"age": np.linspace(1, 99, 60), "sex": ["F", "M"] * 30})
        model = sg.TabularSynthesizer(schema=schema, budget=BUDGET, noise=SeededNoise(1)).fit(frame)
        assert model.spent == BUDGET
        assert taken[0] == pytest.approx(tabular.once.BIN_SHARE * BUDGET.epsilon)
        assert 0.99 * BUDGET.epsilon < math.fsum(taken) <= BUDGET.epsilon


class TestClipping:
    """smartnoise-sdk#622: clipping to bounds from the data, or that piles outliers up at the edge."""

    def test_a_point_outside_the_domain_changes_nothing(self):
        inside = pd.DataFrame({"x": [0.2, 0.8], "y": [0.2, 0.8]})
        outside = pd.concat([inside, pd.DataFrame({"x": [5.0], "y": [0.5]})], ignore_index=True)
        one, other = (
            sg.PHDStream(domain=BOX, budget=BUDGET, noise=SeededNoise(3)).update(batch)
            for batch in (inside, outside)
        )
        np.testing.assert_array_equal(one.partition.prefix, other.partition.prefix)
        np.testing.assert_array_equal(one.released, other.released)

    def test_a_number_beyond_the_bounds_is_one_at_the_bound(self):
        """Clipping goes to the bounds of the schema, not of the data: 101 and 10^9 are one record."""
        schema = sg.Schema({"age": sg.Numeric(0, 100, bins=4, outside="clip")})
        near, far = (
            schema.encode(open_source(pd.DataFrame({"age": [3.0, value]})).read(["age"]))
            for value in (101.0, 1e9)
        )
        np.testing.assert_array_equal(near, far)
        assert near[1, 0] == 3

    def test_or_it_is_refused_when_so_told(self):
        stream = sg.PHDStream(
            domain=BOX, budget=BUDGET, settings=sg.PointSettings(outside="error"), noise=SeededNoise(3)
        )
        with pytest.raises(InputError):
            stream.update(pd.DataFrame({"x": [0.2, 5.0], "y": [0.2, 0.8]}))
        assert stream.spent is None
