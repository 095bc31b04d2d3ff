"""Durable runs drive every kind of stream, and charge the ledger of the dataset."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from streams.runs.run import StreamRun
from synthgeo.errors import ConfigError, LedgerError
from synthgeo.privacy.noise import SeededNoise
from tests.streams.scalar.examples import EXAMPLES
from tests.streams.scalar.test_contract import ONLINE
from tests.streams.tally import Tally


def tally(**options):
    return Tally(**{"noise": SeededNoise(3), **options})


def test_a_run_charges_the_ledger_of_its_dataset_once(folder):
    with sg.Ledger.open(folder / "l.sqlite", dataset="taxi", cap=sg.PrivacyBudget(1.5)) as ledger:
        for _ in range(2):
            with StreamRun.open(folder / "run", tally(), ledger=ledger) as run:
                run.step("a", np.array([1]))
        assert [entry.product for entry in ledger.entries] == ["Tally run"]
        assert ledger.spent == sg.PrivacyBudget(1.0)
        with pytest.raises(LedgerError, match="cap"):
            StreamRun.open(folder / "second", tally(), ledger=ledger)
        with pytest.raises(ConfigError, match="no run"):
            StreamRun.open(folder / "second")
        StreamRun.open(folder / "second", tally()).close()  # without a ledger it may begin
        assert ledger.spent == sg.PrivacyBudget(1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ONLINE)
def test_scalar_mechanisms_run(folder, name):
    """Every online one, past its windows; its class is found by name when the run is opened again."""
    make, series = EXAMPLES[name].make, EXAMPLES[name].series
    twin = make(2)
    expected = [twin.update(value) for value in series]
    half = len(series) // 2
    with StreamRun.open(folder / "run", make(2)) as run:
        values = [run.step(f"h{i}", series[i]) for i in range(half)]
    with StreamRun.open(folder / "run") as run:
        values += [run.step(f"h{i}", series[i]) for i in range(half, len(series))]
        assert values == expected
        assert [run.step(f"h{i}", value) for i, value in enumerate(series)] == expected
        assert run.verify() == len(series)
        assert run.spent == twin.spent
        assert run.report().configuration["mechanism"] == type(twin).__name__


def points(**options):
    return sg.PHDStream.from_options(
        **{
            "domain": sg.BoxDomain(0, 0, 1, 1),
            "budget": sg.PrivacyBudget(1.0),
            "unit": sg.PrivacyUnit.event(),
            "max_depth": 10,
            "noise": SeededNoise(1),
            **options,
        }
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"persist": True}, {"t0": 2}, {"counter": "kary", "horizon": 10}, {"schedule": "every_step"}],
)
def test_spatial_streams_run(folder, options):
    """Opened again for every step, stored and read back: the releases of one stream that never stopped."""
    rng = np.random.default_rng(1)
    batches = [rng.random((800, 2)) ** 2 for _ in range(4)]
    alone = points(**options)
    for i, batch in enumerate(batches):
        expected = alone.update(batch)
        with StreamRun.open(folder / "run", points(**options), parts=("data", "cells")) as run:
            made = run.step(f"b{i}", batch)
            stored = run.release(f"b{i}")
        assert np.array_equal(made.xy, expected.xy)
        assert np.array_equal(stored.to_pandas()["id"], expected.ids)
        assert np.array_equal(stored.data.geometry.x, expected.xy[:, 0])
        assert stored.data.crs == expected.data.crs
        assert stored.provenance == expected.provenance
        assert stored.cells["count"].tolist() == expected.counts.tolist()
    alone.save(folder / "alone.state")
    assert (folder / "run" / "state" / "000004.state").read_bytes() == (folder / "alone.state").read_bytes()
    with StreamRun.open(folder / "run") as run:
        assert run.verify() == 4
        assert run.report().steps["epsilon"].tolist() == (
            [1, 0, 0, 0] if "t0" not in options else [0, 1, 0, 0]
        )


def test_table_streams_run(folder):
    schema = sg.Schema({"age": sg.Numeric(0, 100, bins=5), "sex": sg.Categorical(["F", "M"])})

    def table():
        workload = sg.all_k_way(schema, 2)
        return sg.TabularStream(
            schema=schema,
            budget=sg.PrivacyBudget(1.0),
            unit=sg.PrivacyUnit.event(),
            workload=workload,
            noise=SeededNoise(2),
        )

    rng = np.random.default_rng(0)
    alone = table()
    for i in range(3):
        batch = pd.DataFrame({"age": rng.uniform(0, 100, 300), "sex": rng.choice(["F", "M"], 300)})
        expected = alone.update(batch).data
        with StreamRun.open(folder / "run", table()) as run:
            pd.testing.assert_frame_equal(run.step(f"b{i}", batch).data, expected)
            pd.testing.assert_frame_equal(run.step(f"b{i}", batch).data, expected)
    with StreamRun.open(folder / "run") as run:
        assert run.verify() == 3


def test_a_streams_own_ledger_is_charged_once(folder):
    with sg.Ledger.open(folder / "l.sqlite", dataset="taxi", cap=sg.PrivacyBudget(1.5)) as ledger:
        for i in range(2):
            with StreamRun.open(folder / "run", points(ledger=ledger)) as run:
                run.step(f"b{i}", np.full((5 + i, 2), 0.5))
        assert [entry.product for entry in ledger.entries] == ["PHDStream run"]
