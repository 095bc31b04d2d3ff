"""State files from a stranger: nothing runs, and nothing takes more memory than the file."""

from __future__ import annotations

import hashlib
import io
import zipfile

import numpy as np
import pytest

from synthgeo.errors import StateError
from synthgeo.state import dump_state, parse_state

MAGIC = b"synthgeo state\n"


def sealed(payload):
    """A state file with a right checksum: the checksum is no signature."""
    return MAGIC + hashlib.sha256(payload).digest() + payload


def npy(shape, data=b"", dtype="<f8"):
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": dtype, "fortran_order": False, "shape": shape})
    return out.getvalue() + data


def archive(compression=zipfile.ZIP_STORED, **members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as file:
        for name, content in members.items():
            file.writestr(name.replace("__", "/") + ".npy", content)
    return out.getvalue()


HEADER = b'{"format": 1, "kind": "k", "version": 1, "values": {}}'
GOOD = npy((len(HEADER),), HEADER, "|u1")


def test_what_was_written_is_read():
    arrays = {"a": np.arange(6).reshape(2, 3), "b/c": np.zeros((0, 2)), "f": np.asfortranarray(np.eye(3))}
    values, found = parse_state(dump_state("k", 1, {"x": 1}, arrays), "k", 1)
    assert values == {"x": 1}
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
        assert found[name].flags.writeable


@pytest.mark.parametrize(
    "payload",
    [
        archive(zipfile.ZIP_DEFLATED, header=GOOD, array__a=npy((10**8,), bytes(8 * 10**5))),
        # Compressed, and no part larger than the file: many of them are, together.
        archive(
            zipfile.ZIP_DEFLATED, header=GOOD, **{f"array__{i}": npy((20,), bytes(160)) for i in range(9)}
        ),
        archive(header=GOOD, array__a=npy((10**12,))),
        archive(header=GOOD, array__a=npy((2**40, 2**40))),
        archive(header=GOOD, array__a=npy((1,), b"x" * 8, "|O")),
        archive(header=GOOD, array__a=b"not an array"),
        archive(header=npy((3,), b"[1]", "|u1")),
        archive(array__a=npy((0,))),
        b"PK not an archive",
        b"",
    ],
    ids=[
        "bomb",
        "many small bombs",
        "claims",
        "overflow",
        "objects",
        "no array",
        "no header",
        "header missing",
        "no zip",
        "empty",
    ],
)
def test_made_up_files_are_refused_without_their_memory(payload):
    with pytest.raises(StateError):
        parse_state(sealed(payload), "k", 1)


def test_any_flipped_byte_is_noticed():
    content = dump_state("k", 1, {}, {"a": np.arange(50)})
    rng = np.random.default_rng(1)
    for at in rng.integers(0, len(content), 60):
        broken = bytearray(content)
        broken[at] ^= 1 + int(rng.integers(255))
        with pytest.raises(StateError):
            parse_state(bytes(broken), "k", 1)
        with pytest.raises(StateError):
            parse_state(content[:at], "k", 1)
