"""Signatures of what is handed on: who says that this ε is what was spent.

A checksum tells damage, not forgery: whoever changes a statement or a model can also change its checksum. A
signature with a key that the recipient trusts tells both. Keys are SSH keys, as for commits of git, and
OpenSSH's ``ssh-keygen`` makes and checks the signatures, in its own format: ``ssh-keygen -Y check-novalidate
-n synthgeo`` reads them without synthgeo, too.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from synthgeo.errors import ConfigError, InputError, StateError
from synthgeo.hashing import file_hash

CHECKSUMS = "SHA256SUMS"
_NAMESPACE = "synthgeo"


@dataclass(frozen=True)
class Verified:
    """What is known of a file or a published folder that is as its checksums say."""

    files: int
    signed: bool  # there is a signature
    trusted: bool  # and it was made with the key that was given


def sign(path: Path, key: Path) -> Path:
    """Sign a file, or the checksums of a published folder, with a private key; the file of the signature.

    A folder is looked through first: what does not match its checksums is not signed.
    """
    if not key.is_file():
        raise ConfigError(f"there is no key {key}: ssh-keygen -t ed25519 -f {key} makes one")
    subject = _subject(path)
    _check_sums(path)
    signature = _signature_of(subject)
    signature.unlink(missing_ok=True)
    done = _ssh_keygen("sign", "-f", str(key), "-n", _NAMESPACE, str(subject))
    if done.returncode or not signature.is_file():
        raise ConfigError(f"{key}: no signature could be made ({_line(done.stderr)})")
    return signature


def verify(path: Path, key: Path | None = None) -> Verified:
    """Check a file or a published folder: its checksums, and with a public key its signature.

    ``StateError`` where something was changed, or was not signed with this key.
    """
    subject = _subject(path)
    files = _check_sums(path)
    signature = _signature_of(subject)
    if key is None:
        return Verified(files, signed=signature.is_file(), trusted=False)
    if not signature.is_file():
        raise StateError(f"{path}: not signed")
    with tempfile.TemporaryDirectory() as folder:
        signers = Path(folder) / "signers"
        signers.write_text(f"curator {_public(key)}\n")
        done = _ssh_keygen(
            "verify", "-f", str(signers), "-I", "curator", "-n", _NAMESPACE, "-s", str(signature),
            given=subject.read_bytes(),
        )  # fmt: skip
    if done.returncode:
        raise StateError(f"{path}: changed since it was signed, or signed with another key than {key}")
    return Verified(files, signed=True, trusted=True)


def _subject(path: Path) -> Path:
    """The file that is signed."""
    subject = path / CHECKSUMS if path.is_dir() else path
    if not subject.is_file():
        raise InputError(f"{subject}: not there; sign and verify take a published folder, or a file")
    return subject


def _signature_of(subject: Path) -> Path:
    return subject.with_name(f"{subject.name}.sig")


def _check_sums(path: Path) -> int:
    """How many files a folder's checksums hold; ``StateError`` at the first that does not match, or that they
    do not know.
    """
    if not path.is_dir():
        return 1
    known = {}
    for line in (path / CHECKSUMS).read_text(encoding="utf-8", errors="replace").splitlines():
        digest, _, name = line.partition("  ")
        known[name] = digest
    for name, digest in known.items():
        file = path / name
        inside = file.resolve().is_relative_to(path.resolve())
        if not inside or not file.is_file() or file_hash(file) != digest:
            raise StateError(f"{path}: {name!r} is missing or is not what {CHECKSUMS} says")
    there = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
    extra = there - known.keys() - {CHECKSUMS, f"{CHECKSUMS}.sig"}
    if extra:
        raise StateError(f"{path}: {min(extra)!r} is not in {CHECKSUMS}")
    return len(known)


def _public(key: Path) -> str:
    """Kind and number of a public key, from its file."""
    try:
        words = key.read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{key}: cannot be read as a public key ({type(problem).__name__})") from None
    if len(words) < 2 or not words[0].startswith(("ssh-", "ecdsa-", "sk-")):
        raise ConfigError(f"{key}: not a public key of SSH; give the file that ends with .pub")
    return f"{words[0]} {words[1]}"


def _ssh_keygen(what: str, *options: str, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise ConfigError("signatures need ssh-keygen, which comes with OpenSSH")
    return subprocess.run([program, "-Y", what, *options], input=given, capture_output=True, check=False)


def _line(text: bytes) -> str:
    """The last line that a program said."""
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip() if lines else "no reason given"
