"""Noise drawn in bulk and handed out one by one, so that a mechanism can be run a hundred thousand times.

The draws are those of the source underneath, in another order: same law, independent.
"""

from __future__ import annotations

import copy

import numpy as np

from synthgeo.privacy.noise import Noise

_POOL = 4096


class PooledNoise(Noise):
    def __init__(self, source):
        self.source = source
        self.pools = {}

    def _take(self, key, size, draw):
        pool, place = self.pools.get(key, (np.empty(0, dtype=np.int64), 0))
        if place + size > len(pool):
            pool, place = draw(max(_POOL, size)), 0
        self.pools[key] = pool, place + size
        return pool[place : place + size]

    def discrete_laplace(self, scale, size=None):
        if np.ndim(scale):
            return self.source.discrete_laplace(scale)
        count = 1 if size is None else size
        return self._take(("laplace", scale), count, lambda n: self.source.discrete_laplace(scale, n))

    def discrete_gaussian(self, sigma, size):
        return self._take(("gaussian", sigma), size, lambda n: self.source.discrete_gaussian(sigma, n))

    def _bytes(self, count):
        return self._take("bytes", count, lambda n: self.source._bytes(16 * n)).astype(np.uint8)

    @property
    def rng(self):
        return self.source.rng

    def state(self):
        return {"kind": "pooled"}


def many(values, noise, count, *, make):
    """``count`` independent runs of a series mechanism, one a row."""
    pool = PooledNoise(noise)
    return np.stack([np.asarray(make(noise=pool).run(values)) for _ in range(count)])


def copy_of(template, *, noise):
    """A fresh mechanism like ``template``, which took long to calibrate, with another source of noise."""
    made = copy.deepcopy(template)
    made.noise = noise
    return made
