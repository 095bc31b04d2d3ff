"""Mutation tests of the privacy-relevant code: small changes that break a promise, and the tests that notice.

``python -m benchmarks.mutants`` (``make mutants``) applies each change of ``benchmarks.mutations`` to a copy
of the tree and runs the tests that should fail then. A mutant is addressed by module, function and the text
to replace, so that moving lines does not lose it. Results are kept in ``benchmarks/results/mutants.json`` as
they come: a run that was stopped goes on, and a mutant is tried again when its module or the file of the test
that noticed it changed (one that survived: when any of its tests did).
docs/audit.md has the table (``python -m benchmarks.audit --page``).

The tests are run once without any change first: they have to pass, and it is written down how long each takes
and which functions it calls. A mutant meets the tests that call its function first, the quickest before the
others, so that most die within seconds; a survivor has passed all of its tests.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from benchmarks._common import record, recorded

ROOT = Path(__file__).resolve().parents[1]
NAME = "mutants"
CODE = ("synthgeo", "streams", "tabular", "trajectories")
PACKAGES = (*CODE, "tests", "audits", "benchmarks", "tools")
# Seconds of processor time beyond what the tests need: a mutant without an end is noticed, too. By the clock
# nothing is decided, for the machine may be busy; a trial that takes this many times as long is tried again
# another day.
CPU_SECONDS, PATIENCE = 25, 60
SURVEY = ROOT / ".cache" / "mutants-survey.json"
# Imported once in the process that every trial is forked from.
_HEAVY = ("numpy", "pandas", "scipy.optimize", "scipy.special", "scipy.sparse.linalg", "pyarrow.parquet",
          "duckdb", "shapely", "pyproj", "geopandas", "numba", "networkx", "pytest")  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: in ``where`` ("module:function" or "module:Class.method"), ``old`` becomes ``new``.

    ``tests`` are what pytest runs; ``harmless`` argues, in one line, why a survivor breaks no promise.
    """

    where: str
    old: str
    new: str
    tests: tuple[str, ...]
    harmless: str = ""

    @property
    def module(self) -> str:
        """Dotted name of the module."""
        return self.where.partition(":")[0]

    @property
    def path(self) -> Path:
        """The module's file, within a tree."""
        plain = Path(*self.module.split("."))
        return (
            plain.with_suffix(".py") if (ROOT / plain.with_suffix(".py")).exists() else plain / "__init__.py"
        )

    @property
    def name(self) -> str:
        """What is changed into what, and where."""
        return f"{self.where}: {self.old} -> {self.new}"

    def state(self, by: str = "", root: Path = ROOT) -> str:
        """A hash of its module and of the tests as they are in a tree: all of them, or those beside the one
        that noticed it (``by``), for what another file checks does not bring it back.
        """
        files = dict.fromkeys(test.partition("::")[0].partition(" ")[0] for test in self.tests)
        killer = by.partition("::")[0]
        digest = hashlib.sha256(json.dumps([killer] if killer in files else self.tests).encode())
        for path in (self.path, *([killer] if killer in files else files)):
            digest.update((root / path).read_bytes() if (root / path).is_file() else b"")
        return digest.hexdigest()[:16]


class LostError(Exception):
    """The text that a mutant replaces is not in its function, or is there more than once."""


def mutated(mutant: Mutant, source: str) -> str:
    """The module's source with the change made."""
    first, last = _span(source, mutant.where.partition(":")[2])
    lines = source.splitlines(keepends=True)
    body = "".join(lines[first:last])
    if body.count(mutant.old) != 1:
        raise LostError(f"{mutant.where}: {mutant.old!r} is there {body.count(mutant.old)} times")
    changed = "".join([*lines[:first], body.replace(mutant.old, mutant.new), *lines[last:]])
    compile(changed, mutant.where, "exec")
    return changed


def _span(source: str, name: str) -> tuple[int, int]:
    """First and last line of a function, method or class; the whole module for an empty name."""
    body: Sequence[ast.stmt] = ast.parse(source).body
    span = (0, len(source.splitlines()))
    for part in filter(None, name.split(".")):
        found = [node for node in body if getattr(node, "name", None) == part]
        if not found:
            raise LostError(f"there is no {name}")
        node: Any = found[-1]
        span, body = (node.lineno - 1, node.end_lineno), node.body
    return span


def applicable(mutants: Sequence[Mutant]) -> tuple[list[Mutant], list[str]]:
    """The mutants that can be made of the tree as it is, and what is wrong with the others."""
    good, lost = [], []
    for mutant in mutants:
        try:
            mutated(mutant, (ROOT / mutant.path).read_text())
            good.append(mutant)
        except (LostError, OSError, SyntaxError) as problem:
            lost.append(str(problem))
    return good, lost


