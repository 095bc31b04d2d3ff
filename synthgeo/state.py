"""Saved state: one file of plain arrays and JSON, written atomically, readable by its owner only.

The file is a zip in numpy's ``npz`` layout without pickled objects, so reading a file from a stranger can fail but
cannot run code. It holds a ``header`` (format, kind, version of the kind, JSON values), named arrays, and a checksum over all.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from synthgeo.errors import StateError

FORMAT = 1


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
    header["sha256"] = _checksum(header, arrays)
    buffer = io.BytesIO()
    text = np.frombuffer(json.dumps(header, allow_nan=False).encode(), dtype=np.uint8)
    np.savez(buffer, header=text, **{f"array/{name}": array for name, array in arrays.items()})
    return buffer.getvalue()


def parse_state(
    content: bytes, kind: str, version: int, *, source: str = "state"
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Values and arrays of a state file of ``kind``; ``StateError`` on anything unexpected."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            header = json.loads(archive["header"].tobytes())
            arrays = {name[6:]: archive[name] for name in archive.files if name.startswith("array/")}
        expected = header.pop("sha256")
        if header["format"] > FORMAT:
            raise StateError(f"{source}: written by a newer synthgeo (format {header['format']}); upgrade to read it")
        if header["kind"] != kind:
            raise StateError(f"{source}: holds a {header['kind']!r}, not a {kind!r}")
        if header["version"] > version:
            raise StateError(f"{source}: {kind} state of version {header['version']}, this synthgeo reads up to {version}")
        if _checksum(header, arrays) != expected:
            raise StateError(f"{source}: damaged (its checksum does not match)")
        values = header["values"]
    except StateError:
        raise
    except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile, MemoryError, AttributeError,
            NotImplementedError, RuntimeError) as problem:
        raise StateError(f"{source}: not a synthgeo state file, or a damaged one ({type(problem).__name__})") from problem
    if not isinstance(values, dict):
        raise StateError(f"{source}: damaged (no values)")
    return values, arrays


def save_state(
    path: str | os.PathLike[str], kind: str, version: int, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write a state file atomically, mode 0600."""
    write_atomic(path, dump_state(kind, version, values, arrays))


def load_state(path: str | os.PathLike[str], kind: str, version: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read what ``save_state`` wrote."""
    try:
        content = Path(path).read_bytes()
    except OSError as problem:
        raise StateError(f"cannot read {path}: {problem.strerror}") from problem
    return parse_state(content, kind, version, source=str(path))


def _checksum(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True, allow_nan=False).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}|{array.dtype.str}|{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
