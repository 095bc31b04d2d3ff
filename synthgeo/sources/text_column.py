"""A column of text as bytes: what a field becomes is decided by who asks for it, field by field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from synthgeo.canonical import is_missing
from synthgeo.sources.declared import Reading


@dataclass(frozen=True, eq=False)
class TextColumn:
    """Fields ``data[start[i]:end[i]]``; where ``escaped``, quotes are doubled; ``null`` ones are none."""

    data: NDArray[np.uint8]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    escaped: NDArray[np.bool_]
    reading: Reading
    null: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, texts: Any, reading: Reading) -> TextColumn:
        """From text in memory: an Arrow array, or texts and Nones."""
        encoded = texts.cast(pa.large_string()) if isinstance(texts, pa.Array) else _encoded(texts)
        _, offsets, data = encoded.buffers()
        bounds = np.frombuffer(offsets, np.int64)[encoded.offset : encoded.offset + len(encoded) + 1]
        if len(bounds) == 0:
            bounds = np.zeros(1, np.int64)
        plain = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        null = np.asarray(encoded.is_null()) if encoded.null_count else None
        escaped = np.zeros(len(encoded), dtype=bool)
        return cls(plain, bounds[:-1], bounds[1:], escaped, reading.but(encoding="utf-8"), null)

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: NDArray[Any] | slice) -> Self:
        """Some of the fields."""
        null = None if self.null is None else self.null[rows]
        return type(self)(self.data, self.start[rows], self.end[rows], self.escaped[rows], self.reading, null)

    @classmethod
    def concatenate(cls, parts: Sequence[TextColumn]) -> TextColumn:
        """Fields of several chunks; only their own bytes are kept."""
        packed = [part.packed() for part in parts]
        shift = np.concatenate([[0], np.cumsum([len(part.data) for part in packed])[:-1]])
        return cls(
            np.concatenate([part.data for part in packed]),
            np.concatenate([part.start + by for part, by in zip(packed, shift, strict=True)]),
            np.concatenate([part.end + by for part, by in zip(packed, shift, strict=True)]),
            np.concatenate([part.escaped for part in packed]),
            packed[0].reading,
            None
            if all(part.null is None for part in packed)
            else np.concatenate([p.nulls() for p in packed]),
        )

    def nulls(self) -> NDArray[np.bool_]:
        """Which fields are none."""
        return np.zeros(len(self), dtype=bool) if self.null is None else self.null

    def packed(self) -> TextColumn:
        """The same fields in bytes of their own, doubled quotes as one."""
        from synthgeo.sources import kernels

        quote = ord(self.reading.quote) if self.reading.quote else -1
        size = kernels.sizes_of(self.start, self.end, self.escaped, self.data, quote)
        offsets = np.zeros(len(size) + 1, dtype=np.int64)
        np.cumsum(size, out=offsets[1:])
        out = np.empty(offsets[-1], dtype=np.uint8)
        kernels.gather(self.data, self.start, self.end, self.escaped, quote, offsets, out)
        none = np.zeros(len(size), dtype=bool)
        return TextColumn(out, offsets[:-1], offsets[1:], none, self.reading, self.null)

    def numbers(self) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
        """Numbers, NaN where there is none, and what became of each field."""
        from synthgeo.sources import kernels

        start, end = self._trimmed()
        out, state = np.empty(len(self)), np.empty(len(self), np.uint8)
        marks = (ord(self.reading.decimal), ord(self.reading.thousands) if self.reading.thousands else -1)
        kernels.parse_numbers(self.data, start, end, *marks, *_packed_words(self.reading), out, state)
        long = np.flatnonzero(state == kernels.LONG)
        if len(long):
            out[long] = _rounded(self.data, start[long], end[long], *marks)
            finite = np.isfinite(out[long])
            state[long] = np.where(finite, kernels.GOOD, kernels.BAD)
        if self.null is not None:
            out[self.null], state[self.null] = np.nan, kernels.MISSING
        return out, state

    def times(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Microseconds since 1970 and what became of each field; ``OFFSET`` marks instants in UTC."""
        from synthgeo.sources import kernels, time_kernels

        start, end = self._trimmed()
        out, state = np.empty(len(self), np.int64), np.empty(len(self), np.uint8)
        words = _packed_words(self.reading)
        if self.reading.time_format == "iso":
            time_kernels.parse_iso(self.data, start, end, *words, out, state)
        elif self.reading.time_format == "unix":
            seconds, state = self.numbers()
            beyond = np.abs(seconds) > 253_402_300_800  # the year 10000
            state = np.where(beyond, np.uint8(kernels.BAD), state)
            known = np.where((state == kernels.GOOD), seconds, 0.0)
            out = np.rint(known * 1e6).astype(np.int64)
            if self.reading.tz is not None:  # an instant, whatever the zone of clock times
                state = np.where(state == kernels.GOOD, np.uint8(kernels.OFFSET), state)
        else:
            pattern = np.frombuffer(self.reading.time_format.encode(), np.uint8)
            time_kernels.parse_formatted(self.data, start, end, pattern, *words, out, state)
        if self.null is not None:
            state[self.null] = kernels.MISSING
        return out, state

    def trimmed(self) -> TextColumn:
        """The same fields without the spaces and tabs around them."""
        start, end = self._trimmed()
        return TextColumn(self.data, start, end, self.escaped, self.reading, self.null)

    def integers(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Fields that are whole numbers of 64 bits in their one canonical form, and which are."""
        from synthgeo.sources import kernels

        out = np.zeros(len(self), dtype=np.int64)
        return out, kernels.parse_integers(self.data, self.start, self.end, out)

    def missing(self) -> NDArray[np.bool_]:
        """Fields that hold a text that means "no value"."""
        from synthgeo.sources import kernels

        found = kernels.find_missing(self.data, self.start, self.end, *_packed_words(self.reading))
        return np.asarray(found) if self.null is None else found | self.null

    def strings(self) -> tuple[pa.Array, NDArray[np.bool_]]:
        """The fields as Arrow text, and which of them are not text in the declared encoding."""
        packed = self.packed()
        if self.reading.encoding != "utf-8":
            return self._decoded(packed), np.zeros(len(self), dtype=bool)
        offsets = np.concatenate([packed.start, packed.end[-1:]]) if len(self) else np.zeros(1, np.int64)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(packed.data)]
        binary = pa.Array.from_buffers(pa.large_binary(), len(self), buffers)
        try:
            return binary.cast(pa.large_string()), np.zeros(len(self), dtype=bool)
        except pa.ArrowInvalid:  # some field is not UTF-8: find out which, one by one
            good = [_is_utf8(value) for value in binary.to_pylist()]
            bad = ~np.array(good, dtype=bool)
            shown = pc.if_else(pa.array(~bad), binary, pa.scalar(b"", pa.large_binary()))
            return shown.cast(pa.large_string()), bad

    def objects(self) -> NDArray[Any]:
        """The fields as texts, None where there is none; what is no text stays none that can be read."""
        texts, bad = self.strings()
        found = np.array([*texts.to_pylist(), None], dtype=object)[:-1]
        found[bad], found[self.nulls()] = "\ud800", None
        return found

    def _decoded(self, packed: TextColumn) -> pa.Array:
        """Every byte is a character of its own here, so the whole can be decoded at once."""
        encoding = self.reading.encoding
        table = [bytes([byte]).decode(encoding, "replace").encode() for byte in range(256)]
        width = np.array([len(code) for code in table])
        size = np.concatenate([[0], np.cumsum(width[packed.data])])
        offsets = size[np.concatenate([packed.start, [len(packed.data)]])].astype(np.int64)
        data = packed.data.tobytes().decode(encoding, "replace").encode()
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.large_string(), len(self), buffers)

    def _trimmed(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        from synthgeo.sources import kernels

        start, end = self.start.copy(), self.end.copy()
        kernels.trim(self.data, start, end)
        return start, end


def _rounded(
    data: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64], decimal: int, thousands: int
) -> NDArray[np.float64]:
    """Numbers of many digits, rounded correctly by Arrow's parser; their form has been checked."""
    from synthgeo.sources import kernels

    offsets = np.empty(len(start) + 1, dtype=np.int64)
    out = np.empty(int((end - start).sum()), dtype=np.uint8)
    kernels.plain_numbers(data, start, end, decimal, thousands, offsets, out)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out)]
    texts = pa.Array.from_buffers(pa.large_string(), len(start), buffers)
    return np.asarray(texts.cast(pa.float64()).to_numpy(zero_copy_only=False))


@cache
def _packed_words(reading: Reading) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    words = [word.encode(reading.encoding, "replace") for word in reading.missing]
    bounds = np.cumsum([0, *(len(word) for word in words)]).astype(np.int64)
    return np.frombuffer(b"".join(words) or b"\0", dtype=np.uint8), bounds


def _encoded(texts: Any) -> pa.Array:
    """Arrow text of texts in memory; half of a surrogate pair gives bytes that are no text."""
    try:
        return pa.array(texts, pa.large_string())
    except (UnicodeEncodeError, pa.ArrowInvalid):
        coded = [None if is_missing(text) else text.encode("utf-8", "surrogatepass") for text in texts]
        return pa.array(coded, pa.large_binary())


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
