"""A bank of simple counters whose noise meets its number in the open, so that replay can follow it.

Real banks keep noise and sums apart; that they cost an event at most their ε, whatever is fed to them, is
audited on its own (``whitebox.counter_costs``). With this bank of the same ε in their place, replay audits
all the rest of a stream.
"""

from __future__ import annotations

import numpy as np

from synthgeo.privacy.noise import laplace_variance


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

    def variance(self, time):
        return np.asarray(time) * laplace_variance(self.scale)
