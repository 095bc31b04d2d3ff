"""How a mechanism that samples shares its budget among samples: equally, over a horizon, or within windows.

A share is a part of ``total``, which is ε, or ρ in zCDP; either adds up over samples, also when shares and
times follow from earlier releases.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque

import numpy as np


class Shares(ABC):
    """What each sample may cost, and what has been spent on whoever is protected."""

    def __init__(self, total: float) -> None:
        self.total = total

    @abstractmethod
    def take(self, step: int, interval: int) -> float:
        """The cost of a sample at ``step`` that stands for ``interval`` steps; 0 if none is to be had now."""

    @property
    @abstractmethod
    def spent(self) -> float:
        """What has been spent, at most ``total``."""

    @abstractmethod
    def to_array(self) -> np.ndarray:
        """Plain numbers, for a saved state."""

    @abstractmethod
    def restore(self, values: np.ndarray) -> None:
        """Take back what ``to_array`` gave."""


class EqualShares(Shares):
    """One of ``count`` equal shares for each sample; whoever is protected is in at most ``count`` of them."""

    def __init__(self, total: float, count: int) -> None:
        super().__init__(total)
        self.count = count
        self.taken = 0

    def take(self, step: int, interval: int) -> float:  # noqa: ARG002 - one shape for all
        """total / count."""
        self.taken += 1
        return self.total / self.count

    @property
    def spent(self) -> float:
        """An equal share for each sample, and no more than all."""
        return self.total * min(self.taken, self.count) / self.count

    def to_array(self) -> np.ndarray:
        """How many shares were taken."""
        return np.array([self.taken], dtype=np.float64)

    def restore(self, values: np.ndarray) -> None:
        """Take back what ``to_array`` gave."""
        self.taken = int(values[0])


class HorizonShares(Shares):
    """Of what is left, the part that the steps a sample stands for are of the steps left."""

    def __init__(self, total: float, horizon: int) -> None:
        super().__init__(total)
        self.horizon = horizon
        self.left = total

    def take(self, step: int, interval: int) -> float:
        """A share of what is left; nothing past the horizon."""
        ahead = self.horizon - step
        return self.take_part(min(1.0, interval / ahead)) if ahead > 0 else 0.0

    def take_part(self, part: float) -> float:
        """This part of what is left."""
        cost = self.left if part == 1.0 else part * self.left
        self.left -= cost
        return cost

    @property
    def spent(self) -> float:
        """All but what is left."""
        return self.total - self.left

    def to_array(self) -> np.ndarray:
        """What is left."""
        return np.array([self.left])

    def restore(self, values: np.ndarray) -> None:
        """Take back what ``to_array`` gave."""
        self.left = float(values[0])


class WindowShares(Shares):
    """interval / w of the total, as far as samples of the last w - 1 steps have left it: w-event privacy.

    At a steady interval that divides w the limit never bites.
    """

    def __init__(self, total: float, window: int) -> None:
        super().__init__(total)
        self.window = window
        self.recent: deque[tuple[int, float]] = deque()
        self.dearest = 0.0

    def take(self, step: int, interval: int) -> float:
        """A share for the steps it stands for, within what any window may spend."""
        while self.recent and self.recent[0][0] <= step - self.window:
            self.recent.popleft()
        before = sum(cost for _, cost in self.recent)
        cost = min(self.total * min(1.0, interval / self.window), self.total - before)
        if cost <= 1e-9 * self.total:
            return 0.0
        self.recent.append((step, cost))
        self.dearest = min(self.total, max(self.dearest, before + cost))
        return cost

    @property
    def spent(self) -> float:
        """The most that any window has spent so far."""
        return self.dearest

    def to_array(self) -> np.ndarray:
        """The dearest window, then steps and costs of recent samples."""
        return np.array([self.dearest, *(number for sample in self.recent for number in sample)])

    def restore(self, values: np.ndarray) -> None:
        """Take back what ``to_array`` gave."""
        self.dearest = float(values[0])
        self.recent = deque((int(step), float(cost)) for step, cost in values[1:].reshape(-1, 2))
