"""The command as a whole: version, help, and one way to fail."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import typer

import synthgeo as sg
from synthgeo import __version__, cli
from synthgeo.cli.app import app
from tests.cli.conftest import BOX, one_line, start, write_points


def commands(group=None, path=()):
    """Every command with its path."""
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def test_version_answers_without_loading_anything_heavy():
    process = start("--version")
    assert process.communicate()[0] == f"synthgeo {__version__}\n"
    assert process.returncode == 0


def test_every_command_and_option_says_what_it_does(synthgeo):
    found = list(commands())
    assert len(found) >= 8
    for path, command in found:
        assert command.help, path
        for option in command.params:
            assert getattr(option, "help", None), (path, option.name)
        outcome = synthgeo(*path, "--help")
        assert outcome.code == 0
        assert "Usage: synthgeo" in outcome.out


def test_wrong_command_lines_are_one_line_and_code_2(synthgeo):
    for arguments in (
        ["nonsense"],
        ["stream", "run"],
        ["stream", "status", "x", "--nonsense"],
        ["ledger", "show"],
    ):
        outcome = synthgeo(*arguments)
        assert outcome.code == 2
        assert "--help" in one_line(outcome.err)


def test_errors_are_one_line_with_a_code_of_their_own(synthgeo, tmp_path):
    write_points(tmp_path / "a.csv", seed=1)
    (tmp_path / "bad.csv").write_text("x,y\n0.1,0.2\n0.3,inf\n")
    run = tmp_path / "run"
    cases = [
        (["stream", "run", run, tmp_path / "a.csv", BOX, "--epsilon=0"], 3, "epsilon"),
        (["stream", "run", run, tmp_path / "a.csv", BOX], 3, "give --epsilon"),
        (["stream", "run", run, tmp_path / "a.csv", "--epsilon=1"], 3, "give the domain once"),
        (["stream", "run", run, tmp_path / "a.csv", "--bounds=1,2,3", "--epsilon=1"], 3, "four numbers"),
        (["stream", "run", run, tmp_path / "none.csv", BOX, "--epsilon=1"], 4, "no file matches"),
        (["stream", "run", run, tmp_path / "bad.csv", BOX, "--epsilon=1"], 4, "column 'y', line 3"),
        (["stream", "status", tmp_path / "nowhere"], 3, "there is no run"),
        (["ledger", "show", tmp_path / "nowhere"], 3, "there is no ledger"),
    ]
    for arguments, code, message in cases:
        outcome = synthgeo(*arguments)
        assert outcome.code == code, (arguments, outcome)
        assert message in outcome.err.splitlines()[-1], outcome.err
        assert outcome.err.splitlines()[-1].startswith("error: ")
        assert "Traceback" not in outcome.err


def test_debug_shows_where_an_error_comes_from(synthgeo, tmp_path):
    outcome = synthgeo("stream", "status", tmp_path, "--debug")
    assert outcome.code == 3
    assert "Traceback" in outcome.err
    assert outcome.err.splitlines()[-1].startswith("error: ")


def test_a_box_without_a_coordinate_system_is_remarked_on_once_and_never_beside_an_error(synthgeo, tmp_path):
    write_points(tmp_path / "day.csv", seed=1)
    new = [tmp_path / "day.csv", "--bounds=0,0,1,1", "--epsilon=1", "--depth=4"]
    assert one_line(synthgeo("stream", "run", tmp_path / "a", *new[1:]).err)
    plain = synthgeo("stream", "run", tmp_path / "a", *new, "--json")
    assert plain.code == 0
    assert plain.err.count("no --crs") == 1
    named = synthgeo("stream", "run", tmp_path / "b", *new, "--crs=EPSG:4326", "--json")
    assert named.code == 0
    assert "--crs" not in named.err


def test_ctrl_c_is_one_line(synthgeo, tmp_path, monkeypatch):
    """Wherever it comes: within a step, whose batch is taken whole by the next run, or at the start."""
    write_points(tmp_path / "day-1.csv", seed=1)
    command = ["stream", "run", tmp_path / "run", tmp_path / "day-1.csv", BOX, "--epsilon=1", "--depth=4"]
    with monkeypatch.context() as patch:
        patch.setattr(sg.StreamRun, "step", _interrupted)
        outcome = synthgeo(*command)
    assert outcome.code == 130
    assert outcome.err.splitlines()[-1].startswith("error: interrupted; what the run or the ledger shows")
    assert "Traceback" not in outcome.err
    assert synthgeo(*command).code == 0


def test_too_little_memory_is_one_line_and_no_fault(monkeypatch, tmp_path, synthgeo):
    def refuse(*_, **__):
        raise MemoryError

    monkeypatch.setattr(sg.Ledger, "open", refuse)
    outcome = synthgeo("ledger", "create", tmp_path / "l", "--dataset", "d", "--epsilon", 1)
    assert (outcome.code, outcome.err) == (
        1,
        "error: this machine has too little memory: ask for less at once\n",
    )


def test_ctrl_c_before_the_command_is_there_is_one_line(monkeypatch, capsys):
    class Loading(ModuleType):
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "synthgeo.cli.app", Loading("synthgeo.cli.app"))
    monkeypatch.setattr(sys, "argv", ["synthgeo", "stream", "run"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "error: interrupted before anything was read\n"


def _interrupted(*_, **__):
    raise KeyboardInterrupt