def trial(mutant: Mutant, tree: Path, known: Mapping[str, Any]) -> dict[str, Any]:
    """Whether the tests notice the change in a copy of the tree; ``known`` is a survey of them."""
    target = tree / mutant.path
    original = target.read_text()
    target.write_text(mutated(mutant, original))
    surveys = [known[test]["tests"] for test in mutant.tests if test in known]
    tests = {name: one for survey in surveys for name, one in survey.items()}
    first = First(mutant, tests)
    seconds = 2 * sum(one["seconds"] for one in tests.values()) if tests else 600
    start = time.perf_counter()
    try:
        code, noticed = _pytest(tree, mutant.tests, first, seconds=CPU_SECONDS + seconds)
    finally:
        target.write_text(original)
    outcome = {0: "survived", 1: "killed", -signal.SIGXCPU: "killed"}.get(code, "error")
    by = noticed or ("no end" if code == -signal.SIGXCPU else "")
    return {"outcome": outcome, "seconds": round(time.perf_counter() - start, 1), "by": by}


class First:
    """A plugin of pytest: the tests that call the mutated function come first; tells which one failed."""

    def __init__(self, mutant: Mutant, tests: Mapping[str, Any]) -> None:
        self.function = f"{mutant.path}:{mutant.where.partition(':')[2]}"
        self.tests = tests
        self.found = ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items.sort(key=lambda item: self._rank(self.tests.get(item.nodeid)))

    def _rank(self, test: Any) -> tuple[bool, float]:
        if test is None:
            return True, 0.0
        calls = any(
            f"{name}.".startswith(f"{self.function}.") or self.function.endswith(":")
            for name in test["calls"]
        )
        return not calls, test["seconds"]

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.found:
            self.found = report.nodeid

    pytest_collectreport = pytest_runtest_logreport


