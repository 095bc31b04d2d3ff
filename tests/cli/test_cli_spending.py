"""What a command spends, it delivers: whatever can be known to go wrong is noticed before the charge."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

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
    pd.DataFrame({"house": [1, 2, 3, 4], "sex": list("FMMF")}).to_csv(tmp_path / "houses.csv", index=False)
    head = '[privacy]\nepsilon = 1\nledger = "book.sqlite"\n'
    sex = 'type = "categorical"\nvalues = ["F", "M"]\n'
    files = {
        "series": f'kind = "series"\n{head}[data]\nfiles = "rows.csv"\n[columns]\nvalue = "visits"\n'
        '[method]\nmechanism = "lpa"\n',
        "households": f'kind = "households"\n{head}[data]\n'
        'files = { parents = "houses.csv", children = "houses.csv" }\n[columns]\nkey = "house"\n'
        f"[parent.sex]\n{sex}[child.sex]\n{sex}[method]\nmax_children = 2\n",
        "people": f'kind = "table"\n{head}[data]\nfiles = "rows.csv"\n[schema.sex]\n{sex}',
    }
    for name, text in files.items():
        (tmp_path / f"{name}.toml").write_text(text)
    return {"table": table, "trips": trips}


@pytest.fixture
def book(synthgeo, tmp_path):
    path = tmp_path / "book.sqlite"
    assert synthgeo("ledger", "create", path, "--dataset=d", "--epsilon=9").code == 0
    return path


@pytest.mark.parametrize("product", ["table", "trips"])
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
    out = tmp_path / "out.model"
    out.write_text("old")
    done = synthgeo(*fits["table"], "--ledger", book, "--out", out, "--force")
    assert done.code == 0, done.err
    assert out.read_bytes() != b"old"
    assert synthgeo("ledger", "show", book, "--json").json["spent"]["epsilon"] == 1.0


def test_a_release_that_cannot_be_kept_costs_nothing(synthgeo, tmp_path, book):
    pd.DataFrame({"visits": [5, 6, 7, 8]}).to_csv(tmp_path / "rows.csv", index=False)
    file = tmp_path / "series.toml"
    file.write_text(
        'kind = "series"\n[data]\nfiles = "rows.csv"\n[columns]\nvalue = "visits"\n[privacy]\nepsilon = 1\n'
        'ledger = "book.sqlite"\n[method]\nmechanism = "lpa"\n'
    )
    (tmp_path / "taken").write_text("a file where the folder should be")
    refused = synthgeo("run", file, "--set", "folder=taken")
    assert refused.code == 3
    assert "cannot write to" in one_line(refused.err)
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
    ]
    for command in commands:
        refused = synthgeo(*command)
        assert refused.code in (3, 4)
        for private in ("Smith", "52.1", "13.5"):
            assert private not in one_line(refused.err)


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_model_that_cannot_be_written_is_not_committed(
    synthgeo, tmp_path, fits, book, monkeypatch, problem
):
    """The disk fills up before the ledger commits the fit: the same command costs nothing more."""
    import tabular.once

    save, stop = tabular.once.save_state, iter([True])

    def full(path, *rest):
        if next(stop, False):
            raise problem
        save(path, *rest)

    monkeypatch.setattr(tabular.once, "save_state", full)
    command = [*fits["table"], "--out", tmp_path / "model", "--ledger", book]
    refused = synthgeo(*command)
    assert refused.code != 0
    if isinstance(problem, OSError):
        assert "nothing was released: the same command" in one_line(refused.err)
    assert not (tmp_path / "model").exists()
    assert synthgeo(*command).code == 0
    assert synthgeo("ledger", "show", book, "--json").json["spent"]["epsilon"] == 1.0
    assert synthgeo("table", "sample", tmp_path / "model", "--out", tmp_path / "rows.parquet").code == 0


KILLED = """
import importlib, os, signal, sys

