"""Two small streams for the tests of durable runs: one releases numbers, one releases frames."""

from __future__ import annotations

import numpy as np
import pandas as pd

from streams.counters import bank_from_state, make_bank
from synthgeo.errors import BudgetExhausted, InputError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import Noise
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.release import Release, provenance
from synthgeo.state import load_state, save_state


class Tally:
    """Counts array sums with a private counter; says that each step spends an equal share of the budget."""

    def __init__(self, *, noise, horizon=50, epsilon=1.0):
        self.budget = PrivacyBudget(epsilon)
        self.unit = PrivacyUnit.event()
        self.noise = noise
        self.horizon = horizon
        self.step = 0
        self.bank = make_bank("kary", epsilon=epsilon, horizon=horizon, noise=noise)
        self.slots = self.bank.add(1)

    @property
    def spent(self):
        return self.budget * (self.step / self.horizon) if self.step else None

    def update(self, batch):
        values = np.asarray(batch)
        if values.dtype.kind != "i":
            raise InputError("values must be whole numbers")
        if self.step == self.horizon:
            raise BudgetExhausted("the horizon is reached")
        self.step += 1
        return self._release(int(self.bank.step(self.slots, [int(values.sum())])[0]))

    def _release(self, count):
        return float(count)

    def save(self, path):
        bank, arrays = self.bank.to_state()
        values = {"noise": self.noise.state(), "bank": bank, "step": self.step, "horizon": self.horizon}
        save_state(path, type(self).__name__, 1, {**values, "epsilon": self.budget.epsilon}, arrays)

    @classmethod
    def load(cls, path):
        values, arrays = load_state(path, cls.__name__, 1)
        noise = Noise.from_state(values["noise"])
        made = cls(noise=noise, horizon=values["horizon"], epsilon=values["epsilon"])
        made.bank = bank_from_state(values["bank"], arrays, noise)
        made.slots = np.array([0])
        made.step = values["step"]
        return made


class FrameRelease(Release):
    """A frame with a row for each counted thing; builds itself late, with the stream's own generator."""

    def __init__(self, count, rng, **statement):
        super().__init__(**statement)
        self._count = count
        self._rng = rng

    def _build(self):
        size = max(0, self._count)
        return pd.DataFrame({"id": np.arange(size), "x": self._rng.random(size)})

    def redraw(self, turn):
        return FrameRelease(
            self._count, self._rng, step=self.step, spent=self.spent, provenance=self.provenance
        )

    def expected_error(self):
        return pd.DataFrame({"standard_deviation": [1.0]})


class FrameTally(Tally):
    """The same, with a release that holds a frame."""

    def _release(self, count):
        statement = provenance(mechanism="tally", unit=self.unit, budget=self.budget, noise=self.noise)
        return FrameRelease(count, self.noise.rng, step=self.step, spent=self.spent, provenance=statement)
