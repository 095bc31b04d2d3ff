"""w-event privacy: budget absorption and budget distribution (Kellaris, Papadopoulos, Xiao and Papadias
2014).

Both compare the new value with the last release through a noisy dissimilarity, and spend on a new release
only when that pays. Everything that happens within any w successive steps is protected with ε in all.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import deque
from typing import Any

import numpy as np

from streams.scalar.base import Arrays, Guarantee, Missing, NumericMechanism, need_pure
from synthgeo import validate
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import MAX_SCALE, Noise


class _WindowMechanism(NumericMechanism):
    """Half of the budget compares, half publishes; subclasses say how much a publication may take."""

    def __init__(
        self,
        *,
        budget: PrivacyBudget,
        window: int,
        sensitivity: float = 1,
        grid_bits: int = 0,
        missing: Missing = "refuse",
        nonnegative: bool = False,
        noise: Noise | None = None,
    ) -> None:
        need_pure(budget, type(self).__name__)
        super().__init__(budget, sensitivity, grid_bits, missing, nonnegative, noise)
        self.window = validate.whole(window, "window", low=1)
        self._published: int | None = None  # the last release, in grid steps
        self._publishing: deque[float] = deque(
            [0.0] * self.window, maxlen=self.window
        )  # ε of the last w publications
        self._comparing: deque[float] = deque([0.0] * self.window, maxlen=self.window)
        self._dearest = 0.0

    @abstractmethod
    def _affordable(self) -> float:
        """The ε that a publication may take at this step; 0 for none."""

    def _after(self, epsilon: float) -> None:
        """Take note of a publication."""

    @property
    def guarantee(self) -> Guarantee:
        """w-event, pure, central."""
        return Guarantee(
            "w-event", "pure", "central", f"everything within any {self.window} successive steps"
        )

    @property
    def spent(self) -> PrivacyBudget | None:
        """The most that any window of w steps has spent so far."""
        return PrivacyBudget(self._dearest) if self._dearest else None

    @property
    def publications(self) -> int:
        """How many values have been published rather than repeated."""
        return self._queries

    def _gap(self) -> float:
        self._note(0.0, 0.0)
        return self._last

    def _note(self, comparing: float, publishing: float) -> None:
        self._comparing.append(comparing)
        self._publishing.append(publishing)
        self._dearest = max(self._dearest, sum(self._comparing) + sum(self._publishing))

    def _release(self, steps: int) -> float:
        affordable = self._affordable()
        scale = self._step_sensitivity / affordable if affordable > 0 else math.inf
        comparing = 0.0
        worth = scale <= MAX_SCALE  # a public fact: nothing is compared when nothing could be published
        if worth and self._published is not None:
            comparing = self.budget.epsilon / (2 * self.window)
            distance = abs(steps - self._published)
            worth = (
                distance + int(self.noise.discrete_laplace(self._step_sensitivity / comparing, 1)[0]) > scale
            )
        if not worth:
            self._note(comparing, 0.0)
            return self._last
        self._published = steps + int(self.noise.discrete_laplace(scale, 1)[0])
        self._queries += 1
        self._after(affordable)
        self._note(comparing, affordable)
        return float(self.grid.value(self._published))

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super()._state()
        arrays |= {
            "publishing": np.array(self._publishing),
            "comparing": np.array(self._comparing),
            "dearest": np.array([self._dearest]),
        }
        return values | {"published": self._published}, arrays

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        super()._restore(values, arrays)
        self._published = None if values["published"] is None else int(values["published"])
        self._publishing.extend(float(v) for v in arrays["publishing"])
        self._comparing.extend(float(v) for v in arrays["comparing"])
        self._dearest = float(arrays["dearest"][0])


class BudgetDistribution(_WindowMechanism):
    """Budget distribution (BD): a publication takes half of what the window has left.

    Guarantee
    ---------
    w-event ε, pure, central. Neighbours: two series that differ, by at most Δ a value, within w successive
    steps. Each step's dissimilarity |value - last release| has sensitivity Δ and costs ε / (2w): ε / 2 in a
    window. A publication takes half of ε / 2 minus what publications of the last w - 1 steps took, so those
    of a window never exceed ε / 2. The last release is public and the choices follow from noisy numbers:
    adaptive composition. The first step has nothing to compare with and publishes.
    """

    def _affordable(self) -> float:
        recent = sum(self._publishing) - self._publishing[0]
        return max(0.0, (self.budget.epsilon / 2 - recent) / 2)


class BudgetAbsorption(_WindowMechanism):
    """Budget absorption (BA): a publication takes the unused shares before it and forgoes as many after it.

    Guarantee
    ---------
    w-event ε, pure, central; neighbours and dissimilarity as in ``BudgetDistribution``. A publication at t
    takes k shares of ε / (2w), k <= w, and the next is at t' >= t + k - 1 + k' where k' is its own number.
    Let publications t_1 < ... < t_n lie in a window, t_n - t_1 <= w - 1, with K shares in all. Adding the
    gaps, 2K - k_1 - k_n - (n - 1) <= w - 1; and the others hold at least one share each, so k_1 + k_n <= K -
    n + 2. Together K <= w: at most ε / 2 is published in a window.
    """

    _free_from = 0  # the first step whose share nothing has claimed

    def _affordable(self) -> float:
        shares = min(self.step - self._free_from + 1, self.window)
        return max(0, shares) * self.budget.epsilon / (2 * self.window)

    def _after(self, epsilon: float) -> None:
        shares = round(epsilon * 2 * self.window / self.budget.epsilon)
        self._free_from = self.step + shares  # its own step, and shares - 1 that it forgoes

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super()._state()
        return values | {"free_from": self._free_from}, arrays

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        super()._restore(values, arrays)
        self._free_from = int(values["free_from"])
