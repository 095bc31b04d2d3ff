"""The wheel in an empty environment, with the base alone: what it takes, and whether it works there.

``python -m benchmarks.install`` builds the wheel, installs it into a new virtual environment (which needs a
package index), runs ``tools/base_only.py`` there, adds the extra ``all``, and records the disk space of both.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from benchmarks._common import record
from tools.inventory import ROOT
from tools.wheel import build

MOST = 980  # MiB that the base may take


def used(folder: Path) -> float:
    """Disk space of a folder in MiB."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*")) / 2**20


def main() -> None:
    """Build, install, measure, walk."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "venv")
        venv.create(home, with_pip=True)
        python, empty = home / "bin" / "python", used(home)
        install = [python, "-m", "pip", "install", "--quiet"]
        wheel = build(ROOT, Path(folder))
        subprocess.run([*install, wheel], check=True, env=environment)
        base = used(home) - empty
        print(f"the base takes {base:,.0f} MiB on disk", flush=True)
        subprocess.run([python, ROOT / "tools" / "base_only.py"], check=True, env=environment, cwd=folder)
        subprocess.run([*install, f"{wheel}[all]"], check=True, env=environment)
        everything = used(home) - empty
        print(f"with the extra `all` {everything:,.0f} MiB")
    record("install", {"most_mb": MOST}, {"base_mb": round(base), "all_mb": round(everything)})
    if base > MOST:
        sys.exit(f"the base takes more than {MOST} MiB")


if __name__ == "__main__":
    main()
