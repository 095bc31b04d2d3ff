"""Public places where a synthetic trip can start or end: short stretches of road, or cells of a plane.

A state (a road's edge, a cell) is what a walk moves over; its ends are finer than that. Each place belongs
to one state and lies in one of the parts in which ends were counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from synthgeo.arrays import Floats, Ints


@dataclass(frozen=True, eq=False)
class Places:
    """Places in the order of their parts.

    Attributes
    ----------
    state, part
        What each belongs to.
    size
        Public measure: metres of road, or area.
    low, high
        On roads, metres along the edge from which and to which it reaches. On a plane both are 0.
    """

    state: Ints
    part: Ints
    size: Floats
    low: Floats
    high: Floats

    @cached_property
    def by_state(self) -> tuple[Ints, Ints]:
        """Places in the order of their states, and the states in that order."""
        order = np.argsort(self.state, kind="stable")
        return order, self.state[order]


__all__ = ["Places"]
