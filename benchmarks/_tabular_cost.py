"""What tables cost as they get wider, and where the time of a step goes."""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import synthgeo as sg
from benchmarks._common import in_a_process, peak_memory_mib
from benchmarks._tabular_data import adult, batches_of
from streams.counters import CounterBank
from synthgeo.privacy.filter import PrivacyFilter
from tabular import once as once_module
from tabular.counting import EngineRows
from tabular.model.fitting import Model
from tabular.over_time import every_step
from tabular.over_time.every_step import EveryStepModel
from tabular.over_time.rotating_marginals import Rotating
from tabular.records import TableRecords

COLUMNS = (5, 10, 20, 50)
ROWS, VALUES, BATCHES = 20_000, 6, 20
GROWTH = {"rows": ROWS, "values": VALUES, "batches": BATCHES, "epsilon": 1.0, "seed": 1}
PROFILE = {"data": "adult", "order": "random", "batch": 200, "steps": 245, "epsilon": 1.0, "seed": 1}


def growth() -> dict[str, Any]:
    """Seconds and peak memory by the number of columns, each size in a process of its own."""
    table = []
    for columns in COLUMNS:
        once = in_a_process("benchmarks._tabular_cost", "once", str(columns))
        stream = in_a_process("benchmarks._tabular_cost", "stream", str(columns))
        row = {"columns": columns, **once, **{f"stream_{key}": value for key, value in stream.items()}}
        table.append(row)
    return {
        "table": table,
        "exponent": _exponent(table, "seconds"),
        "stream_exponent": _exponent(table, "stream_seconds"),
    }


def _exponent(table: list[dict[str, Any]], key: str) -> float:
    """The slope of the least-squares line through the logarithms."""
    size = np.log([row["columns"] for row in table])
    return float(np.polyfit(size, np.log([row[key] for row in table]), 1)[0])


def wide_table(columns: int) -> tuple[pd.DataFrame, sg.Schema]:
    """A chain: each column repeats the one before it for two rows of three."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, VALUES, (ROWS, columns))
    for i in range(1, columns):
        same = rng.random(ROWS) < 2 / 3
        codes[same, i] = codes[same, i - 1]
    names = [f"c{i:02d}" for i in range(columns)]
    schema = sg.Schema({name: sg.Categorical(range(VALUES)) for name in names})
    return pd.DataFrame(codes, columns=names), schema


def cost(what: str, columns: int) -> dict[str, float]:
    """One table or one stream of this width."""
    frame, schema = wide_table(columns)
    options: dict[str, Any] = {
        "schema": schema,
        "budget": sg.PrivacyBudget(1.0),
        "noise": sg.SeededNoise(1),
    }
    start = time.perf_counter()
    if what == "once":
        data = sg.TabularSynthesizer.from_options(**options).fit(frame).sample().data
    else:
        stream = sg.TabularStream.from_options(**options)
        for part in np.array_split(np.arange(ROWS), BATCHES):
            release = stream.update(frame.iloc[part])
        data = release.data
    assert data.shape[1] == columns
    return {"seconds": time.perf_counter() - start, "mib": peak_memory_mib()}


class Clock:
    """Adds up the time inside functions, by part; time inside a nested part counts for the inner one only."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._open: list[str] = []
        self._last = time.perf_counter()

    def _turn(self) -> None:
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] += now - self._last
        self._last = now

    def measure(self, part: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, timed."""

        def timed(*args: Any, **options: Any) -> Any:
            self._turn()
            self._open.append(part)
            try:
                return work(*args, **options)
            finally:
                self._turn()
                self._open.pop()

        return timed

    def watch(self, owner: Any, name: str, part: str) -> None:
        """Time a function where it lives."""
        setattr(owner, name, self.measure(part, getattr(owner, name)))


def profile() -> dict[str, Any]:
    """Seconds by part: of the two schedules over Adult in batches of 200, and of Adult released once.

    A stream draws its rows when asked: here once, after the last step."""
    table = []
    for product in ("auto", "every_step", "once"):
        parts = in_a_process("benchmarks._tabular_cost", "profile", product)
        whole = sum(parts.values())
        table += [
            {"product": product, "part": part, "seconds": seconds, "share": seconds / whole}
            for part, seconds in sorted(parts.items(), key=lambda item: -item[1])
        ]
    return {"table": table}


def parts_of(product: str) -> dict[str, float]:
    """Seconds by part of one product."""
    clock = Clock()
    clock.watch(Model, "counts", "marginals of the model")
    options: dict[str, Any] = {"budget": sg.PrivacyBudget(1.0), "noise": sg.SeededNoise(1)}
    if product == "once":
        frame, schema = adult()
        clock.watch(EngineRows, "marginals", "count")
        clock.watch(PrivacyFilter, "measure", "measure")
        clock.watch(once_module, "fit", "fit")
        synthesizer = sg.TabularSynthesizer.from_options(schema=schema, **options)
        clock.measure("other", synthesizer.fit)(frame)
        release: Any = synthesizer.sample()
    else:
        schema, batches = batches_of("adult", "random", 200)
        clock.watch(TableRecords, "count", "count")
        clock.watch(Rotating, "_release", "measure")
        clock.watch(Rotating, "_count_rows", "measure")
        clock.watch(Rotating, "_select", "select")
        clock.watch(Rotating, "_fit", "fit")
        clock.watch(EveryStepModel, "_pick", "select")
        clock.watch(every_step, "fit", "fit")
        if product == "every_step":  # the other one counts rows with its bank, and that is watched above
            clock.watch(CounterBank, "step", "measure")
        stream = sg.TabularStream.from_options(schema=schema, schedule=product, **options)
        for batch in batches:
            release = clock.measure("other", stream.update)(batch)
    clock.measure("sample", lambda: release.data)()
    return dict(clock.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["once", "stream", "profile"])
    parser.add_argument("which")
    options = parser.parse_args()
    if options.what == "profile":
        print(json.dumps(parts_of(options.which)))
    else:
        print(json.dumps(cost(options.what, int(options.which))))


if __name__ == "__main__":
    main()
