"""What Kumar's dissertation sweeps besides ε: sensitivity and batch size (section 3.6.8), land as a domain
(figures 3.6 to 3.8), and block against simple counters for tables (tables 4.4 and 4.5).

``python -m benchmarks.dissertation`` measures what has no result yet, in about three minutes of one core.
Gowalla, the state of New York and Eviction are replaced by simulated check-ins on an archipelago and by the
tables that come with the benchmarks.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import shapely

import synthgeo as sg
from benchmarks._common import RESULTS, record
from benchmarks._tabular_data import Config
from benchmarks._tabular_run import run
from benchmarks.spatial import METHODS, Dataset, errors, of_frame

SEEDS = 2
BOX = sg.BoxDomain(0, 0, 1, 1)


def _circles(steps: int, size: int) -> Dataset:
    frame = sg.simulate.circles(steps, size, deletion=True, seed=1)
    return of_frame("circles with deletion", BOX, frame, frame["step"])


def _mean(data: Dataset, make: Callable[..., Any], epsilon: float) -> dict[str, float]:
    found = pd.DataFrame([errors(data, make, epsilon, seed).mean() for seed in range(SEEDS)])
    return {str(name): float(value) for name, value in found.mean().items()}


def sensitivity() -> None:
    """A point that counts s times has its ε divided by s; 20,000 points in batches of one size or another."""
    chosen = {name: METHODS[name] for name in ("auto", "every_step", "baseline 3")}
    rows = [
        {"sweep": "sensitivity", "value": s, "method": name, **_mean(_circles(40, 500), make, 1.0 / s)}
        for s in (1, 2, 4)
        for name, make in chosen.items()
    ]
    rows += [
        {
            "sweep": "batch size",
            "value": size,
            "method": name,
            **_mean(_circles(20_000 // size, size), make, 1.0),
        }
        for size in (250, 500, 1000, 2000)
        for name, make in chosen.items()
    ]
    claims = []
    for sweep, better in (("sensitivity", False), ("batch size", True)):
        for name in chosen:
            mine = [row["small"] for row in rows if (row["sweep"], row["method"]) == (sweep, name)]
            holds = all((a > b) == better for a, b in pairwise(mine))
            words = "larger batches" if better else "a lower sensitivity"
            claims.append(
                {
                    "claim": f"as printed: {words} improve the results, {name} (section 3.6.8)",
                    "holds": holds,
                    "numbers": ", ".join(f"{value:.3g}" for value in mine),
                }
            )
    record("kumar_sensitivity", {"seeds": SEEDS, "epsilon": 1.0}, {"table": rows, "claims": claims})
    print(pd.DataFrame(rows).round(3).to_string(index=False), claims)


def archipelago() -> sg.PolygonDomain:
    """Islands of several sizes in a sea that nobody can be in."""
    rng = np.random.default_rng(3)
    spots = rng.uniform([-123, 26], [-68, 48], (30, 2))
    islands = [
        shapely.Point(x, y).buffer(r) for (x, y), r in zip(spots, rng.uniform(0.5, 4, 30), strict=True)
    ]
    return sg.PolygonDomain(shapely.union_all(islands), crs="EPSG:4326")


def land() -> None:
    """Check-ins on land, with and without deletion, and the same points on the box around it."""
    domain = archipelago()
    rows = []
    for deletion in (False, True):
        frame = sg.simulate.checkins(10_000, days=25, deletion=deletion, lifetime=10, domain=domain, seed=1)
        day = (frame["time"] - frame["time"].min().normalize()).dt.days
        kind = "with deletion" if deletion else "without deletion"
        box = sg.BoxDomain(*domain.bounds, crs=domain.crs)
        for where, on in (("land", domain), ("box", box)):
            data = of_frame(kind, on, frame, day)
            methods = METHODS if where == "land" else {"auto": METHODS["auto"]}
            for name, make in methods.items():
                rows.append({"check-ins": kind, "domain": where, "method": name, **_mean(data, make, 1.0)})
    by = {(row["check-ins"], row["domain"], row["method"]): row for row in rows}
    kinds = ("without deletion", "with deletion")

    def claim(words: str, other: str) -> dict[str, Any]:
        pairs = [(by[kind, "land", "every_step"][q], by[kind, "land", other][q]) for kind in kinds for q in ("small", "medium", "large")]  # fmt: skip
        return {
            "claim": words,
            "holds": all(a < b for a, b in pairs),
            "numbers": ", ".join(f"{a:.3g} against {b:.3g}" for a, b in pairs),
        }

    claims = [
        claim("as printed: PHDStream (every step) beats baseline 2 on land (figures 3.6, 3.7, 3.12 to 3.15)", "baseline 2"),
        claim("as printed: PHDStream (every step) beats baseline 3 where it starts early, on land", "baseline 3"),
        {
            "claim": "knowing the land beats the box around it (auto, small queries)",
            "holds": all(by[k, "land", "auto"]["small"] < by[k, "box", "auto"]["small"] for k in kinds),
            "numbers": ", ".join(f"{by[k, 'land', 'auto']['small']:.3g} against {by[k, 'box', 'auto']['small']:.3g}" for k in kinds),
        },
    ]  # fmt: skip
    record("kumar_land", {"seeds": SEEDS, "epsilon": 1.0}, {"table": rows, "claims": claims})
    print(pd.DataFrame(rows).round(3).to_string(index=False), claims)


def counters(steps: int) -> None:
    """Algorithm 14 (every step) with simple and with block counters."""
    rows = []
    for order in ("random", "sorted"):
        for epsilon in (1.0,):
            for counter in ("simple", "unbounded_block"):
                config = Config("adult", order, 200, "every_step", epsilon, 1)
                found = run(config, steps=steps, counter=counter)
                kept = {key: found[key] for key in ("avg_we", "max_we", "avg_rel_we", "max_rel_we")}
                rows.append({"order": order, "epsilon": epsilon, "counter": counter, **kept})
    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    claims = [
        {
            "claim": "as printed: simple counters do better than block counters on average errors (tables 4.4 and 4.5)",
            "holds": all(simple["avg_we"] <= block["avg_we"] for simple, block in pairs),
            "numbers": ", ".join(
                f"{s['order']} ε={s['epsilon']:g}: {s['avg_we']:.4f} against {b['avg_we']:.4f}"
                for s, b in pairs
            ),
        }
    ]
    record("kumar_counters", {"steps": steps, "batch": 200, "seed": 1}, {"table": rows, "claims": claims})
    print(pd.DataFrame(rows).round(4).to_string(index=False), claims)


PARTS: dict[str, Callable[[], None]] = {
    "sensitivity": sensitivity,
    "land": land,
    "counters": lambda: counters(15),
}


def main() -> None:
    """Run the parts that are named, or those without a result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}")
    options = parser.parse_args()
    for part in options.parts or [p for p in PARTS if not (RESULTS / f"kumar_{p}.json").exists()]:
        PARTS[part]()


if __name__ == "__main__":
    main()
