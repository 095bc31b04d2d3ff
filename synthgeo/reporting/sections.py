"""What each product shows on a report page."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from synthgeo.canonical import word_of
from synthgeo.domain.coordinates import coordinates_of
from synthgeo.evaluation.registry import evaluate
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.privacy.noise import generator
from synthgeo.publishing.statement import statement_json, statement_lines
from synthgeo.reporting import charts, maps

# Bars of a chart.
_BINS = 12
# What of a ledger's entry is public.
_PUBLIC_ENTRY = ("number", "time", "product", "epsilon", "delta", "unit", "version")
_CURATOR = "Computed from private data: for the curator only."


class Builder:
    """Collects sections and the geometry that their maps need."""

    def __init__(self, *, public: bool, repeats: int) -> None:
        self.public = public
        self.repeats = repeats
        self.sections: list[dict[str, Any]] = []
        self.maps: dict[str, Any] = {}

    def add(self, name: str, real: Any, releases: list[Any]) -> None:
        """One product: its data, its error, its statement."""
        release = releases[-1]
        truths = real if isinstance(real, list) else [None] * (len(releases) - 1) + [real]
        if release.product == "points":
            blocks = self._points(None if self.public else truths, releases)
        else:
            show = {"table": self._table, "trips": self._trips}[release.product]
            blocks = show(None if self.public else truths[-1], release)
        if len(releases) > 1:
            blocks.append(self._over_time(truths, releases))
        if not self.public and truths[-1] is not None:
            scores = evaluate(truths[-1], release, repeats=self.repeats)
            blocks.append(_scores(scores))
        error = release.expected_error()
        blocks.append(
            _table(
                "Expected error from the noise alone",
                error,
                caption="Uses no private data, so it may be published.",
            )
        )
        blocks.append(
            {
                "kind": "statement",
                "lines": statement_lines(release.provenance),
                "json": statement_json(release.provenance),
            }
        )
        lead = f"{release.provenance['mechanism']}, as of step {release.step}."
        self.sections.append({"title": name, "lead": lead, "blocks": blocks})

    def add_ledger(self, entries: pd.DataFrame) -> None:
        """What was spent on which product, when.

        Whether an entry repeats another says whether two fits read the same records, exactly: that is for
        the curator only.
        """
        if self.public:
            entries = entries[[name for name in _PUBLIC_ENTRY if name in entries]]
        block = _table(
            "Spent so far", entries, caption="One dataset, several products: their budgets add up."
        )
        self.sections.append(
            {"title": "Ledger", "lead": "What was spent on what, and when.", "blocks": [block]}
        )

    def map(
        self, panels: list[dict[str, Any]], frame: dict[str, Any], caption: str, **layers: Any
    ) -> dict[str, Any]:
        """Panels that pan and zoom together, over common layers."""
        name = f"map{len(self.maps)}"
        self.maps[name] = {
            "frame": frame,
            "panels": [{k: v for k, v in panel.items() if k != "caption"} for panel in panels],
            **layers,
        }
        minx, miny, maxx, maxy = frame["bounds"]
        ratio = (maxy - miny) / max((maxx - minx) * frame["stretch"], 1e-12)
        height = int(np.clip(640 * ratio, 320, 960))
        return {
            "kind": "map",
            "id": name,
            "panels": panels,
            "height": height,
            "caption": caption,
            "cells": bool(layers.get("cells")),
        }

    @staticmethod
    def table(title: str, frame: pd.DataFrame, *, caption: str = "") -> dict[str, Any]:
        """A table of a frame's rows."""
        return _table(title, frame, caption=caption)

    def _points(self, truths: list[Any] | None, releases: list[Any]) -> list[dict[str, Any]]:
        release = releases[-1]
        domain, rng = release.domain, generator(0)
        panels = []
        real = None if truths is None else truths[-1]
        if truths is not None and real is not None:
            # Where the truth of the last step alone is at hand, it stands at every step.
            known = truths if all(truth is not None for truth in truths) else [real]
            found = [coordinates_of(truth, domain) for truth in known]
            shown = maps.points(found, domain.bounds, rng)
            panels.append(
                {"kind": "true", "caption": f"true points (private), {shown['shown']:,} shown", **shown}
            )
        shown = maps.points([one.xy for one in releases], domain.bounds, rng)
        caption = f"synthetic points, {shown['shown']:,} of {shown['total']:,} shown"
        panels.append({"kind": "synthetic", "caption": caption, **shown})
        cells = release.partition
        layers = {"base": maps.paths([domain.outline()], domain.bounds, most=60_000)}
        if domain.kind != "roads" and cells.size <= 20_000:
            layers["cells"] = maps.paths(
                hierarchy_of(domain).geometry(cells.prefix, cells.bits), domain.bounds, most=20_000
            )
        good = "A good result: the same places dense and empty on both maps."
        alone = (
            "Each cell of the partition holds its released count of points, spread evenly over the domain."
        )
        frame = maps.frame_of(domain.bounds, geographic=domain.crs is not None and domain.crs.is_geographic)
        block = self.map(panels, frame, good if real is not None else alone, **layers)
        labels = [str(one.provenance.get("window_start", f"step {one.step}")) for one in releases]
        return [block | {"steps": labels if len(releases) > 1 else []}]

    def _table(self, real: Any, release: Any) -> list[dict[str, Any]]:
        synthetic = release.data
        drawn: list[dict[str, Any]] = []
        for column in synthetic.columns:
            labels, shares = _shares(synthetic[column], None if real is None else real[column])
            series = [charts.Series("synthetic", shares[0])]
            error, caption = 0.0, str(column)
            if real is not None:
                series.insert(0, charts.Series("true", shares[1], true=True))
                error = sum(abs(a - b) for a, b in zip(*shares, strict=True)) / 2
                caption = f"{column}: {error:.1%} apart; bars of a pair should have the same height."
            svg = charts.bars(labels, series, x=str(column), y="share of rows")
            drawn.append({"svg": svg, "caption": caption, "name": str(column).lower(), "error": error})
        drawn.sort(key=lambda chart: -chart["error"])  # stable: as in the table where nothing is compared
        title = f"Columns ({len(drawn)})" + ("" if real is None else ", worst first")
        return [
            {"kind": "charts", "title": title, "charts": drawn, "search": len(drawn) > 6},
            _table("Synthetic rows", synthetic.head(8)),
        ]

    def _trips(self, real: Any, release: Any) -> list[dict[str, Any]]:
        from synthgeo.reporting.trips import trip_blocks

        blocks: list[dict[str, Any]] = trip_blocks(self, real, release)
        return blocks

    def _over_time(self, truths: list[Any], releases: list[Any]) -> dict[str, Any]:
        steps = [release.step for release in releases]
        totals = [charts.Series("synthetic", [float(release.total) for release in releases])]
        drawn = [
            {
                "svg": charts.lines(steps, totals, x="step", y="released rows or points"),
                "caption": "The released total over time; it should move as the data did.",
            }
        ]
        known = [(r, t) for r, t in zip(releases, truths, strict=True) if t is not None]
        if not self.public and len(known) > 1:
            tables = [
                evaluate(truth, release, repeats=1).set_index("metric")["value"] for release, truth in known
            ]
            names = [name for name in tables[0].index if name != "total"][:3]
            series = [charts.Series(name, [float(table[name]) for table in tables]) for name in names]
            drawn.append(
                {
                    "svg": charts.lines([r.step for r, _ in known], series, x="step", y="error"),
                    "caption": f"Error over time: small and level is good. {_CURATOR}",
                }
            )
        return {"kind": "charts", "title": "Over time", "charts": drawn}


