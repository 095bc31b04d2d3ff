"""Campaigns of ``benchmarks.soak`` in a process of their own, which may be forked: honest, and broken."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from benchmarks import soak
from streams.runs.run import StreamRun


def campaign(folder: str, name: str, seed: int | None) -> soak.Campaign:
    return soak.Campaign(soak.SUBJECTS[name], Path(folder), seed, random.Random(3))


def visible_too_early() -> None:
    """The broken order: publish, then decide."""
    decide, publish = StreamRun._decide, StreamRun._publish

    def early(run, row, notes):
        publish(run, row)
        decide(run, row, notes)

    StreamRun._decide = early


def main() -> None:
    folder, name, noise, kills, fault = sys.argv[1:]
    if fault == "visible too early":
        visible_too_early()
    killed = campaign(folder, name, 3 if noise == "seeded" else None)
    print(json.dumps(killed.go(int(kills))))
    if fault:
        first = next(Path(folder).glob("run 0/releases/000001*"))
        if fault == "changed":
            (first / "data.parquet").write_bytes(b"other")
        else:
            first.rename(Path(folder) / "elsewhere")
        killed._look()


if __name__ == "__main__":
    main()
