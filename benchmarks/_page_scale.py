"""The parts of docs/scale.md that hold figures, written from the results of ``benchmarks.engines``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks._markdown import load, machine, table

CODE = '''ROWS = 10**10                              # a national month
COUNT = {{"duckdb": {duckdb:.1f}e6, "dask": {dask:.1f}e6}}   # rows per second and core
MERGE = {merge:.0f}e6                               # keys per second
KEYS = 2**20                               # distinct keys of a step, at most, at depth 20
PRIVATISE = {privatise:.1f}e6                          # keys per second, on the driver
LINK = 125e6                               # bytes per second into the driver (1 Gbit/s)


def month(cores, engine, steps):
    """Seconds of the workers and of the driver."""
    count = ROWS / COUNT[engine] / cores
    merge = steps * 5 * 8 * KEYS / MERGE / cores  # five levels of eight cover 32,768 partitions
    driver = steps * (16 * KEYS / LINK + KEYS / PRIVATISE)
    return count + merge, driver


for engine, cores in (("duckdb", 2), ("duckdb", 32), ("dask", 32), ("dask", 256), ("dask", 2048)):
    for steps in (1, 31, 124):
        workers, driver = month(cores, engine, steps)
        print(f"{{engine:6}} {{cores:5}} cores {{steps:4}} steps: workers {{workers:6.0f}} s, driver {{driver:4.0f}} s")
'''
MACHINES = (
    ("one machine, 2 cores", 2, "duckdb"),
    ("one machine, 32 cores", 32, "duckdb"),
    ("dask, 32 cores", 32, "dask"),
    ("dask, 256 cores", 256, "dask"),
    ("dask, 2048 cores", 2048, "dask"),
)


MOST_TRIPS = 5_000_000
WIDE = 100  # columns of the table that was measured


def _results() -> tuple[dict[str, Any], dict[str, Any]]:
    found = load("engines")
    if found is None:
        raise FileNotFoundError("docs/scale.md needs the results of `python -m benchmarks.engines`")
    return found, found["results"]


def _rates() -> dict[str, float]:
    """Million rows or keys per second: counting by seconds of processor time, the rest by the clock."""
    _, r = _results()
    counted = r["engine_20_bits"]["rows"] / 1e6
    dask = counted / r["dask"]["worker_cpu_seconds"]
    clusters = load("clusters_count")
    if clusters is not None and clusters["config"]["rows"] >= 10_000_000:  # Arrow batches, all processes
        arrow = clusters["results"]["count_dask"]
        dask = arrow["rows"] / 1e6 / arrow["cpu_seconds"]
    return {
        "duckdb": counted / r["engine_20_bits"]["cpu_seconds"],
        "dask": dask,
        "dask_pandas": counted / r["dask"]["worker_cpu_seconds"],
        "merge": r["merge_20_bits"]["keys_in"] / r["merge_20_bits"]["seconds"] / 1e6,
        "merge_distinct": r["merge_40_bits"]["keys_in"] / r["merge_40_bits"]["seconds"] / 1e6,
        "privatise": r["privatise"]["keys"] / r["privatise"]["seconds"] / 1e6,
        "users": r["users"]["events"] / r["users"]["cpu_seconds"] / 1e6,
    }


def measured() -> list[str]:
    """What was measured, on which machine."""
    found, r = _results()
    rate, rows = _rates(), r["rows"] / 1e6
    sql, engine = r["sql_20_bits"], r["engine_20_bits"]
    lines = [
        [
            "Parquet through DuckDB to Morton keys and counts, depth 20",
            f"{rate['duckdb']:.1f} million rows per second and core; {rows:.0f} million rows in {engine['seconds']:.1f} s, against {sql['seconds']:.1f} s for one SQL "
            f"`group by` that computes the same keys ({engine['times_sql']:.2f} times its time, in the same run)",
        ],
        [
            "the same and on to `release.cells`",
            f"{r['release_20_bits']['times_sql']:.2f} times the time of the SQL",
        ],
        [
            f"a stream of {rows:.0f} million rows, not sorted by time, {r['stream']['steps']} daily releases",
            f"{r['stream']['seconds']:.0f} s, peak {r['stream']['peak_mib'] / 1024:.2f} GiB",
        ],
    ]
    text = load("engines_text")
    if text is not None:
        read = text["results"]
        lines.append(
            [
                f"CSV ({read['file_mib'] / 1024:.1f} GiB) to the same keys and counts, each field asked for what is declared",
                f"{text['config']['rows'] / 1e6:.0f} million rows in {read['seconds']:.1f} s, against {read['sql_seconds']:.1f} s for DuckDB's `read_csv` with "
                f"declared types and one `group by` ({read['times_sql']:.2f} times its time, in the same run)",
            ]
        )
    long = load("engines_stream")
    if long is not None:
        million = long["config"]["rows"] / 1e6
        lines.append(
            [
                f"a stream of {million:.0f} million rows{', eight copies of a file' if long['config'].get('copies') else ''}, not sorted by time, {long['results']['steps']} daily releases",
                f"{long['results']['cpu_seconds']:.0f} s of processor time, peak {long['results']['peak_mib'] / 1024:.2f} GiB",
            ]
        )
    deep = load("engines_deep")
    if deep is not None:
        one, million = deep["results"], deep["config"]["rows"] / 1e6
        lines.append(
            [
                f"one release of {million:.0f} million rows at depth {one['depth']}, asked for level by level",
                f"{one['cpu_seconds']:.0f} s of processor time, peak {one['peak_mib'] / 1024:.2f} GiB; passes with "
                f"{' and '.join(f'{keys:,}' for keys in one['asked'])} keys",
            ]
        )
    lines += [
        [
            f"peak memory of counting, {rows:.0f} million rows ({r['file_mib'] / 1024:.1f} GiB of Parquet)",
            f"{engine['peak_mib']:.0f} MiB at depth 20 (SQL: {sql['peak_mib']:.0f}); {r['engine_40_bits']['peak_mib'] / 1024:.1f} GiB at 40 bits, where nearly every row "
            f"is a key of its own (SQL: {r['sql_40_bits']['peak_mib'] / 1024:.1f} GiB)",
        ],
        [
            "dask workers over Parquet, through pandas partitions",
            f"{rate['dask_pandas']:.1f} million rows per second and core",
        ],
        [
            "merging histograms",
            f"{rate['merge']:.0f} million keys per second at depth 20, {rate['merge_distinct']:.0f} million when nearly all keys are distinct",
        ],
        ["privatise a step", f"{rate['privatise']:.1f} million keys per second"],
        ["bounding users", f"{rate['users']:.1f} million events per second and core"],
        [
            "placing synthetic points",
            f"{r['release_20_bits']['points_sampled_a_second'] / 1e6:.1f} million per second",
        ],
    ]
    return [f"By `python -m benchmarks.engines` ({machine(found)}).", "", *table(["what", "rate"], lines)]


def month() -> list[str]:
    """The sum for a national month, and where the driver is the limit."""
    code = CODE.format(**_rates())
    space: dict[str, Any] = {"print": lambda *_: None}
    exec(code, space)
    rows = [
        [name, *(_both(*space["month"](cores, engine, steps)) for steps in (1, 31, 124))]
        for name, cores, engine in MACHINES
    ]
    arrive = 16 * space["KEYS"] / space["LINK"]
    privatise = space["KEYS"] / space["PRIVATISE"]
    cores = [
        space["ROWS"] / space["COUNT"]["dask"] / (steps * (arrive + privatise)) for steps in (1, 31, 124)
    ]
    return [
        "```python",
        *code.rstrip().splitlines(),
        "```",
        "",
        *table(["", "1 step", "31 days", "124 windows of 6 h"], rows),
        "(workers + driver; reading 160 GB of coordinates from disk or network comes on top where it is slower than 100 MB per second and core.)",
        "",
        f"**Where the driver is the limit.** A step costs the driver {arrive + privatise:.2f} s at depth 20 whatever the number of rows: {arrive:.2f} s for the histogram to arrive, "
        f"{privatise:.2f} s to privatise it. It is the limit from about {_round(cores[0])} dask cores on for one step, {_round(cores[1])} for 31, {_round(cores[2])} for 124. More workers do "
        "not help beyond that; coarser keys (`max_depth`) do, in proportion.",
        "",
    ]


def trips() -> list[str]:
    """Trips in parts: what was measured, and the sum for a national month of them."""
    found = load("scale_trips")
    if found is None:
        return []
    rows = sorted(found["results"]["table"], key=lambda row: (row["engine"], row["trips"]))
    header = ["where", "trips", "points", "time, s", "processor time, s", "peak memory, MiB"]
    names = ("engine", "trips", "points", "seconds", "cpu_seconds", "more_mib")
    engine, small, large = _two_sizes(rows)
    per_trip = (large["cpu_seconds"] - small["cpu_seconds"]) / (large["trips"] - small["trips"])
    once = large["cpu_seconds"] - per_trip * large["trips"]
    machines = [[f"{cores:,} cores", _hours(1e9 * per_trip / cores)] for cores in (2, 32, 256, 2048)]
    grows = [
        f"{where}: time {slopes['time']:.2f}, memory {slopes['memory, last two sizes']:.2f}"
        for where, slopes in found["results"]["exponent"].items()
    ]
    most = [row for row in rows if row["trips"] == MOST_TRIPS]
    said = f"Computed from these rates and **not measured**: {MOST_TRIPS:,} trips take {_hours(once + MOST_TRIPS * per_trip / 2)} on two cores, and a"
    if most:
        took = ", ".join(
            f"{_time(row['seconds'])} and {row['more_mib'] / 1024:.1f} GiB ({row['engine']})" for row in most
        )
        said = f"{MOST_TRIPS:,} trips took {took}; the goal was 25 min and 4 GB on two quiet cores, and 1.3 times that on dask. Computed from the rates: a"
    return [
        f"By `python -m benchmarks.trips_scale` ({machine(found)}): simulated trips over Manhattan, Parquet in, a fitted model out. Where the machine did other work, processor time says more than the clock.",
        "",
        *table(header, [[row[name] for name in names] for row in rows]),
        f"Growth exponents of processor time over all sizes, and of memory over the last two: {'; '.join(grows)}. A trip more costs {1000 * per_trip:.2f} ms of processor time (from the two largest sizes, {engine}), the rest {once:.0f} s whatever their number. "
        f"{said} national month of 10^9 trips:",
        "",
        *table(["", "10^9 trips"], machines),
    ]


def _two_sizes(rows: list[dict[str, Any]]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The two largest sizes of the engine that was measured furthest; processes of one machine where there is
    a choice.
    """
    found = []
    for engine in ("processes", "dask", "one process"):
        ours = [row for row in rows if row["engine"] == engine]
        if len(ours) > 1:
            found.append((ours[-1]["trips"], engine, ours[-2], ours[-1]))
    _, engine, small, large = max(found, key=lambda item: item[0])
    return engine, small, large


