"""Tables that expire: the records of the last L steps, from noisy marginals that leave the window again."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from streams.borrow import Borrower
from streams.mechanism import Arrays, laplace_scale, part_of, prefixed
from streams.sums import alive_share
from synthgeo.arrays import Floats, Ints
from synthgeo.privacy.noise import laplace_variance
from tabular.model.fitting import Measurement
from tabular.model.message_passing import Clique
from tabular.over_time.method import Setup
from tabular.over_time.rotating_marginals import DRIFT, Rotating, Slot

# A marginal waits for at most this part of a lifetime before it releases: sums that are larger than what
# expires at once would stay too long.
_LONGEST_WAIT = 0.25


@dataclass(frozen=True, eq=False)
class Part:
    """A released noisy sum of a marginal over the steps ``first`` to ``last``."""

    first: int
    last: int
    values: Floats
    variance: float


@dataclass
class WindowSlot(Slot):
    """A marginal of the structure, with the released sums that are not yet over."""

    first: int = 1  # of the steps in ``pending``
    parts: tuple[Part, ...] = ()
    noise: float = 0.0  # variance of the last fresh sum
    borrower: Borrower = field(default_factory=Borrower)


class ExpiringMarginals(Rotating):
    """Marginals release in turns, and a release's sums are left out when their steps are over.

    A sum of which a part has expired enters with the share of its steps that is alive. What is pending, and
    what was not counted in a marginal that joined later, is taken to be like the rest of the window. With
    ``borrow`` (for ``lifetime=1``) a marginal's fresh sum is combined with what earlier ones predict.

    Guarantee
    ---------
    Pure event-level ε for ever, as ``Rotating``: an insertion at step τ enters the noisy number of rows of
    its step (once, at ``rows``), at most one selection, and of each marginal in the structure at τ at most
    one released sum. Sums end when their marginal releases, which earlier outputs and the public lifetime
    decide, and expire whole or in public proportion: nothing is measured again when the window slides.
    Borrowing reads released sums only.
    """

    def __init__(self, setup: Setup) -> None:
        assert setup.lifetime is not None
        self.lifetime = setup.lifetime
        self.longest = max(1, math.floor(_LONGEST_WAIT * self.lifetime))
        self.step = 0
        self.rows_by_step: dict[int, float] = {}  # released, of the window
        super().__init__(setup)
        self.rows_scale = laplace_scale(self.rows_budget)

    @property
    def since(self) -> int:
        """The first step of the window."""
        return self.step - self.lifetime + 1

    def _new_slot(self, clique: Clique, remainder: Floats) -> WindowSlot:
        slot = super()._new_slot(clique, remainder)
        return WindowSlot(**vars(slot), first=self.step + 1)

    def _count_rows(self, batch: Ints) -> None:
        self.step += 1
        noisy = float((batch[:1] + self.setup.noise.discrete_laplace(self.rows_scale, 1))[0])
        self.rows_by_step = {
            step: number for step, number in self.rows_by_step.items() if step >= self.since
        } | {self.step: noisy}
        self.rows = max(sum(self.rows_by_step.values()), 0.0)
        self.events += max(noisy, 0.0)

    def _covered(self, slot: Slot) -> float:
        """The released number of the window's rows that a marginal's sums hold."""
        assert isinstance(slot, WindowSlot)
        steps = {step for part in slot.parts for step in range(part.first, part.last + 1)}
        return sum(number for step, number in self.rows_by_step.items() if step in steps)

    def _drift(self, clique: Clique, slot: Slot) -> float:
        return DRIFT * max(self.rows - self._covered(slot), 0.0) / math.sqrt(self.setup.cells[clique])

    def _due(self, clique: Clique, slot: Slot) -> bool:
        assert isinstance(slot, WindowSlot)
        if self.step - slot.first + 1 >= self.longest:
            return True
        standing = sum(part.variance for part in slot.parts)
        return self._drift(clique, slot) >= math.sqrt(standing + laplace_variance(1 / slot.share))

    def _release(self, slot: Slot) -> None:
        assert isinstance(slot, WindowSlot)
        scale = 1 / slot.share
        noisy = slot.pending + self.setup.noise.discrete_laplace(scale, slot.pending.size)
        part = Part(slot.first, self.step, noisy.astype(np.float64), laplace_variance(scale))
        if self.setup.borrow:
            part = _borrowed(slot, part)
        slot.parts = (*(old for old in slot.parts if old.last >= self.since), part)
        slot.pending = np.zeros_like(slot.pending)
        slot.share = math.inf
        slot.since, slot.active, slot.first = self.rows, self.events, self.step + 1
        slot.turns += 1

    def _measurements(self) -> list[Measurement]:
        out = []
        for clique, slot in self.slots.items():
            assert isinstance(slot, WindowSlot)
            alive = [(part, alive_share(part.first, part.last, self.since)) for part in slot.parts]
            alive = [(part, share) for part, share in alive if share > 0]
            if not alive:
                continue
            growth = max(self.rows, 1.0) / max(self._covered(slot), 1.0)
            values = growth * np.sum([share * part.values for part, share in alive], axis=0)
            variance = growth**2 * sum(share**2 * part.variance for part, share in alive)
            sigma = math.sqrt(variance + self._drift(clique, slot) ** 2)
            out.append(Measurement(clique, values, sigma))
        return out

    def _expected_in_period(self, candidates: list[Clique]) -> dict[Clique, Floats]:
        growth = (self.events - self.period_events) / max(self.model.total, 1.0)
        return {clique: growth * counts for clique, counts in self.model.counts(candidates).items()}

    def totals(self) -> dict[int, float]:
        return dict(self.rows_by_step)

    def copy(self) -> Self:
        twin = super().copy()
        for slot in twin.slots.values():
            assert isinstance(slot, WindowSlot)
            slot.borrower = slot.borrower.copy()
        return twin

    def own_state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super().own_state()
        windows = []
        for i, slot in enumerate(self.slots.values()):
            assert isinstance(slot, WindowSlot)
            parts = [[part.first, part.last, part.variance] for part in slot.parts]
            own, own_arrays = slot.borrower.to_state()
            windows.append({"first": slot.first, "parts": parts, "noise": slot.noise, "borrowed": own})
            arrays |= prefixed(f"slot/{i}/borrowed", own_arrays)
            arrays |= {f"slot/{i}/part/{j}": part.values for j, part in enumerate(slot.parts)}
        rows = [[step, number] for step, number in self.rows_by_step.items()]
        return values | {"step": self.step, "windows": windows, "rows_by_step": rows}, arrays

    def restore_own(self, values: dict[str, Any], arrays: Arrays) -> None:
        super().restore_own(values, arrays)
        self.step = int(values["step"])
        self.rows_by_step = {int(step): float(number) for step, number in values["rows_by_step"]}
        for i, (clique, slot) in enumerate(list(self.slots.items())):
            known = values["windows"][i]
            parts = tuple(
                Part(int(first), int(last), arrays[f"slot/{i}/part/{j}"], float(variance))
                for j, (first, last, variance) in enumerate(known["parts"])
            )
            borrower = Borrower()
            borrower.restore(known["borrowed"], part_of(f"slot/{i}/borrowed", arrays))
            base = {name: getattr(slot, name) for name in Slot.__dataclass_fields__}
            self.slots[clique] = WindowSlot(
                **base, first=known["first"], parts=parts, noise=known["noise"], borrower=borrower
            )


def _borrowed(slot: WindowSlot, fresh: Part) -> Part:
    """A step's noisy marginal combined with what earlier ones predict. Post-processing."""
    borrower, cells = slot.borrower, fresh.values.size
    if fresh.variance != slot.noise:  # errors under other noise would teach wrong weights
        borrower.errors, slot.noise = {}, fresh.variance
    values, variance = fresh.values, fresh.variance
    if borrower.steps:
        families = [(np.arange(cells), np.zeros(cells, dtype=np.int64))]
        values, spread = borrower.combine(values, variance, families, borrower.means)
        variance = max(float(spread.mean()), 1e-3 * fresh.variance)
    borrower.learn(fresh.values, borrower.means)
    return Part(fresh.first, fresh.last, values, variance)
