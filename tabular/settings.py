"""``TableSettings``: what may be chosen about a table, once or over time, beyond its arguments."""

from __future__ import annotations

from dataclasses import dataclass

from streams.counters.base import MAX_HORIZON
from streams.schedule import EveryStep, Growing, Once, ReleaseDriven, Schedule, make_schedule
from streams.slots import TIMES_SHARE, check_times
from synthgeo import validate
from synthgeo.parameters import Settings


@dataclass(frozen=True, kw_only=True)
class TableSettings(Settings):
    """Settings of ``TabularSynthesizer``, ``HouseholdSynthesizer``, ``TabularStream`` and ``PanelStream``.

    A product refuses settings that have no effect on it: the first group is for all of them, the others name
    theirs.

    Attributes
    ----------
    max_cells
        Most cells of the model. None: 400,000 for one table, 200,000 for households, 100,000 for panels,
        50,000 for streams.
    iterations
        Steps of mirror descent (not in ``TabularStream``). None: 1,000, and 500 for panels.
    selection
        How marginals are found (``TabularSynthesizer``): ``"auto"`` in one go; ``"annealed"`` in rounds whose
        measurements get more accurate, as AIM does (McKenna et al., 2022); ``"mwem"`` in ``rounds`` rounds of
        one marginal at equal cost.
    rounds
        Most marginals that are measured (``TabularSynthesizer``). None: as many as the budget is good for.
    estimator
        What fits the model (``TabularSynthesizer``): ``"own"`` mirror descent, or the slower library
        ``"mbi"``.
    parent_share
        Part of the budget for the parent table (``HouseholdSynthesizer``).
    schedule
        When marginals are chosen (``TabularStream``). ``"auto"``: rarely; every record is counted in each
        chosen marginal, and marginals release in turns. ``"every_step"``: Algorithm 14 of Kumar (2024).
    t0
        The first steps are held back and released together at step ``t0`` (``TabularStream``).
    horizon
        The expected number of steps, where it is known: it helps the counters (``TabularStream``).
    marginals_per_step
        How many marginals a selection picks (``TabularStream``).
    borrow
        Combine the marginals of short lifetimes with what earlier ones predict (``TabularStream``;
        ``streams.borrow``), at no cost in privacy. ``"auto"``: for ``lifetime=1``.
    counter
        The counter of the marginals, by its name in ``streams.counters`` (``TabularStream``).
    structure_share
        Part of ε for choosing marginals (``TabularStream``). None: a quarter where they are chosen at every
        step, else a tenth while they are being chosen.
    times
        Give each synthetic row a ``time`` inside its window (``TabularStream``), from noisy counts of slots
        of this length: ``"hour"``, ``"minute"``, ``"15min"``. It needs a lifetime, and windows (``run``).
    times_share
        Part of ε for these times.
    """

    max_cells: int | None = None
    iterations: int | None = None
    selection: str = "auto"
    rounds: int | None = None
    estimator: str = "own"
    parent_share: float = 0.2
    schedule: str | EveryStep | Once | ReleaseDriven | Growing | Schedule = "auto"
    t0: int = 0
    horizon: int | None = None
    marginals_per_step: int = 4
    borrow: str | bool = "auto"
    counter: str = "auto"
    structure_share: float | None = None
    times: str | None = None
    times_share: float = TIMES_SHARE

    def __post_init__(self) -> None:
        make_schedule(self.schedule, auto=Growing())
        check_times(self.times, self.times_share)
        if self.borrow != "auto":
            validate.flag(self.borrow, "borrow")
        for name in ("max_cells", "iterations", "rounds"):
            self._check(**{name: _optional(getattr(self, name), name)})
        if self.structure_share is not None:
            self._check(structure_share=validate.share(self.structure_share, "structure_share"))
        self._check(
            selection=validate.one_of(self.selection, "selection", ("auto", "annealed", "mwem")),
            estimator=validate.one_of(self.estimator, "estimator", ("own", "mbi")),
            parent_share=validate.share(self.parent_share, "parent_share"),
            t0=validate.whole(self.t0, "t0", low=0),
            horizon=_optional(self.horizon, "horizon", high=MAX_HORIZON),
            marginals_per_step=validate.whole(self.marginals_per_step, "marginals_per_step", low=1),
        )


def _optional(value: int | None, name: str, *, high: int | None = None) -> int | None:
    """A whole number, at least 1, or None."""
    return None if value is None else validate.whole(value, name, low=1, high=high or validate.LARGEST)


__all__ = ["TableSettings"]
