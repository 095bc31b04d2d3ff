"""A bank of simple counters whose noise meets its number in the open, so that replay can follow it.

Real banks keep noise and sums apart; that they cost an event at most their ε, whatever is fed to them, is
audited on its own (``whitebox.counter_costs``). With this bank of the same ε in their place, replay audits
all the rest of a stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import replace
from unittest import mock

import numpy as np

import streams.spatial.phd
import synthgeo.privacy.filter
import tabular.multiplicative_weights
import tabular.once
import tabular.rounds
import trajectories.setup
from synthgeo.auditing.duels import replayed_selection
from synthgeo.privacy.noise import laplace_variance
from tabular.over_time import baselines, every_step, rotating_marginals


class TracedBank:
    kind = "simple"

    def __init__(self, kind, *, epsilon, noise, horizon=None, grid_bits=0):
        self.scale = 2.0**grid_bits / epsilon
        self.noise = noise
        self.total = np.zeros(0, dtype=np.int64)
        self.clock = np.zeros(0, dtype=np.int64)

    def add(self, count):
        slots = np.arange(self.total.size, self.total.size + count)
        self.total = np.concatenate([self.total, np.zeros(count, dtype=np.int64)])
        self.clock = np.concatenate([self.clock, np.zeros(count, dtype=np.int64)])
        return slots

    def step(self, slots, values):
        if len(slots) == 0:
            return np.zeros(0, dtype=np.int64)
        noisy = np.asarray(np.asarray(values) + self.noise.discrete_laplace(self.scale, len(slots)))
        self.total[slots] += noisy.astype(np.int64)
        self.clock[slots] += 1
        return self.total[slots]

    def drop(self, slots):
        self.total[slots] = 0

    def copy(self):
        twin = copy(self)
        twin.total, twin.clock = self.total.copy(), self.clock.copy()
        return twin

    def variance(self, time):
        return np.asarray(time) * laplace_variance(self.scale)


@contextmanager
def traced() -> Iterator[None]:
    """Every product in a form that replay and duels can follow: traced banks, selections that ask the noise,
    and quick fits of models. What is audited is what goes into them.
    """
    with ExitStack() as stack:
        for module in (streams.spatial.phd, rotating_marginals, every_step):
            stack.enter_context(mock.patch.object(module, "make_bank", TracedBank))
        for module in (
            rotating_marginals,
            every_step,
            baselines,
            synthgeo.privacy.filter,
            tabular.multiplicative_weights,
        ):
            stack.enter_context(mock.patch.object(module, "exponential_mechanism", replayed_selection))
        for module in (rotating_marginals, every_step, baselines, tabular.once, tabular.rounds):
            stack.enter_context(mock.patch.object(module, "fit", _quick(module.fit)))
        stack.enter_context(mock.patch.object(trajectories.setup, "calibrate", _keep))
        yield


def _quick(fit):
    def quick(*args, **options):
        return fit(*args, **{**options, "iterations": 5})

    return quick


def _keep(blank, *_):
    """In place of the calibration of trips, which is slow: the model that knows what was measured. Trips can
    be drawn from it.
    """
    pairs = replace(blank.pairs, count=np.maximum(np.asarray(blank.pairs.count, dtype=np.float64), 0.0))
    return blank.but(pairs=pairs)
