"""The exact law of a small discrete mechanism: run it under every combination of noise draws.

Draws beyond a reach are left out; outputs are compared where the law is heavy enough for that not to matter.
"""

from __future__ import annotations

import math

import numpy as np

from synthgeo.privacy.noise import Noise, SeededNoise


class _NeedsMoreError(Exception):
    """The mechanism asked for a draw beyond those given."""


class _Given(Noise):
    def __init__(self, draws):
        self.draws, self.mass, self.used = draws, 1.0, 0

    def discrete_laplace(self, scale, size=None):
        count = 1 if size is None else size
        if self.used + count > len(self.draws):
            raise _NeedsMoreError
        part = np.array(self.draws[self.used : self.used + count], dtype=np.int64)
        self.used += count
        q = math.exp(-1 / float(scale))
        self.mass *= float(np.prod((1 - q) / (1 + q) * q ** np.abs(part)))
        return part

    def _bytes(self, count):
        raise AssertionError("only Laplace draws are enumerated")

    @property
    def rng(self):
        return SeededNoise(0).rng

    def state(self):
        return {"kind": "given"}


def exact_law(run, reaches):
    """{output: probability} of ``run(noise)``; the i-th draw is tried from -reaches[i] to reaches[i]."""
    law: dict[tuple[float, ...], float] = {}
    stack: list[tuple[int, ...]] = [()]
    while stack:
        draws = stack.pop()
        noise = _Given(draws)
        try:
            output = tuple(np.round(np.asarray(run(noise), dtype=np.float64), 9).tolist())
        except _NeedsMoreError:
            reach = reaches[len(draws)]
            stack.extend((*draws, value) for value in range(-reach, reach + 1))
            continue
        law[output] = law.get(output, 0.0) + noise.mass
    return law


def exact_loss(run, pair, *, reaches, least=1e-5):
    """Largest |ln P(output) / P'(output)| over outputs of probability at least ``least`` in both worlds."""
    one, other = (exact_law(lambda noise, values=values: run(values, noise), reaches) for values in pair)
    heavy = [output for output, mass in one.items() if mass >= least and other.get(output, 0.0) >= least]
    return max(abs(math.log(one[output] / other[output])) for output in heavy)
