"""One register of metrics, and ``evaluate``, which runs the ones that fit a release. For the curator only.

Evaluation reads the private data again, so its results are **not private**: they are for whoever holds the
data, to decide whether a release is good enough. What may be published about a release's accuracy is
``release.expected_error()``, which knows the noise and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from synthgeo import validate
from synthgeo.errors import ConfigError

Product = Literal["points", "table", "trips"]
Compute = Callable[[Any, Any], dict[str, float]]


@dataclass(frozen=True)
class Metric:
    """What a number means: which way is good, between which ends, what it needs, and where it comes from."""

    name: str
    product: Product
    goal: Literal["small", "large"]
    range: tuple[float, float]
    needs: str
    reference: str
    by_default: bool = True


_METRICS: dict[str, Metric] = {}
_COMPUTE: dict[Product, list[tuple[frozenset[str], Compute]]] = {"points": [], "table": [], "trips": []}


def register(metrics: Sequence[Metric], compute: Compute) -> None:
    """Add metrics that one function computes together: ``compute(real, release)`` gives a value for each
    name.
    """
    if not metrics or len({metric.product for metric in metrics}) != 1:
        raise ConfigError("register metrics of one product at a time")
    for metric in metrics:
        if metric.name in _METRICS:
            raise ConfigError(f"there is a metric {metric.name!r} already")
    _METRICS.update({metric.name: metric for metric in metrics})
    _COMPUTE[metrics[0].product].append((frozenset(metric.name for metric in metrics), compute))


def available(product: Product | None = None) -> pd.DataFrame:
    """What ``sg.evaluate`` can compute, for all products or for one."""
    rows = [vars(metric) for metric in _METRICS.values() if product in (None, metric.product)]
    return pd.DataFrame(rows, columns=list(Metric.__annotations__))


def evaluate(
    real: Any,
    release: Any,
    metrics: Sequence[str] | None = None,
    *,
    repeats: int = 5,
    confidence: float = 0.95,
    floor: bool = True,
) -> pd.DataFrame:
    """Compare a release with the private data it stands for. **For the curator only: the result is not
    private.**

    ``real`` is what the release describes: the points that are there now, the table, the trips. The
    synthetic data is drawn anew ``repeats`` times from the same released model; ``low`` and ``high`` are a
    confidence interval for the mean over draws (Student's t). They cover the randomness of sampling, not
    that of the noise, which was drawn once and for all. Metrics that are dear, or need an extra, are computed
    where they are asked for by name (``sg.metrics.available()``). For tables and trips ``floor`` is
    the same metric between two random halves of the real data: no release of that many rows is expected to
    beat it.
    """
    product: Product | None = getattr(release, "product", None)
    if not isinstance(product, str) or product not in _COMPUTE:  # a frame has a method of that name
        raise ConfigError("evaluate takes a release as a synthesizer made it, not one read back from files")
    known = {name for names, _ in _COMPUTE[product] for name in names}
    usual = {name for name in known if _METRICS[name].by_default}
    wanted = usual if metrics is None else set(metrics)
    if unknown := wanted - known:
        raise ConfigError(f"no metric {min(unknown)!r} for {product}; there are {', '.join(sorted(known))}")
    validate.whole(repeats, "repeats", low=1)
    validate.share(confidence, "confidence")
    draws = [release, *(release.redraw(turn) for turn in range(1, repeats))]
    values: dict[str, list[float]] = {}
    floors: dict[str, float] = {}
    for names, compute in _COMPUTE[product]:
        if names & wanted:
            if floor and product == "table":
                from synthgeo.evaluation.tables import halves

                floors |= compute(*halves(real, release.schema))
            if floor and product == "trips":
                from synthgeo.evaluation.rides import TripHalf

                floors |= compute(*TripHalf.of(real, release))
            for draw in draws:
                for name, value in compute(real, draw).items():
                    if name in wanted:
                        values.setdefault(name, []).append(value)
    rows = [
        _row(_METRICS[name], np.array(found), confidence) | ({"floor": floors[name]} if floors else {})
        for name, found in values.items()
    ]
    frame = pd.DataFrame(rows)
    frame.attrs["notice"] = "for the curator only: computed from private data"
    return frame


def _row(metric: Metric, values: np.ndarray, confidence: float) -> dict[str, Any]:
    mean, half = float(values.mean()), math.nan
    if values.size > 1:
        from scipy.stats import t

        half = float(
            t.ppf(0.5 + confidence / 2, values.size - 1) * values.std(ddof=1) / math.sqrt(values.size)
        )
    return {
        "metric": metric.name,
        "value": mean,
        "low": mean - half,
        "high": mean + half,
        "goal": metric.goal,
        "range": metric.range,
        "reference": metric.reference,
    }


def _points(real: Any, release: Any) -> dict[str, float]:
    from synthgeo.domain.coordinates import find_coordinates
    from synthgeo.evaluation.spatial import RangeQueries
    from synthgeo.sources import open_source

    source = open_source(real)
    reader = find_coordinates(source.columns, release.domain, geometry=source.geometry, crs=source.crs)
    xy = reader(source.read(reader.columns))
    xy = xy[release.domain.contains(xy)]
    errors = RangeQueries.draw(release.domain.bounds).error(xy, release.xy)
    total = abs(release.total - len(xy)) / max(len(xy), 1)
    return {f"range_{name}": value for name, value in errors.items()} | {"total": total}


_KUMAR = "Kumar, Differentially Private Synthetic Data Generation of Data Collected Over Time (2024)"
register(
    [
        *(
            Metric(
                f"range_{name}",
                "points",
                "small",
                (0.0, math.inf),
                f"random rectangles of {share} of the area",
                f"{_KUMAR}, 3.6.7",
            )
            for name, share in (("small", "0.01-0.1 %"), ("medium", "0.1-1 %"), ("large", "1-10 %"))
        ),
        Metric(
            "total", "points", "small", (0.0, math.inf), "the number of points", "relative error of the total"
        ),
    ],
    _points,
)


def _trips(real: Any, release: Any) -> dict[str, float]:
    from synthgeo.evaluation.trajectories import trip_scores

    return trip_scores(real, release, domain=release.domain).as_dict()


register(
    [
        Metric(name, "trips", goal, limits, needs, reference)  # type: ignore[arg-type]
        for name, goal, limits, needs, reference in (
            ("se_jsd", "small", (0.0, 1.0), "start and end on a 40x40 grid", f"{_KUMAR}, 5.6.2"),
            ("se_are", "small", (0.0, math.inf), "start and end on a 40x40 grid", f"{_KUMAR}, 5.6.2"),
            ("fp_jsd", "small", (0.0, 1.0), "frequent patterns of 2-5 cells", f"{_KUMAR}, 5.6.2"),
            ("fp_are", "small", (0.0, math.inf), "frequent patterns of 2-5 cells", f"{_KUMAR}, 5.6.2"),
            ("qe", "small", (0.0, math.inf), "trips whose path touches a rectangle", f"{_KUMAR}, 5.6.2"),
            ("tau", "large", (-1.0, 1.0), "popularity of 15x15 cells", "Gursoy et al., AdaTrace (CCS 2018)"),
            (
                "f1",
                "large",
                (0.0, 1.0),
                "frequent patterns on 6x6 cells",
                "Gursoy et al., AdaTrace (CCS 2018)",
            ),
            (
                "trip",
                "small",
                (0.0, 1.0),
                "start and end on a 6x6 grid",
                "Gursoy et al., AdaTrace (CCS 2018)",
            ),
            ("diameter", "small", (0.0, 1.0), "20 buckets of diameter", "Gursoy et al., AdaTrace (CCS 2018)"),
            ("length", "small", (0.0, 1.0), "20 buckets of length", "Gursoy et al., AdaTrace (CCS 2018)"),
        )
    ],
    _trips,
)


def _rides(real: Any, release: Any) -> dict[str, float]:
    from synthgeo.evaluation.rides import ride_errors

    return ride_errors(real, release)


register(
    [
        Metric(name, "trips", "small", limits, f"trips with times: {needs}", "relative error", False)
        for name, limits, needs in (
            ("speed_by_hour", (0.0, math.inf), "the worst hour with over 1 % of trips"),
            ("speed_variation", (0.0, math.inf), "speeds from point to point within a trip"),
            ("half_turns", (0.0, 1.0), "share of trips with a turn over 150 degrees, difference"),
            ("turns_per_km", (0.0, math.inf), "turns over 45 degrees"),
            ("place_hour", (0.0, math.inf), "mutual information of origin zone and hour"),
            ("od_hours", (0.0, 1.0), "zones of 3 km by four hours, total variation"),
        )
    ],
    _rides,
)


def _mobility(real: Any, release: Any) -> dict[str, float]:
    from synthgeo.evaluation.rides import mobility_scores

    return mobility_scores(real, release, domain=release.domain)


register(
    [
        Metric(name, "trips", goal, limits, needs, reference, False)  # type: ignore[arg-type]
        for name, goal, limits, needs, reference in (
            ("density", "small", (0.0, 1.0), "points on a 40x40 grid", "Du et al., LDPTrace (VLDB 2023)"),
            (
                "transitions",
                "small",
                (0.0, 1.0),
                "steps between 15x15 cells",
                "Hu et al., RetraSyn (ICDE 2024)",
            ),
            (
                "hotspots",
                "large",
                (0.0, 1.0),
                "gain of the 20 busiest cells",
                "Hu et al., RetraSyn (ICDE 2024)",
            ),
            (
                "gyration",
                "small",
                (0.0, 1.0),
                "20 buckets of radius of gyration",
                "Cao et al., HOSER (AAAI 2025)",
            ),
            ("flows", "small", (0.0, 2.0), "metres driven on each street", "relative error"),
            ("od_paths", "small", (0.0, math.inf), "paths between the same cells", "Hausdorff distance, m"),
        )
    ],
    _mobility,
)


def _table(real: Any, release: Any) -> dict[str, float]:
    from synthgeo.evaluation.tables import table_scores

    return table_scores(real, release)


register(
    [
        Metric("tv_1way", "table", "small", (0.0, 1.0), "all single columns", "mean total variation"),
        Metric("tv_2way", "table", "small", (0.0, 1.0), "all pairs of columns", "mean total variation"),
        Metric(
            "tv_3way", "table", "small", (0.0, 1.0), "up to 100 triples of columns", "mean total variation"
        ),
        Metric("avg_we", "table", "small", (0.0, 2.0), "all pairs of columns", f"{_KUMAR}, 4.7.3"),
        Metric("max_we", "table", "small", (0.0, 2.0), "all pairs of columns", f"{_KUMAR}, 4.7.3"),
        Metric("avg_rel_we", "table", "small", (0.0, math.inf), "cells with real rows", f"{_KUMAR}, 4.7.3"),
        Metric("max_rel_we", "table", "small", (0.0, math.inf), "cells with real rows", f"{_KUMAR}, 4.7.3"),
        Metric(
            "k_marginal",
            "table",
            "large",
            (0.0, 1000.0),
            "up to 100 triples of columns",
            "NIST Differential Privacy Synthetic Data Challenge (2018)",
        ),
    ],
    _table,
)


def _details(real: Any, release: Any) -> dict[str, float]:
    from synthgeo.evaluation.tables import detail_scores

    return detail_scores(real, release)


def _propensity(real: Any, release: Any) -> dict[str, float]:
    from synthgeo.evaluation.tables import propensity

    return {"pmse": propensity(real, release)}


def _efficacy(real: Any, release: Any) -> dict[str, float]:
    from synthgeo.evaluation.tables import efficacy

    return {"ml_efficacy": efficacy(real, release)}


register(
    [
        Metric(
            "worst_group", "table", "small", (0.0, 1.0), "groups of a hundredth or more", "total variation"
        ),
        Metric(
            "wasserstein", "table", "small", (0.0, math.inf), "numbers and dates", "over the quartiles' range"
        ),
    ],
    _details,
)
register(
    [
        Metric(
            "pmse",
            "table",
            "small",
            (0.0, 1.0),
            "the extra ml",
            "Snoke et al., pMSE (2018)",
            False,
        )
    ],
    _propensity,
)
register(
    [
        Metric(
            "ml_efficacy",
            "table",
            "large",
            (0.0, math.inf),
            "the extra ml",
            "train on synthetic, test on real",
            False,
        )
    ],
    _efficacy,
)
