"""The directory of a durable run: who may write, what lies where, and how files appear in it.

    ledger.sqlite    the journal of steps (see ``streams.runs.run``)
    lock             held by the one process that has the run open, as the folder itself is
    state/           the stream's state after the last step: PRIVATE, it holds true sums
    releases/        one folder for each step, the only thing here to hand on
    pending/         what the present step has written and not yet decided on; nobody but the run looks here
    README.txt       the same in words, for whoever finds the folder

Folders are created with mode 0700 and files with 0600.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from pathlib import Path
from typing import Any

from synthgeo import validate
from synthgeo.errors import ConfigError, LedgerError, StateError
from synthgeo.hashing import file_hash
from synthgeo.state import sync_folder

_STEP_FOLDER = re.compile(r"(\d{6,})-[A-Za-z0-9._-]*")
_STATE_FILE = re.compile(r"(\d{6,})\.state")
_MOUNTS = Path("/proc/self/mounts")
_LOCAL_LOCKS = {"nolock", "local_lock=all", "local_lock=flock", "nobrl"}  # of NFS and CIFS
_KNOWN = {
    "ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm", "lock", "state", "releases", "pending",
    "README.txt",
}  # fmt: skip
_README = """\
This folder is a run of synthgeo, a release of private data over time.

releases/      may be handed on, unless a release says of itself that it may not be (releasable: false)
state/         PRIVATE: exact sums over the private data; whoever has it needs no release
ledger.sqlite  PRIVATE: what was spent, and fingerprints of the batches
pending/       PRIVATE: what a step that was interrupted has written

