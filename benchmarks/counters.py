"""How much a bank of 10^5 counters costs beside drawing its noise, and how good each kind of counter is.

Run with ``python -m benchmarks.counters``. The promise: at most three times the cost of the noise alone.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from streams.counters import expected_rmse, make_bank
from synthgeo.privacy.noise import SystemNoise

KINDS = ("simple", "block", "binary", "kary", "hybrid", "unbounded_block", "unbounded_kary")
LIMIT = 3.0


class TimedNoise(SystemNoise):
    """The operating system's noise, with a clock around each call."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.draws = 0

    def discrete_laplace(self, scale: object, size: int | None = None) -> np.ndarray:
        start = time.perf_counter()
        out = super().discrete_laplace(scale, size)
        self.seconds += time.perf_counter() - start
        self.draws += out.size
        return out


def time_bank(kind: str, *, counters: int, steps: int, mixed: bool) -> dict[str, float]:
    """Seconds for ``steps`` updates of a bank, and of that in the noise."""
    noise = TimedNoise()
    bank = make_bank(kind, epsilon=1.0, horizon=365, noise=noise)
    slots = bank.add(counters)
    values = np.ones(counters, dtype=np.int64)
    if mixed:  # ages from 0 to 99, as after many joins
        for age in range(1, 100):
            old = slots[np.arange(counters) % 100 >= age]
            bank.step(old, values[: old.size])
    noise.seconds, noise.draws = 0.0, 0
    start = time.perf_counter()
    for _ in range(steps):
        bank.step(slots, values)
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "noise": noise.seconds,
        "draws": noise.draws,
        "ratio": seconds / noise.seconds,
    }


def main() -> None:
    """Print the two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counters", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    print(f"{options.counters} counters, {options.steps} updates, horizon 365, ε = 1")
    print(f"{'counter':16} {'clocks':6} {'ms/update':>10} {'noise ms':>10} {'draws/update':>13} {'ratio':>6}")
    worst = 0.0
    for kind in KINDS:
        for mixed in (False, True):
            took = time_bank(kind, counters=options.counters, steps=options.steps, mixed=mixed)
            worst = max(worst, took["ratio"])
            clocks = "mixed" if mixed else "equal"
            each = 1000 / options.steps
            print(
                f"{kind:16} {clocks:6} {took['seconds'] * each:10.2f} {took['noise'] * each:10.2f} "
                f"{took['draws'] / options.steps:13.0f} {took['ratio']:6.2f}"
            )
    print(f"worst ratio {worst:.2f}, promised at most {LIMIT:g}: {'kept' if worst <= LIMIT else 'NOT KEPT'}")
    print("\nexpected RMSE of the noisy sum over the horizon, ε = 1 (zCDP: ρ = 0.5)")
    horizons = (30, 100, 365, 1024, 10_000, 65_536, 10**6)
    print(f"{'counter':16}" + "".join(f"{horizon:>10}" for horizon in horizons))
    for kind in (*KINDS, "auto"):
        cells = (expected_rmse(kind, epsilon=1.0, horizon=horizon) for horizon in horizons)
        print(f"{kind:16}" + "".join(f"{cell:10.2f}" for cell in cells))
    cells = (expected_rmse("toeplitz", rho=0.5, horizon=horizon) for horizon in horizons if horizon <= 10_000)
    print(f"{'toeplitz (ρ)':16}" + "".join(f"{cell:10.2f}" for cell in cells))


if __name__ == "__main__":
    main()
