"""docs/papers.md: every object it names exists, every result is recorded, and its verdicts are those of the
recorded claims.
"""

from __future__ import annotations

import importlib
import json
import re

from benchmarks._common import RESULTS
from benchmarks._markdown import DOCS, ROOT
from benchmarks.dissertation import judged

TEXT = (DOCS / "papers.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith("| item |")
]
OBJECTS = sorted({name for row in ROWS for name in re.findall(r"`([\w.]+)`", row[2])})
SHOWN = sorted({name for row in ROWS for name in re.findall(r"`([^`]+)`", row[4])})
_WORDS = "reproduced|in part|not reproduced"
VERDICT = re.compile(rf"`(?P<result>[\w-]+)`, \*(?P<words>[^*]+)\*: (?P<verdict>{_WORDS})$")
JUDGED = [row for row in ROWS if VERDICT.match(row[4])]


def resolve(path: str) -> object:
    """The object at the end of a dotted path of modules, classes and attributes."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(path)


def verdict_of(result: str, words: str) -> str:
    """What the recorded claims that mention these words come to."""
    recorded = json.loads((RESULTS / f"{result}.json").read_text())["results"]["claims"]
    holds = [c["holds"] for c in recorded if c["claim"].startswith("as printed") and words in c["claim"]]
    assert holds, f"no claim of {result} mentions {words!r}"
    return "reproduced" if all(holds) else "in part" if any(holds) else "not reproduced"


def test_all_five_papers_are_there_in_full():
    assert len(ROWS) >= 180
    assert TEXT.count("\n## ") == 5
    names = [(row[0], row[1]) for row in ROWS]
    assert all(len(row) == 5 and all(row) for row in ROWS)
    for algorithm in range(1, 22):
        assert any(name == f"Algorithm {algorithm}" for name, _ in names), algorithm
    for chapter, last in ((3, 19), (4, 9)):
        assert {f"Figure {chapter}.{i}" for i in range(1, last + 1)} <= {name for name, _ in names}


def test_what_is_not_ours_has_a_reason():
    absent = [row for row in ROWS if row[2] == "–"]
    assert len(absent) < 8
    assert all(row[3].startswith("not ours: ") and len(row[3]) > 60 for row in absent)


def test_every_object_exists():
    for path in OBJECTS:
        assert resolve(path) is not None, path


def test_every_result_and_every_test_exists():
    places = [ROOT / name if name.startswith("tests/") else RESULTS / f"{name}.json" for name in SHOWN]
    assert [place.name for place in places if not place.exists()] == []


def test_verdicts_are_those_of_the_claims():
    for row in JUDGED:
        found = VERDICT.match(row[4])
        assert found is not None
        assert found["verdict"] == verdict_of(found["result"], found["words"]), row[0]


def test_no_verdict_is_written_by_hand():
    for row in ROWS:
        if re.search(rf": ({_WORDS})\b", row[4]):
            assert VERDICT.match(row[4]), row


def test_figures_are_judged_by_the_results_as_they_are():
    recorded = json.loads((RESULTS / "kumar_figures.json").read_text())["results"]["claims"]
    assert judged() == recorded, "run python -m benchmarks.dissertation figures"