class Survey:
    """A plugin of pytest: how long each test takes, and which functions of the packages it calls."""

    def __init__(self, tree: Path) -> None:
        self.tree = f"{tree}/"
        self.tests: dict[str, dict[str, Any]] = {}
        self.names: dict[CodeType, str | None] = {}
        self.called: set[CodeType] = set()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        self.called, start = set(), time.process_time()
        sys.setprofile(self._call)
        yield
        sys.setprofile(None)
        calls = sorted({name for code in self.called if (name := self._name(code)) is not None})
        self.tests[item.nodeid] = {"seconds": round(time.process_time() - start, 2), "calls": calls}

    def _call(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self.called.add(frame.f_code)

    def _name(self, code: CodeType) -> str | None:
        if code not in self.names:
            path = code.co_filename.removeprefix(self.tree)
            own = path != code.co_filename and path.partition("/")[0] in CODE
            self.names[code] = f"{path}:{code.co_qualname}" if own else None
        return self.names[code]

    @property
    def found(self) -> str:
        return json.dumps(self.tests)


def survey(tests: Iterable[str], tree: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """What each of these takes and calls without any change; known ones are not run again."""
    known: dict[str, Any] = json.loads(SURVEY.read_text()) if SURVEY.exists() else {}
    for test in dict.fromkeys(tests):
        path = ROOT / test.partition("::")[0].partition(" ")[0]
        state = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        if known.get(test, {}).get("state") == state:
            continue
        code, found = _pytest(tree, (test,), Survey(tree), seconds=3600)
        if code != 0:
            raise SystemExit(f"{test} fails without any change (code {code})")
        known[test] = {"state": state, "tests": json.loads(found)}
        SURVEY.parent.mkdir(exist_ok=True)
        SURVEY.write_text(json.dumps(known))
        say(f"{sum(one['seconds'] for one in known[test]['tests'].values()):6.1f} s  {test}")
    return known


def runs_of(tests: Sequence[str]) -> list[list[str]]:
    """What pytest is given, one run after the other: ``-k`` holds for a whole run, so each has its own."""
    plain = [test for test in tests if " " not in test]
    return [*([plain] if plain else []), *(test.split(" ", 2) for test in tests if " " in test)]


def _pytest(tree: Path, tests: Sequence[str], plugin: Any, *, seconds: float) -> tuple[int, str]:
    """Run tests in a forked process that has not imported the packages yet; exit code, and what is found."""
    child = os.fork()
    told = tree / "found.txt"
    told.unlink(missing_ok=True)
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os.chdir(tree)
        sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(ROOT)))]
        os.environ["PYTHONPATH"] = str(tree)
        for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
            del sys.modules[name]
        sys.dont_write_bytecode = True
        code = 3
        try:
            for words in runs_of(tests):
                code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *words], plugins=[plugin]))
                if code:
                    break
            code = 1 if code == 2 and plugin.found else code  # the mutated module cannot even be imported
        finally:
            told.write_text(plugin.found)
            os._exit(code)
    deadline = time.monotonic() + PATIENCE * seconds
    code, done = 124, 0
    try:
        while not done and time.monotonic() < deadline:
            time.sleep(0.05)
            done, status = os.waitpid(child, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if done else code
    finally:
        if not done:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return code, told.read_text() if told.exists() else ""


def _copies(count: int, folder: Path) -> Iterator[Path]:
    for number in range(count):
        tree = folder / str(number)
        for package in PACKAGES:
            shutil.copytree(
                ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__", "*.png")
            )
        for name in ("pyproject.toml", "README.md", "mkdocs.yml"):
            shutil.copy(ROOT / name, tree / name)
        yield tree


def current(mutant: Mutant, known: Mapping[str, Any] | None) -> bool:
    """Whether a result holds for the module and the tests as they are now."""
    return known is not None and known["state"] == mutant.state(known["by"])


def run(
    mutants: Sequence[Mutant],
    *,
    jobs: int,
    listed: Collection[str],
    surveyed: bool = True,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Try what has not been tried as it is now, and keep each result as it comes; ``listed`` are the names of
    all mutants there are, and results of others are forgotten.
    """
    before = (recorded(NAME) or {"results": {}})["results"]
    known: dict[str, Any] = {name: one for name, one in before.items() if name in listed}
    todo = [m for m in mutants if not current(m, known.get(m.name))]
    say(f"{len(mutants)} mutants, {len(todo)} to try")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        trees = list(_copies(jobs, Path(folder))) if todo else []
        wanted = (test for mutant in todo for test in mutant.tests)
        tests = survey(wanted, trees[0], say) if todo and surveyed else {}

        def attempt(mutant: Mutant) -> tuple[Mutant, dict[str, Any]]:
            tree = trees.pop()
            try:
                found = trial(mutant, tree, tests)
                return mutant, {**found, "state": mutant.state(found["by"], tree)}
            finally:
                trees.append(tree)

        for mutant, found in pool.map(attempt, todo):
            say(f"{found['outcome']:9} {found['seconds']:6.1f} s  {mutant.name}  {found['by']}")
            if found["outcome"] != "error":
                known[mutant.name] = {"module": mutant.module, **found}
                record(NAME, {"cpu_seconds": CPU_SECONDS, "listed": len(listed)}, known)
    return known


@cache
def _preload() -> None:
    for name in _HEAVY:
        __import__(name)


def main() -> None:
    """Try the mutants, and say what survived."""
    from benchmarks.mutations import MUTANTS

    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--only", default="", help="mutants whose address holds this text")
    options.add_argument("--unsurveyed", action="store_true", help="do not run the tests unchanged first")
    chosen = options.parse_args()
    good, lost = applicable([mutant for mutant in MUTANTS if chosen.only in mutant.where])
    _preload()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and not without its children
    listed = {mutant.name for mutant in MUTANTS}
    results = run(good, jobs=chosen.jobs, listed=listed, surveyed=not chosen.unsurveyed)
    outcomes = Counter(results.get(mutant.name, {"outcome": "error"})["outcome"] for mutant in good)
    for mutant in good:
        if results.get(mutant.name, {}).get("outcome") != "killed":
            print(f"not killed: {mutant.name} {mutant.harmless}")
    for problem in lost:
        print(f"lost: {problem}")
    print(dict(outcomes), f"{len(lost)} lost")


def table() -> list[str]:
    """The block of docs/audit.md: mutants by module, and those that survive with the reason why they may."""
    from benchmarks.mutations import MUTANTS

    before = recorded(NAME)
    if before is None:
        return []
    why = {mutant.name: mutant.harmless for mutant in MUTANTS}
    found = before["results"]
    modules = sorted({one["module"] for one in found.values()})
    lines = [
        f"{len(found)} of the {before['config']['listed']} mutants on the list were tried so far.",
        "",
        "| module | mutants | killed | survive |",
        "|---|---|---|---|",
    ]
    for module in [*modules, "together"]:
        own = [one["outcome"] == "killed" for one in found.values() if module in (one["module"], "together")]
        shown = module if module == "together" else f"`{module}`"
        lines.append(f"| {shown} | {len(own)} | {sum(own)} | {len(own) - sum(own) or ''} |")
    left = [name for name, one in found.items() if one["outcome"] != "killed"]
    if left:
        lines += [
            "",
            "Those that survive:",
            "",
            *(f"- `{name}`: {why.get(name) or 'not yet noticed by a test'}" for name in left),
        ]
    return lines


if __name__ == "__main__":
    main()
