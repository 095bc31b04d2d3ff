"""What Kumar's dissertation sweeps besides ε: sensitivity and batch size (section 3.6.8), land as a domain
(figures 3.6 to 3.8), block against simple counters for tables (tables 4.4 and 4.5), trips by the published
method (table 5.1); and what its other figures claim, judged by the results of the other benchmarks.

``python -m benchmarks.dissertation`` measures what has no result yet, in about fifteen minutes of one core.
Gowalla, the state of New York, Eviction and Geolife are replaced by simulated check-ins on an archipelago,
by the tables that come with the benchmarks and by Chicago's trips.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import numpy as np
import pandas as pd
import shapely

import synthgeo as sg
from benchmarks._common import RESULTS, record, recorded
from benchmarks._markdown import references
from benchmarks._tabular_data import Config
from benchmarks._tabular_run import run
from benchmarks.spatial import METHODS, Dataset, errors, of_frame
from benchmarks.trips import chicago_data
from synthgeo.evaluation.trajectories import trip_scores
from trajectories.baselines import PaperTrips

SEEDS = 2
ERRORS = ("avg_we", "max_we", "avg_rel_we", "max_rel_we")
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


def counters(steps: int | None = None) -> None:
    """Algorithm 14 (every step) with simple and with block counters, in batches of 50. Rows are kept as they
    are finished. A stream that is cut short claims nothing: block counters are for long ones.
    """
    file = "unfinished_kumar_counters"
    before = recorded(file)
    done: dict[str, Any] = before["results"] if before and before["config"]["steps"] == steps else {}
    orders = ("random", "sorted")
    for order, counter in product(orders, ("simple", "unbounded_block")):
        if f"{order} {counter}" not in done:
            found = run(Config("adult", order, 50, "every_step", 1.0, 1), steps=steps, counter=counter)
            kept = {key: found[key] for key in ("steps", *ERRORS)}
            done[f"{order} {counter}"] = {"order": order, "epsilon": 1.0, "counter": counter, **kept}
            record(file, {"steps": steps}, done)
    claims = [
        _claim(
            f"as printed: at ε = 1 block counters do better than simple ones, Adult {order} (table 4.5)",
            [(done[f"{order} unbounded_block"]["avg_we"], done[f"{order} simple"]["avg_we"])],
        )
        for order in orders
        if steps is None
    ]
    rows = [{name: value for name, value in row.items() if name != "steps"} for row in done.values()]
    config = {"steps": done["random simple"]["steps"], "batch": 50, "seed": 1}
    record("kumar_counters", config, {"table": rows, "claims": claims})
    (RESULTS / f"{file}.json").unlink()
    print(pd.DataFrame(rows).round(4).to_string(index=False), claims)


def trips() -> None:
    """Chicago's trips by the dissertation's method and by ours, with the five metrics of table 5.1."""
    data = chicago_data()
    shown = ("se_are", "se_jsd", "fp_are", "fp_jsd", "qe")
    rows = []
    for epsilon, (name, kind) in product(
        (1.0, 2.0), {"Algorithm 21": PaperTrips, "ours": sg.TrajectorySynthesizer}.items()
    ):
        scores = []
        for seed in range(SEEDS):
            model = kind(domain=data.domain, budget=sg.PrivacyBudget(epsilon), noise=sg.SeededNoise(seed))
            scores.append(trip_scores(data.real, model.fit_trips(data.real).sample(data.real.size)).as_dict())
        rows.append(
            {"epsilon": epsilon, "method": name, **{m: float(np.mean([s[m] for s in scores])) for m in shown}}
        )
    elsewhere = references()["adatrace_chicago"]["scores"]
    claims = [
        _claim(
            f"as printed: Algorithm 21 does better than AdaTrace (elsewhere) in {metric}, ε = 1 (table 5.1)",
            [(rows[0][metric], elsewhere[metric])],
        )
        for metric in ("se_jsd", "fp_jsd")
    ]
    claims += [
        _claim(
            f"ours does better than Algorithm 21, ε = {one['epsilon']:g}: {', '.join(shown)}",
            [(other[metric], one[metric]) for metric in shown],
        )
        for one, other in zip(rows[::2], rows[1::2], strict=True)
    ]
    record("kumar_trips", {"seeds": SEEDS, "trips": data.real.size}, {"table": rows, "claims": claims})
    print(pd.DataFrame(rows).round(3).to_string(index=False), claims)


def _claim(words: str, pairs: list[tuple[float, float]], *, at_least: int | None = None) -> dict[str, Any]:
    """A claim that the first of each pair is smaller, in all of them or in ``at_least`` so many."""
    wins = sum(a < b for a, b in pairs)
    return {
        "claim": words,
        "holds": wins >= (len(pairs) if at_least is None else at_least),
        "numbers": ", ".join(f"{a:.3g} against {b:.3g}" for a, b in pairs),
    }


#: Figures of chapter 4: the recorded streams that show them, and how they are called.
TABLES = {
    "stops_time_1": "police stops (figure 4.1, table 4.1)",
    "flights_time_1": "flights (figure 4.2, table 4.1)",
    "adult_random_50": "Adult-randomised, batches of 50 (figure 4.3)",
    "adult_random_200": "Adult-randomised, batches of 200 (figure 4.4, table 4.2)",
    "adult_sorted_50": "Adult-ordered, batches of 50 (figure 4.5)",
    "adult_sorted_200": "Adult-ordered, batches of 200 (figure 4.6, table 4.3)",
}


def judged() -> list[dict[str, Any]]:
    """What figures 3.4, 3.5, 3.9 to 3.11 and 4.1 to 4.6 claim, by what other benchmarks have recorded."""
    claims = []
    for name, figure in (("nyc", "3.9"), ("circles", "3.10"), ("circles-deletion", "3.11")):
        found = results_of(f"spatial-error-{name}")
        for other in ("baseline 2", "baseline 3"):
            pairs = [
                (found[f"{e} every_step"]["mean"]["small"], found[f"{e} {other}"]["mean"]["small"])
                for e in ("0.5", "1", "2")
            ]
            claims.append(
                _claim(f"as printed: PHDStream (every step) beats {other}, {name} (figure {figure})", pairs)
            )
    for name, rows in results_of("spatial_t0").items():
        at = {(row["t0"], row["method"]): float(np.mean(row["over_time"]["small"])) for row in rows}
        times = sorted({t0 for t0, _ in at})
        early, late = ((at[t0, "every_step"], at[t0, "baseline 3"]) for t0 in (times[0], times[-1]))
        claims.append(
            _claim(f"as printed: started early, PHDStream beats baseline 3, {name} (figure 3.5)", [early])
        )
        claims.append(
            _claim(f"as printed: started late, baseline 3 beats PHDStream, {name} (figure 3.5)", [late[::-1]])
        )
    sweep = results_of("sweep_spatial")["table"]
    errors_of = {
        (row["value"], row["stream"], row["epsilon"]): row["small"]
        for row in sweep
        if row["knob"] in ("default", "counter")
    }
    pairs = [
        (errors_of["default", stream, e], error)
        for (value, stream, e), error in errors_of.items()
        if value == "block"
    ]
    claims.append(
        _claim(
            "as printed: in PHDStream the simple counter beats the block counter (section 3.6.8, counters)",
            pairs,
        )
    )
    over = results_of("counters_over_time")["measured"]
    first, last = ({name: values[at] for name, values in over.items()} for at in (0, -1))
    claims.append(_claim("as printed: at first the simple counter is best, in the end the block counter (figure 3.4)",
                         [(first["simple"], first["block"]), (first["block"], first["binary"]), (last["block"], last["simple"])]))  # fmt: skip
    for name, words in TABLES.items():
        for epsilon in ("0.5", "1", "2", "4"):
            ours, theirs = (
                recorded(f"tabular_{name}_{method}_{epsilon}_s1") for method in ("every_step", "baseline")
            )
            if ours is not None and theirs is not None:
                pairs = [(ours["results"][error], theirs["results"][error]) for error in ERRORS]
                claims.append(
                    _claim(
                        f"as printed: Algorithm 14 beats Algorithm 13 in most errors, ε = {epsilon}, {words}",
                        pairs,
                        at_least=3,
                    )
                )
    return claims


def results_of(name: str) -> Any:
    """The results recorded under this name."""
    found = recorded(name)
    if found is None:
        raise SystemExit(f"{name} is judged, and was not measured: run the benchmark that records it")
    return found["results"]


def judge() -> None:
    """Record what the other benchmarks say about the figures."""
    claims = judged()
    record(
        "kumar_figures", {"from": "the results of spatial, sweeps, counters and tabular"}, {"claims": claims}
    )
    print(
        *(f"{'holds' if c['holds'] else 'DOES NOT HOLD'}: {c['claim']}: {c['numbers']}" for c in claims),
        sep="\n",
    )


PARTS: dict[str, Callable[[], None]] = {
    "sensitivity": sensitivity,
    "land": land,
    "counters": counters,
    "trips": trips,
    "figures": judge,
}


def main() -> None:
    """Run the parts that are named, or those without a result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--steps", type=int, help="stop the tables of ``counters`` after so many steps")
    options = parser.parse_args()
    for part in options.parts or [p for p in PARTS if not (RESULTS / f"kumar_{p}.json").exists()]:
        if part == "counters":
            counters(options.steps)
        else:
            PARTS[part]()


if __name__ == "__main__":
    main()
