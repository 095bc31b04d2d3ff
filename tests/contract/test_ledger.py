"""Every product charges the ledger before it computes, once, and a cap or a repeat stops it."""

from __future__ import annotations

import copy

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
        with pytest.raises(sg.LedgerError, match="cap"):
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
        with pytest.raises(sg.LedgerError, match="before"):
            use(case, ledger)
        assert ledger.spent == ONE


@one_off
def test_a_fit_that_is_stopped_after_its_charge_is_made_again_for_nothing(case, tmp_path, monkeypatch):
    """Whatever the ledger says of repeats, and though nothing is left in it."""
    with sg.Ledger.open(tmp_path / "l.sqlite", dataset="d", cap=ONE, on_repeat="refuse") as ledger:
        product, charge, stop = case.make(budget=ONE, ledger=ledger), ledger.charge, iter([True])

        def then_stopped(*args, **options):
            charge(*args, **options)
            if next(stop, False):
                raise KeyboardInterrupt

        monkeypatch.setattr(ledger, "charge", then_stopped)
        with pytest.raises(KeyboardInterrupt):
            case.use(product, case.inputs()[0])
        assert product.spent is None
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
