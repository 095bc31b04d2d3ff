"""Files that several passes read: whatever tells that one was changed, and when it is asked."""

from __future__ import annotations

import os
import pickle

import pytest

import synthgeo as sg
from synthgeo.sources.unchanged import Unchanged


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n1,2\n")
    return path


def _as_old_as(path, before):
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def longer(path):
    before = path.stat()
    path.write_text("x,y\n1,2\n3,4\n")
    _as_old_as(path, before)


def written_again(path):
    before = path.stat()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


def replaced(path):
    before = path.stat()
    other = path.with_name("b.csv")
    other.write_text("x,y\n3,4\n")
    other.replace(path)
    _as_old_as(path, before)


def removed(path):
    path.unlink()


@pytest.mark.parametrize("change", [longer, written_again, replaced, removed])
def test_each_sign_of_a_change_alone_is_enough(change, path):
    files = Unchanged([str(path)])
    files.check()
    change(path)
    for known in (files, pickle.loads(pickle.dumps(files))):
        with pytest.raises(sg.InputError, match=r"^a\.csv: the file has changed since it was opened"):
            known.check()


def test_every_file_is_looked_at(path):
    other = path.with_name("b.csv")
    other.write_text("x,y\n")
    files = Unchanged([str(path), str(other)])
    written_again(other)
    with pytest.raises(sg.InputError, match=r"^b\.csv: the file has changed"):
        files.check()


def test_a_change_before_a_pass_is_told_before_anything_is_read(path):
    files = Unchanged([str(path)])
    longer(path)
    with pytest.raises(sg.InputError, match="has changed"):
        next(files.read(iter("abc")))


def test_a_change_within_a_pass_is_told_at_its_end(path):
    files = Unchanged([str(path)])
    reading = files.read(iter("ab"))
    assert next(reading) == "a"
    longer(path)
    assert next(reading) == "b"
    with pytest.raises(sg.InputError, match="has changed"):
        next(reading)


def test_a_pipe_is_not_asked_for(tmp_path):
    """What is read from it is gone, so that it has no second pass that could differ."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    files = Unchanged([str(pipe)])
    written_again(pipe)
    assert "".join(files.read(iter("abc"))) == "abc"
