"""A one-off table pays once, for something, or not at all: interrupts, refusals, ledgers, extreme budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from tests.tabular.conftest import small_table


class Interrupted(sg.SeededNoise):
    """Noise during which somebody presses Ctrl-C at the n-th draw, once."""

    def __init__(self, seed: int, at: int) -> None:
        super().__init__(seed)
        self.at = at
        self.draws = 0

    def discrete_laplace(self, scale: Any, size: int | None = None) -> Any:
        self.draws += 1
        if self.draws == self.at:
            raise KeyboardInterrupt
        return super().discrete_laplace(scale, size)


class Scales(sg.SeededNoise):
    """Noise that adds up the ε of its Laplace draws: 1 / scale each."""

    spent = 0.0

    def discrete_laplace(self, scale: Any, size: int | None = None) -> Any:
        self.spent += 1 / float(scale)
        return super().discrete_laplace(scale, size)


BINNED = sg.Schema({"x": sg.Numeric(0, 256, bins="auto"), "y": sg.Categorical([0, 1])})


def numbers(rows: int = 500) -> pd.DataFrame:
    x = np.random.default_rng(0).normal(60, 5, rows).clip(0, 256)
    return pd.DataFrame({"x": x, "y": (x > 60).astype(int)})


def ledger_at(path: Path, epsilon: float = 5.0) -> sg.Ledger:
    return sg.Ledger.open(path, dataset="people", cap=sg.PrivacyBudget(epsilon))


def draws_of_a_fit() -> int:
    """How often an undisturbed fit draws noise."""
    noise = Interrupted(3, at=0)
    sg.TabularSynthesizer(schema=BINNED, budget=sg.PrivacyBudget(1.0), noise=noise).fit(numbers())
    return noise.draws


@pytest.mark.parametrize("share", [0.2, 0.8, 1.0])
def test_an_interrupted_fit_leaves_nothing_and_its_retry_pays_once(share: float, tmp_path: Path) -> None:
    """Interrupted among the bins, among the marginals, and at the last of them."""
    at = round(share * draws_of_a_fit())
    ledger = ledger_at(tmp_path / "ledger.sqlite")
    noise = Interrupted(3, at)
    table = sg.TabularSynthesizer(schema=BINNED, budget=sg.PrivacyBudget(1.0), noise=noise, ledger=ledger)
    with pytest.raises(KeyboardInterrupt):
        table.fit(numbers())
    assert table.schema is BINNED  # no bins that the first attempt paid for and the second does not
    assert table.spent is None
    assert ledger.spent == sg.PrivacyBudget(1.0)  # before the noise; the retry is made on this charge
    with pytest.raises(sg.ConfigError, match="fit the synthesizer first"):
        table.sample(1)
    table.noise = Scales(4)
    table.fit(numbers())
    assert not table.schema.pending_bins
    assert [entry.budget for entry in ledger.entries] == [sg.PrivacyBudget(1.0)]


def test_a_retry_draws_no_more_noise_than_a_first_attempt() -> None:
    first = sg.TabularSynthesizer(schema=BINNED, budget=sg.PrivacyBudget(1.0), noise=Scales(4))
    first.fit(numbers())
    retried = sg.TabularSynthesizer(
        schema=BINNED, budget=sg.PrivacyBudget(1.0), noise=Interrupted(3, draws_of_a_fit())
    )
    with pytest.raises(KeyboardInterrupt):
        retried.fit(numbers())
    retried.noise = Scales(4)
    retried.fit(numbers())
    assert retried.schema.to_json() == first.schema.to_json()
    pd.testing.assert_frame_equal(retried.sample().data, first.sample().data)


@pytest.mark.parametrize(
    ("budget", "frame", "error"),
    [
        (sg.PrivacyBudget(1.0), small_table(50).iloc[:0], "no rows"),
        (sg.PrivacyBudget(1e-13), small_table(50), "too small"),
        (sg.PrivacyBudget(1e-16), small_table(50), "too small"),
    ],
)
def test_the_ledger_is_charged_only_for_what_can_be_fitted(
    schema: sg.Schema, budget: sg.PrivacyBudget, frame: pd.DataFrame, error: str, tmp_path: Path
) -> None:
    ledger = ledger_at(tmp_path / "ledger.sqlite")
    table = sg.TabularSynthesizer(schema=schema, budget=budget, noise=sg.SeededNoise(1), ledger=ledger)
    with pytest.raises(sg.SynthGeoError, match=error):
        table.fit(frame)
    assert ledger.spent is None
    assert table.spent is None


FAR = [5.0, 6.0, 7.0]
MISPLACED = [
    ({"a": sg.Categorical(["x", "y"], other="rest")}, {"a": ["1", "2", "3"]}),
    ({"a": sg.Numeric(0, 10, outside="clip")}, {"a": [200.0, -7.0, 11.0]}),
    ({"a": sg.Location(sg.BoxDomain(0, 0, 1, 1), cells=4, outside="category")}, {"a_x": FAR, "a_y": FAR}),
]


@pytest.mark.parametrize(("columns", "rows"), MISPLACED, ids=["other", "clip", "outside"])
@pytest.mark.parametrize("unit", [None, sg.PrivacyUnit.user(max_events=2, key="who")])
def test_a_table_that_lies_wholly_elsewhere_is_refused_unpaid(
    columns: Any, rows: Any, unit: Any, tmp_path: Path
) -> None:
    ledger = ledger_at(tmp_path / "ledger.sqlite")

    def table() -> sg.TabularSynthesizer:
        budget = sg.PrivacyBudget(1.0)
        return sg.TabularSynthesizer(schema=sg.Schema(columns), budget=budget, unit=unit, ledger=ledger)

    frame = pd.DataFrame(rows | {"who": [1, 2, 3]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    for data in (frame, tmp_path / "a.csv"):
        with pytest.raises(sg.InputError, match="column 'a': every value lies outside"):
            table().fit(data)
        assert ledger.spent is None
    for name in rows:  # one row that is where it should be is enough
        frame.loc[0, name] = "x" if rows[name][0] == "1" else 0.5
    assert table().fit(frame).spent == ledger.spent


def test_a_model_is_charged_to_a_ledger_that_did_not_see_its_fit(schema: sg.Schema, tmp_path: Path) -> None:
    table = sg.TabularSynthesizer(schema=schema, budget=sg.PrivacyBudget(1.0), noise=sg.SeededNoise(1))
    table.fit(small_table(100)).save(tmp_path / "model")
    ledger = ledger_at(tmp_path / "ledger.sqlite", epsilon=1.5)
    for _ in range(2):  # the second time it knows the model
        sg.TabularSynthesizer.load(tmp_path / "model", ledger=ledger).sample(3)
    assert ledger.spent == sg.PrivacyBudget(1.0)
    other = sg.TabularSynthesizer(schema=schema, budget=sg.PrivacyBudget(1.0), noise=sg.SeededNoise(2))
    other.fit(small_table(100)).save(tmp_path / "other")
    with pytest.raises(sg.errors.LedgerError, match="above its cap"):
        sg.TabularSynthesizer.load(tmp_path / "other", ledger=ledger)


def test_a_model_charged_at_its_fit_is_not_charged_again_when_loaded(
    schema: sg.Schema, tmp_path: Path
) -> None:
    ledger = ledger_at(tmp_path / "ledger.sqlite")
    table = sg.TabularSynthesizer(schema=schema, budget=sg.PrivacyBudget(1.0), ledger=ledger)
    table.fit(small_table(100)).save(tmp_path / "model")
    sg.TabularSynthesizer.load(tmp_path / "model", ledger=ledger)
    assert len(ledger.entries) == 1


@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize("epsilon", [1e-5, 50.0, 1e4, 1e9, 1e300])
def test_no_accepted_epsilon_ends_in_a_raw_error(epsilon: float, delta: float) -> None:
    for schema, frame in (
        (BINNED, numbers(200)),
        (sg.Schema({"y": sg.Categorical([0, 1])}), numbers(200)),
    ):
        budget = sg.PrivacyBudget(epsilon, delta)
        table = sg.TabularSynthesizer(schema=schema, budget=budget, noise=sg.SeededNoise(1))
        release = table.fit(frame).sample()
        assert release.expected_error()["standard_error_per_cell"].gt(0).all()
        if epsilon >= 1e4:
            assert release.total == 200
            assert abs(release.marginal("y")[1] - frame["y"].sum()) <= 2
