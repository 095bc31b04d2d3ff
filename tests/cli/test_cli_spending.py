"""What a command spends, it delivers: whatever can be known to go wrong is noticed before the charge."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from tests.cli.conftest import BOX, one_line, write_points


@pytest.fixture
def fits(tmp_path):
    """The commands that spend and write one file, without --out."""
    points = write_points(tmp_path / "points.csv", seed=1)
    points.assign(trip_id=points["user_id"]).to_csv(tmp_path / "trips.csv", index=False)
    pd.DataFrame({"visits": [5, 6, 7, 8], "sex": ["F", "M", "M", "F"]}).to_csv(
        tmp_path / "rows.csv", index=False
    )
    schema = {"columns": {"sex": {"type": "categorical", "values": ["F", "M"]}}}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    table = ["table", "fit", tmp_path / "rows.csv", "--schema", tmp_path / "schema.json", "--epsilon=1"]
    trips = ["trips", "fit", tmp_path / "trips.csv", BOX, "--epsilon=1"]
    series = ["series", tmp_path / "rows.csv", "--column=visits", "--epsilon=1", "--mechanism=lpa"]
    return {"table": table, "trips": trips, "series": series}


@pytest.fixture
def book(synthgeo, tmp_path):
    path = tmp_path / "book.sqlite"
    assert synthgeo("ledger", "create", path, "--dataset=d", "--epsilon=9").code == 0
    return path


@pytest.mark.parametrize("product", ["table", "trips", "series"])
def test_a_file_that_cannot_be_written_costs_nothing(synthgeo, tmp_path, fits, book, product):
    paid = tmp_path / "paid"
    paid.write_text("a model that was paid for")
    for out, why in (
        (tmp_path / "nowhere" / "model", "cannot write to"),
        (tmp_path, "is a folder"),
        (paid, "--force replaces it"),
    ):
        refused = synthgeo(*fits[product], "--ledger", book, "--out", out)
        assert refused.code == 3
        assert why in one_line(refused.err)
    assert synthgeo("ledger", "show", book, "--json").json["spent"] is None
    assert paid.read_text() == "a model that was paid for"


def test_force_replaces_a_model(synthgeo, tmp_path, fits, book):
    out = tmp_path / "out.csv"
    out.write_text("old")
    done = synthgeo(*fits["series"], "--ledger", book, "--out", out, "--force")
    assert done.code == 0, done.err
    assert out.read_text() != "old"
    assert synthgeo("ledger", "show", book, "--json").json["spent"]["epsilon"] == 1.0


def test_a_picture_that_cannot_be_drawn_costs_nothing(synthgeo, tmp_path, fits, book):
    missing = tmp_path / "nowhere" / "series.png"
    refused = synthgeo(*fits["series"], "--ledger", book, "--out", tmp_path / "o.csv", "--plot", missing)
    assert refused.code == 3
    assert "--plot: cannot write" in one_line(refused.err)
    assert synthgeo("ledger", "show", book, "--json").json["spent"] is None


def test_the_first_record_of_a_file_without_a_header_is_not_shown(synthgeo, fits, tmp_path):
    """It would be taken for column names, and errors name columns."""
    path = tmp_path / "plain.csv"
    path.write_text("52.12345,13.54321,Mrs Smith\n52.2,13.5,Mr Jones\n")
    commands = [
        ["stream", "run", tmp_path / "run", path, BOX, "--epsilon=1"],
        ["stream", "run", tmp_path / "run", path, BOX, "--epsilon=1", "--x=lon", "--y=lat"],
        ["table", "fit", path, "--schema", tmp_path / "schema.json", "--epsilon=1", "--out", tmp_path / "m"],
        ["trips", "fit", path, BOX, "--epsilon=1", "--out", tmp_path / "m"],
        ["series", path, "--column=visits", "--epsilon=1", "--out", tmp_path / "o.csv"],
    ]
    for command in commands:
        refused = synthgeo(*command)
        assert refused.code in (3, 4)
        for private in ("Smith", "52.1", "13.5"):
            assert private not in one_line(refused.err)


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_model_that_cannot_be_written_is_rescued(synthgeo, tmp_path, fits, book, monkeypatch, problem):
    """The disk fills up between the charge and the file."""
    import tabular.once

    save, stop = tabular.once.save_state, iter([True])

    def full(path, *rest):
        if next(stop, False):
            raise problem
        save(path, *rest)

    monkeypatch.setattr(tabular.once, "save_state", full)
    result = synthgeo(*fits["table"], "--out", tmp_path / "model", "--ledger", book)
    assert result.code != 0
    assert "the model, which is paid for, is in" in one_line(result.err)
    (rescued,) = tmp_path.glob("rescued-*-model")
    monkeypatch.undo()
    assert synthgeo("table", "sample", rescued, "--out", tmp_path / "rows.parquet").code == 0
