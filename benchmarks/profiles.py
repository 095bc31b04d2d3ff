"""Where the time goes, for each product: ``python -m benchmarks.profiles [spatial] [trips] [series]``.

The functions that do a named part of the work are wrapped in a clock; a part's time is without that of the
parts inside it, and what no part covers is "the rest". The work runs once before it is measured, so that
nothing is compiled on the clock.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

import numpy as np

import synthgeo as sg
from benchmarks._common import RESULTS, record
from benchmarks.spatial import circles, hotspots, one_step

#: part of the work -> the functions that do it, as (where it is looked up, its name)
Parts = dict[str, list[tuple[Any, str]]]


class Clock:
    """Seconds of each part, its inner parts taken out."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner: list[float] = [0.0]

    def wrap(self, part: str, work: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(work)
        def timed(*arguments: Any, **options: Any) -> Any:
            self._inner.append(0.0)
            start = time.perf_counter()
            try:
                return work(*arguments, **options)
            finally:
                spent = time.perf_counter() - start
                own = spent - self._inner.pop()
                self.seconds[part] = self.seconds.get(part, 0.0) + own
                self._inner[-1] += spent

        return timed

    @contextmanager
    def on(self, parts: Parts) -> Iterator[None]:
        with ExitStack() as stack:
            for part, functions in parts.items():
                for owner, name in functions:
                    stack.enter_context(patch.object(owner, name, self.wrap(part, getattr(owner, name))))
            yield


def profile(case: str, parts: Parts, work: Callable[[], Any]) -> list[dict[str, Any]]:
    """The table of one piece of work, the longest part first."""
    work()
    clock = Clock()
    with clock.on(parts):
        start = time.perf_counter()
        work()
        whole = time.perf_counter() - start
    clock.seconds["the rest"] = whole - sum(clock.seconds.values())
    rows = [
        {"case": case, "part": part, "seconds": spent, "share": spent / whole}
        for part, spent in sorted(clock.seconds.items(), key=lambda item: -item[1])
    ]
    for row in rows:
        print(f"{case:40} {row['part']:45} {row['seconds']:8.3f} s {row['share']:6.1%}", flush=True)
    return rows


def spatial() -> None:
    """A stream of many small steps, and one large step."""
    import streams.spatial.points as points
    from streams.spatial.counted import LeafCounts
    from streams.spatial.structure import Structure
    from synthgeo.hierarchy.cells import Estimate, Partition
    from synthgeo.privacy.noise import SystemNoise

    parts: Parts = {
        "read and count the batch": [(points.PointRecords, "count")],
        "private tree": [(Structure, "grow")],
        "split and merge leaves by released counts": [(Structure, "follow")],
        "counts of the leaves": [(Partition, "totals")],
        "sums over time": [(LeafCounts, "sum_of")],
        "drawing noise": [(SystemNoise, "discrete_laplace"), (SystemNoise, "_bytes")],
        "consistent, non-negative estimate": [(Estimate, "non_negative"), (Estimate, "sums")],
        "rounding": [(points, "unbiased")],
    }
    data = circles(deletion=True)

    def stream() -> None:
        product = sg.PHDStream(domain=data.domain, budget=sg.PrivacyBudget(1.0))
        for batch in data.batches:
            product.update(batch)

    xy = hotspots(10**6, np.random.default_rng(0))
    rows = profile("150 steps of 500 points", parts, stream)
    rows += profile("one step of 10^6 points", parts, lambda: one_step(xy))
    record("profile_spatial", {"epsilon": 1.0}, {"table": rows})


def trips() -> None:
    """Fitting and sampling 5,000 trips over Manhattan, or a made-up city."""
    import trajectories.measure.measured as measuring
    import trajectories.setup as setup
    import trajectories.synthesizer as synthesizer
    import trajectories.walks.sampler as sampling
    from benchmarks.trips import manhattan_roads
    from trajectories.ground.roads import RoadGround
    from trajectories.release import TrajectoryRelease
    from trajectories.walks.bridges import KilledBridge
    from trajectories.walks.traffic_walks import TrafficWalker

    roads = manhattan_roads()
    points = sg.simulate.city_trips(roads, trips=5_000, seed=3, interval=60.0)
    fitting: Parts = {
        "read and clean": [(synthesizer, "read_trips"), (setup, "clean")],
        "match to roads": [(RoadGround, "place")],
        "private cells": [(measuring, "measure_cells")],
        "states and links of the cells": [(RoadGround, "graph")],
        "measure pairs, transitions, lengths, times": [
            (measuring, name)
            for name in ("count_ends", "measure_pairs", "measure_links", "measure_lengths", "measure_times")
        ],
        "calibrate the walks": [(setup, "calibrate")],
        "walks tried while calibrating": [(KilledBridge, "walks"), (TrafficWalker, "walks")],
    }
    drawing: Parts = {
        "conditional walks": [(KilledBridge, "walks")],
        "walks along the traffic": [(TrafficWalker, "walks")],
        "choose ends and walks": [(sampling.TripSampler, "draw")],
        "points on the roads": [(RoadGround, "lines")],
        "times": [(RoadGround, "usual_seconds")],
        "the table of points": [(TrajectoryRelease, "to_pandas")],
    }
    models = [_model(roads) for _ in range(2)]
    waiting = iter(models)
    rows = profile("fit 5,000 trips", fitting, lambda: next(waiting).fit(points))
    rows += profile("sample 5,000 trips", drawing, lambda: models[0].sample(5_000).to_pandas())
    record("profile_trips", {"epsilon": 1.0, "trips": 5_000}, {"table": rows})


def _model(roads: sg.RoadDomain) -> sg.TrajectorySynthesizer:
    return sg.TrajectorySynthesizer(domain=roads, budget=sg.PrivacyBudget(1.0))


def series() -> None:
    """10^5 updates of FAST with a Kalman filter."""
    from streams.scalar.fast import PIDSampler
    from streams.scalar.filters import KalmanFilter
    from synthgeo.privacy.noise import SystemNoise

    values = (1000 + 500 * np.sin(np.arange(100_000) / 50)).round().tolist()
    parts: Parts = {
        "predict and correct": [(KalmanFilter, "predict"), (KalmanFilter, "correct")],
        "when to sample": [(PIDSampler, "feedback")],
        "drawing noise": [(SystemNoise, "discrete_laplace")],
    }

    def run() -> None:
        mechanism = sg.series.FAST(budget=sg.PrivacyBudget(1.0), horizon=len(values), filter="kalman")
        for value in values:
            mechanism.update(value)

    record("profile_series", {"epsilon": 1.0}, {"table": profile("10^5 updates of FAST", parts, run)})


WORK = {"spatial": spatial, "trips": trips, "series": series}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="product", help=f"of {', '.join(WORK)}")
    options = parser.parse_args()
    if unknown := set(options.names) - set(WORK):
        parser.error(f"no profile of {min(unknown)!r}")
    for name in options.names or WORK:
        if options.names or not (RESULTS / f"profile_{name}.json").exists():
            WORK[name]()


if __name__ == "__main__":
    main()
