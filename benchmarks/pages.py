"""docs/benchmarks.md, written from benchmarks/results and benchmarks/references.json: no figure is typed by
hand. ``python -m benchmarks.pages`` writes it, draws its pictures, and brings the marked figures of the
other pages up to date (see ``benchmarks.figures``).
"""

from __future__ import annotations

from pathlib import Path

from benchmarks import _page_products as products
from benchmarks import _page_series as series
from benchmarks import _page_spatial as spatial
from benchmarks import _page_verdict as verdict
from benchmarks import figures
from benchmarks._markdown import DOCS, ROOT, load, references
from benchmarks._page_time import time

PAGE = DOCS / "benchmarks.md"


def page() -> str:
    """The text of the page, from whatever results are there."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench` from the files in `benchmarks/results`, each of which holds the machine's facts, versions, settings and seeds; a test compares. "
        "`make bench-quick` runs the short ones in minutes, `make bench` whatever is missing, in hours. "
        "Figures from elsewhere come from `benchmarks/references.json` and are marked *(elsewhere)*.",
        "",
        *verdict.promised(),
        *verdict.lost(),
        *spatial.error(),
        *spatial.defaults(),
        *series.dissertation(),
        *spatial.cost(),
        *time(),
        *products.tables_once(),
        *products.tables(),
        *products.trips(),
        *series.series(),
        *spatial.noise(),
        *spatial.counters(),
        *products.growth(),
        *products.profiles(),
        *products.engines(),
    ]
    return "\n".join(lines).rstrip() + "\n"


def write_page() -> Path:
    """Write the page and its pictures, and bring the other pages' figures up to date."""
    from benchmarks._plots import draw_all

    draw_all()
    PAGE.write_text(page())
    for path in figures.pages():
        text = path.read_text()
        fresh = figures.refreshed(text)
        if fresh != text:
            path.write_text(fresh)
    return PAGE.relative_to(ROOT)


__all__ = ["load", "page", "references", "write_page"]

if __name__ == "__main__":
    print(f"wrote {write_page()}")
