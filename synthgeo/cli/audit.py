"""What ``synthgeo audit`` can attack: small mechanisms on neighbours that are built to hurt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from synthgeo.errors import ConfigError
from synthgeo.privacy.noise import Noise

STEPS = 8


@dataclass(frozen=True)
class Attack:
    """A mechanism, two inputs that differ in one event, and how many runs are worth while."""

    mechanism: Callable[..., Any]
    neighbours: tuple[Any, Any]
    runs: int
    batched: bool


@dataclass(frozen=True)
class NoisyCount:
    """One count with discrete Laplace noise."""

    epsilon: float

    def __call__(self, count: int, noise: Noise, runs: int) -> np.ndarray:
        return count + noise.discrete_laplace(1 / self.epsilon, runs)[:, None]


@dataclass(frozen=True)
class NoisyCounter:
    """All outputs of a counter over a few steps; the runs are the counters of one bank."""

    epsilon: float
    kind: str

    def __call__(self, series: np.ndarray, noise: Noise, runs: int) -> np.ndarray:
        from streams.counters import make_bank

        bank = make_bank(self.kind, epsilon=self.epsilon, noise=noise, horizon=STEPS)
        slots = bank.add(runs)
        return np.column_stack([bank.step(slots, np.full(runs, value)) for value in series])


@dataclass(frozen=True)
class NoisyStream:
    """One release of a spatial stream: its total, its cells, and how many points lie where the outlier is."""

    epsilon: float
    counter: str

    def __call__(self, data: Any, noise: Noise) -> np.ndarray:
        import synthgeo as sg

        stream = sg.PHDStream(
            domain=sg.BoxDomain(0, 0, 1, 1),
            budget=sg.PrivacyBudget(epsilon=self.epsilon),
            settings=sg.PointSettings(max_depth=4, counter=self.counter),
            noise=noise,
        )
        release: Any = stream.update(data)
        xy = release.xy
        corner = (xy > 0.75).all(axis=1).sum()
        return np.array([len(xy), corner, len(release.counts), release.released.sum()], dtype=np.float64)


def attack_of(name: str, epsilon: float, counter: str) -> Attack:
    """The attack of that name."""
    from synthgeo.auditing.neighbours import border_event, lone_point
    from synthgeo.domain.box import BoxDomain
    from synthgeo.privacy.budget import PrivacyBudget

    claimed = PrivacyBudget(epsilon=epsilon).epsilon
    if name == "noise":
        return Attack(NoisyCount(claimed), (0, 1), 200_000, batched=True)
    if counter == "toeplitz":
        raise ConfigError(
            "the Toeplitz counter is Gaussian: it has no epsilon to attack; choose another --counter"
        )
    if name == "counter":
        return Attack(NoisyCounter(claimed, counter), border_event(STEPS, 1), 100_000, batched=True)
    if name == "stream":
        return Attack(
            NoisyStream(claimed, counter), lone_point(BoxDomain(0, 0, 1, 1), bits=4), 2_000, batched=False
        )
    raise ConfigError(f"unknown mechanism {name!r}; there are noise, counter and stream")
