"""Which lines that spend budget the audits reach: no such line of a product may lie outside of all audits.

``python -m benchmarks.reach`` finds every call in the packages that draws noise, chooses, splits a node or
feeds a counter, runs the computed audits (exact ones and duels) and writes down which of those they came by.
Results are kept as they come in ``benchmarks/results/reach.json``; docs/audit.md has the table.
"""

from __future__ import annotations

import argparse
import ast
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from audits.registry import Attacker, Case, Found, all_cases
from benchmarks._common import record, recorded

ROOT = Path(__file__).resolve().parents[1]
NAME = "reach"
PACKAGES = ("streams", "tabular", "trajectories", "synthgeo/hierarchy", "synthgeo/privacy")
# Calls that spend, wherever they are; and calls that do when made on a filter, a bank or a rule.
DRAWS = {
    "discrete_laplace",
    "discrete_gaussian",
    "contrast_gaussian",
    "exponential_mechanism",
    "permute_and_flip",
}
ON = {"measure": "spending", "measure_scores": "spending", "measure_interaction": "spending",
      "choose": "spending", "pure_epsilon": "spending", "step": "bank", "decide": "rule"}  # fmt: skip
# Samplers are made of each other, and have audits of their own.
LEFT_OUT = ("synthgeo/privacy/noise.py", "synthgeo/privacy/selection.py")


@dataclass(frozen=True)
class Site:
    """A line that spends: its module, the function it is in, which of the function's it is, its number."""

    module: str
    function: str
    which: int
    line: int

    @property
    def name(self) -> str:
        """Where it is, without its number: lines move."""
        return f"{self.module}:{self.function}#{self.which}"


def sites() -> list[Site]:
    """Every line of the packages that spends."""
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name in LEFT_OUT:
                continue
            module, functions = name.removesuffix(".py").replace("/", "."), defaultdict(set)
            for function, line in _in(ast.parse(path.read_text())):
                functions[function].add(line)
            for function, lines in functions.items():
                found += [Site(module, function, which, line) for which, line in enumerate(sorted(lines), 1)]
    return found


def _in(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, int]]:
    """Function and number of each line that spends."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from _in(node, f"{inside}.{node.name}".lstrip("."))
        else:
            if isinstance(node, ast.Call) and _spends(node.func):
                yield inside, node.lineno
            yield from _in(node, inside)


def _spends(call: ast.expr) -> bool:
    if isinstance(call, ast.Name):
        return call.id in DRAWS
    if not isinstance(call, ast.Attribute) or (
        isinstance(call.value, ast.Call) and getattr(call.value.func, "id", "") == "super"
    ):
        return False
    owner = call.value.attr if isinstance(call.value, ast.Attribute) else getattr(call.value, "id", "")
    return call.attr in DRAWS or ON.get(call.attr) == owner


class Watch:
    """While it lasts, writes down which of the sites are reached, in every thread."""

    def __init__(self, wanted: list[Site]) -> None:
        self.lines: dict[str, set[int]] = {}
        for site in wanted:
            path = str(ROOT / Path(*site.module.split("."))) + ".py"
            self.lines.setdefault(path, set()).add(site.line)
        self.codes: dict[CodeType, set[int]] = {}
        self.reached: set[tuple[str, int]] = set()

    def __enter__(self) -> Watch:
        threading.settrace(self._call)
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:  # noqa: ARG002
        code = frame.f_code
        wanted = self.codes.get(code)
        if wanted is None:
            spans = {line for _, _, line in code.co_lines() if line is not None}
            wanted = self.codes[code] = spans & self.lines.get(code.co_filename, set())
        return self._line if wanted else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and frame.f_lineno in self.lines[frame.f_code.co_filename]:
            self.reached.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line


class Log:
    """What computed audits came by, kept as it comes."""

    def __init__(self, again: str = "") -> None:
        self.wanted = sites()
        self.state = {"sites": [site.name for site in self.wanted]}
        before = (recorded(NAME) or {"results": {}})["results"]
        self.known: dict[str, list[str]] = {
            case.name: before[case.name]
            for case in all_cases()
            if case.name in before and not (again and again in case.name)
        }
        self.place = {
            (str(ROOT / Path(*site.module.split("."))) + ".py", site.line): site for site in self.wanted
        }

    def attack(self, case: Case, attacker: Attacker) -> Found:
        """Run an audit and write down which lines it came by."""
        with Watch(self.wanted) as watch:
            found = case.attack(attacker)
        own = {self.place[one].name for one in watch.reached if one in self.place}
        self.known[case.name] = sorted(own)
        record(NAME, self.state, self.known)
        return found


def run(only: str = "", again: str = "") -> dict[str, Any]:
    """Which computed audits come by which site; kept as they come."""
    log = Log(again)
    for case in all_cases():
        if case.method != "black box" and case.name not in log.known and only in case.name:
            log.attack(case, Attacker(quick=True))
            print(f"{len(log.known[case.name]):3} lines  {case.name}", flush=True)
    return log.known


def table() -> list[str]:
    """The block of docs/audit.md: functions that spend, their lines, and how many audits reach them."""
    found = recorded(NAME)
    if found is None:
        return []
    by: dict[str, list[str]] = {}
    for name in found["config"]["sites"]:
        by.setdefault(name.partition("#")[0], []).append(name)
    lines = ["| function | lines that spend | reached | by audits |", "|---|---|---|---|"]
    reached = {case: set(names) for case, names in found["results"].items()}
    for function, names in by.items():
        seen = sum(any(name in ones for ones in reached.values()) for name in names)
        audits = sum(not ones.isdisjoint(names) for ones in reached.values())
        mark = str(seen) if seen == len(names) else f"**{seen}**"
        lines.append(f"| `{function}` | {len(names)} | {mark} | {audits} |")
    return lines


def main() -> None:
    """Run the audits that are not recorded yet, and name the lines that none of them reaches."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="", help="audits whose name holds this text")
    options.add_argument("--again", default="", help="also those that are recorded and whose name holds this")
    chosen = options.parse_args()
    found = run(chosen.only, chosen.again)
    reached = {one for ones in found.values() for one in ones}
    for site in sites():
        if site.name not in reached:
            print(f"not reached: {site.name}, line {site.line}")


if __name__ == "__main__":
    main()
