"""Tables that expire: the records of the last L steps, from noisy marginals that leave the window again."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from streams.ages import age_groups
from streams.borrow import Borrower, Seasons
from streams.mechanism import Arrays, laplace_scale, part_of, prefixed
from streams.sums import alive_share
from synthgeo.arrays import Floats, Ints
from synthgeo.privacy.noise import laplace_variance
from synthgeo.sources import Histogram
from tabular.marginals import Counts
from tabular.model.fitting import Measurement
from tabular.model.junction_tree import Clique
from tabular.over_time.method import Setup
from tabular.over_time.rotating_marginals import DRIFT, Rotating, Slot

# A marginal waits for at most this part of a lifetime before it releases: sums that are larger than what
# expires at once would stay too long.
_LONGEST_WAIT = 0.25
# A pair stands for its columns once its sums hold this part of the window's rows.
_MOST = 0.9


def longest_wait(lifetime: int) -> int:
    """How many steps a marginal may wait before it releases."""
    return max(1, math.floor(_LONGEST_WAIT * lifetime))


@dataclass(frozen=True, eq=False)
class AgedPart:
    """A released noisy sum of a marginal over rows inserted in the steps ``first`` to ``last``: of those
    rows, or (``gone``) of later deletions of some of them, with a minus.
    """

    first: int
    last: int
    values: Floats
    variance: float
    gone: bool = False


@dataclass
class WindowSlot(Slot):
    """A marginal of the structure, with the released sums that are not yet over."""

    first: int = 1  # of the steps in ``pending``
    gone: tuple[Ints, ...] = ()  # deletions in these steps, by the age groups after the first; exact
    parts: tuple[AgedPart, ...] = ()
    noise: float = 0.0  # variance of the last fresh sum
    borrower: Borrower = field(default_factory=Borrower)
    seasons: Seasons = field(default_factory=Seasons)


class ExpiringMarginals(Rotating):
    """Marginals release in turns, and a release's sums are left out when their steps are over.

    A sum of which a part has expired enters with the share of its steps that is alive. What is pending, and
    what was not counted in a marginal that joined later, is taken to be like the rest of the window; so few
    are picked at a time, as many as there are columns. With
    ``borrow`` (for ``lifetime=1``) a marginal's fresh sum is combined with what earlier ones predict.
    Deletions say in their own row when their row was inserted; they are pending by public groups of ages
    (``streams.ages``), each group is released with its marginal, and fades as its insertions expire.

    Guarantee
    ---------
    Pure event-level ε for ever, as ``Rotating``: an event at step τ enters one noisy number of rows of its
    step (insertions and deletions of age 0 together, or one age group of deletions; at ``rows``), at most one
    selection (older deletions none), and of each marginal in the structure at τ at most one released sum: the
    marginal's own, or that of one age group. Sums end when their marginal releases, which earlier outputs and
    the public lifetime decide, and expire whole or in public proportion: nothing is measured again when the
    window slides. Borrowing reads released sums only.
    """

    def __init__(self, setup: Setup) -> None:
        assert setup.lifetime is not None
        self.lifetime = setup.lifetime
        self.longest = longest_wait(self.lifetime)
        self.step = 0
        self.season: tuple[str, ...] = ()  # what kinds of windows the present one is of
        self.rows_by_step: dict[int, float] = {}  # released, of the window
        self.ages = age_groups(self.lifetime)[1:] if setup.aged else []
        self.rows_gone: tuple[tuple[int, int, float], ...] = ()  # released: first, last step, deletions
        self._gone: list[Counts] = []  # deletions of the present step by age group, exact
        super().__init__(setup)
        self.rows_scale = laplace_scale(self.rows_budget)

    @property
    def since(self) -> int:
        """The first step of the window."""
        return self.step - self.lifetime + 1

    def _new_slot(self, clique: Clique, remainder: Floats) -> WindowSlot:
        slot = super()._new_slot(clique, remainder)
        gone = tuple(np.zeros_like(slot.pending) for _ in self.ages)
        return WindowSlot(**vars(slot), first=self.step + 1, gone=gone)

    def enter(self, seasons: tuple[str, ...]) -> None:
        self.season = seasons

    def advance(self, counts: Histogram, *, step: int, structure: bool) -> None:
        parts = [Histogram(counts.keys, column[:, None]) for column in counts.weights.T]
        self._gone = [self.index.split(part) for part in parts[1:]]
        super().advance(parts[0], step=step, structure=structure)
        self._gone = []

    def _collect(self, batch: Counts, share: float) -> None:
        super()._collect(batch, share)
        for clique, slot in self.slots.items():
            assert isinstance(slot, WindowSlot)
            slot.gone = tuple(old + new[clique] for old, new in zip(slot.gone, self._gone, strict=True))

    def _count_rows(self, batch: Ints) -> None:
        self.step += 1
        exact = np.array([batch[0] - batch[1], *(gone[()][1] for gone in self._gone)])
        noisy, *gone = (exact + self.setup.noise.discrete_laplace(self.rows_scale, exact.size)).tolist()
        self.rows_by_step = {
            step: number for step, number in self.rows_by_step.items() if step >= self.since
        } | {self.step: float(noisy)}
        self.rows_gone = (
            *(found for found in self.rows_gone if found[1] >= self.since),
            *(
                (*self._inserted(group, self.step), float(n))
                for group, n in zip(self.ages, gone, strict=True)
            ),
        )
        deleted = sum(alive_share(first, last, self.since) * n for first, last, n in self.rows_gone)
        self.rows = max(sum(self.rows_by_step.values()) - deleted, 0.0)
        self.events += max(noisy, 0.0)

    def _inserted(self, group: tuple[int, int], first: int) -> tuple[int, int]:
        """The steps of insertion of an age group of deletions that came from ``first`` on."""
        youngest, older = group
        return first - older + 1, self.step - youngest

    def _covered(self, slot: Slot) -> float:
        """The released number of the window's rows that a marginal's sums hold."""
        assert isinstance(slot, WindowSlot)
        steps = _steps_of(slot)
        return sum(number for step, number in self.rows_by_step.items() if step in steps)

    @property
    def inserted(self) -> float:
        """The released number of rows inserted in the window, deleted since or not."""
        return sum(self.rows_by_step.values())

    def _covers(self, slot: Slot) -> bool:
        return self._covered(slot) >= _MOST * self.inserted

    def _drift(self, clique: Clique, slot: Slot) -> float:
        return DRIFT * max(self.inserted - self._covered(slot), 0.0) / math.sqrt(self.setup.cells[clique])

    def _due(self, clique: Clique, slot: Slot) -> bool:
        assert isinstance(slot, WindowSlot)
        if self.step - slot.first + 1 >= self.longest:
            return True
        standing = sum(part.variance for part in slot.parts)
        return self._drift(clique, slot) >= math.sqrt(standing + laplace_variance(1 / slot.share))

    def _release(self, slot: Slot) -> None:
        assert isinstance(slot, WindowSlot)
        part = self._measured(slot, slot.pending, slot.first, self.step)
        if self.setup.borrow:
            part = _borrowed(slot, part, self.season)
        gone = [
            replace(self._measured(slot, counts, *self._inserted(group, slot.first)), gone=True)
            for group, counts in zip(self.ages, slot.gone, strict=True)
        ]
        slot.parts = (*(old for old in slot.parts if old.last >= self.since), part, *gone)
        slot.pending = np.zeros_like(slot.pending)
        slot.gone = tuple(np.zeros_like(counts) for counts in slot.gone)
        slot.share = math.inf
        slot.since, slot.active, slot.first = self.rows, self.events, self.step + 1
        slot.turns += 1

    def _measured(self, slot: Slot, counts: Ints, first: int, last: int) -> AgedPart:
        """A sum of a marginal with noise: the one place where noise meets it."""
        scale = 1 / slot.share
        noisy = counts + self.setup.noise.discrete_laplace(scale, counts.size)
        return AgedPart(first, last, noisy.astype(np.float64), laplace_variance(scale))

    def _alive(self, slot: WindowSlot) -> list[tuple[AgedPart, float]]:
        """What is not over, each with the share of its steps that is in the window; of deletions, the share
        whose insertions the marginal has counted.
        """
        covered = _steps_of(slot)
        found = []
        for part in slot.parts:
            steps = range(max(part.first, self.since), part.last + 1)
            counted = sum(step in covered for step in steps) if part.gone else len(steps)
            found.append((part, counted / (part.last - part.first + 1)))
        return [(part, share) for part, share in found if share > 0]

    def _measurements(self) -> list[Measurement]:
        out = []
        for clique, slot in self.slots.items():
            assert isinstance(slot, WindowSlot)
            alive = self._alive(slot)
            if not alive:
                continue
            growth = max(self.inserted, 1.0) / max(self._covered(slot), 1.0)
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
            slot.borrower, slot.seasons = slot.borrower.copy(), slot.seasons.copy()
        return twin

    def own_state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = super().own_state()
        windows = []
        for i, slot in enumerate(self.slots.values()):
            assert isinstance(slot, WindowSlot)
            parts = [[part.first, part.last, part.variance, part.gone] for part in slot.parts]
            own, own_arrays = slot.borrower.to_state()
            seasons, season_arrays = slot.seasons.to_state()
            own |= {"seasons": seasons}
            arrays |= prefixed(f"slot/{i}/seasons", season_arrays)
            windows.append({"first": slot.first, "parts": parts, "noise": slot.noise, "borrowed": own})
            arrays |= prefixed(f"slot/{i}/borrowed", own_arrays)
            arrays |= {f"slot/{i}/part/{j}": part.values for j, part in enumerate(slot.parts)}
            arrays |= {f"slot/{i}/gone/{j}": counts for j, counts in enumerate(slot.gone)}
        rows = [[step, number] for step, number in self.rows_by_step.items()]
        own = {
            "step": self.step,
            "rows_by_step": rows,
            "rows_gone": [list(found) for found in self.rows_gone],
        }
        return values | own | {"windows": windows}, arrays

    def restore_own(self, values: dict[str, Any], arrays: Arrays) -> None:
        super().restore_own(values, arrays)
        self.step = int(values["step"])
        self.rows_by_step = {int(step): float(number) for step, number in values["rows_by_step"]}
        self.rows_gone = tuple((int(a), int(b), float(n)) for a, b, n in values["rows_gone"])
        for i, (clique, slot) in enumerate(list(self.slots.items())):
            known = values["windows"][i]
            parts = tuple(
                AgedPart(int(first), int(last), arrays[f"slot/{i}/part/{j}"], float(variance), bool(gone))
                for j, (first, last, variance, gone) in enumerate(known["parts"])
            )
            pending = tuple(arrays[f"slot/{i}/gone/{j}"] for j in range(len(self.ages)))
            borrower, seasons = Borrower(), Seasons()
            borrower.restore(known["borrowed"], part_of(f"slot/{i}/borrowed", arrays))
            seasons.restore(known["borrowed"]["seasons"], part_of(f"slot/{i}/seasons", arrays))
            base = {name: getattr(slot, name) for name in Slot.__dataclass_fields__}
            self.slots[clique] = WindowSlot(
                **base,
                first=known["first"],
                gone=pending,
                parts=parts,
                noise=known["noise"],
                borrower=borrower,
                seasons=seasons,
            )


def _steps_of(slot: WindowSlot) -> set[int]:
    """The steps whose insertions a marginal has counted."""
    return {step for part in slot.parts if not part.gone for step in range(part.first, part.last + 1)}


def _borrowed(slot: WindowSlot, fresh: AgedPart, season: tuple[str, ...]) -> AgedPart:
    """A step's noisy marginal combined with what earlier ones predict. Post-processing."""
    borrower, cells = slot.borrower, fresh.values.size
    slot.seasons.enter(season, borrower.steps)
    predictions = borrower.means
    if borrower.steps:
        predictions = slot.seasons.predict(borrower.means, lambda found: found.mean)
    if fresh.variance != slot.noise:  # errors under other noise would teach wrong weights
        borrower.errors, slot.noise = {}, fresh.variance
    values, variance = fresh.values, fresh.variance
    if borrower.steps:
        families = [(np.arange(cells), np.zeros(cells, dtype=np.int64))]
        values, spread = borrower.combine(values, variance, families, predictions)
        variance = max(float(spread.mean()), 1e-3 * fresh.variance)
    borrower.learn(fresh.values, predictions)
    slot.seasons.learn(fresh.values, predictions)
    return AgedPart(fresh.first, fresh.last, values, variance)
