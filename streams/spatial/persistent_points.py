"""Living datasets: synthetic points that stay where they are until the released counts ask for more or fewer.

Post-processing of released counts. A release is then also a list of synthetic insert and delete events with
stable ids.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from synthgeo.arrays import Bools, Floats, Ints, Keys, Points
from synthgeo.hierarchy.base import MAX_BITS, Hierarchy, sticky
from synthgeo.hierarchy.cells import Partition


@dataclass(frozen=True, eq=False)
class LivingPoints:
    """Points with ids, the finest keys of their places, and the steps they were born in."""

    ids: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    xy: Points = field(default_factory=lambda: np.empty((0, 2)))
    keys: Keys = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    next_id: int = 0
    born: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def advanced(
        self,
        partition: Partition,
        released: Floats,
        hierarchy: Hierarchy,
        rng: np.random.Generator,
        *,
        step: int,
        lifetime: int | None,
    ) -> tuple[LivingPoints, Ints, pd.DataFrame]:
        """The points in line with new counts, the number in each cell, and the changes made.

        With a ``lifetime`` the points born that long ago die first.
        """
        cell = partition.cell_of(self.keys, MAX_BITS)
        if lifetime is not None:
            cell = np.where(self.born > step - lifetime, cell, -1)
        current = np.bincount(cell[cell >= 0], minlength=partition.size)
        wanted = sticky(released, current, rng)
        stays = self._survivors(cell, np.minimum(current, wanted), rng)
        missing = np.maximum(wanted - current, 0)
        added = hierarchy.sample(partition.prefix, partition.bits, missing, rng)
        ids = np.arange(self.next_id, self.next_id + len(added), dtype=np.int64)
        changes = pd.DataFrame(
            {
                "op": np.repeat(np.array([-1, 1]), [int((~stays).sum()), len(added)]),
                "id": np.concatenate([self.ids[~stays], ids]),
                "x": np.concatenate([self.xy[~stays, 0], added[:, 0]]),
                "y": np.concatenate([self.xy[~stays, 1], added[:, 1]]),
            }
        )
        # A sampled point's own key may fall a rounding error outside its cell; the first key of its cell
        # never does.
        located, inside = hierarchy.locate(added, MAX_BITS)
        owner = np.repeat(np.arange(partition.size), missing)
        home = inside & (located >= partition.start[owner]) & (located < partition.stop[owner])
        new_keys = np.where(home, located, partition.start[owner])
        after = LivingPoints(
            np.concatenate([self.ids[stays], ids]),
            np.concatenate([self.xy[stays], added]),
            np.concatenate([self.keys[stays], new_keys]),
            self.next_id + len(added),
            np.concatenate([self.born[stays], np.full(len(added), step)]),
        )
        return after, wanted, changes

    @staticmethod
    def _survivors(cell: NDArray[np.intp], quota: Ints, rng: np.random.Generator) -> Bools:
        """A random ``quota`` of the points of each cell; points outside every cell go."""
        order = np.lexsort((rng.random(cell.size), cell))
        ordered = cell[order]
        begins = np.searchsorted(ordered, np.arange(quota.size))
        rank = np.arange(cell.size) - begins[np.maximum(ordered, 0)]
        stays = np.zeros(cell.size, dtype=bool)
        stays[order] = (ordered >= 0) & (rank < quota[np.maximum(ordered, 0)])
        return stays
