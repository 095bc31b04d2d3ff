"""The identity of a batch's content, to tell a repeated batch from another one under the same name.

Records count, not what holds them: the order of rows, the names and kinds of files and the engine play no
part. A hash is computed for each record and the hashes are added up, so that the rows can be counted in the
same pass (``WithIdentity``). A fingerprint of little data can be guessed back, and other rows with the same
one can be computed. A private key prevents both.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from synthgeo.arrays import Ints, Keys
from synthgeo.hashing import mix
from synthgeo.sources import values
from synthgeo.sources.histogram import Histogram

# Four sums of 64-bit hashes and the number of rows, under the largest keys there are: no cell has these.
_LANES = 4
_KEYS = np.arange(2**64 - 1 - _LANES, 2**64, dtype=np.uint64)
# From this key on a histogram holds a sample of hashes of rows, and then the sums, which wrap around.
_HASHES = 2**40
FIRST_OF_IDENTITY = np.uint64(2**64 - _HASHES)
# So many distinct rows are in a sample: the share of repeated rows is then known to 5 %.
_SAMPLE = 512
# Fewer rows than this tell nothing, nor do rows of which more than this share is equal by chance.
_FEWEST, _CHANCE = 10, 0.5


@dataclass(frozen=True)
class RecordHash:
    """A key function whose histogram is a hash of the multiset of records.

    With ``sampled`` it also holds a sample of the rows, by their hashes under the key (``RowSample``).
    """

    kinds: tuple[tuple[str, str], ...]
    key: bytes = b""
    sampled: bool = False
    per_row: ClassVar[bool] = False

    def __call__(self, chunk: Mapping[str, Any]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        columns = [
            part for name, kind in sorted(self.kinds) for part in values.record_hash(chunk, name, kind)
        ]
        seeds = np.frombuffer(hashlib.blake2b(self.key, digest_size=8 * _LANES).digest(), dtype="<u8")
        rows = len(columns[0]) if columns else 0
        with np.errstate(over="ignore"):
            sums = [mix(seed.astype(np.uint64), *columns).sum(dtype=np.uint64) for seed in seeds]
        found = np.array([*sums, rows], dtype=np.uint64).view(np.int64)
        if not self.sampled or not rows:
            return _KEYS, found[:, None]
        seed = np.frombuffer(hashlib.blake2b(self.key, digest_size=8).digest(), dtype="<u8")[0]
        hashes = mix(seed, *columns) >> np.uint64(24)
        sampled, counts = _least(np.minimum(hashes, np.uint64(_HASHES - 2 * len(_KEYS))))
        keys = np.concatenate([FIRST_OF_IDENTITY + sampled, _KEYS])
        return keys, np.concatenate([counts, found])[:, None]


def _least(hashes: Keys) -> tuple[Keys, Ints]:
    """The least distinct hashes, and how many rows have each."""
    some = hashes
    if len(hashes) > 8 * _SAMPLE:
        some = hashes[hashes <= np.partition(hashes, 4 * _SAMPLE)[4 * _SAMPLE]]
    distinct, counts = np.unique(some, return_counts=True)
    if len(distinct) < _SAMPLE and len(some) < len(hashes):  # many equal rows
        distinct, counts = np.unique(hashes, return_counts=True)
    return distinct[:_SAMPLE], counts[:_SAMPLE].astype(np.int64)


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


@dataclass(frozen=True, eq=False)
class RowSample:
    """The rows of a batch with the least keyed hashes, and how often each is there: enough to estimate which
    share of the rows was in another batch, in a few kilobytes however many rows there are. Private.

    It holds every row whose hash is at most ``limit``.
    """

    hashes: Ints
    counts: Ints
    limit: int

    @classmethod
    def of(cls, hashes: Ints, counts: Ints) -> RowSample:
        """The sample of rows with these hashes, in order: all of them, or the least."""
        whole = len(hashes) < _SAMPLE
        return cls(hashes[:_SAMPLE], counts[:_SAMPLE], _HASHES if whole else int(hashes[_SAMPLE - 1]))

    @classmethod
    def together(cls, samples: Sequence[RowSample]) -> RowSample:
        """A sample of the rows of several batches."""
        limit = min((sample.limit for sample in samples), default=_HASHES)
        hashes = np.concatenate([sample.hashes for sample in samples] or [np.empty(0, np.int64)])
        counts = np.concatenate([sample.counts for sample in samples] or [np.empty(0, np.int64)])
        distinct, place = np.unique(hashes, return_inverse=True)
        sums = np.bincount(place, weights=counts, minlength=len(distinct)).astype(np.int64)
        there = distinct <= limit
        return cls(distinct[there], sums[there], limit)

    def repeated(self, other: RowSample) -> float:
        """Which share of these rows is in the other batch, beyond what is equal by chance: a cautious guess.

        By chance a row is there already with the probability that the other batch's rows occur twice (Good
        and Turing). Where that is likely, or there are few rows, nothing can be told, and the share is 0.
        """
        limit = min(self.limit, other.limit)
        mine, theirs = self.hashes <= limit, other.hashes <= limit
        if min(mine.sum(), theirs.sum()) < _FEWEST:
            return 0.0
        counts, others = self.counts[mine], other.counts[theirs]
        chance = 1 - others[others == 1].sum() / others.sum()
        if chance > _CHANCE:
            return 0.0
        found = counts[np.isin(self.hashes[mine], other.hashes)].sum() / counts.sum()
        slack = 2 * math.sqrt(found * (1 - found) / len(counts))
        return max(float((found - slack - chance) / (1 - chance)), 0.0)


@dataclass(frozen=True)
class Identity:
    """What a pass over the records told about them: a fingerprint, how many there are, and a sample of them
    where that was asked for. Private.
    """

    fingerprint: str
    records: int
    sample: RowSample | None = None


def identity(rows: RecordHash, sums: Histogram, crs: Any) -> Identity:
    """The identity of the records whose hashes were added up."""
    lanes = np.zeros(_LANES + 1, dtype=np.int64)
    cut = int(np.searchsorted(sums.keys, _KEYS[0]))
    lanes[(sums.keys[cut:] - _KEYS[0]).astype(np.int64)] = sums.weights[cut:, 0]
    hashes = (sums.keys[:cut] - FIRST_OF_IDENTITY).astype(np.int64)
    sample = RowSample.of(hashes, sums.weights[:cut, 0]) if rows.sampled else None
    facts = {"columns": sorted(rows.kinds), "crs": None if crs is None else crs.to_string()}
    state = hashlib.sha256(json.dumps(facts).encode())
    state.update(lanes.astype("<i8").tobytes())
    return Identity(state.hexdigest(), int(lanes[-1]), sample)
