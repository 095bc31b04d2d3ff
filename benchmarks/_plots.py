"""The pictures of docs/benchmarks.md, drawn from benchmarks/results."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np

from benchmarks._markdown import DOCS, load, load_all
from benchmarks._page_time import labelled

STREAMS = {
    "circles-deletion": "circles with deletion",
    "circles": "circles",
    "checkins-deletion": "check-ins with deletion",
    "checkins": "check-ins",
    "minneapolis": "Minneapolis",
    "nyc": "New York on roads",
}
CLASSES = ("small", "medium", "large")
COLOURS = {
    "auto": "#0b5cad",
    "every_step": "#d9730d",
    "baseline 1 (not private)": "#8a8a8a",
    "baseline 2": "#3d9970",
    "baseline 3": "#a0306c",
}


def _log_y(axes: Any) -> None:
    """A logarithmic axis with plain numbers at 1, 2 and 5."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _save(figure: Any, name: str) -> None:
    """As PNG with a palette of 64 colours: a few lines need no more, and the file is half as large."""
    import matplotlib.pyplot as plt
    from PIL import Image

    drawn = BytesIO()
    figure.savefig(drawn, dpi=110)
    plt.close(figure)
    Image.open(drawn).convert("RGB").quantize(64).save(DOCS / "img" / name, optimize=True)


