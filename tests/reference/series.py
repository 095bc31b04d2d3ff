"""Online series mechanisms as their papers describe them, one value at a time. Slow, whole numbers, obvious.

``draw(scale)`` gives one discrete Laplace draw. ``None`` as a value is a public gap.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod


class LaplaceReference:
    """Noise of scale ``steps / ε`` on every value."""

    def __init__(self, epsilon, steps, draw):
        self.scale, self.draw, self.last = steps / epsilon, draw, math.nan

    def update(self, value):
        if value is not None:
            self.last = float(value + self.draw(self.scale))
        return self.last


class SamplingReference:
    """One noisy value at the start of each window, repeated until the next."""

    def __init__(self, epsilon, window, draw):
        self.scale, self.window, self.draw = 1 / epsilon, window, draw
        self.last, self.time = math.nan, 0

    def update(self, value):
        if value is not None and self.time % self.window == 0:
            self.last = float(value + self.draw(self.scale))
        self.time += 1
        return self.last


class WindowReference(ABC):
    """Kellaris et al.: compare with ε/2 over the window, publish with the other half."""

    def __init__(self, epsilon, window, draw):
        self.epsilon, self.window, self.draw = epsilon, window, draw
        self.last, self.time, self.published_with = math.nan, 0, []

    @abstractmethod
    def affordable(self):
        """What may be spent on publishing at this step."""

    def update(self, value):
        if value is None:
            self.published_with.append(0.0)
            self.time += 1
            return self.last
        budget = self.affordable()
        publish = budget > 0
        if publish and not math.isnan(self.last):
            compared = abs(value - self.last) + self.draw(2 * self.window / self.epsilon)
            publish = compared > 1 / budget
        if publish:
            self.last = float(value + self.draw(1 / budget))
            self.after(budget)
        self.published_with.append(budget if publish else 0.0)
        self.time += 1
        return self.last

    def after(self, budget):
        """What publishing costs the steps to come: nothing, unless a method says so."""
        return


class DistributionReference(WindowReference):
    def affordable(self):
        recent = self.published_with[-(self.window - 1) :] if self.window > 1 else []
        return (self.epsilon / 2 - sum(recent)) / 2


class AbsorptionReference(WindowReference):
    free_from = 0

    def affordable(self):
        shares = min(self.time - self.free_from + 1, self.window)
        return max(shares, 0) * self.epsilon / (2 * self.window)

    def after(self, budget):
        shares = round(budget * 2 * self.window / self.epsilon)
        self.free_from = self.time + shares


class KalmanReference:
    """FAST at a fixed rate: sample, perturb, correct; predict in between."""

    def __init__(self, epsilon, every, most, process, draw):
        self.scale, self.every, self.most, self.process, self.draw = (
            most / epsilon,
            every,
            most,
            process,
            draw,
        )
        self.mean = self.spread = math.nan
        self.time = self.next = self.used = 0
        q = math.exp(-1 / self.scale)
        self.noise = 2 * q / (1 - q) ** 2

    def update(self, value):
        started = not math.isnan(self.mean)
        if started:
            self.spread += self.process
        if value is None:
            if self.time >= self.next:
                self.next = self.time + 1
        elif self.time >= self.next and self.used < self.most:
            observed = float(value + self.draw(self.scale))
            self.used += 1
            self.next = self.time + self.every
            if started:
                gain = self.spread / (self.spread + self.noise)
                self.mean += gain * (observed - self.mean)
                self.spread *= 1 - gain
            else:
                self.mean, self.spread = observed, self.noise
        self.time += 1
        return self.mean
