"""Draws a second: our exact samplers against OpenDP's, in one run. ``python -m benchmarks.noise``"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks._common import record, seconds
from synthgeo.privacy.noise import SystemNoise
from synthgeo.privacy.selection import exponential_mechanism, permute_and_flip

DRAWS = 1_000_000
SCALES = (1.0, 10.0, 1000.0)


def opendp_laplace(scale: float, draws: int) -> float:
    """Seconds for ``draws`` of OpenDP's vector Laplace over integers."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    laplace = dp.m.make_laplace(*space, scale=scale)
    zeros = [0] * draws
    return seconds(lambda: laplace(zeros), repeat=1)


def repeatedly(times: int, work: Callable[[], Any]) -> None:
    for _ in range(times):
        work()


def main() -> None:
    """Print the table and write ``benchmarks/results/noise.json``."""
    noise = SystemNoise()
    results: dict[str, list[dict[str, float]]] = {"laplace": [], "gaussian": [], "calls": [], "selection": []}
    for scale in SCALES:
        ours = seconds(partial(noise.discrete_laplace, scale, DRAWS))
        theirs = opendp_laplace(scale, DRAWS)
        row = {"scale": scale, "ours_s": ours, "opendp_s": theirs, "ratio": theirs / ours}
        results["laplace"].append(row)
        print(f"Laplace, scale {scale:g}: {ours:.3f} s, OpenDP {theirs:.2f} s, ratio {theirs / ours:.0f}")
    for sigma in SCALES:
        ours = seconds(partial(noise.discrete_gaussian, sigma, DRAWS))
        results["gaussian"].append({"sigma": sigma, "ours_s": ours})
        print(f"Gaussian, sigma {sigma:g}: {ours:.3f} s")
    for size in (1, 10, 100, 1000, 10_000):
        calls = max(10, 20_000 // size)
        total = seconds(partial(repeatedly, calls, partial(noise.discrete_laplace, 3.0, size)))
        results["calls"].append({"size": size, "microseconds": total / calls * 1e6})
        print(f"one call for {size} draws: {total / calls * 1e6:.0f} µs")
    for candidates in (10, 1000, 100_000):
        scores = np.linspace(0, 20, candidates)
        row = {"candidates": candidates}
        for mechanism in (exponential_mechanism, permute_and_flip):
            choose = partial(mechanism, scores, epsilon=1.0, sensitivity=1.0, noise=noise)
            total = seconds(partial(repeatedly, 20, choose))
            row[mechanism.__name__ + "_us"] = total / 20 * 1e6
        results["selection"].append(row)
        print(", ".join(f"{key} {value:.0f}" for key, value in row.items()))
    record("noise", {"draws": DRAWS, "noise": "operating system entropy, so no seed"}, results)


if __name__ == "__main__":
    main()
