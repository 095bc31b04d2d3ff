"""What every benchmark shares: machine facts, timing, and one JSON file a benchmark in
``benchmarks/results``."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

#: A quick run writes elsewhere: the results in the repository are those of full runs.
RESULTS = Path(os.environ.get("SYNTHGEO_RESULTS", Path(__file__).parent / "results"))
#: The parts of ``benchmarks.trips`` that leave a table each, ``trips_<part>.json``.
TRIP_PARTS = ("sf", "chicago", "manhattan", "box", "land", "uses", "taxis", "speed", "walks")
_PACKAGES = (
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "duckdb",
    "numba",
    "mbi",
    "jax",
    "dask",
    "opendp",
    "dp-accounting",
)


def record(name: str, config: dict[str, Any], results: Any) -> Path:
    """Write ``benchmarks/results/<name>.json``: when, on what, with which settings (seeds among them), what
    came out."""
    RESULTS.mkdir(exist_ok=True, parents=True)
    path = RESULTS / f"{name}.json"
    content = {
        "name": name,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "config": config,
        "results": results,
    }
    unfinished = path.with_suffix(".tmp")  # a run that is stopped here leaves the old file
    unfinished.write_text(json.dumps(content, indent=2, default=_plain) + "\n")
    unfinished.replace(path)
    return path


def recorded(name: str) -> dict[str, Any] | None:
    """What ``record`` wrote under this name, or None."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return None
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def machine() -> dict[str, Any]:
    """Public facts about this machine: no names, no paths."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "system": platform.system(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(memory, 1),
        "python": platform.python_version(),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def versions() -> dict[str, str]:
    """Versions of the packages whose speed shows up in ours."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


@contextmanager
def made_once(name: str) -> Iterator[Path]:
    """A folder for files that a benchmark makes for itself: gone when it is done, and where it is stopped
    still there for the next run.
    """
    folder = Path(tempfile.gettempdir()) / f"synthgeo-benchmark-{name}"
    folder.mkdir(exist_ok=True)
    yield folder
    shutil.rmtree(folder)


def seconds(work: Callable[[], Any], *, repeat: int = 3) -> float:
    """The shortest of ``repeat`` runs: the machine's other work can only add time."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def peak_memory_mib() -> float:
    """The largest resident size this process has had so far."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would also count what the parent held when it started this process
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**10
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def restart_peak() -> float:
    """Forget the peak so far, where the system can (Linux); what is resident now is the new one."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_memory_mib()


def in_a_process(module: str, *arguments: str) -> Any:
    """Run ``python -m module arguments`` alone and read the JSON of its last line: peaks of memory are its
    own.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def _plain(value: Any) -> Any:
    """numpy numbers and arrays for JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Path):
        return value.name
    raise TypeError(f"a benchmark result holds {type(value).__name__}")
