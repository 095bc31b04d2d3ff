"""The registry of series mechanisms for tests: one small example of each, and the series it takes.

The contract suite, the pinned outputs and the saved states run over it. ``test_contract`` checks that no
mechanism of ``sg.series`` is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import synthgeo as sg

S = sg.series
PURE = sg.PrivacyBudget(1.0)
APPROXIMATE = sg.PrivacyBudget(1.0, delta=1e-5)
LARGE = sg.PrivacyBudget(12.0)
LENGTH = 24
_RNG = np.random.default_rng(5)
COUNTS = np.floor(200 + 40 * np.sin(np.arange(LENGTH) / 4) + _RNG.normal(0, 5, LENGTH))
BITS = (_RNG.uniform(size=LENGTH) < 0.5).astype(float)
CUBE = [[[0.9, 0.1], [0.5, 0.5]], [[0.3, 0.7], [0.2, 0.8]]]
MARKOV = {"prior": [0.5, 0.5], "transition": [[0.8, 0.2], [0.3, 0.7]]}


@dataclass(frozen=True)
class Example:
    """How to make a mechanism, and a series it takes.

    ``ends``: past the series it raises ``BudgetExhausted``. ``predicts``: a public gap is released as a
    prediction (True), as the last release (False), or as NaN (None).
    """

    kind: type
    budget: sg.PrivacyBudget
    options: Mapping[str, Any] = field(default_factory=dict)
    series: np.ndarray = field(default_factory=lambda: COUNTS)
    ends: bool = False
    predicts: bool | None = False

    def make(self, seed: int | None = 1, **options: Any) -> Any:
        """A fresh mechanism, seeded unless ``seed`` is None."""
        noise = None if seed is None else sg.SeededNoise(seed)
        return self.kind.from_options(budget=self.budget, noise=noise, **{**self.options, **options})


EXAMPLES: dict[str, Example] = {
    "lpa": Example(S.LPA, PURE, {"horizon": LENGTH}, ends=True),
    "gaussian": Example(S.Gaussian, APPROXIMATE, {"horizon": LENGTH}, ends=True),
    "fast": Example(S.FAST, PURE, {"horizon": LENGTH}, predicts=True),
    "fast-guess": Example(S.FAST, PURE, {"horizon": LENGTH, "process_variance": 100.0}, predicts=True),
    "fast-window": Example(S.FAST, PURE, {"window": 5}, predicts=True),
    "fast-event": Example(S.FAST, PURE, {"max_steps": 1}, predicts=True),
    "fast-gaussian": Example(S.FAST, APPROXIMATE, {"horizon": LENGTH}, predicts=True),
    "fast-kalman": Example(
        S.FAST,
        PURE,
        {"horizon": LENGTH, "filter": "kalman", "sampling": "adaptive", "max_samples": 20},
        predicts=True,
    ),
    "fast-particle": Example(
        S.FAST,
        PURE,
        {
            "horizon": LENGTH,
            "filter": "particle",
            "sampling": "adaptive",
            "particles": 50,
            "max_samples": 20,
        },
        predicts=True,
    ),
    "fast-fixed": Example(
        S.FAST, PURE, {"horizon": LENGTH, "filter": "kalman", "sampling": 3}, predicts=True
    ),
    "ar1": Example(S.AR1Release, APPROXIMATE, {"horizon": LENGTH, "weights": 0.4}, ends=True, predicts=True),
    "ar1-binomial": Example(
        S.AR1Release,
        APPROXIMATE,
        {"horizon": LENGTH, "weights": 0.5, "mechanism": "binomial"},
        ends=True,
        predicts=True,
    ),
    "ar1-geometric": Example(
        S.AR1Release, APPROXIMATE, {"weights": S.GeometricWeights(1, 0.9)}, predicts=True
    ),
    "absorption": Example(S.BudgetAbsorption, PURE, {"window": 5}),
    "distribution": Example(S.BudgetDistribution, PURE, {"window": 5}),
    "counter": Example(S.ContinualCounter, PURE, {"horizon": LENGTH}),
    "counter-binary": Example(
        S.ContinualCounter, PURE, {"horizon": LENGTH, "max_steps": 2, "counter": "binary", "output": "steps"}
    ),
    "counter-toeplitz": Example(S.ContinualCounter, APPROXIMATE, {"horizon": LENGTH}),
    "uniform": Example(S.Uniform, PURE, {"window": 5}),
    "sampling": Example(S.Sampling, PURE, {"window": 5}),
    "sampling-user": Example(S.Sampling, PURE, {"horizon": LENGTH, "interval": 4}, ends=True),
    "sip": Example(S.SIPInstant, LARGE, {"horizon": LENGTH, **MARKOV}, BITS, ends=True, predicts=True),
    "sip-batched": Example(S.SIPBatched, LARGE, {"horizon": LENGTH, "batch": 3, **MARKOV}, BITS, ends=True),
    "randomized-response": Example(
        S.RandomizedResponse, LARGE, {"horizon": LENGTH}, BITS, ends=True, predicts=None
    ),
    "unary-encoding": Example(S.UnaryEncoding, LARGE, {"horizon": LENGTH}, BITS, ends=True, predicts=None),
    "temporal-response": Example(
        S.TemporalResponse, LARGE, {"horizon": LENGTH, **MARKOV}, BITS, ends=True, predicts=True
    ),
    "window-response": Example(S.WindowResponse, LARGE, {"window": 4}, BITS),
    "window-unary": Example(
        S.WindowResponse, LARGE, {"window": 4, "sharing": "absorption", "encoding": "unary"}, BITS
    ),
    "tops": Example(S.ToPS, LARGE, {"states": [0, 1], "horizon": LENGTH, "warm_up": 4}, BITS, ends=True),
    "sip-delta": Example(
        S.SIPInstant,
        sg.PrivacyBudget(4.0, 1e-3),
        {"horizon": LENGTH, **MARKOV},
        BITS,
        ends=True,
        predicts=True,
    ),
    "sip-window": Example(S.SIPInstant, LARGE, {"window": 6, **MARKOV}, BITS, predicts=True),
    "sip-second-order": Example(
        S.SIPInstant,
        LARGE,
        {"horizon": LENGTH, "prior": [0.5, 0.5], "transition": CUBE},
        BITS,
        ends=True,
        predicts=True,
    ),
    "dft": Example(S.DFT, PURE, {"coefficients": 4}),
    "dft-gaussian": Example(S.DFT, APPROXIMATE, {"coefficients": 4}),
    "dft-delay": Example(S.DFT, PURE, {"horizon": LENGTH, "coefficients": 3, "delay": 5}, ends=True),
    "subsampled": Example(S.SubsampledRelease, APPROXIMATE, {"max_steps": 4, "rate": 0.4}),
    "filtered": Example(S.FilteredRelease, APPROXIMATE, {"max_steps": 4, "rate": 0.4, "bandwidth": 2}),
}
