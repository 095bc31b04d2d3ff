"""``sg.report``: one self-contained page, for the curator or for the public."""

from __future__ import annotations

import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from synthgeo.domain.coordinates import coordinates_of
from synthgeo.errors import ConfigError
from synthgeo.evaluation.registry import evaluate
from synthgeo.extras import require
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.privacy.noise import generator
from synthgeo.publishing.statement import statement_json, statement_lines
from synthgeo.reporting import charts
from synthgeo.reporting.columns import coded, relation_blocks, table_block
from synthgeo.state import write_atomic


def report(
    real: Any,
    release: Any,
    path: str | os.PathLike[str],
    *,
    public: bool = False,
    ledger: Any = None,
    title: str = "Synthetic data report",
    repeats: int = 3,
) -> Path:
    """Write one HTML page about a release: no network, nothing beside it.

    ``release`` is a release, a list of them (a stream: the page then shows how the error moved), or a dict
    of either by product name. ``real`` has the same shape, with None where the truth is not at hand. The
    default page shows private data beside synthetic data and is **for the curator only**: its file can be
    read by its owner alone. ``public=True`` takes nothing from ``real`` and holds only what may be
    published; it refuses if any of the releases may not be.
    """
    jinja2 = require("jinja2", extra="report")
    products = release if isinstance(release, dict) else {"Release": release}
    truths = real if isinstance(release, dict) and real is not None else dict.fromkeys(products, real)
    if set(truths) != set(products):
        raise ConfigError(
            f"real and release name different products: {sorted(truths)} and {sorted(products)}"
        )
    builder = Builder(public=public, repeats=repeats)
    lists = {name: value if isinstance(value, list) else [value] for name, value in products.items()}
    blocked = [r for releases in lists.values() for r in releases if not r.releasable]
    if public and blocked:
        why = blocked[0].provenance.get("not_releasable_because", "it is not releasable")
        raise ConfigError(f"a public page holds only what may be published; here {why}")
    for name, releases in lists.items():
        builder.add(name, None if public else truths[name], releases)
    if ledger is not None:
        builder.add_ledger(ledger.show())
    from synthgeo import __version__

    template = files("synthgeo.reporting").joinpath("template.html").read_text(encoding="utf-8")
    page = jinja2.Environment(autoescape=True).from_string(template)
    html = page.render(
        title=title,
        version=__version__,
        public=public,
        releasable=not blocked,
        why_not=blocked[0].provenance.get("not_releasable_because", "") if blocked else "",
        sections=builder.sections,
        maps=json.dumps(builder.maps),  # numbers and base64 only: nothing to escape
    )
    target = Path(path)
    write_atomic(target, html.encode())  # mode 0600
    if public:
        target.chmod(0o644)
    return target


# What each product shows on a report page.

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
            table_block(
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
        block = table_block(
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
        return table_block(title, frame, caption=caption)

    def _points(self, truths: list[Any] | None, releases: list[Any]) -> list[dict[str, Any]]:
        release = releases[-1]
        domain, rng = release.domain, generator(0)
        panels = []
        real = None if truths is None else truths[-1]
        if truths is not None and real is not None:
            # Where the truth of the last step alone is at hand, it stands at every step.
            known = truths if all(truth is not None for truth in truths) else [real]
            found = [coordinates_of(truth, domain) for truth in known]
            shown = charts.points(found, domain.bounds, rng)
            panels.append(
                {"kind": "true", "caption": f"true points (private), {shown['shown']:,} shown", **shown}
            )
        shown = charts.points([one.xy for one in releases], domain.bounds, rng)
        caption = f"synthetic points, {shown['shown']:,} of {shown['total']:,} shown"
        panels.append({"kind": "synthetic", "caption": caption, **shown})
        cells = release.partition
        layers = {"base": charts.paths([domain.outline()], domain.bounds, most=60_000)}
        if domain.kind != "roads" and cells.size <= 20_000:
            layers["cells"] = charts.paths(
                hierarchy_of(domain).geometry(cells.prefix, cells.bits), domain.bounds, most=20_000
            )
        good = "A good result: the same places dense and empty on both maps."
        alone = (
            "Each cell of the partition holds its released count of points, spread evenly over the domain."
        )
        frame = charts.frame_of(domain.bounds, geographic=domain.crs is not None and domain.crs.is_geographic)
        block = self.map(panels, frame, good if real is not None else alone, **layers)
        labels = [str(one.provenance.get("window_start", f"step {one.step}")) for one in releases]
        labels = [label.replace("T", " ").removesuffix(":00").removesuffix(" 00:00") for label in labels]
        return [block | {"steps": labels if len(releases) > 1 else []}]

    def _table(self, real: Any, release: Any) -> list[dict[str, Any]]:
        synthetic = release.data
        columns = {
            str(name): coded(synthetic[name], None if real is None else real[name])
            for name in synthetic.columns
        }
        drawn: list[dict[str, Any]] = []
        for name, column in columns.items():
            shares = column.shares()
            series = [charts.Series("synthetic", shares[0])]
            error, caption = 0.0, name
            if real is not None:
                series.insert(0, charts.Series("true", shares[1], true=True))
                error = sum(abs(a - b) for a, b in zip(*shares, strict=True)) / 2
                caption = f"{name}: {error:.1%} apart; bars of a pair should have the same height."
            svg = charts.bars(column.labels, series, x=name, y="share of rows")
            drawn.append({"svg": svg, "caption": caption, "name": name.lower(), "error": error})
        drawn.sort(key=lambda chart: -chart["error"])  # stable: as in the table where nothing is compared
        title = f"Columns ({len(drawn)})" + ("" if real is None else ", worst first")
        return [
            {"kind": "charts", "title": title, "charts": drawn, "search": len(drawn) > 6},
            *relation_blocks(columns, compared=real is not None),
            table_block("Synthetic rows", synthetic.head(8)),
        ]

    def _trips(self, real: Any, release: Any) -> list[dict[str, Any]]:
        from synthgeo.reporting.columns import trip_blocks

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


def _scores(scores: pd.DataFrame) -> dict[str, Any]:
    shown = scores[["metric", "value", "low", "high", "goal"]].rename(
        columns={"low": "95 % low", "high": "95 % high"}
    )
    return table_block("Error against the private data", shown, caption=_CURATOR)
