"""Processes that work on parts, one task at a time each.

They are plain children that import this package and nothing of the caller's, so that a script needs no guard
around its main part. A process that dies (killed, out of memory) is replaced and its task is done again:
tasks are pure, so nothing is counted twice.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from synthgeo import threads
from synthgeo.errors import SynthGeoError
from synthgeo.sources.source import in_threads

Item = TypeVar("Item")
Result = TypeVar("Result")

_TRIES = 3
_SERVE = "from trajectories.parts.workers import serve; serve()"


class Workers:
    """So many processes, which end when nobody needs them any more; 1 is this one."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        self._started: list[_Process] = []
        weakref.finalize(self, _stop, self._started)

    def map(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """What the work gives for each item, in their order. Work and items are picklable."""
        if self.number == 1:
            yield from map(work, items)
            return
        if not self._started:
            self._started += [_Process() for _ in range(self.number)]
            for process in self._started:
                self._idle.put(process)
        with TemporaryDirectory(prefix="synthgeo-work-") as folder:
            path = Path(folder) / "work.pickle"  # read by each process once, however many items there are
            path.write_bytes(pickle.dumps(work, protocol=pickle.HIGHEST_PROTOCOL))

            def done(item: Item) -> Result:
                process = self._idle.get()
                try:
                    return process.ask(str(path), item)  # type: ignore[no-any-return]
                finally:
                    self._idle.put(process)

            yield from in_threads(done, items, threads=self.number)


def _stop(processes: list[_Process]) -> None:
    for process in processes:
        process.stop()


class _Process:
    """One child. It is asked by one thread at a time."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def _start(self) -> subprocess.Popen[bytes]:
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)  # noqa: PTH109
        environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": paths}
        return subprocess.Popen(
            [sys.executable, "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

    def ask(self, path: str, item: Any) -> Any:
        """Have the child do one task; again, with a new child, where it dies over it."""
        for _ in range(_TRIES):
            child = self._child = self._child or self._start()
            assert child.stdin is not None
            assert child.stdout is not None
            try:
                pickle.dump((path, item), child.stdin)
                child.stdin.flush()
                good, result = pickle.load(child.stdout)  # noqa: S301  what our own child wrote
            except (EOFError, OSError, pickle.UnpicklingError):
                self.stop()
                continue
            if not good:
                raise result
            return result
        raise SynthGeoError(
            f"a process that works on trips died {_TRIES} times over one part of them; is memory short?"
        )

    def stop(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with suppress(OSError):  # what a dead child did not read
                    pipe.close()


def serve() -> None:
    """What a child does: one task after the other, until its parent goes."""
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # whatever prints must not get into the answers
    threads.MOST = 1  # as many processes as cores are at work already
    known: tuple[str, Any] = ("", None)
    while True:
        try:
            path, item = pickle.load(asked)  # noqa: S301  what our parent wrote
        except EOFError:
            return
        try:
            if known[0] != path:
                known = (path, pickle.loads(Path(path).read_bytes()))  # noqa: S301
            answer: tuple[bool, Any] = (True, known[1](item))
        except Exception as problem:  # noqa: BLE001  raised where the task was asked for
            answer = (False, problem)
        pickle.dump(answer, answers, protocol=pickle.HIGHEST_PROTOCOL)
        answers.flush()


__all__ = ["Workers", "serve"]