def tables() -> list[str]:
    """A national month of records, from what counting all pairs of 100 columns costs."""
    found = load("clusters_marginals")
    if found is None:
        return []
    rows, header = [], ["columns", "values", "2 cores", "32 cores", "256 cores"]
    for name in ("marginals_8", "marginals_32"):
        r = found["results"].get(name)
        if r is None:
            continue
        encoded, each = r["encoded_cpu_seconds"] / r["rows"] / WIDE, 1e-9 * r["ns_per_row_and_pair"]
        for columns in (20, 100):
            seconds = 1e9 * (columns * encoded + columns * (columns - 1) / 2 * each)
            rows.append([columns, r["values"], *(_hours(seconds / cores) for cores in (2, 32, 256))])
    return [
        f"Computed from the rates of `python -m benchmarks.clusters marginals` ({machine(found)}): 10^9 records from Parquet to the exact counts of all pairs of their columns, in one pass. What follows (choosing, noise, the model) "
        "does not grow with the records.",
        "",
        *table(header, rows),
    ]


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 7200 else _time(seconds)


def _both(workers: float, driver: float) -> str:
    return _time(workers) + (f" + {_time(driver)}" if driver > workers / 20 else "")


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def _round(value: float) -> str:
    """Two significant digits."""
    return f"{float(f'{value:.2g}'):,.0f}"


