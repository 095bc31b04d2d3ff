"""Every product charges the ledger before it computes, once, and a cap or a repeat stops it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg

BOX = sg.BoxDomain(0, 0, 1, 1)
ONE = sg.PrivacyBudget(1.0)
SCHEMA = sg.Schema({"a": sg.Categorical(["x", "y"]), "b": sg.Categorical(["u", "v", "w"])})
ROWS = pd.DataFrame({"a": ["x", "y"] * 50, "b": ["u", "v", "w", "u"] * 25})
TRIPS = pd.DataFrame(
    {
        "trip_id": np.repeat(np.arange(30), 4),
        "x": np.random.default_rng(0).random(120),
        "y": np.random.default_rng(1).random(120),
    }
)

products = pytest.mark.parametrize(
    "use",
    [
        lambda ledger: sg.PHDStream(domain=BOX, budget=ONE, ledger=ledger).update(np.full((5, 2), 0.5)),
        lambda ledger: sg.TabularStream(schema=SCHEMA, budget=ONE, ledger=ledger).update(ROWS),
        lambda ledger: sg.TabularSynthesizer(schema=SCHEMA, budget=ONE, ledger=ledger).fit(ROWS),
        lambda ledger: sg.TrajectorySynthesizer(domain=BOX, budget=ONE, ledger=ledger).fit(TRIPS),
    ],
    ids=["PHDStream", "TabularStream", "TabularSynthesizer", "TrajectorySynthesizer"],
)


@products
def test_a_product_charges_its_budget_and_stops_at_the_cap(use, tmp_path):
    with sg.Ledger.open(tmp_path / "ledger.sqlite", dataset="d", cap=sg.PrivacyBudget(1.5)) as ledger:
        use(ledger)
        assert ledger.spent == ONE
        with pytest.raises(sg.LedgerError, match="cap"):
            use(ledger)
        assert ledger.spent == ONE


@pytest.mark.parametrize(
    "use",
    [
        lambda ledger: sg.TabularSynthesizer(schema=SCHEMA, budget=ONE, ledger=ledger).fit(ROWS),
        lambda ledger: sg.TrajectorySynthesizer(domain=BOX, budget=ONE, ledger=ledger).fit(TRIPS),
    ],
    ids=["TabularSynthesizer", "TrajectorySynthesizer"],
)
def test_a_repeated_fit_is_recorded_or_refused(use, tmp_path):
    cap = sg.PrivacyBudget(9.0)
    with sg.Ledger.open(tmp_path / "a.sqlite", dataset="d", cap=cap) as ledger:
        use(ledger)
        use(ledger)
        assert [entry.repeats for entry in ledger.entries] == [None, 1]
    with sg.Ledger.open(tmp_path / "b.sqlite", dataset="d", cap=cap, on_repeat="refuse") as ledger:
        use(ledger)
        with pytest.raises(sg.LedgerError, match="before"):
            use(ledger)
        assert ledger.spent == ONE
