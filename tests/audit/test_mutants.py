"""The mutation runner: what it changes, that it notices, and that most mutants still find their line."""

from __future__ import annotations

from benchmarks.mutants import LostError, Mutant, applicable, mutated, runs_of
from benchmarks.mutations import MUTANTS

SOURCE = "class A:\n    def f(self):\n        return 1 + 1\n\n\ndef f():\n    return 1 + 2\n"


def test_a_mutant_changes_its_function_and_nothing_else():
    assert mutated(Mutant("m:A.f", "1 + 1", "3", ()), SOURCE) == SOURCE.replace("1 + 1", "3")
    assert mutated(Mutant("m:f", "1 +", "5 +", ()), SOURCE) == SOURCE.replace("1 + 2", "5 + 2")


def test_a_mutant_whose_text_is_gone_or_not_unique_is_lost():
    for where, old in (("m:A.g", "1"), ("m:f", "1 + 1"), ("m:A.f", "1")):
        try:
            mutated(Mutant(where, old, "2", ()), SOURCE)
        except LostError:
            continue
        raise AssertionError(where)


def test_what_one_file_is_asked_for_leaves_no_test_of_another_out():
    assert runs_of(("a.py", "b.py -k one or two", "c.py::test_x")) == [
        ["a.py", "c.py::test_x"],
        ["b.py", "-k", "one or two"],
    ]
    assert runs_of(("b.py -k one",)) == [["b.py", "-k", "one"]]


def test_there_are_enough_mutants_and_few_are_lost():
    good, lost = applicable(MUTANTS)
    assert len(good) >= 150
    assert len(lost) <= 0.2 * len(MUTANTS), lost
    assert len({mutant.name for mutant in good}) == len(good)


def test_a_result_holds_as_long_as_its_module_and_the_tests_that_decided(tmp_path):
    mutant = Mutant("m:f", "1", "2", ("a.py", "b.py -k one"))
    for name in ("m.py", "a.py", "b.py"):
        (tmp_path / name).write_text("1")
    noticed, survived = mutant.state("b.py::test_x", tmp_path), mutant.state("", tmp_path)
    (tmp_path / "a.py").write_text("2")
    assert mutant.state("b.py::test_x", tmp_path) == noticed
    assert mutant.state("", tmp_path) != survived
    for name in ("b.py", mutant.path):
        before = mutant.state("b.py::test_x", tmp_path)
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("3")
        assert mutant.state("b.py::test_x", tmp_path) != before
