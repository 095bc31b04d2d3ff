"""Damaged files: runs, states, models and ledgers with a flipped, cut, emptied or missing file somewhere.

``python -m benchmarks.damage`` (part of ``make soak``) damages one file of a whole run folder, a model, a
state or a ledger at a time, and opens it. What is opened is refused with one line, or it tells the same as
before: releases, spends and the last state. Counts are kept in ``benchmarks/results/damage.json``.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import synthgeo as sg
from benchmarks._common import record, recorded
from benchmarks.soak import BOX, ONE, SCHEMA, SUBJECTS
from synthgeo.errors import SynthGeoError

NAME = "damage"
KINDS = ("a flipped bit", "another byte", "cut short", "emptied", "zeros in between", "more at the end")


@dataclass(frozen=True)
class Subject:
    """How a folder of files is made, and what it tells when it is opened: equal before and after."""

    make: Callable[[Path], None]
    tell: Callable[[Path], Any]


def _make_run(name: str, folder: Path) -> None:
    with sg.StreamRun.open(folder / "run", SUBJECTS[name].make(sg.SeededNoise(1))) as run:
        for step in range(1, 4):
            run.step(f"batch {step}", SUBJECTS[name].batch(step))


def _tell_run(folder: Path) -> Any:
    """Everything that counts of a run: its report, its releases, its state. As a writer, then as a reader."""
    with sg.StreamRun.open(folder / "run") as run:
        run.verify()
        told = run.report().to_dict()
    with sg.StreamRun.view(folder / "run") as view:
        view.verify()
    told["interrupted"] = None  # the log of attempts is only a log
    files = sorted(path for path in (folder / "run").rglob("*") if path.parent.parent.name == "releases")
    states = sorted((folder / "run" / "state").iterdir())
    return told, [path.read_bytes() for path in [*files, *states]]


def _make_table(folder: Path) -> None:
    made = sg.TabularSynthesizer(
        schema=SCHEMA,
        budget=ONE,
        noise=sg.SeededNoise(1),
        settings=sg.TableSettings(iterations=20),
        progress=False,
    )
    made.fit(SUBJECTS["a table"].batch(1)).save(folder / "model")


def _make_trips(folder: Path) -> None:
    made = sg.TrajectorySynthesizer(
        domain=BOX, budget=ONE, noise=sg.SeededNoise(1), settings=sg.TripSettings(max_depth=2, cleaning=False)
    )
    made.fit(SUBJECTS["trips"].batch(1)).save(folder / "model")


def _make_stream(folder: Path) -> None:
    made = SUBJECTS["points"].make(sg.SeededNoise(1))
    made.update(SUBJECTS["points"].batch(1))
    made.save(folder / "model")


def _tell_model(kind: Any, folder: Path) -> Any:
    model = kind.load(folder / "model")
    model.save(folder / "again")
    content = (folder / "again").read_bytes()
    (folder / "again").unlink()
    return content


def _make_ledger(folder: Path) -> None:
    with sg.Ledger.open(folder / "ledger.sqlite", dataset="d", cap=sg.PrivacyBudget(9.0)) as ledger:
        for number in range(3):
            ledger.charge(f"product {number}", ONE, sg.PrivacyUnit.event())


def _tell_ledger(folder: Path) -> Any:
    with sg.Ledger.open(folder / "ledger.sqlite") as ledger:
        ledger.verify()
        return ledger.entries, ledger.cap, ledger.dataset


DAMAGED = {
    **{
        f"a run of {name}": Subject(partial(_make_run, name), _tell_run)
        for name in ("a series", "points", "a table", "trips")
    },
    "a model of a table": Subject(_make_table, partial(_tell_model, sg.TabularSynthesizer)),
    "a model of trips": Subject(_make_trips, partial(_tell_model, sg.TrajectorySynthesizer)),
    "a saved stream": Subject(_make_stream, partial(_tell_model, sg.PHDStream)),
    "a ledger": Subject(_make_ledger, _tell_ledger),
}


def damage(content: bytes, kind: str, chooser: random.Random) -> bytes:
    """The bytes of a file with one damage."""
    if kind == "emptied" or not content:
        return b"" if content else b"\0"
    used = [place for place, byte in enumerate(content) if byte] or [0]  # much of an SQLite file is empty
    place = chooser.choice(used)
    if kind == "a flipped bit":
        changed = bytes([content[place] ^ 1 << chooser.randrange(8)])
    elif kind == "another byte":
        changed = bytes([content[place] ^ chooser.randrange(1, 256)])
    elif kind == "cut short":
        return content[:place]
    elif kind == "zeros in between":
        changed = bytes(min(64, len(content) - place))
    else:
        return content + content[:place] + b"\1"
    return content[:place] + changed + content[place + len(changed) :]


def attempt(subject: Subject, whole: Path, told: Any, chooser: random.Random) -> str:
    """Damage one file of a copy and open it: "refused", "harmless", or what is wrong."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "copy"
        shutil.copytree(whole, folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
        target, kind = chooser.choice(files), chooser.choice((*KINDS, "missing"))
        before = target.read_bytes()
        if kind == "missing":
            target.unlink()
        else:
            target.write_bytes(damage(before, kind, chooser))
        where = f"{target.relative_to(folder)}, {kind}"
        try:
            now = subject.tell(folder)
        except SynthGeoError as problem:
            return "refused" if "\n" not in str(problem) else f"{where}: several lines: {problem}"
        except Exception as problem:  # noqa: BLE001 - this is what is looked for
            return f"{where}: {type(problem).__name__}: {problem}"
        return "harmless" if _same(now, told) else f"{where}: it tells something else"


def _same(one: Any, other: Any) -> bool:
    return bool(np.all(one == other)) if isinstance(one, np.ndarray) else bool(one == other)


def campaign(name: str, count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """So many damages of one subject: how many were refused and harmless, and what went wrong."""
    subject, chooser = DAMAGED[name], random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        whole, look = Path(place) / "whole", Path(place) / "look"
        whole.mkdir()
        subject.make(whole)
        shutil.copytree(whole, look)
        told = subject.tell(look)
        found = Counter(attempt(subject, whole, told, chooser) for _ in range(count))
    wrong = [outcome for outcome in found if outcome not in ("refused", "harmless")]
    return found, wrong


def main() -> None:
    """Damage everything, and tell what came of it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--damages", type=int, default=2400, help="how many in all")
    chosen = options.parse_args()
    known: dict[str, dict[str, int]] = {}
    broken = []
    for number, name in enumerate(DAMAGED):
        found, wrong = campaign(name, -(-chosen.damages // len(DAMAGED)), number)
        known[name] = {word: found[word] for word in ("refused", "harmless")} | {"wrong": len(wrong)}
        broken += [f"{name}: {one}" for one in wrong]
        print(f"{dict(known[name])}  {name}", flush=True)
    print("\n".join(broken))
    if broken:
        raise SystemExit("something damaged was taken for whole")
    record(NAME, {"kinds": [*KINDS, "missing"]}, known)


def table() -> list[str]:
    """The block of docs/audit.md."""
    found = recorded(NAME)
    if found is None:
        return []
    lines = ["| what | damages | refused with one line | harmless | anything else |", "|---|---|---|---|---|"]
    whole = sum(map(Counter, found["results"].values()), Counter())
    for name, own in [*found["results"].items(), ("together", whole)]:
        lines.append(
            f"| {name} | {sum(own.values()):,} | {own['refused']:,} | {own['harmless']:,} | {own['wrong']} |"
        )
    return lines


if __name__ == "__main__":
    main()
