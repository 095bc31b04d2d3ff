"""Saved state: one file of plain arrays and JSON, written atomically, readable by its owner only.

After a magic line and a SHA-256 of the rest, the file is numpy's ``npz`` without pickled objects, so reading
a file from a stranger can fail but cannot run code: a ``header`` (format, kind, version of the kind, JSON
values) and named arrays.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from synthgeo.errors import LedgerError, StateError

FORMAT = 1
#: What values and arrays that somebody made up may cause in whoever makes an object of them.
MALFORMED = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    MemoryError,
    RecursionError,
)
_MAGIC = b"synthgeo state\n"
_OF_RUN = b"synthgeo state of a run that has a ledger\n"  # stands before the rest
_in_run: ContextVar[bool] = ContextVar("in_run", default=False)


def write_atomic(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file so that a crash leaves the old one or the new one, never a part of either."""
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def dump_state(kind: str, version: int, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of a state file."""
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise TypeError(f"state array {name!r} holds Python objects")
    header = {"format": FORMAT, "kind": kind, "version": version, "values": dict(values)}
    text = np.frombuffer(json.dumps(header, allow_nan=False).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, header=text, **{f"array/{name}": array for name, array in arrays.items()})  # type: ignore[arg-type]
    payload = buffer.getvalue()
    return _MAGIC + hashlib.sha256(payload).digest() + payload


def parse_state(
    content: bytes, kind: str, version: int, *, source: str = "state"
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Values and arrays of a state file of ``kind``; ``StateError`` on anything unexpected.

    What the file says that it holds is checked before its arrays are read.
    """
    if content.startswith(_OF_RUN):
        if not _in_run.get():
            raise LedgerError(f"{source}: the state of a run that has a ledger; open the run with its ledger")
        content = content.removeprefix(_OF_RUN)
    if not content.startswith(_MAGIC):
        raise StateError(f"{source}: not a synthgeo state file")
    payload = memoryview(content)[len(_MAGIC) + 32 :]
    if hashlib.sha256(payload).digest() != content[len(_MAGIC) : len(_MAGIC) + 32]:
        raise StateError(f"{source}: damaged or cut short (its checksum does not match)")
    with _understood(source):
        members = _members(payload)
        header = _header(members)
    found, values = (header["format"], header["kind"], header["version"]), header["values"]
    if found[0] > FORMAT:
        raise StateError(f"{source}: written by a newer synthgeo (format {found[0]}); upgrade to read it")
    if found[1] != kind:
        raise StateError(f"{source}: holds a {found[1]!r}, not a {kind!r}")
    if found[2] != version:
        raise StateError(
            f"{source}: {kind} state of version {found[2]}, this synthgeo reads version {version}: "
            "begin anew, or go on with the synthgeo that wrote it"
        )
    if not isinstance(values, dict):
        raise StateError(f"{source}: damaged (no values)")
    with _understood(source):
        named = {name[6:]: part for name, part in members.items() if name.startswith("array/")}
        return values, {name: _array(part) for name, part in named.items()}


@contextmanager
def _understood(source: str) -> Iterator[None]:
    """An archive may be made up, since the checksum before it is no signature: what it raises is ours."""
    try:
        yield
    except Exception as problem:  # noqa: BLE001  what zipfile, numpy, tokenize and json raise, between them, has no end
        raise StateError(f"{source}: not a synthgeo state file ({type(problem).__name__})") from None


def _header(members: Mapping[str, memoryview]) -> dict[str, Any]:
    header = json.loads(_array(members["header"]).tobytes())
    numbers = {name: int(header[name]) for name in ("format", "version")}
    return {**header, **numbers, "kind": str(header["kind"])[:100], "values": header["values"]}


def _members(payload: bytes | memoryview) -> dict[str, memoryview]:
    """The parts of an ``npz`` archive: each byte of the file belongs to one part at most.

    We never compress, so that a small file cannot unpack to a large one. ``numpy.load`` would, and would also
    make room for whatever shape a header claims. Several parts could share bytes: together they may not be
    longer than the file.
    """
    found = {}
    payload = memoryview(payload)
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        parts = archive.infolist()
        if sum(part.file_size for part in parts) > len(payload):
            raise ValueError("parts that share bytes")
        for part in parts:
            if part.compress_type != zipfile.ZIP_STORED or part.file_size != part.compress_size:
                raise ValueError("a compressed part")
            name = part.filename.removesuffix(".npy")
            if name in found:
                raise ValueError("a part that is there twice")
            found[name] = memoryview(archive.read(part))
    return found


def _array(content: bytes | memoryview) -> np.ndarray:
    file = io.BytesIO(content)
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, fortran, dtype = headers[np.lib.format.read_magic(file)](file)  # type: ignore[no-untyped-call]
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content) - file.tell():
        raise ValueError("an array that is not what its header says")
    values = np.frombuffer(content, dtype=dtype, count=math.prod(shape), offset=file.tell())
    return values.reshape(shape, order="F" if fortran else "C").copy()


def save_state(
    path: str | os.PathLike[str],
    kind: str,
    version: int,
    values: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
) -> None:
    """Write a state file atomically, mode 0600."""
    write_atomic(path, dump_state(kind, version, values, arrays))


def keep_in_run(path: Path) -> None:
    """Mark a state file, so that nothing but its run goes on from it."""
    content = path.read_bytes()
    if content.startswith(_MAGIC):
        write_atomic(path, _OF_RUN + content)


@contextmanager
def states_of_run() -> Iterator[None]:
    """Inside, states that ``keep_in_run`` has marked can be read."""
    before = _in_run.set(True)
    try:
        yield
    finally:
        _in_run.reset(before)


def kind_of(path: str | os.PathLike[str]) -> str:
    """What kind of thing a state file holds; ``StateError`` if it is none."""
    content = _read(path)
    if not content.startswith(_MAGIC):
        raise StateError(f"{path}: not a synthgeo state file")
    with _understood(str(path)):
        return str(_header(_members(memoryview(content)[len(_MAGIC) + 32 :]))["kind"])


def load_state(
    path: str | os.PathLike[str], kind: str, version: int
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read what ``save_state`` wrote."""
    return parse_state(_read(path), kind, version, source=str(path))


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as problem:
        raise StateError(f"cannot read {path}: {problem.strerror}") from problem
