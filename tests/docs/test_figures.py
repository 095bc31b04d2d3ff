"""No figure in the documentation is typed by hand: each comes from a results file or from references.json."""

from __future__ import annotations

import json
import re

import pytest

from benchmarks import audit, figures
from benchmarks._common import RESULTS
from benchmarks._markdown import DOCS, ROOT, references

#: Figures with a unit that nobody measured, by page, each with its reason.
FACTS: dict[str, dict[str, str]] = {
    "docs/adr/0002-structure-from-releases.md": {"25 %": "a setting of a trial: the share of ε that it used"},
    "docs/adr/0003-map-matching.md": {
        "8,000 points per": "the goal that was set",
        "10,000 points per": "what a library would have to do",
    },
    "docs/adr/0007-one-optimiser.md": {
        "20 seconds": "what compiling takes elsewhere",
        "7 ms": "seen once while choosing; no benchmark records it",
    },
    "docs/guarantees.md": {
        "20 %": "a share of the budget",
        "7 %": "a share of the budget",
        "5 %": "computed: noise at (1, 1e-9) by exact accounting against zCDP",
    },
    "docs/how-to/check.md": {
        "5 %": "the share of rows above which a note becomes a warning",
        "25 %": "the share of events above which a note becomes a warning",
    },
    "docs/benchmarks.md": {
        "0.1 %": "the size of a query",
        "1 %": "the size of a query",
        "10 %": "the size of a query",
        "500 points per": "the simulated stream",
        "3 %": "the tolerance of a test",
    },
    "docs/durable-runs.md": {"200 times": "how often a test kills its run"},
    "docs/scale.md": {
        "16 bytes": "a key and a count, eight bytes each",
        "16 MiB": "2^20 keys of 16 bytes",
        "256 MiB": "2^24 keys of 16 bytes",
        "160 GB": "10^10 keys of 16 bytes",
        "40 bytes": "the arrays of an event",
        "32 bytes": "the arrays of a user",
        "200 MB": "advice on the size of a partition",
    },
    "docs/threat-model.md": {
        "1 MiB": "a limit of the code",
        "640 MB": "a limit of the code",
        "4 million": "a limit of the code",
    },
}
NAMES = [path.relative_to(ROOT).as_posix() for path in figures.pages()]


def test_every_table_of_results_is_on_a_page():
    found = [match["name"] for path in figures.pages() for match in figures.BLOCK.finditer(path.read_text())]
    assert sorted(found) == sorted(figures.BLOCKS)


def test_marked_figures_are_what_the_results_say():
    texts = {name: (ROOT / name).read_text() for name in NAMES}
    stale = [name for name, text in texts.items() if text != figures.refreshed(text)]
    assert stale == [], "run `python -m benchmarks.pages`"


def test_no_figure_is_without_a_source():
    """Mark a figure (benchmarks/figures.py says how), or say in FACTS why it is no measurement."""
    found = {name: set(figures.unmarked((ROOT / name).read_text())) for name in NAMES}
    assert {name: figures for name, figures in found.items() if figures} == {
        name: set(facts) for name, facts in FACTS.items()
    }


def test_the_audit_page_is_what_its_results_say():
    before = json.loads((RESULTS / "audit.json").read_text())
    assert (DOCS / "audit.md").read_text() == audit.page(before["results"], before["config"])


def test_a_wrong_figure_and_an_unmarked_one_are_found():
    """The twins of the tests above."""
    right = 'It costs 240<!--= references["phdstream"]["seconds"] : .0f --> s.'
    assert figures.refreshed(right) == right
    assert figures.refreshed(right.replace("240", "241")) == right
    assert figures.unmarked(right) == []
    assert figures.unmarked("It costs 240 s, 3.5 times as much, 12 MiB and 7 % more.") == [
        "240 s",
        "3.5 times",
        "12 MiB",
        "7 %",
    ]
    assert figures.unmarked("Call `run(5 s)`.\n\n```sh\nsleep 5 s\n```\n") == []
    with pytest.raises(NameError, match="never_measured"):
        figures.refreshed("2<!--= never_measured['x'] : .0f --> s")


def test_everything_from_elsewhere_names_its_source():
    assert all(entry["source"] for entry in references().values())


def test_a_result_says_when_where_and_how():
    for path in sorted(RESULTS.glob("*.json")):
        content = json.loads(path.read_text())
        assert content["name"] == path.stem
        assert {"when", "machine", "versions", "config", "results"} <= set(content), path.stem
        assert not re.search(r"/(work|tmp|home|root)/", path.read_text()), f"a machine's path: {path.stem}"


def test_pictures_are_there_and_small():
    named = re.findall(r"\]\((img/bench-[\w-]+\.png)\)", (ROOT / "docs/benchmarks.md").read_text())
    assert named
    for name in named:
        assert (DOCS / name).stat().st_size < 150_000
