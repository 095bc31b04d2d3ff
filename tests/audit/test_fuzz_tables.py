"""Fuzzing of tabular streams beside exact counts: inserts and deletes, saves, loads, refusals."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import synthgeo as sg
from audits.traced import _quick
from synthgeo.errors import InputError, StateError
from synthgeo.privacy.noise import SeededNoise
from tabular.over_time import every_step, rotating_marginals
from tabular.stream import TabularStream
from tests.conftest import Silence
from tests.reference.tables import RowsReference

NAMES, VALUES = ["a", "b", "c"], ["0", "1"]
SCHEMA = sg.Schema({name: sg.Categorical(VALUES) for name in NAMES})
EVENTS = st.lists(
    st.tuples(st.tuples(*[st.sampled_from(VALUES)] * 3), st.sampled_from([1, 1, 1, -1])), max_size=25
)


def frame(events):
    rows = pd.DataFrame([row for row, _ in events], columns=NAMES, dtype=object)
    return rows.assign(op=np.array([sign for _, sign in events], dtype=np.int64))


class TableMachine(RuleBasedStateMachine):
    """Two streams of one seed, of which one is saved, loaded and insulted; and one without noise, beside
    exact counts of rows.
    """

    @initialize(
        seed=st.integers(0, 2**32),
        schedule=st.sampled_from(["auto", "every_step"]),
        counter=st.sampled_from(["auto", "simple", "block"]),
    )
    def start(self, seed, schedule, counter):
        self.patch = pytest.MonkeyPatch()
        for module in (rotating_marginals, every_step):
            self.patch.setattr(module, "fit", _quick(module.fit))
        options = {
            "schema": SCHEMA,
            "budget": sg.PrivacyBudget(1.0),
            "marginals_per_step": 2,
            "schedule": schedule,
            "counter": counter,
            "horizon": 8,
        }
        self.schedule = schedule
        self.plain, self.tried = (
            sg.TabularStream.from_options(**options, noise=SeededNoise(seed)) for _ in range(2)
        )
        self.quiet = sg.TabularStream.from_options(**options, noise=Silence(seed))
        self.reference = RowsReference()
        self.release = None

    @rule(events=EVENTS)
    def update(self, events):
        batch = frame(events)
        kept = batch.copy()
        self.release, other = self.plain.update(batch), self.tried.update(batch)
        pd.testing.assert_frame_equal(batch, kept)
        pd.testing.assert_frame_equal(self.release.to_pandas(), other.to_pandas())
        self.quiet.update(batch)
        self.reference.update([row for row, _ in events], [sign for _, sign in events])

    @rule()
    def save_and_load(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "state"
            self.tried.save(path)
            self.tried = TabularStream.load(path)
            with pytest.raises(StateError):
                sg.PHDStream.load(path)

    @rule(bad=st.sampled_from([{"a": "2"}, {"b": None}, {"op": 0}]), events=EVENTS.filter(bool))
    def refuse(self, bad, events):
        batch = frame(events)
        for column, value in bad.items():
            batch[column] = batch[column].astype(object)
            batch.loc[len(batch) - 1, column] = value
        before, noise = self.tried.step, self.tried.noise.state()
        with pytest.raises(InputError, match=f"row {len(batch) - 1}"):
            self.tried.update(batch)
        assert self.tried.step == before
        assert self.tried.noise.state() == noise

    @invariant()
    def without_noise_marginals_are_counted_exactly(self):
        """What a marginal has released plus what waits is what came in since it joined; single columns join
        at the start.
        """
        method = self.quiet.mechanism
        if self.schedule != "auto" or self.quiet.step == 0:
            return
        # Deletions are left out of the total while they are too few to tell from noise.
        inserted = sum(sign for _, sign in self.reference.events if sign > 0)
        assert self.reference.total() <= method.rows <= inserted
        for clique, slot in method.slots.items():
            if slot.begin == 0 and len(clique) == 1:
                found = (slot.counted + slot.pending).tolist()
                assert found == self.reference.marginal(NAMES, clique, VALUES)

    @invariant()
    def no_event_pays_more_than_epsilon(self):
        costs = self.plain.costs
        assert costs.empty or costs["total"].max() <= 1.0 + 1e-12

    @invariant()
    def releases_are_proper(self):
        if self.release is None:
            return
        table = self.release.to_pandas()
        assert list(table.columns) == NAMES
        assert table.isin(VALUES).all().all()
        assert not self.release.releasable

    def teardown(self):
        if hasattr(self, "patch"):
            self.patch.undo()


TestTables = TableMachine.TestCase
TestTables.settings = settings(max_examples=10, stateful_step_count=8, deadline=None)
