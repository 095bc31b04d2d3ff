"""Every product charges the ledger before it computes, once, and a cap or a repeat stops it."""

from __future__ import annotations

import copy
import shutil

import pytest

import synthgeo as sg
from tests.contract.products import CASES

ONE = sg.PrivacyBudget(1.0)
CHARGING = {
    case.kind: case
    for case in reversed(CASES)
    if not case.name.startswith("series") and getattr(case.make(), "is_private", True)
}
products = pytest.mark.parametrize("case", CHARGING.values(), ids=lambda case: case.name)
over_time = pytest.mark.parametrize(
    "case", [case for case in CHARGING.values() if case.over_time], ids=lambda case: case.name
)
one_off = pytest.mark.parametrize(
    "case", [case for case in CHARGING.values() if not case.over_time], ids=lambda case: case.name
)


def use(case, ledger):
    return case.use(case.make(budget=ONE, ledger=ledger), case.inputs()[0])


@products
def test_a_product_charges_its_budget_and_stops_at_the_cap(case, tmp_path):
    with sg.Ledger.open(tmp_path / "ledger.sqlite", dataset="d", cap=sg.PrivacyBudget(1.5)) as ledger:
        use(case, ledger)
        assert ledger.spent == ONE
        with pytest.raises(sg.errors.LedgerError, match="cap"):
            use(case, ledger)
        assert ledger.spent == ONE


@one_off
def test_a_repeated_fit_is_recorded_or_refused(case, tmp_path):
    cap = sg.PrivacyBudget(9.0)
    with sg.Ledger.open(tmp_path / "a.sqlite", dataset="d", cap=cap) as ledger:
        use(case, ledger)
        use(case, ledger)
        assert [entry.repeats for entry in ledger.entries] == [None, 1]
    with sg.Ledger.open(tmp_path / "b.sqlite", dataset="d", cap=cap, on_repeat="refuse") as ledger:
        use(case, ledger)
        with pytest.raises(sg.errors.LedgerError, match="before"):
            use(case, ledger)
        assert ledger.spent == ONE


@one_off
@pytest.mark.parametrize("again", ["itself", "another"])
def test_a_fit_that_is_stopped_after_its_charge_is_made_again_for_nothing(case, again, tmp_path, monkeypatch):
    """Whatever the ledger says of repeats, and though nothing is left in it; by another object, too."""
    with sg.Ledger.open(tmp_path / "l.sqlite", dataset="d", cap=ONE, on_repeat="refuse") as ledger:
        product, reserve, stop = case.make(budget=ONE, ledger=ledger), ledger.reserve, iter([True])

        def then_stopped(*args, **options):
            made = reserve(*args, **options)
            if next(stop, False):
                raise KeyboardInterrupt
            return made

        monkeypatch.setattr(ledger, "reserve", then_stopped)
        with pytest.raises(KeyboardInterrupt):
            case.use(product, case.inputs()[0])
        assert product.spent is None
        if again == "another":
            product = case.make(budget=ONE, ledger=ledger)
        case.use(product, case.inputs()[0])
        assert product.spent == ledger.spent == ONE
        with pytest.raises(sg.BudgetExhausted):
            case.use(product, case.inputs()[0])


@one_off
@pytest.mark.parametrize("copied", [copy.copy, lambda product: product.clone()], ids=["copy", "clone"])
def test_a_copy_of_what_is_not_fitted_pays_for_itself(case, copied, tmp_path):
    with sg.Ledger.open(tmp_path / "l.sqlite", dataset="d", cap=sg.PrivacyBudget(9.0)) as ledger:
        product = case.make(budget=ONE, ledger=ledger)
        other = copied(product)
        for each in (product, other):
            case.use(each, case.inputs()[0])
        assert ledger.spent == sg.PrivacyBudget(2.0)


@one_off
def test_of_two_fits_on_one_charge_one_is_seen(case, tmp_path, monkeypatch):
    """A second process takes over what the first is still drawing for: the first is discarded unseen."""
    with sg.Ledger.open(tmp_path / "l.sqlite", dataset="d", cap=ONE) as ledger:
        slow, quick = (case.make(budget=ONE, ledger=ledger) for _ in range(2))
        commit, late = ledger.commit, iter([True])

        def overtaken(reservation):
            if next(late, False):
                case.use(quick, case.inputs()[0])
            commit(reservation)

        monkeypatch.setattr(ledger, "commit", overtaken)
        with pytest.raises(sg.errors.LedgerError, match="taken over"):
            case.use(slow, case.inputs()[0])
        assert slow.spent is None
        assert quick.spent == ledger.spent == ONE


@one_off
def test_a_fit_that_is_stopped_after_its_commit_has_its_model(case, tmp_path, monkeypatch):
    with sg.Ledger.open(tmp_path / "l.sqlite", dataset="d", cap=ONE) as ledger:
        product, commit = case.make(budget=ONE, ledger=ledger), ledger.commit

        def then_stopped(reservation):
            commit(reservation)
            raise KeyboardInterrupt

        monkeypatch.setattr(ledger, "commit", then_stopped)
        with pytest.raises(KeyboardInterrupt):
            case.use(product, case.inputs()[0])
        assert product.spent == ledger.spent == ONE