def _tidy(axes: Any) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def over_time() -> None:
    """Error of the five methods over time, ε = 1: a column for each stream, a row for each class."""
    import matplotlib.pyplot as plt

    found = {name: load(f"spatial-error-{name}") for name in STREAMS}
    there = {name: result for name, result in found.items() if result is not None}
    if not there:
        return
    figure, grid = plt.subplots(
        3, len(there), figsize=(2.5 * len(there), 6.6), sharex="col", sharey="row", squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for column, (name, result) in enumerate(there.items()):
        for row, kind in enumerate(CLASSES):
            axes = grid[row, column]
            for method, colour in COLOURS.items():
                series = result["results"][f"1 {method}"].get("over_time")
                if series is not None:
                    style = ":" if "not private" in method else "-"
                    axes.plot(series["step"], series[kind], style, color=colour, label=method, lw=1.6)
            _log_y(axes)
            _tidy(axes)
            if row == 0:
                axes.set_title(STREAMS[name], fontsize=11)
            if row == 2:
                axes.set_xlabel("step")
            if column == 0:
                axes.set_ylabel(f"{kind} queries\nmean relative error")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    _save(figure, "bench-over-time.png")


def by_epsilon() -> None:
    """Error against ε, medium queries, mean over time."""
    import matplotlib.pyplot as plt

    there = {name: result for name in STREAMS if (result := load(f"spatial-error-{name}")) is not None}
    if not there:
        return
    figure, grid = plt.subplots(
        1, len(there), figsize=(2.5 * len(there), 3.0), sharey=True, squeeze=False, layout="constrained"
    )
    for axes, (name, result) in zip(grid[0], there.items(), strict=True):
        for method, colour in COLOURS.items():
            values = [
                result["results"][f"{epsilon} {method}"]["mean"]["medium"] for epsilon in ("0.5", "1", "2")
            ]
            style = ":" if "not private" in method else "-"
            axes.plot([0.5, 1, 2], values, style, marker="o", ms=4, color=colour, label=method, lw=1.6)
        axes.set_xscale("log")
        axes.set_xticks([0.5, 1, 2], ["0.5", "1", "2"])
        axes.minorticks_off()
        _log_y(axes)
        axes.set_title(STREAMS[name], fontsize=11)
        axes.set_xlabel("ε")
        _tidy(axes)
    grid[0, 0].set_ylabel("medium queries\nmean relative error")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    _save(figure, "bench-epsilon.png")


def initialisation() -> None:
    """Error over time for several t0, small queries, ε = 1."""
    import matplotlib.pyplot as plt

    result = load("spatial_t0")
    if result is None:
        return
    streams = result["results"]
    figure, grid = plt.subplots(
        len(streams), 4, figsize=(11, 2.3 * len(streams)), sharey="row", sharex="row", squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for row, (name, rows) in enumerate(streams.items()):
        for column, t0 in enumerate(sorted({line["t0"] for line in rows})):
            axes = grid[row, column]
            for line in rows:
                if line["t0"] == t0:
                    series, method = line["over_time"], line["method"]
                    axes.plot(series["step"], series["small"], color=COLOURS[method], label=method, lw=1.6)
            if t0:
                axes.axvspan(0, t0, color="#000000", alpha=0.08, lw=0)
            axes.set_title(f"{STREAMS[name]}, t0 = {t0}", fontsize=10)
            _tidy(axes)
        grid[row, 0].set_ylabel("small queries\nrelative error")
    for axes in grid[-1]:
        axes.set_xlabel("step")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    _save(figure, "bench-t0.png")


def counters() -> None:
    """Error of a counter over time, and what each kind does to a spatial stream."""
    import matplotlib.pyplot as plt

    result, sweep = load("counters_over_time"), load("sweep_spatial")
    if result is None or sweep is None:
        return
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    series = result["results"]
    colours = {"simple": "#0b5cad", "block": "#d9730d", "binary": "#a0306c", "kary": "#3d9970"}
    for kind, values in series["closed_form"].items():
        left.plot(series["step"], values, color=colours[kind], lw=1.4, label=kind)
        left.plot(series["step"][::24], series["measured"][kind][::24], "o", ms=3.5, color=colours[kind])
    left.set_xlabel("step")
    left.set_ylabel("RMSE of the noisy sum, ε = 1")
    left.set_title("one counter that lives 365 steps", fontsize=11)
    left.legend(frameon=False, ncols=2)
    _tidy(left)
    rows = [r for r in sweep["results"]["table"] if r["epsilon"] == 1 and r["knob"] in ("default", "counter")]
    streams = list(dict.fromkeys(row["stream"] for row in rows))
    kinds = ["default", "block", "kary", "binary"]
    for offset, kind in enumerate(kinds):
        heights = [
            next(r["medium"] for r in rows if r["stream"] == s and r["value"] == kind) for s in streams
        ]
        name = "simple" if kind == "default" else kind
        right.bar(
            np.arange(len(streams)) + 0.2 * offset - 0.3, heights, 0.19, color=colours[name], label=name
        )
    _log_y(right)
    right.set_xticks(range(len(streams)), [STREAMS[s] for s in streams], fontsize=9)
    right.set_ylabel("medium queries\nmean relative error")
    right.set_title("a spatial stream whose leaves come and go, ε = 1", fontsize=11)
    _tidy(right)
    _save(figure, "bench-counters.png")


def growth() -> None:
    """Seconds against size, for everything that was grown."""
    import matplotlib.pyplot as plt

    lines: dict[str, list[tuple[float, float]]] = {}
    for name, result in load_all("growth_*").items():
        grows = name.removeprefix("growth_")
        for row in result["results"]["table"]:
            what = row.get("what")
            label = f"{grows}: {what}" if what else grows
            lines.setdefault(label, []).append((row[grows], row["seconds"]))
    if not lines:
        return
    figure, axes = plt.subplots(figsize=(8.5, 4.6), layout="constrained")
    colours = plt.get_cmap("tab10")
    for index, (label, points) in enumerate(lines.items()):
        sizes, seconds = zip(*sorted(points), strict=True)
        axes.plot(sizes, seconds, marker="o", ms=4, lw=1.5, color=colours(index % 10), label=label)
    axes.set(xscale="log", yscale="log", xlabel="size of the work", ylabel="seconds")
    axes.autoscale(enable=False)
    span = np.array([1e1, 1e7])
    axes.plot(span, 3e-7 * span, "--", color="#999999", lw=1, label="proportional")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _tidy(axes)
    _save(figure, "bench-growth.png")


def windows() -> None:
    """Error of each method on datasets of windows, one panel per stream."""
    import matplotlib.pyplot as plt

    result = load("time-windows")
    if result is None:
        return
    found = result["results"]
    colours = {
        "lifetime": "#0b5cad",
        "lifetime, borrow=False": "#7fb2dd",
        "lifetime, borrow=True": "#7fb2dd",
        "deletes": "#d9730d",
        "fresh PrivTree": "#3d9970",
    }
    figure, panels = plt.subplots(1, len(found), figsize=(3.2 * len(found), 3.4), layout="constrained")
    for axes, (name, one) in zip(np.atleast_1d(panels), found.items(), strict=True):
        for place, (method, error) in enumerate(labelled(one).items()):
            at = np.arange(len(CLASSES)) + 0.2 * place - 0.3
            axes.bar(at, [error[c] for c in CLASSES], 0.19, color=colours[method], label=method)
        for place, c in enumerate(CLASSES):
            axes.hlines(one["other windows"][c], place - 0.45, place + 0.45, color="#333333", ls="--", lw=1)
        _log_y(axes)
        axes.set_xticks(range(len(CLASSES)), CLASSES)
        axes.set_title(name.replace(", ", ",\n"), fontsize=10)
        _tidy(axes)
    np.atleast_1d(panels)[0].set_ylabel("mean relative error")
    handles, labels = np.atleast_1d(panels)[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    _save(figure, "bench-windows.png")


def draw_all() -> None:
    """All pictures for which there are results."""
    import matplotlib as mpl

    mpl.use("Agg")
    for work in (over_time, by_epsilon, initialisation, counters, windows, growth):
        work()
