"""Files from a stranger: whatever the bytes, every loader answers or refuses with one typed line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from synthgeo.state import _members, dump_state, parse_state
from tools.fuzz import TARGETS, Target, attempt, kept, mutated, random_search


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_random_changes_break_no_loader(target, tmp_path):
    assert attempt(target, target.seed(), tmp_path) is None
    assert [problem for _, problem in random_search(target, tries=25, seconds=20, seed=1)] == []


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_inputs_that_were_kept_break_no_loader(target, tmp_path):
    assert [problem for one in kept(target) if (problem := attempt(target, one, tmp_path))] == []


@pytest.mark.parametrize("name", ["table", "trips", "stream"])
def test_a_model_that_was_made_up_is_refused(name, tmp_path):
    """Each value and each array taken away in turn, under a checksum that fits: one typed line."""
    (target,) = (target for target in TARGETS if target.name == name)
    content = target.seed()
    header = json.loads(_members(content[47:])["header"].tobytes())
    values, arrays = parse_state(content, header["kind"], header["version"])
    changed = [({k: v for k, v in values.items() if k != gone}, arrays) for gone in values]
    changed += [({**values, name: "odd"}, arrays) for name in values]
    changed += [(values, {k: v for k, v in arrays.items() if k != gone}) for gone in arrays]
    for number, (facts, left) in enumerate(changed):
        made = dump_state(header["kind"], header["version"], facts, left)
        assert attempt(target, made, tmp_path) is None, number


def test_a_loader_that_lets_a_raw_error_through_is_noticed(tmp_path):
    def fragile(path):
        path.read_bytes().decode()

    twin = Target("fragile", ".txt", lambda: b"text", fragile)
    assert attempt(twin, b"\xff", tmp_path).startswith("UnicodeDecodeError at ")
    assert random_search(twin, tries=100, seconds=20, seed=1)


def test_changes_are_changes():
    rng = np.random.default_rng(1)
    assert len({mutated(b"0123456789" * 5, rng) for _ in range(50)}) > 45


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("csv", b"lon,lat,user\n1,2," + b"9" * 400 + b"\n"),
        ("csv", b"lon,lat\n" + b"1" * 2_000_000 + b"\n"),
        ("jsonl", b'{"lon": 1' + b"0" * 400 + b', "lat": 2}\n' + b"[" * 100_000 + b"\n"),
        ("geojson", b"[" * 100_000),
        ("geojson", b'{"type": "FeatureCollection", "features": [7], "crs": {"properties": {"name": 3}}}'),
        ("schema", b'{"columns": {"a": {"type": "categorical", "values": [' + b"[" * 50_000),
        ("graphml", b'<!DOCTYPE a [<!ENTITY x "y"><!ENTITY z "&x;&x;">]><graphml>&z;</graphml>'),
        ("state", b"synthgeo state\n" + b"\0" * 32 + b"PK\x05\x06" + b"\0" * 18),
    ],
    ids=range(8),
)  # fmt: skip
def test_files_that_were_made_to_hurt(name, content, tmp_path):
    (target,) = (target for target in TARGETS if target.name == name)
    assert attempt(target, content, tmp_path) is None
