"""Every product charges the ledger before it computes, once, and a cap or a repeat stops it."""

from __future__ import annotations

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