def state_after_one_step(case, ledger, path):
    stream = case.make(budget=ONE, ledger=ledger)
    case.use(stream, case.inputs()[0])
    stream.save(path)
    return stream


@over_time
def test_five_loads_of_one_state_answer_once(case, tmp_path):
    with sg.Ledger.open(tmp_path / "l.sqlite", dataset="d", cap=sg.PrivacyBudget(9.0)) as ledger:
        state_after_one_step(case, ledger, tmp_path / "state")
        case.use(case.kind.load(tmp_path / "state", ledger=ledger), case.inputs()[1])
        for _ in range(4):
            loaded = case.kind.load(tmp_path / "state", ledger=ledger)
            with pytest.raises(sg.errors.LedgerError, match="older copy: step 2 was answered already"):
                case.use(loaded, case.inputs()[1])
            assert loaded.step == 1
        assert ledger.spent == ONE


@over_time
def test_a_copy_of_a_stream_answers_no_step_again(case, tmp_path):
    with sg.Ledger.open(tmp_path / "l.sqlite", dataset="d", cap=sg.PrivacyBudget(9.0)) as ledger:
        stream = state_after_one_step(case, ledger, tmp_path / "state")
        other = copy.copy(stream)
        case.use(other, case.inputs()[1])
        with pytest.raises(sg.errors.LedgerError, match="older copy"):
            case.use(stream, case.inputs()[1])
        assert stream.step == 1
        assert ledger.spent == ONE


@over_time
def test_a_state_that_owes_a_ledger_takes_no_step_without_it(case, tmp_path):
    cap = sg.PrivacyBudget(9.0)
    with (
        sg.Ledger.open(tmp_path / "l.sqlite", dataset="d", cap=cap) as ledger,
        sg.Ledger.open(tmp_path / "m.sqlite", dataset="d", cap=cap) as other,
    ):
        stream = state_after_one_step(case, ledger, tmp_path / "state")
        stream.ledger = None
        for owing in (stream, case.kind.load(tmp_path / "state")):
            with pytest.raises(sg.errors.LedgerError, match="takes no step without it"):
                case.use(owing, case.inputs()[1])
            assert owing.step == 1
            assert owing.release.step == 1
        with pytest.raises(sg.errors.LedgerError, match="takes no step without it"):
            case.kind.load(tmp_path / "state", ledger=other)
        assert other.spent is None


@over_time
def test_a_step_that_is_stopped_before_its_commit_is_taken_again(case, tmp_path, monkeypatch):
    with sg.Ledger.open(tmp_path / "l.sqlite", dataset="d", cap=ONE) as ledger:
        stream, commit, stop = case.make(budget=ONE, ledger=ledger), ledger.commit, iter([True])
        before = dict(vars(stream))

        def stopped(reservation):
            if next(stop, False):
                raise KeyboardInterrupt
            commit(reservation)

        monkeypatch.setattr(ledger, "commit", stopped)
        with pytest.raises(KeyboardInterrupt):
            case.use(stream, case.inputs()[0])
        changed = {name for name, value in vars(stream).items() if value is not before[name]}
        assert changed <= {"_charge_key", "_owes"}  # nothing that was drawn, such as bins of a schema
        case.use(stream, case.inputs()[0])
        assert stream.step == 1
        assert ledger.spent == ONE


@over_time
def test_a_run_copied_while_it_lives_answers_once(case, tmp_path):
    with sg.Ledger.open(tmp_path / "l.sqlite", dataset="d", cap=sg.PrivacyBudget(9.0)) as ledger:
        with sg.StreamRun.open(tmp_path / "run", case.make(budget=ONE), ledger=ledger) as run:
            run.step("a", case.inputs()[0])
            shutil.copytree(tmp_path / "run", tmp_path / "copy")
            with sg.StreamRun.open(tmp_path / "copy", ledger=ledger) as copied:
                run.step("b", case.inputs()[1])
                with pytest.raises(sg.errors.LedgerError, match="older copy"):
                    copied.step("b", case.inputs()[1])
                assert copied.steps == 1
        for options in ({}, {"ledger": ledger}):
            with pytest.raises(sg.errors.LedgerError, match=r"older copy|open it with that ledger"):
                sg.StreamRun.open(tmp_path / "copy", **options)
        (state,) = (tmp_path / "copy" / "state").iterdir()
        with pytest.raises(sg.errors.LedgerError, match="state of a run"):
            case.kind.load(state)
        looked = sg.StreamRun.view(tmp_path / "copy").stream()
        with pytest.raises(sg.errors.LedgerError, match="without it"):
            case.use(looked, case.inputs()[1])
        assert ledger.spent == ONE