def clusters() -> list[str]:
    """What clusters of two processes cost, by part of ``benchmarks.clusters``."""
    lines: list[str] = []
    for part, words in (
        (
            "count",
            "counting Morton keys at depth 20, against each engine's own grouping of the same keys (plain); the goals were at most 1.5 times plain on DuckDB and dask, 2 times on Spark",
        ),
        (
            "users",
            "at most 4 events of each user, ten events per user on average; the goal was a driver below 2 GB on clusters",
        ),
        (
            "marginals",
            "all pairs of 100 columns with 8 or 32 values; the goals were 6 times the cost of reading with 8 values, 2 ns per row, pair and core with 32",
        ),
    ):
        found = load(f"clusters_{part}")
        if found is None:
            continue
        rows = []
        for name, r in found["results"].items():
            if not isinstance(r, dict):
                continue
            plain = found["results"].get(f"{'_'.join(name.split('_')[:2])}_plain", {})
            ratio = r["cpu_seconds"] / plain["cpu_seconds"] if plain and plain is not r else None
            each = r.get("ns_per_row_and_pair")
            if each is not None:
                note = f"{each:.1f} ns per row and pair; {r['times_read']:.1f} times reading, {r['times_encoded']:.1f} times reading into codes"
            else:
                note = "" if ratio is None else f"{ratio:.2f} times plain"
            if "driver_peak_mib" in r:
                note = f"driver: peak {r['driver_peak_mib'] / 1024:.2f} GiB"
            rows.append([name.partition("_")[2].replace("_", " "), f"{r['cpu_seconds']:.1f} s", note])
        lines += [
            f"{found['config']['rows'] / 1e6:g} million rows, {words} ({machine(found)}):",
            "",
            *table(["engine", "processor time, all processes", ""], rows),
        ]
    return lines or ["*Not measured yet.*"]


BLOCKS: dict[str, Callable[[], list[str]]] = {
    "scale measured": measured,
    "scale month": month,
    "scale trips": trips,
    "scale tables": tables,
    "scale clusters": clusters,
}
