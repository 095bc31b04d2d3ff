"""w-event privacy: budget absorption and budget distribution (Kellaris, Papadopoulos, Xiao and Papadias
2014).

Both compare the new value with the last release through a noisy dissimilarity, and spend on a new release
only when that pays. Everything that happens within any w successive steps is protected with ε in all.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from streams.scalar.base import Arrays, Guarantee, Missing, NumericMechanism, need_pure, read_rows
from synthgeo import validate
from synthgeo.arrays import Bools, Floats, Ints
from synthgeo.errors import ConfigError
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import MAX_SCALE, Noise

LONGEST_WINDOW = 2**20  # steps: what each of them spent is kept, and added up at every step


class WindowBudget(ABC):
    """How ε is shared among the steps of any window of w: half compares, half publishes."""

    def __init__(self, epsilon: float, window: int) -> None:
        self.epsilon = epsilon
        self.window = window
        self.comparing = epsilon / (2 * window)  # the ε of one comparison
        self._published: deque[float] = deque([0.0] * window, maxlen=window)  # ε of the last w publications
        self._compared: deque[float] = deque([0.0] * window, maxlen=window)
        self.dearest = 0.0  # the most that any window has spent so far

    @abstractmethod
    def affordable(self, step: int) -> float:
        """The ε that a publication may take at this step; 0 for none."""

    def note(self, step: int, *, compared: bool, published: float) -> None:  # noqa: ARG002 - subclasses
        """Take note of what a step spent."""
        self._compared.append(self.comparing if compared else 0.0)
        self._published.append(published)
        self.dearest = max(self.dearest, sum(self._compared) + sum(self._published))

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """What a saved mechanism needs."""
        return {}, {
            "publishing": np.array(self._published),
            "comparing": np.array(self._compared),
            "dearest": np.array([self.dearest]),
        }

    def restore(self, values: dict[str, Any], arrays: Arrays) -> None:  # noqa: ARG002 - subclasses
        """Take back what ``state`` gave."""
        self._published.extend(float(v) for v in arrays["publishing"])
        self._compared.extend(float(v) for v in arrays["comparing"])
        self.dearest = float(arrays["dearest"][0])


class DistributedBudget(WindowBudget):
    """A publication takes half of what publications of the window have left."""

    def affordable(self, step: int) -> float:  # noqa: ARG002 - one shape for both
        """Half of ε / 2 less what the last w - 1 steps published with."""
        recent = sum(self._published) - self._published[0]
        return max(0.0, (self.epsilon / 2 - recent) / 2)


class AbsorbedBudget(WindowBudget):
    """A publication takes the unused shares before it and forgoes as many after it."""

    _free_from = 0  # the first step whose share nothing has claimed

    def affordable(self, step: int) -> float:
        """One share of ε / (2w) for each step that has not been claimed, at most w."""
        shares = min(step - self._free_from + 1, self.window)
        return max(0, shares) * self.epsilon / (2 * self.window)

    def note(self, step: int, *, compared: bool, published: float) -> None:
        """A publication with k shares claims its own step and the k - 1 after it."""
        if published:
            self._free_from = step + round(published * 2 * self.window / self.epsilon)
        super().note(step, compared=compared, published=published)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """What a saved mechanism needs."""
        values, arrays = super().state()
        return values | {"free_from": self._free_from}, arrays

    def restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        """Take back what ``state`` gave."""
        super().restore(values, arrays)
        self._free_from = int(values["free_from"])


class _WindowMechanism(NumericMechanism):
    """Compare, then publish or repeat; subclasses say how ε is shared."""

    _sharing: ClassVar[type[WindowBudget]]

    def __init__(
        self,
        *,
        budget: PrivacyBudget,
        window: int,
        dimensions: int | None = None,
        sensitivity: float = 1,
        grid_bits: int = 0,
        missing: Missing = "refuse",
        nonnegative: bool = False,
        noise: Noise | None = None,
    ) -> None:
        need_pure(budget, type(self).__name__)
        super().__init__(budget, sensitivity, grid_bits, missing, nonnegative, noise)
        self.window = validate.whole(window, "window", low=1, high=LONGEST_WINDOW)
        self.dimensions = (
            None if dimensions is None else validate.whole(dimensions, "dimensions", low=1, high=2**24)
        )
        self._account = self._sharing(budget.epsilon, self.window)
        self._published: Any = None  # the last release, in grid steps
        if self.dimensions is not None:
            self._last: Any = np.full(self.dimensions, math.nan)
        others = (self.dimensions or 1) - 1 if self.grid_bits else 0  # numbers that may round apart, too
        if others > self._step_sensitivity:
            raise ConfigError(
                f"grid_bits={self.grid_bits} is too coarse for {self.dimensions} numbers: rounding needs "
                f"more noise than the sensitivity; take steps of {self.sensitivity / others:.1g} or less"
            )
        self._step_sensitivity += others

    @property
    def guarantee(self) -> Guarantee:
        """w-event, pure, central."""
        return Guarantee(
            "w-event", "pure", "central", f"everything within any {self.window} successive steps"
        )

    @property
    def spent(self) -> PrivacyBudget | None:
        """The most that any window of w steps has spent so far."""
        return PrivacyBudget(self._account.dearest) if self._account.dearest else None

    @property
    def publications(self) -> int:
        """How many values have been published rather than repeated."""
        return self._queries

    def update(self, value: Any) -> Any:
        """Release the next value, or the next vector."""
        if self.dimensions is None:
            return super().update(value)
        return self.run([value])[0]

    def run(self, series: Iterable[Any]) -> Floats:
        """Release the next values, or vectors (one a row). Everything is checked before anything is spent."""
        if self.dimensions is None:
            return super().run(series)
        steps, gap = self._read(series)
        out = [
            self._done(self._gap() if missing else self._release(row))
            for row, missing in zip(steps, gap, strict=True)
        ]
        return np.array(out).reshape(-1, self.dimensions)

    def _read(self, series: Any) -> tuple[Ints, Bools]:
        if self.dimensions is None:
            return super()._read(series)
        return self._to_grid(read_rows(series, self.dimensions))

    def _done(self, released: Any) -> Any:
        if self.dimensions is None:
            return super()._done(released)
        self._last = released
        self.step += 1
        return np.maximum(released, 0.0) if self.nonnegative else released

    def _gap(self) -> float:
        self._account.note(self.step, compared=False, published=0.0)
        return self._last  # type: ignore[no-any-return]

    def _release(self, steps: Any) -> Any:
        count = self.dimensions or 1
        affordable = self._account.affordable(self.step)
        scale = self._step_sensitivity / affordable if affordable > 0 else math.inf
        worth = scale <= MAX_SCALE  # a public fact: nothing is compared when nothing could be published
        compared = worth and self._published is not None
        if compared:
            distance = sum(np.abs(np.atleast_1d(steps - self._published)).tolist())  # exact at any size
            noise = self._step_sensitivity / self._account.comparing
            worth = distance + int(self.noise.discrete_laplace(noise, 1)[0]) > count * scale
        if not worth:
            self._account.note(self.step, compared=compared, published=0.0)
            return self._last
        fresh = steps + self.noise.discrete_laplace(scale, count)
        self._published = fresh if self.dimensions is not None else int(fresh[0])
        self._queries += 1
        self._account.note(self.step, compared=compared, published=affordable)
        released = self.grid.value(self._published)
        return released if self.dimensions is not None else float(released)

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super()._state()
        more, account = self._account.state()
        values |= more
        if self.dimensions is None:
            values["published"] = self._published
        elif self._published is not None:
            arrays["published"] = self._published
        return values, arrays | account

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        if self.dimensions is None:
            super()._restore(values, arrays)
            self._published = None if values["published"] is None else int(values["published"])
        else:
            self._queries = int(values["queries"])
            self._last = np.array(arrays["last"][0], dtype=np.float64)
            self._published = np.array(arrays["published"]) if "published" in arrays else None
        self._account.restore(values, arrays)


class BudgetDistribution(_WindowMechanism):
    """Budget distribution (BD): a publication takes half of what the window has left.

    With ``dimensions`` d, ``update`` takes and releases vectors of d numbers (a histogram, say), and
    ``sensitivity`` bounds what one unit changes a vector by in L1. Real numbers (``grid_bits`` b > 0) need
    steps of at most Δ / (d - 1); coarser ones are refused.

    Guarantee
    ---------
    w-event ε, pure, central. Neighbours: two series that differ, by at most Δ a step (in L1), within w
    successive steps. Rounding down d real numbers, each on its own, turns Δ into at most ceil(Δ 2^b) + d - 1
    grid steps in L1; below, Δ is that number. Each step's dissimilarity, the L1 distance of the value from
    the last release, has sensitivity Δ and costs ε / (2w): ε / 2 in a window. A publication takes half of ε /
    2 minus what publications of the last w - 1 steps took, so those of a window never exceed ε / 2; its noise
    of scale Δ / ε_t on every number is the Laplace mechanism at L1 sensitivity Δ. The last release is public
    and the choices follow from noisy numbers: adaptive composition. The first step has nothing to compare
    with and publishes.
    """

    _sharing = DistributedBudget


class BudgetAbsorption(_WindowMechanism):
    """Budget absorption (BA): a publication takes the unused shares before it and forgoes as many after it.

    ``dimensions`` as in ``BudgetDistribution``.

    Guarantee
    ---------
    w-event ε, pure, central; neighbours and dissimilarity as in ``BudgetDistribution``. A publication at t
    takes k shares of ε / (2w), k <= w, and the next is at t' >= t + k - 1 + k' where k' is its own number.
    Let publications t_1 < ... < t_n lie in a window, t_n - t_1 <= w - 1, with K shares in all. Adding the
    gaps, 2K - k_1 - k_n - (n - 1) <= w - 1; and the others hold at least one share each, so k_1 + k_n <= K -
    n + 2. Together K <= w: at most ε / 2 is published in a window.
    """

    _sharing = AbsorbedBudget
