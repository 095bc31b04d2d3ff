"""Tables: the continual release of Adult, Minneapolis stops, New York flights and the General Social Survey,
and Adult released once; growth, profile, and the sweep behind the defaults.

Run with ``python -m benchmarks.tabular [--only adult] [--seed 1] [--steps N]``. Each configuration leaves
one file in ``benchmarks/results``; a configuration whose file is there is not run again, so a run that
was stopped goes on where it was. The table at the end reads all files.

Adult has no time: its rows come in a random order, or sorted by all columns. Errors are means over the
last ten steps."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from benchmarks._common import RESULTS, in_a_process, record
from benchmarks._markdown import references
from benchmarks._tabular_cost import GROWTH, PROFILE, growth, profile
from benchmarks._tabular_data import Config
from benchmarks._tabular_run import SETS, once, run, sets
from benchmarks._tabular_sweep import SWEEP, sweep
from benchmarks._tabular_uses import (
    BIRDS,
    DISCOVERY,
    HOUSEHOLDS,
    PANEL,
    WIDE,
    birds,
    discovery,
    households,
    panel,
    wide,
)

ORDERS = ("random", "sorted")


def configurations(seed: int) -> list[Config]:
    """Everything, the ones that decide first. More than one seed only where the figures are quoted."""
    both = ("auto", "every_step")
    out = [Config("adult", order, 200, method, 1.0, seed) for order in ORDERS for method in both]
    if seed > 1:
        return out
    every = (*both, "baseline")
    for batch, epsilon in (
        (200, 1.0),
        (200, 0.5),
        (200, 2.0),
        (200, 4.0),
        (50, 1.0),
        (50, 0.5),
        (50, 2.0),
        (50, 4.0),
    ):
        out += [Config("adult", order, batch, method, epsilon) for order in ORDERS for method in every]
    out = list(dict.fromkeys(out))
    for data in ("stops", "flights", "wages"):
        out += [Config(data, "time", 1, method, 1.0) for method in every]
    return out


def results() -> Iterator[dict[str, Any]]:
    """All recorded results of this benchmark."""
    for path in sorted(RESULTS.glob("tabular_*.json")):
        yield json.loads(path.read_text())


def published() -> dict[tuple[Any, ...], tuple[float, ...]]:
    """What Kumar's tables 4.2 and 4.3 print for another coding of Adult, for orientation."""
    methods = {"baseline": "baseline", "proposed": "every_step"}
    return {
        (row["order"], row["batch"], methods[row["method"]], row["epsilon"]): tuple(
            row[name] for name in ("AvgWE", "MaxWE", "AvgRelWE", "MaxRelWE")
        )
        for row in references()["kumar_tables"]["table"]
    }


def report() -> None:
    """Print what was measured so far."""
    print(
        f"{'data':8}{'order':8}{'batch':>6} {'method':11}{'eps':>5}  {'AvgWE':>8}{'MaxWE':>8}{'AvgRel':>8}"
        f"{'MaxRel':>8}  {'median s':>8}{'total s':>8}{'MiB':>6}   published (other coding)"
    )
    elsewhere = published()
    for found in results():
        config, values = found["config"], found["results"]
        if "avg_we" not in values or "method" not in config:
            continue
        where = (config["order"], config["batch"], config["method"], config["epsilon"])
        known = elsewhere.get(where) if config["data"] == "adult" else None
        print(
            f"{config['data']:8}{config['order']:8}{config['batch']:>6} {config['method']:11}"
            f"{config['epsilon']:>5}  {values['avg_we']:8.5f}{values['max_we']:8.4f}"
            f"{values['avg_rel_we']:8.3f}{values['max_rel_we']:8.3f}  "
            f"{values['median_step'] or np.nan:8.3f}{values['seconds'] or np.nan:8.0f}"
            f"{values['memory_mib']:6.0f}"
            f"   {known or ''}"
        )
    for found in results():
        if "seconds_fit" in found["results"]:
            config, v = found["config"], found["results"]
            print(
                f"adult once ({config['epsilon']:g}, {config['delta']:g}): TV 1/2/3-way {v['tv_1way']:.4f} "
                f"{v['tv_2way']:.4f} {v['tv_3way']:.4f}, halves {v['random_halves_tv_2way']:.4f}, "
                f"{v['seconds']:.0f} s, {v['memory_mib']:.0f} MiB, TSTR kept {v['tstr_kept']:.2f} "
                f"({v['tstr_synthetic']:.3f} of {v['tstr_real']:.3f}, majority {v['tstr_majority']:.3f})"
            )


def seeds() -> None:
    """Mean and spread over seeds, where there is more than one."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for found in results():
        config = found["config"]
        if "method" in config:
            key = tuple(value for name, value in config.items() if name != "seed")
            groups.setdefault(key, []).append(found)
    table = []
    for key, members in groups.items():
        if len(members) < 2:
            continue
        row = dict(zip(("data", "order", "batch", "method", "epsilon"), key, strict=True))
        row["seeds"] = sorted(found["config"]["seed"] for found in members)
        for name in ("avg_we", "max_we"):
            values = [found["results"][name] for found in members]
            row |= {f"{name}_mean": float(np.mean(values)), f"{name}_sd": float(np.std(values, ddof=1))}
        table.append(row)
    if table:
        record("seeds_tabular", {"from": "the files of these configurations and seeds"}, {"table": table})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="run configurations whose name holds this text")
    parser.add_argument("--seed", type=int, action="append", help="by default 1, 2 and 3")
    parser.add_argument("--steps", type=int, help="stop streams after so many steps; records nothing")
    parser.add_argument("--one", help="run this configuration here and print its result as JSON")
    parser.add_argument("--report", action="store_true", help="only print what was measured")
    options = parser.parse_args()
    wanted = options.seed or [1, 2, 3]
    # Each in a process of its own, so that its memory is its own: name -> (settings, what to do)
    work: dict[str, tuple[dict[str, Any], Callable[[], Any]]] = {}
    for epsilon, delta, seed in [(1.0, 1e-9, 1), *((1.0, 0.0, seed) for seed in wanted)]:
        settings = {"data": "adult", "epsilon": epsilon, "delta": delta, "seed": seed}
        name = f"tabular_adult_once_{epsilon:g}_{delta:g}_s{seed}"
        work[name] = (settings, partial(once, epsilon, delta, seed))
    for config in (config for seed in wanted for config in configurations(seed)):
        work[config.name] = (asdict(config), partial(run, config, steps=options.steps))
    work["tables_once"] = (SETS, sets)
    work["tables_birds"] = (BIRDS, birds)
    work["tables_discovery"] = (DISCOVERY, discovery)
    work["tables_wide"] = (WIDE, wide)
    work["tables_households"] = (HOUSEHOLDS, households)
    work["tables_panel"] = (PANEL, panel)
    work["growth_columns"] = (GROWTH, growth)
    work["profile_tabular"] = (PROFILE, profile)
    work["sweep_tabular"] = (SWEEP, sweep)
    if options.one:
        print(json.dumps(work[options.one][1]()))
        return
    if not options.report:
        for name, (settings, _) in work.items():
            if options.only not in name or (RESULTS / f"{name}.json").exists():
                continue
            began = time.perf_counter()
            steps = [] if options.steps is None else ["--steps", str(options.steps)]
            seed = [part for one in wanted for part in ("--seed", str(one))]
            found = in_a_process("benchmarks.tabular", "--one", name, *seed, *steps)
            if options.steps is None:
                record(name, settings, found)
            print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
        seeds()
    report()


if __name__ == "__main__":
    main()
