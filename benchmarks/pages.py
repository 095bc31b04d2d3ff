"""``python -m benchmarks.pages`` draws the pictures of docs/benchmarks.md and brings the figures and tables of every
page up to date (see ``benchmarks.figures``). Pages are written by hand around them.
"""

from __future__ import annotations

from benchmarks import figures
from benchmarks._plots import draw_all


def refresh() -> list[str]:
    """Draw the pictures and write every page whose figures have changed; their names."""
    draw_all()
    changed = []
    for path in figures.pages():
        text = path.read_text()
        fresh = figures.refreshed(text)
        if fresh != text:
            path.write_text(fresh)
            changed.append(path.name)
    return changed


if __name__ == "__main__":
    print("wrote", ", ".join(refresh()) or "nothing: all is up to date")
