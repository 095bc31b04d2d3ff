"""``PointSettings``: what may be chosen about a stream of points beyond its arguments."""

from __future__ import annotations

from dataclasses import dataclass

from streams.counters.base import MAX_HORIZON
from streams.schedule import EveryStep, Growing, Once, ReleaseDriven, Schedule, make_schedule
from streams.slots import TIMES_SHARE, check_times
from synthgeo import validate
from synthgeo.domain.coordinates import check_outside
from synthgeo.parameters import Settings


@dataclass(frozen=True, kw_only=True)
class PointSettings(Settings):
    """Settings of ``PHDStream`` and its baselines.

    Attributes
    ----------
    schedule
        When the structure is looked for. ``"auto"``: once, at the first step; then it follows the released
        counts, which costs nothing. ``"every_step"``: a new PrivTree at every step, with its share of ε.
        ``"once"``: the first tree is kept. A ``Growing`` schedule looks again at growing intervals.
    t0
        The first steps are held back and released together at step ``t0``. 0: every step is released.
    horizon
        The expected number of steps, where it is known: it helps the counters.
    persist
        Keep synthetic points, with ids, from step to step; with a lifetime they die of age.
    borrow
        Combine the counts of short lifetimes with what earlier releases predict (``streams.borrow``).
        ``"auto"``: for ``lifetime=1``.
    counter
        The counter of each leaf, by its name in ``streams.counters``. ``"auto"``: the one of least error.
    structure_share
        Part of ε that the events of a structure step pay for the structure.
    times
        Give each synthetic point a ``time`` inside its window, from noisy counts of slots of this length:
        ``"hour"``, ``"minute"``, ``"15min"``. It needs a lifetime, and windows (``run``). None: no times.
    times_share
        Part of ε for these times.
    max_depth
        Deepest level of the tree.
    fanout
        Children of a node. None: that of the domain's hierarchy.
    theta
        PrivTree's threshold: nodes with scores above it are split.
    outside
        Points outside the domain: ``"drop"`` them, or ``"error"``.
    """

    schedule: str | EveryStep | Once | ReleaseDriven | Growing | Schedule = "auto"
    t0: int = 0
    horizon: int | None = None
    persist: bool = False
    borrow: str | bool = "auto"
    counter: str = "auto"
    structure_share: float = 0.5
    times: str | None = None
    times_share: float = TIMES_SHARE
    max_depth: int = 20
    fanout: int | None = None
    theta: float = 0.0
    outside: str = "drop"

    def __post_init__(self) -> None:
        make_schedule(self.schedule, auto=ReleaseDriven())
        check_times(self.times, self.times_share)
        if self.borrow != "auto":
            validate.flag(self.borrow, "borrow")
        self._check(
            t0=validate.whole(self.t0, "t0", low=0),
            horizon=self.horizon
            if self.horizon is None
            else validate.whole(self.horizon, "horizon", low=1, high=MAX_HORIZON),
            persist=validate.flag(self.persist, "persist"),
            structure_share=validate.share(self.structure_share, "structure_share"),
            outside=check_outside(self.outside),
        )


__all__ = ["PointSettings"]
