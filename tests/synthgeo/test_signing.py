"""Signatures: what was signed is recognised, and nothing that was changed since."""

from __future__ import annotations

import hashlib
import shutil
import subprocess

import pytest

import synthgeo as sg
from synthgeo.cli import app as cli
from synthgeo.publishing import signing
from synthgeo.publishing.signing import Verified, sign, verify

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="there is no ssh-keygen")


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Two private keys."""
    made = [tmp_path_factory.mktemp("keys") / name for name in ("one", "two")]
    for key in made:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    return made


@pytest.fixture
def folder(tmp_path):
    """A folder with checksums."""
    made = tmp_path / "published"
    made.mkdir()
    for name in ("statement.json", "data.csv"):
        (made / name).write_text(f'{{"of": "{name}", "epsilon": 1.0}}')
    seal(made)
    return made


def seal(folder):
    lines = [
        f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}"
        for name in ("data.csv", "statement.json")
    ]
    (folder / "SHA256SUMS").write_text("\n".join(lines) + "\n")


def public(key):
    return key.with_name(f"{key.name}.pub")


def test_what_was_signed_is_recognised(folder, keys):
    assert verify(folder) == Verified(2, signed=False, trusted=False)
    with pytest.raises(sg.errors.StateError, match="not signed"):
        verify(folder, public(keys[0]))
    assert sign(folder, keys[0]).name == "SHA256SUMS.sig"
    assert verify(folder) == Verified(2, signed=True, trusted=False)
    assert verify(folder, public(keys[0])) == Verified(2, signed=True, trusted=True)
    with pytest.raises(sg.errors.StateError, match="another key"):
        verify(folder, public(keys[1]))


def test_another_epsilon_under_checksums_that_fit_is_recognised(folder, keys):
    sign(folder, keys[0])
    (folder / "statement.json").write_text('{"epsilon": 0.1}')
    with pytest.raises(sg.errors.StateError, match=r"statement\.json"):
        verify(folder)
    seal(folder)
    assert verify(folder).signed  # the checksums are no help
    with pytest.raises(sg.errors.StateError, match="changed since it was signed"):
        verify(folder, public(keys[0]))


def test_what_is_missing_added_or_outside_is_recognised(folder, keys, tmp_path):
    (folder / "more.csv").write_text("a")
    with pytest.raises(sg.errors.StateError, match=r"'more\.csv' is not in SHA256SUMS"):
        sign(folder, keys[0])
    (folder / "more.csv").unlink()
    (folder / "data.csv").rename(tmp_path / "data.csv")
    with pytest.raises(sg.errors.StateError, match=r"'data\.csv' is missing"):
        verify(folder)
    sums = folder / "SHA256SUMS"
    sums.write_text(sums.read_text().replace("  data.csv", "  ../data.csv"))
    with pytest.raises(sg.errors.StateError, match="missing or is not"):
        verify(folder)


def test_a_model_is_signed_as_a_file_and_keys_that_are_none_are_refused(keys, tmp_path, monkeypatch):
    model = tmp_path / "trips.model"
    model.write_bytes(b"\0model")
    sign(model, keys[0])
    assert verify(model, public(keys[0])).trusted
    model.write_bytes(b"\0other")
    with pytest.raises(sg.errors.StateError, match="changed"):
        verify(model, public(keys[0]))
    with pytest.raises(sg.ConfigError, match=r"ends with \.pub"):
        verify(model, keys[0])
    with pytest.raises(sg.ConfigError, match="no key"):
        sign(model, tmp_path / "nothing")
    with pytest.raises(sg.ConfigError, match="no signature could be made"):
        sign(model, model)
    with pytest.raises(sg.InputError, match="a published folder, or a file"):
        verify(tmp_path)
    monkeypatch.setattr(signing.shutil, "which", lambda _: None)
    with pytest.raises(sg.ConfigError, match="OpenSSH"):
        sign(model, keys[0])


def test_on_the_command_line(folder, keys, capsys):
    assert cli.run(["sign", str(folder), "--key", str(keys[0])]) == 0
    assert cli.run(["verify", str(folder), "--key", str(public(keys[0]))]) == 0
    assert "signed with this key" in capsys.readouterr().out
    (folder / "data.csv").write_text("changed")
    assert cli.run(["verify", str(folder)]) == 7
