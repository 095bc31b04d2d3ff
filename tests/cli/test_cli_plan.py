"""``synthgeo plan``: in front of a command, without a look at the data."""

from __future__ import annotations

from tests.cli.conftest import BOX, one_line


def test_a_plan_reads_no_data_and_spends_nothing(synthgeo, tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe not a table")
    command = ["stream", "run", tmp_path / "run", tmp_path / "a.csv", BOX, "--epsilon", 1]
    options = ["--rows", 500, "--steps", 2, "--epsilons", "0.5,2", "--picture", tmp_path / "plan.png"]
    done = synthgeo("plan", *options, *command, "--json")
    assert done.code == 0, done.err
    assert [row["epsilon"] for row in done.json["plan"]] == [0.5, 2]
    assert (tmp_path / "plan.png").stat().st_size > 1000
    assert not (tmp_path / "run").exists()
    done = synthgeo("plan", "--rows", 20, "--epsilons", "0.1", *command)
    assert "the map is noise" in done.err


def test_what_is_missing_is_said(synthgeo):
    assert "give --rows" in one_line(synthgeo("plan", "stream", "run", "x").err)
    assert "stands in front" in one_line(synthgeo("plan", "--rows", 5, "report", "x").err)
    assert "numbers with commas" in one_line(
        synthgeo("plan", "--rows", 5, "--epsilons", "a", "trips", "fit").err
    )