module, name, last, when, *command = sys.argv[1:]
owner = importlib.import_module(module)
owner = getattr(owner, name) if name else owner
real = getattr(owner, last)


def deadly(*args, **options):
    if when == "after":
        real(*args, **options)
    os.kill(os.getpid(), signal.SIGKILL)


setattr(owner, last, deadly)
from synthgeo.cli.app import run

run(command)
"""
RESERVE = ("synthgeo.privacy.ledger", "Ledger", "reserve")
STORE = ("synthgeo.release_file.once", "", "waiting")
COMMIT = ("synthgeo.privacy.ledger", "Ledger", "commit")


@pytest.mark.parametrize(
    ("product", "stage", "when"),
    [("table", stage, when) for stage in (RESERVE, STORE) for when in ("before", "after")]
    + [(name, COMMIT, when) for name in ("table", "trips") for when in ("before", "after")],
)
def test_a_command_that_was_killed_is_given_again_for_nothing(
    synthgeo, tmp_path, fits, book, product, stage, when
):
    """Killed (SIGKILL) between charge, file, commit and name: one charge, and what is committed stays."""
    out = tmp_path / "result.csv"
    command = [str(word) for word in (*fits[product], "--ledger", book, "--out", out)]
    done = subprocess.run([sys.executable, "-c", KILLED, *stage, when, *command], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not out.exists()
    waiting = [path.read_bytes() for path in tmp_path.glob(".result.csv.*.paid")]
    committed = (stage, when) == (COMMIT, "after")
    again = synthgeo(*command)
    assert again.code == 0, again.err
    assert ("interrupted after it was paid" in again.err) == committed
    if committed:
        assert waiting == [out.read_bytes()]
    shown = synthgeo("ledger", "show", book, "--json").json
    assert shown["spent"]["epsilon"] == len(shown["entries"]) == 1
    other = synthgeo(*command[:-1], tmp_path / "other.csv")  # answered: another result is paid for
    assert other.code == 0, other.err
    assert synthgeo("ledger", "show", book, "--json").json["spent"]["epsilon"] == 2.0


@pytest.mark.parametrize("stage", [RESERVE, STORE, COMMIT], ids=lambda stage: stage[2])
@pytest.mark.parametrize("product", ["people", "households", "series"])
def test_a_run_that_was_killed_is_given_again_for_nothing(synthgeo, tmp_path, fits, book, product, stage):
    """The same with a release file: its folder holds the result, which is made once."""
    command = ["run", str(tmp_path / f"{product}.toml")]
    done = subprocess.run([sys.executable, "-c", KILLED, *stage, "after", *command], check=False)
    assert done.returncode == -signal.SIGKILL
    folder = tmp_path / "runs" / product
    result = folder / ("released.csv" if product == "series" else "release.model")
    assert not result.exists()
    paid = [path.read_bytes() for path in folder.glob(".*.paid")]
    again = synthgeo(*command)
    assert again.code == 0, again.err
    if stage == COMMIT:
        assert paid == [result.read_bytes()]
    assert "nothing new" in synthgeo(*command).out
    shown = synthgeo("ledger", "show", book, "--json").json
    assert shown["spent"]["epsilon"] == len(shown["entries"]) == 1


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_model_that_cannot_be_written_is_rescued(synthgeo, tmp_path, fits, monkeypatch, problem):
    """The disk fills up after the fit, and no ledger would let it be made again."""
    import tabular.once

    save, stop = tabular.once.save_state, iter([True])

    def full(path, *rest):
        if next(stop, False):
            raise problem
        save(path, *rest)

    monkeypatch.setattr(tabular.once, "save_state", full)
    result = synthgeo(*fits["table"], "--out", tmp_path / "model")
    assert result.code != 0
    assert "the model, which is paid for, is in" in one_line(result.err)
    (rescued,) = tmp_path.glob("rescued-*-model")
    monkeypatch.undo()
    assert synthgeo("table", "sample", rescued, "--out", tmp_path / "rows.parquet").code == 0
