"""The identity of a batch's content, to tell a repeated batch from another one under the same name.

Records count, not what holds them: the order of rows, the names and kinds of files and the engine play no
part. A hash is computed for each record and the hashes are added up, so that the rows can be counted in the
same pass (``WithIdentity``). A fingerprint of little data can be guessed back: whoever stores one salts it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from synthgeo.hashing import mix
from synthgeo.sources import values
from synthgeo.sources.histogram import Histogram

# Four sums of 64-bit hashes and the number of rows, under the largest keys there are: no cell has these.
_LANES = 4
_KEYS = np.arange(2**64 - 1 - _LANES, 2**64, dtype=np.uint64)
# From this key on a histogram holds sums of hashes, which wrap around.
FIRST_OF_IDENTITY = _KEYS[0]


@dataclass(frozen=True)
class RecordHash:
    """A key function whose histogram is a hash of the multiset of records."""

    kinds: tuple[tuple[str, str], ...]
    salt: bytes = b""
    per_row: ClassVar[bool] = False

    def __call__(self, chunk: Mapping[str, Any]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        columns = [
            part for name, kind in sorted(self.kinds) for part in values.record_hash(chunk, name, kind)
        ]
        seeds = np.frombuffer(hashlib.blake2b(self.salt, digest_size=8 * _LANES).digest(), dtype="<u8")
        rows = len(columns[0]) if columns else 0
        with np.errstate(over="ignore"):
            sums = [mix(seed.astype(np.uint64), *columns).sum(dtype=np.uint64) for seed in seeds]
        return _KEYS, np.array([*sums, rows], dtype=np.uint64).view(np.int64)[:, None]


@dataclass(frozen=True)
class WithIdentity:
    """A key function that also hashes the records: one pass gives the counts and the identity."""

    key_fn: Any
    rows: RecordHash
    weights: int
    per_row: ClassVar[bool] = False

    def __call__(self, chunk: Any) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        keys, amounts = self.key_fn(chunk)
        counts = Histogram.of(keys, amounts)
        both = with_identity(
            counts if counts.size else Histogram.empty(self.weights), Histogram.of(*self.rows(chunk))
        )
        return both.keys, both.weights


def with_identity(counts: Histogram, hashed: Histogram) -> Histogram:
    """One histogram of counts and sums of hashes, which have the last keys."""
    padded = np.zeros((hashed.size, counts.weights.shape[1]), dtype=np.int64)
    padded[:, :1] = hashed.weights
    return Histogram(np.concatenate([counts.keys, hashed.keys]), np.concatenate([counts.weights, padded]))


def split_identity(counts: Histogram, weights: int) -> tuple[Histogram, Histogram]:
    """The counts and the identity of a histogram that ``WithIdentity`` made."""
    cut = int(np.searchsorted(counts.keys, FIRST_OF_IDENTITY))
    own = Histogram(counts.keys[:cut], counts.weights[:cut]) if cut else Histogram.empty(weights)
    return own, Histogram(counts.keys[cut:], counts.weights[cut:, :1])


@dataclass(frozen=True)
class Identity:
    """What a pass over the records told about them: a fingerprint, and how many there are. Private."""

    fingerprint: str
    records: int


def identity(rows: RecordHash, sums: Histogram, crs: Any) -> Identity:
    """The identity of the records whose hashes were added up."""
    lanes = np.zeros(_LANES + 1, dtype=np.int64)
    lanes[(sums.keys - FIRST_OF_IDENTITY).astype(np.int64)] = sums.weights[:, 0]
    facts = {"columns": sorted(rows.kinds), "crs": None if crs is None else crs.to_string()}
    state = hashlib.sha256(json.dumps(facts).encode())
    state.update(rows.salt)
    state.update(lanes.astype("<i8").tobytes())
    return Identity(state.hexdigest(), int(lanes[-1]))
