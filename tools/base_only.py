"""What an environment with the base alone can do, and what it says where an extra is missing.

Run by path, with the interpreter of such an environment (``python -m benchmarks.install`` makes one);
``--block`` runs the same walk where the extras are installed, by refusing to import them.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# What each extra brings.
BRINGS = {
    "tabular": ("mbi", "jax"),
    "dask": ("dask", "distributed"),
    "spark": ("pyspark",),
    "report": ("matplotlib", "jinja2"),
    "excel": ("openpyxl",),
    "audit": ("sklearn", "threadpoolctl"),
    "ml": ("sklearn", "threadpoolctl"),
    "h3": ("h3",),
    "polars": ("polars",),
    "notebook": ("folium", "mapclassify"),
    "movingpandas": ("movingpandas",),
}


class Blocked:
    """An importer that has none of the extras."""

    names = frozenset(name for names in BRINGS.values() for name in names)

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> None:
        """Refuse what an extra brings."""
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _rides(places: Any) -> Any:
    """Trips of two points each, half an hour long."""
    import pandas as pd

    return pd.DataFrame(places, columns=["lon", "lat"]).assign(
        trip_id=[number // 2 for number in range(len(places))],
        time=pd.date_range("2026-03-02", periods=len(places), freq="30min"),
    )


def calls() -> list[tuple[str, str, Callable[[], Any]]]:
    """Everything public that needs an extra: which, its name, and how to call it."""
    import numpy as np
    import pandas as pd

    import synthgeo as sg

    budget, city = sg.PrivacyBudget(1.0), sg.BoxDomain(8.4, 47.3, 8.7, 47.5, crs="EPSG:4326")
    stream = sg.PHDStream(domain=city, budget=budget, settings=sg.PointSettings(max_depth=4))
    points = stream.update(np.random.default_rng(1).uniform((8.4, 47.3), (8.7, 47.5), (50, 2)))
    people = pd.DataFrame({"a": ["x", "y"] * 40, "b": ["y", "x"] * 40})
    schema = sg.Schema({name: sg.Categorical(["x", "y"]) for name in people})
    table = sg.TabularSynthesizer(schema=schema, budget=budget, progress=False).fit(people).sample(50)
    ends = np.random.default_rng(1).uniform((8.4, 47.3), (8.7, 47.5), (60, 2, 2))
    rides = _rides(ends.reshape(-1, 2))
    fitted = sg.TrajectorySynthesizer(domain=city, budget=budget, settings=sg.TripSettings(max_depth=4)).fit(
        rides
    )
    trips = fitted.sample(10)
    checked = sg.TrajectorySynthesizer(domain=city, budget=budget).check(rides)
    series = sg.series.release_series(np.arange(10), mechanism="lpa", budget=budget)
    return [
        (
            "tabular",
            "mbi",
            lambda: sg.TabularSynthesizer.from_options(schema=schema, budget=budget, estimator="mbi"),
        ),
        ("report", "points.plot", points.plot),
        ("report", "trips.plot", trips.plot),
        ("report", "series.plot", series.plot),
        ("report", "plan.plot", lambda: sg.plan(stream, rows=50, steps=1, repeats=1).plot()),
        ("report", "check.plot", checked.plot),
        ("report", "sg.report", lambda: sg.report(None, points, "page.html", public=True)),
        ("excel", "publish", lambda: points.publish("folder", formats=("xlsx",))),
        ("ml", "pmse", lambda: sg.evaluate(people, table, metrics=["pmse"])),
        ("ml", "ml_efficacy", lambda: sg.evaluate(people, table, metrics=["ml_efficacy"])),
        ("h3", "H3Domain", lambda: sg.H3Domain(resolution=5, within=city)),
        ("h3", "trips.od", lambda: trips.od(8)),
        ("polars", "to_polars", points.to_polars),
        ("notebook", "explore", points.explore),
        ("movingpandas", "to_movingpandas", trips.to_movingpandas),
    ]  # fmt: skip


def commands() -> list[tuple[str, str]]:
    """Every command that needs an extra."""
    box = "--bounds 8.4,47.3,8.7,47.5 --crs EPSG:4326 --epsilon 1"
    clusters = [("dask", "--scheduler tcp://127.0.0.1:1"), ("spark", "--spark local[1]")]
    spending = [
        f"stream run run points.csv {box}",
        "table stream run people.csv --schema schema.json --epsilon 1",
        f"trips fit rides.csv {box} --out model",
        f"trips run run rides.csv {box}",
    ]
    return [
        *((extra, f"{command} {option}") for command in spending for extra, option in clusters),
        ("h3", f"stream run run points.csv {box} --h3 6"),
        ("report", "demo --quick --out demo"),
        ("report", f"plan --rows 50 --picture plan.png stream run run points.csv {box}"),
        ("report", "report points --public --out page.html"),
        ("excel", "publish points --to folder --formats xlsx"),
        ("ml", "evaluate people.model --real people.csv --metric pmse"),
    ]


def prepare() -> None:
    """Files for the commands, a run and a model, in the working folder."""
    import numpy as np
    import pandas as pd

    import synthgeo as sg

    draw = np.random.default_rng(1).uniform((8.4, 47.3), (8.7, 47.5), (120, 2))
    places = pd.DataFrame(draw, columns=["lon", "lat"])
    places.to_csv("points.csv", index=False)
    _rides(draw).to_csv("rides.csv", index=False)
    people = pd.DataFrame({"a": ["x", "y"] * 40, "b": ["y", "x"] * 40})
    people.to_csv("people.csv", index=False)
    schema = sg.Schema({name: sg.Categorical(["x", "y"]) for name in people})
    schema.save("schema.json")
    box = "--bounds 8.4,47.3,8.7,47.5 --crs EPSG:4326 --epsilon 1"
    for command in (
        f"stream run points points.csv {box}",
        "table fit people.csv --schema schema.json --epsilon 1 --out people.model",
    ):
        code, said = told(command)
        if code:
            sys.exit(f"synthgeo {command} fails without extras: {said}")


def told(command: str) -> tuple[int, str]:
    """The exit code of a command, and what it says on standard error."""
    from synthgeo.cli.app import run

    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = run(command.split())
    return code, said.getvalue()


def wrong() -> list[str]:
    """Walk over everything; what does not name its extra in one line, or leaves something behind."""
    from synthgeo import ConfigError

    found = []
    for extra, name, call in calls():
        try:
            call()
            found.append(f"{name} works without the extra {extra!r}")
        except ConfigError as problem:
            if not names_extra(str(problem), extra):
                found.append(f"{name}: {problem}")
        except Exception as problem:  # noqa: BLE001 - whatever it is, it is not what should be said
            found.append(f"{name}: {type(problem).__name__}: {problem}")
    prepare()
    before = here()
    for extra, command in commands():
        code, said = told(command)
        if code != 3 or not names_extra(said, extra):
            found.append(f"synthgeo {command}: exit code {code}, {said!r}")
        if here() != before:
            found.append(f"synthgeo {command} leaves {sorted(here() - before)}")
            before = here()
    return found


def here() -> set[str]:
    """What the working folder holds."""
    return {path.name for path in Path().iterdir()}


def names_extra(said: str, extra: str) -> bool:
    """Whether a message is one line that says what to install."""
    lines = said.strip().splitlines()
    return len(lines) == 1 and f"pip install 'synthgeo[{extra}]'" in lines[0]


def first_example() -> str:
    """README's first example."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def main() -> None:
    """Run README's first example and the walk in an empty folder; one line for each thing that is wrong."""
    if "--block" in sys.argv[1:]:
        sys.meta_path.insert(0, Blocked())  # type: ignore[arg-type]
    warnings.filterwarnings("ignore", "the noise exceeds the signal")
    example = first_example()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})  # noqa: S102 - our own page
        if not Path("check-ins", "points.parquet").exists():
            sys.exit("README's first example published nothing")
        found = wrong()
        if found:
            sys.exit("\n".join(found))
        uses = len(calls()) + len(commands())
        print(f"README's first example works, and {uses} uses of extras say what to install")


if __name__ == "__main__":
    main()
