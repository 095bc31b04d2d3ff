"""Fuzzing of online series mechanisms and durable runs, beside the references in ``tests/reference``.

Random values, gaps, saves, loads, refusals, reopenings.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import streams.scalar as series
import synthgeo as sg
from synthgeo.errors import InputError, LedgerError, StateError
from synthgeo.privacy.noise import SeededNoise
from tests.reference.series import (
    AbsorptionReference,
    DistributionReference,
    KalmanReference,
    LaplaceReference,
    SamplingReference,
)

EPSILON = 1.5
PUBLIC = {"budget": sg.PrivacyBudget(EPSILON), "missing": "public"}


def draws(seed):
    """One draw after the other, in the order in which a mechanism with that seed asks for them."""
    noise = SeededNoise(seed)
    return lambda scale: int(noise.discrete_laplace(scale, 1)[0])


KINDS = {
    "LPA": (lambda **o: series.LPA(max_steps=3, **o), lambda draw: LaplaceReference(EPSILON, 3, draw)),
    "Uniform": (lambda **o: series.Uniform(window=4, **o), lambda draw: LaplaceReference(EPSILON, 4, draw)),
    "Sampling": (
        lambda **o: series.Sampling(window=3, **o),
        lambda draw: SamplingReference(EPSILON, 3, draw),
    ),
    "BudgetDistribution": (
        lambda **o: series.BudgetDistribution(window=3, **o),
        lambda draw: DistributionReference(EPSILON, 3, draw),
    ),
    "BudgetAbsorption": (
        lambda **o: series.BudgetAbsorption(window=3, **o),
        lambda draw: AbsorptionReference(EPSILON, 3, draw),
    ),
    "FAST": (
        lambda **o: series.FAST.from_options(
            horizon=30, filter="kalman", sampling=2, max_samples=6, process_variance=50.0, **o
        ),
        lambda draw: KalmanReference(EPSILON, 2, 6, 50.0, draw),
    ),
}


class SeriesMachine(RuleBasedStateMachine):
    """A mechanism that is saved, loaded and insulted, beside its reference under the same draws."""

    @initialize(kind=st.sampled_from(sorted(KINDS)), seed=st.integers(0, 2**32))
    def start(self, kind, seed):
        make, reference = KINDS[kind]
        self.mechanism = make(noise=SeededNoise(seed), **PUBLIC)
        self.reference = reference(draws(seed))
        self.steps = 0

    def _both(self, given, value):
        released, expected = self.mechanism.update(given), self.reference.update(value)
        self.steps += 1
        assert released == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True)

    @rule(value=st.integers(-50, 200))
    def update(self, value):
        self._both(value, value)

    @rule()
    def gap(self):
        self._both(math.nan, None)

    @rule(bad=st.sampled_from([math.inf, 0.5, "7", None, True, 2**60]))
    def refuse(self, bad):
        before = self.mechanism.noise.state()
        with pytest.raises(InputError):
            self.mechanism.update(bad)
        assert self.mechanism.noise.state() == before

    @rule()
    def save_and_load(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "state"
            self.mechanism.save(path)
            self.mechanism = type(self.mechanism).load(path)
            with pytest.raises(StateError):
                series.RandomizedResponse.load(path)

    @invariant()
    def never_more_is_spent_than_there_is(self):
        assert self.mechanism.step == self.steps
        spent = self.mechanism.spent
        assert spent is None or spent.epsilon <= EPSILON * (1 + 1e-12)


TestSeries = SeriesMachine.TestCase
TestSeries.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


class DurableMachine(RuleBasedStateMachine):
    """A durable run that is closed, reopened and given batches again, beside the bare mechanism."""

    @initialize(kind=st.sampled_from(sorted(KINDS)), seed=st.integers(0, 2**32))
    def start(self, kind, seed):
        self.folder = tempfile.TemporaryDirectory()
        make, _ = KINDS[kind]
        self.make = lambda: make(noise=SeededNoise(seed), **PUBLIC)
        self.bare = self.make()
        self.known = {}
        self.run = sg.StreamRun.open(Path(self.folder.name) / "run", self.make())

    @rule(value=st.integers(-50, 200))
    def step(self, value):
        name = f"b{len(self.known)}"
        released, expected = self.run.step(name, value), self.bare.update(value)
        assert released == expected
        self.known[name] = value, released

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def give_again(self, data):
        name = data.draw(st.sampled_from(sorted(self.known)))
        value, released = self.known[name]
        assert self.run.step(name, value) == released
        assert self.run.release(name) == released

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def other_content(self, data):
        name = data.draw(st.sampled_from(sorted(self.known)))
        with pytest.raises(LedgerError):
            self.run.step(name, self.known[name][0] + 1)

    @rule(bad=st.sampled_from([math.inf, 0.5]))
    def refuse(self, bad):
        with pytest.raises(InputError):
            self.run.step(f"b{len(self.known)}", bad)

    @rule(fresh=st.booleans())
    def reopen(self, fresh):
        self.run.close()
        path = Path(self.folder.name) / "run"
        self.run = sg.StreamRun.open(path, self.make() if fresh else None)

    @invariant()
    def the_book_is_right(self):
        assert self.run.steps == len(self.known)
        assert self.run.spent == self.bare.spent

    def teardown(self):
        if hasattr(self, "run"):
            assert self.run.verify() == len(self.known)
            self.run.close()
            self.folder.cleanup()


TestDurable = DurableMachine.TestCase
TestDurable.settings = settings(max_examples=8, stateful_step_count=10, deadline=None)