To hand something on:  synthgeo publish THIS_FOLDER --to OUT   (data, data card, checksums)
To look at the run:    synthgeo stream status THIS_FOLDER
Nothing in here is to be edited, and nothing but releases/ is to be copied to others.
"""


class RunDirectory:
    """Paths, lock and atomic moves of one run."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()  # the process may change its folder
        self.journal = self.path / "ledger.sqlite"
        self.state = self.path / "state"
        self.releases = self.path / "releases"
        self.pending = self.path / "pending"
        self._locks: list[int] = []

    def prepare(self) -> None:
        """Create the folders that are missing, for the owner only. What the owner has closed stays closed."""
        validate.utf8_path(self.path)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            strangers = {path.name for path in self.path.iterdir() if not self._knows(path.name)}
            if strangers and not self.journal.exists():
                raise ConfigError(f"{self.path} is neither empty nor a run (it holds {min(strangers)})")
            for folder in (self.path, self.state, self.releases, self.pending):
                folder.mkdir(mode=0o700, exist_ok=True)
                mode = folder.stat().st_mode & 0o777
                if not mode & 0o200:
                    raise LedgerError(f"cannot use {self.path} for a run: {folder} was made read-only")
                if mode & 0o077:
                    folder.chmod(mode & 0o700)
            words = self.path / "README.txt"
            if not words.exists():
                words.touch(mode=0o600)
                words.write_text(_README, encoding="utf-8")
            sync_folder(self.path)
        except OSError as problem:
            raise LedgerError(f"cannot use {self.path} for a run: {problem.strerror}") from problem

    def _knows(self, name: str) -> bool:
        return name in _KNOWN or name.startswith(f".{self.journal.name}.")

    def clear_remains(self) -> None:
        """Remove what a killed creation left. Only under the lock."""
        for path in self.path.glob(f".{self.journal.name}.*"):
            path.unlink()

    def lock(self) -> None:
        """Keep every other process (and every other handle in this one) out.

        The folder itself is locked: a file in it could be removed and made again, and then be locked twice.
        The file is locked too, because that is all that version 0.1 looks at.
        """
        if _locks_are_local(self.path):
            raise LedgerError(
                f"cannot lock {self.path}: it is mounted so that other machines do not see its locks; keep "
                "the run on a local disk"
            )
        for path, flags in ((self.path, os.O_RDONLY), (self.path / "lock", os.O_RDWR | os.O_CREAT)):
            try:
                handle = os.open(path, flags | os.O_CLOEXEC, 0o600)
            except OSError as problem:
                self.unlock()
                raise LedgerError(f"cannot lock {self.path}: {problem.strerror}") from problem
            self._locks.append(handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as problem:
                self.unlock()
                raise LedgerError(f"{self.path} is open elsewhere; one process at a time") from problem
            except OSError as problem:  # some network file systems: no lock there can be trusted
                self.unlock()
                raise LedgerError(
                    f"cannot lock {self.path}: {problem.strerror}; keep the run on a local disk"
                ) from problem

    def unlock(self) -> None:
        """Let others in."""
        while self._locks:
            os.close(self._locks.pop())

    def state_name(self, step: int) -> str:
        """File name of the state after ``step`` steps."""
        return f"{step:06d}.state"

    def release_name(self, step: int, batch_id: str) -> str:
        """Folder name of a release: its number, and as much of the batch's name as is safe in a path."""
        return f"{step:06d}-{re.sub(r'[^A-Za-z0-9._-]+', '-', batch_id)[:80]}"

    def in_place(self) -> list[tuple[int, str]]:
        """Number and name of every state and release that is in its place."""
        found = [(_STATE_FILE, name) for name in _names(self.state)]
        found += [(_STEP_FOLDER, name) for name in _names(self.releases)]
        matches = ((pattern.fullmatch(name), name) for pattern, name in found)
        return sorted((int(match[1]), name) for match, name in matches if match)

    def place(self, folder: Path, name: str) -> Path:
        """Where a decided state or release is: in its folder, or still pending."""
        there = folder / _plain(name)
        return there if there.exists() or not (self.pending / name).exists() else self.pending / name

    def clear_pending(self) -> None:
        """Forget what an undecided step wrote."""
        for path in self.pending.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def remove_release(self, name: str) -> bool:
        """Remove the folder of a release, at once for whoever looks; False if it is gone already."""
        folder, aside = self.releases / _plain(name), self.pending / name
        if not folder.exists():
            return False
        folder.rename(aside)
        shutil.rmtree(aside)
        return True

    def clear_states_before(self, step: int) -> None:
        """Old states are private and of no more use."""
        for name in _names(self.state):
            match = _STATE_FILE.fullmatch(name)
            if match is not None and int(match[1]) < step:
                (self.state / name).unlink()

    def publish(self, name: str, folder: Path, hashes: dict[str, Any] | None) -> None:
        """Move what was written under ``name`` from ``pending`` to its folder, unless it is there.

        ``hashes`` are checked first (None: this process has just written it); ``StateError`` if it is not
        whole.
        """
        source, target = self.pending / _plain(name), folder / name
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
    def check(path: Path, hashes: dict[str, Any]) -> None:
        """``StateError`` unless a state or release is what was written, by the row's ``hashes``."""
        wanted = hashes["state" if _STATE_FILE.fullmatch(path.name) else "release"]
        try:
            found = hashes_of(path)
        except OSError as problem:
            raise StateError(f"cannot read {path}: {problem.strerror}") from problem
        if found != wanted:
            bad = min(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
            raise StateError(f"{path} is damaged: {bad or path.name} is not what was written")


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


def _plain(name: str) -> str:
    """A name that stays in its folder: a journal may come from a stranger."""
    if not (_STEP_FOLDER.fullmatch(name) or _STATE_FILE.fullmatch(name)):
        raise StateError(f"the ledger names {name!r}, which is no state and no release")
    return name


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208  names alone: a run may have 10^5 releases
    except FileNotFoundError:
        return []


def _locks_are_local(folder: Path) -> bool:
    """Whether a network file system is mounted so that its locks are known to this machine alone."""
    try:
        mounts = [line.split() for line in _MOUNTS.read_text(errors="replace").splitlines()]
    except OSError:  # not Linux
        return False
    real = folder.resolve()
    above = [mount for mount in mounts if real.is_relative_to(mount[1].replace("\\040", " "))]
    # Of mounts at one place the last one counts.
    options = max(reversed(above), key=lambda mount: len(mount[1]), default=["", "", "", ""])[3].split(",")
    return not _LOCAL_LOCKS.isdisjoint(options)
