"""The directory of a durable run: who may write, what lies where, and how files appear in it.

    ledger.sqlite    the book of steps (see ``streams.runs.run``)
    lock             held by the one process that has the run open
    state/           the stream's state after the last step: PRIVATE, it holds true sums
    releases/        one folder a step, the only thing here to hand on
    pending/         what the present step has written and not yet decided on; nobody but the run looks here

Folders are created with mode 0700 and files with 0600.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from synthgeo.errors import ConfigError, LedgerError, StateError
from synthgeo.sources.fingerprint import file_hash
from synthgeo.state import sync_folder

VALUE_FILE = "value.json"
ERROR_FILE = "expected_error.json"
_STEP_FOLDER = re.compile(r"(\d{6,})-.*")
_STATE_FILE = re.compile(r"(\d{6,})\.state")


class RunDirectory:
    """Paths, lock and atomic moves of one run."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.ledger = self.path / "ledger.sqlite"
        self.state = self.path / "state"
        self.releases = self.path / "releases"
        self.pending = self.path / "pending"
        self._lock: int | None = None

    def prepare(self) -> None:
        """Create the folders that are missing, for the owner only."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            strangers = {path.name for path in self.path.iterdir() if not self._knows(path.name)}
            if strangers and not self.ledger.exists():
                raise ConfigError(f"{self.path} is neither empty nor a run (it holds {min(strangers)})")
            for folder in (self.path, self.state, self.releases, self.pending):
                folder.mkdir(mode=0o700, exist_ok=True)
                if folder.stat().st_mode & 0o077:
                    folder.chmod(0o700)
            sync_folder(self.path)
        except OSError as problem:
            raise LedgerError(f"cannot use {self.path} for a run: {problem.strerror}") from problem

    def _knows(self, name: str) -> bool:
        return name in _KNOWN or name.startswith(f".{self.ledger.name}.")

    def make_room(self) -> None:
        """Remove what a killed creation left. Only under the lock."""
        self.clear_pending()
        for path in self.path.glob(f".{self.ledger.name}.*"):
            path.unlink()

    def lock(self) -> None:
        """Keep every other process (and every other handle in this one) out."""
        try:
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise LedgerError(f"cannot lock {self.path}: {problem.strerror}") from problem
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            os.close(handle)
            raise LedgerError(f"{self.path} is open elsewhere; one process at a time") from problem
        self._lock = handle

    def unlock(self) -> None:
        """Let others in."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def state_name(self, step: int) -> str:
        """File name of the state after ``step`` steps."""
        return f"{step:06d}.state"

    def release_name(self, step: int, batch_id: str) -> str:
        """Folder name of a release: its number, and as much of the batch's name as is safe in a path."""
        return f"{step:06d}-{re.sub(r'[^A-Za-z0-9._-]+', '-', batch_id)[:80]}"

    def unknown_beyond(self, step: int) -> list[str]:
        """States and releases of later steps than ``step``: signs that the ledger lost its end."""
        found = [(_STATE_FILE, p) for p in self.state.iterdir()] + [
            (_STEP_FOLDER, p) for p in self.releases.iterdir()
        ]
        matches = [(pattern.fullmatch(p.name), p) for pattern, p in found]
        return sorted(p.name for match, p in matches if match and int(match[1]) > step)

    def clear_pending(self) -> None:
        """Forget what an undecided step wrote."""
        for path in self.pending.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def clear_states_before(self, step: int) -> None:
        """Old states are private and of no more use."""
        for path in self.state.iterdir():
            match = _STATE_FILE.fullmatch(path.name)
            if match is not None and int(match[1]) < step:
                path.unlink()

    def publish(self, source: Path, target: Path, hashes: dict[str, str] | None) -> None:
        """Move what was written to its place, unless it is there.

        ``hashes`` are checked first (None: this process has just written it); ``StateError`` if it is not
        whole.
        """
        there = target if target.exists() else source
        if not there.exists():
            raise StateError(f"{target.name} is lost: neither in place nor pending; the run cannot go on")
        if hashes is not None:
            self.check(there, hashes)
        if there is source:
            source.rename(target)
            sync_folder(source.parent)
        sync_folder(target.parent)

    @staticmethod
    def check(path: Path, hashes: dict[str, str]) -> None:
        """``StateError`` unless the files at ``path`` are the ones that were written."""
        try:
            found = hashes_of(path)
        except OSError as problem:
            raise StateError(f"cannot read {path}: {problem.strerror}") from problem
        if found != hashes:
            bad = sorted(name for name in {*found, *hashes} if found.get(name) != hashes.get(name))
            raise StateError(f"{path} is damaged: {bad[0] or path.name} is not what was written")


_KNOWN = {"ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm", "lock", "state", "releases", "pending"}


def hashes_of(path: Path) -> dict[str, str]:
    """SHA-256 of each file of a folder by name, or of one file under the name ""."""
    if path.is_dir():
        return {p.name: file_hash(p) for p in sorted(path.iterdir())}
    return {"": file_hash(path)}


def make_durable(path: Path) -> None:
    """Owner-only, and on disk: each file, then the folder that holds it."""
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        file.chmod(0o600)
        handle = os.open(file, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    if path.is_dir():
        sync_folder(path)
    sync_folder(path.parent)


def write_release(folder: Path, result: Any, parts: tuple[str, ...]) -> None:
    """Write what a step put out: Parquet for each part of a release, JSON for a number."""
    folder.mkdir(mode=0o700)
    if hasattr(result, "provenance"):
        from synthgeo.release import write_parquet

        for part in parts:
            if not hasattr(result, part):
                raise ConfigError(f"a {type(result).__name__} has no {part!r} to store; choose other parts")
            write_parquet(getattr(result, part), folder / f"{part}.parquet", result.provenance)
        errors = result.expected_error().to_dict(orient="split", index=False)
        (folder / ERROR_FILE).write_text(json.dumps(errors, indent=1) + "\n")
        return
    value = result.tolist() if isinstance(result, np.generic | np.ndarray) else result
    if isinstance(value, float) and math.isnan(value):
        value = {"nan": True}
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as problem:
        raise ConfigError(
            f"a run cannot store what this stream releases: {type(result).__name__}"
        ) from problem
    (folder / VALUE_FILE).write_text(text + "\n")


def read_value(folder: Path) -> Any:
    """What ``write_release`` wrote for a number."""
    value = json.loads((folder / VALUE_FILE).read_text())
    return math.nan if value == {"nan": True} else value
