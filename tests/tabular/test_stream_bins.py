"""Streams whose first batch finds bins and values."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg

NAMES = [f"n{i:02d}" for i in range(40)]
SCHEMA = sg.Schema(
    {
        "paid": sg.Numeric(0, 100_000, bins="auto", decimals=2, scale="log"),
        "who": sg.Categorical("private", candidates=NAMES),
        "kind": sg.Categorical(["a", "b"]),
    }
)


def batch(seed: int, rows: int = 3_000) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, rows)
    amount = np.where(rng.random(rows) < 0.5, 0.0, np.exp(rng.normal(4 + 2 * kind, 0.5, rows)).round(2))
    who = np.where(kind == 1, rng.choice(NAMES[:2], rows), rng.choice(NAMES[2:4], rows))
    return pd.DataFrame({"paid": amount, "who": who, "kind": np.where(kind == 1, "b", "a")})


def made(seed: int = 1, **options) -> sg.TabularStream:
    return sg.TabularStream.from_options(
        **{"schema": SCHEMA, "budget": sg.PrivacyBudget(2.0), "noise": sg.SeededNoise(seed), **options}
    )


@pytest.mark.parametrize("options", [{}, {"lifetime": 2}, {"schedule": "every_step"}], ids=str)
def test_bins_and_values_come_from_the_first_batch(options):
    stream = made(**options)
    assert stream.schema.pending_bins
    for seed in range(3):
        release = stream.update(batch(seed))
    found = stream.schema
    assert not found.pending_bins
    assert set(NAMES[:4]) <= set(found.columns["who"].values)
    assert len(found.columns["who"].values) < 20
    rows, truth = release.data, pd.concat([batch(seed) for seed in range(3)])
    assert abs((rows["paid"] == 0).mean() - (truth["paid"] == 0).mean()) < 0.1
    edges = np.array(found.columns["paid"].edges)
    assert (edges < 0.011).sum() >= 2  # zero is a bin of its own
    for name in ("a", "b"):
        real, synthetic = (np.log1p(d[(d["kind"] == name) & (d["paid"] > 0)]["paid"]) for d in (truth, rows))
        assert abs(real.median() - synthetic.median()) < 1.0
    assert stream.costs["total"].max() <= stream.epsilon * (1 + 1e-12)
    assert stream.costs["total"].iloc[0] > stream.costs["total"].iloc[1] - 1e-9


def test_later_batches_change_no_bin_and_state_goes_on(tmp_path):
    stream = made()
    stream.update(batch(0))
    found = stream.schema.to_json()
    stream.update(batch(1).assign(paid=99_999.0))
    assert stream.schema.to_json() == found
    stream.save(tmp_path / "state")
    loaded = sg.TabularStream.load(tmp_path / "state")
    assert loaded.schema.to_json() == found
    assert loaded.choices() == stream.choices() == made().choices()
    pd.testing.assert_frame_equal(loaded.update(batch(2)).data, stream.update(batch(2)).data)


def test_a_run_opens_again_with_the_schema_that_was_given(tmp_path):
    for number in range(2):
        with sg.StreamRun.open(tmp_path / "run", made(noise=None)) as run:
            run.step(batch_id=str(number), batch=batch(number, rows=200))
            assert run.steps == number + 1


def test_a_refused_first_batch_finds_nothing_and_spends_nothing():
    stream = made()
    before = stream.noise.state()
    with pytest.raises(sg.InputError, match="kind"):
        stream.update(batch(0).assign(kind="c"))
    assert stream.noise.state() == before
    assert stream.schema.pending_bins
    assert stream.spent is None


def test_users_share_one_bound(tmp_path):
    unit = sg.PrivacyUnit.user(max_events=2, key="id")
    rows = batch(0, 400)
    path = tmp_path / "rows.csv"
    rows.assign(id=np.arange(400) // 4).to_csv(path, index=False)
    stream = made(unit=unit, deletions=False)
    stream.update(path)
    assert stream._for_finding == pytest.approx(0.1 * 2.0 / 2)


def test_values_without_candidates_need_a_delta():
    schema = sg.Schema({"who": sg.Categorical("private"), "kind": sg.Categorical(["a", "b"])})
    with pytest.raises(sg.ConfigError, match="candidates"):
        made(schema=schema)
