"""Addresses of cells, the same for every hierarchy.

A *cell* is a pair (prefix, bits). The cell of 0 bits is everything; each further bit, or group of bits, says
which part of the cell above was taken, and ``prefix`` holds these bits, the first in the highest place. A
*key* is the prefix of a point at the finest level asked for. Keys are ``uint64`` of at most ``MAX_BITS``
bits, and the cells below a cell are a contiguous range of keys: that is what makes a level of a tree one
``searchsorted``.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from synthgeo import ragged
from synthgeo.arrays import Ints, Keys
from synthgeo.errors import ConfigError

MAX_BITS = 62
Bits: TypeAlias = int | Ints  # of all cells, or of each

ROOT: Keys = np.zeros(1, dtype=np.uint64)  # the prefix of the cell of 0 bits
_ONE = np.uint64(1)


def check_bits(bits: Bits) -> Bits:
    """``bits`` if all are in [0, MAX_BITS]."""
    values = np.asarray(bits)
    if values.dtype.kind not in "iu" or (values.size and (values.min() < 0 or values.max() > MAX_BITS)):
        raise ConfigError(f"bits must be whole numbers in [0, {MAX_BITS}], got {bits!r}")
    return bits


def as_cells(prefix: Keys, bits: Bits) -> tuple[Keys, Ints]:
    """Cells with a number of bits for each."""
    check_bits(bits)
    prefix = np.asarray(prefix, dtype=np.uint64)
    return prefix, np.broadcast_to(np.asarray(bits, dtype=np.int64), prefix.shape)


def aligned(prefix: Keys, bits: Bits) -> Keys:
    """First key of each cell at ``MAX_BITS``, where cells of different sizes compare as integers."""
    return prefix << (MAX_BITS - np.asarray(bits)).astype(np.uint64)


def key_range(prefix: Keys, bits: Bits, finer: int) -> tuple[Keys, Keys]:
    """First key, and key after the last, of each cell at ``finer`` >= bits."""
    shift = (finer - np.asarray(bits, dtype=np.int64)).astype(np.uint64)
    prefix = np.asarray(prefix, dtype=np.uint64)
    return prefix << shift, (prefix + _ONE) << shift


def coarsen(keys: Keys, bits: Bits, coarser: Bits) -> Keys:
    """The cells at ``coarser`` <= bits that hold cells (or keys) at ``bits``."""
    shift = (np.asarray(bits, dtype=np.int64) - np.asarray(coarser, dtype=np.int64)).astype(np.uint64)
    return np.asarray(keys, dtype=np.uint64) >> shift


def children(prefix: Keys, *, step: int = 1) -> Keys:
    """The 2^step cells that each cell is cut into by ``step`` more bits, one row for each cell."""
    low = np.arange(1 << step, dtype=np.uint64)
    return (np.asarray(prefix, dtype=np.uint64)[:, None] << np.uint64(step)) | low


def descend(prefix: Keys, step: Ints) -> tuple[Keys, Ints]:
    """The cells that each cell is cut into by its own ``step`` more bits, one after the other; and which
    cell each comes from.
    """
    counts = np.left_shift(1, step)
    low = ragged.ranks_of(counts).astype(np.uint64)
    below = np.repeat(prefix << step.astype(np.uint64), counts) | low
    return below, np.repeat(np.arange(len(prefix)), counts)
