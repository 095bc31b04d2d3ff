"""Work that kills the process that does it."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from trajectories.parts.placing import Placing

_DEATHS = 2


@dataclass(frozen=True, eq=False)
class DyingPlacing(Placing):
    """Placing trips; the first two times the process dies when all is done but said."""

    folder: str = ""

    def __call__(self, rows):
        placed, folder = super().__call__(rows), Path(self.folder)
        if len(list(folder.glob("died-*"))) < _DEATHS:
            (folder / f"died-{os.getpid()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        (folder / f"placed-{os.getpid()}-{len(list(folder.iterdir()))}").touch()
        return placed


@dataclass(frozen=True)
class Killer:
    """Kills whoever does it."""

    def __call__(self, item):
        os.kill(os.getpid(), signal.SIGKILL)