def _shares(synthetic: pd.Series, real: pd.Series | None) -> tuple[list[str], list[list[float]]]:
    """Shares of the values (or of twelve bins) of a column, in both tables.

    Values are compared in their canonical form: 4, 4.0 and "4" are one.
    """
    both = [synthetic] if real is None else [synthetic, real]
    if pd.api.types.is_datetime64_any_dtype(synthetic):
        times = [pd.to_datetime(column, errors="coerce", utc=True).dropna() for column in both]
        numbers = [column.astype("datetime64[s, UTC]").astype(np.int64).to_numpy(float) for column in times]
        counts, edges = _binned(numbers)
        labels = [f"{pd.Timestamp(edge, unit='s'):%Y-%m-%d}" for edge in edges[:-1]]
    elif pd.api.types.is_numeric_dtype(synthetic) and synthetic.nunique() > _BINS:
        numbers = [pd.to_numeric(column, errors="coerce").dropna().to_numpy(float) for column in both]
        counts, edges = _binned(numbers)
        labels = [f"{edge:.3g}" for edge in edges[:-1]]
    else:
        texts = [
            column.astype(object).map(lambda v: "(missing)" if pd.isna(v) else word_of(v)) for column in both
        ]
        labels = list(texts[0].value_counts().index[:_BINS])
        counts = [text.value_counts().reindex(labels, fill_value=0).to_numpy() for text in texts]
    return labels, [list(count / max(len(column), 1)) for count, column in zip(counts, both, strict=True)]


def _binned(numbers: list[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    """Counts in bins over the range of the first, which is synthetic."""
    edges = np.histogram_bin_edges(numbers[0], bins=_BINS)
    return [np.histogram(column, edges)[0] for column in numbers], edges


def _scores(scores: pd.DataFrame) -> dict[str, Any]:
    shown = scores[["metric", "value", "low", "high", "goal"]].rename(
        columns={"low": "95 % low", "high": "95 % high"}
    )
    return _table("Error against the private data", shown, caption=_CURATOR)


def _table(title: str, frame: pd.DataFrame, *, caption: str = "") -> dict[str, Any]:
    numeric = [bool(pd.api.types.is_numeric_dtype(dtype)) for dtype in frame.dtypes]
    rows = [[_cell(value) for value in row] for row in frame.itertuples(index=False)]
    return {
        "kind": "table",
        "title": title,
        "caption": caption,
        "columns": list(frame.columns),
        "rows": rows,
        "numeric": numeric,
    }


def _cell(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return "–" if np.isnan(value) else f"{value:.4g}"
    return str(value)
