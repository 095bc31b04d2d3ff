"""Build the wheel twice and check that both are the same bytes; write it with its bill of materials.

``python -m tools.wheel`` fills ``dist/``: the wheel, ``synthgeo.cdx.json`` (CycloneDX), ``SHA256SUMS``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.inventory import ROOT, bill

# Files in a wheel carry a time; 1980 is the earliest that zip archives know.
EPOCH = "315532800"


def build(tree: Path, folder: Path) -> Path:
    """The wheel of a tree."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(tree)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", EPOCH)}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


def main() -> None:
    """Build, compare, write."""
    out = ROOT / "dist"
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        first, second = build(ROOT, Path(one)), build(ROOT, Path(two))
        if first.read_bytes() != second.read_bytes():
            sys.exit("two builds of the same tree differ: do not release this wheel")
        wheel = Path(shutil.copy(first, out / first.name))
    listed = out / "synthgeo.cdx.json"
    listed.write_text(json.dumps(bill(), indent=2, sort_keys=True) + "\n")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in (wheel, listed)]
    (out / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    print("\n".join(sums))


if __name__ == "__main__":
    main()
