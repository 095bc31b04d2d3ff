"""``status`` and ``plan`` of a release file: what was spent and will be, what error to expect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from synthgeo.release_file.asked import in_words, ledger_of, withdrawn
from synthgeo.release_file.products import budget_of, domain_of

if TYPE_CHECKING:
    import pandas as pd

    from synthgeo.planning import Plan
    from synthgeo.release_file.file import ReleaseFile


@dataclass(frozen=True)
class Status:
    """What a colleague needs to know of a release. ``facts`` has it in words; ``steps`` has a row a step."""

    facts: dict[str, str]
    numbers: dict[str, Any]
    steps: pd.DataFrame | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        steps = None if self.steps is None else self.steps.to_dict(orient="records")
        return {**self.numbers, "facts": self.facts, "steps": steps}

    def __str__(self) -> str:
        width = max(map(len, self.facts))
        return "\n".join(f"{name:<{width}}  {value}" for name, value in self.facts.items())


def status(file: ReleaseFile, *, now: Any = None) -> Status:
    """What is released, until when, what it cost, what comes next, what is left."""
    facts, numbers, steps = _of_run(file, now) if file.has_steps else _of_model(file)
    facts = {"release": file.title or file.kind, "folder": str(file.folder), **facts}
    gone = withdrawn(file)
    if gone is not None:
        facts["may be published"] = f"NO: {gone}"
        numbers["withdrawn"] = gone
    numbers = {"kind": file.kind, "folder": str(file.folder), **numbers}
    with ledger_of(file, read_only=True) as ledger:
        if ledger is not None:
            left = ledger.remaining
            facts["left in the ledger"] = (
                f"{in_words(left) if left is not None else 'no cap'} of {ledger.dataset}"
            )
            numbers["ledger"] = {"dataset": ledger.dataset, "left": None if left is None else left.to_dict()}
    return Status(facts, numbers, steps)


def _of_model(file: ReleaseFile) -> tuple[dict[str, str], dict[str, Any], None]:
    from synthgeo.release_file.once import made

    budget, found = budget_of(file), made(file)
    spent = None if found is None else budget
    facts = {
        "released": "nothing yet" if found is None else f"once, in {found.name}",
        "spent": in_words(spent),
        "the next run": f"spends {in_words(budget)}" if found is None else "does nothing, and spends nothing",
    }
    numbers = {"released": found is not None, "spent": None if spent is None else spent.to_dict()}
    return facts, numbers, None


def _of_run(file: ReleaseFile, now: Any) -> tuple[dict[str, str], dict[str, Any], Any]:
    from streams.runs.run import StreamRun

    if not (file.folder / "ledger.sqlite").exists():
        budget = budget_of(file)
        facts = {
            "released": "nothing yet",
            "spent": "nothing",
            "the first step": f"spends {in_words(budget)}",
        }
        return facts, {"released": False, "spent": None}, None
    with StreamRun.view(file.folder) as run:
        report, steps = run.report(), run.steps
    last = None if not len(report.steps) else str(report.steps["batch"].iloc[-1])
    facts = {
        "protects": report.unit.describe(),
        "released": f"{steps} steps, the last {last}" if last else "nothing yet",
        **_until(file, now),
        "spent": f"{in_words(report.spent)} of {in_words(report.budget)}",
        "the next step": _next_cost(report),
        **_year(file, report),
        "interrupted": f"{report.interrupted} times, before anything was released",
        "may be published": {True: "yes", False: f"NO: {report.why_not}", None: "not known"}[
            report.releasable
        ],
    }
    return facts, {"released": steps > 0, **report.to_dict()}, report.steps


def _until(file: ReleaseFile, now: Any) -> dict[str, str]:
    """Until when, and when the next window is complete."""
    from synthgeo.release_file.steps import next_window

    if not file.has_windows:
        return {}
    text = next_window(file, now)
    return {} if text is None else {"next": text}


def _next_cost(report: Any) -> str:
    """What the next step spends."""
    if report.unit.per is not None:
        return f"at most {in_words(report.budget)} in each period of {report.unit.per}, for one person"
    if report.spent is None:
        return f"spends {in_words(report.budget)}"
    left = report.budget.epsilon - report.spent.epsilon
    return (
        "spends nothing more"
        if left <= 1e-9 * report.budget.epsilon
        else f"spends of the ε = {left:g} that is left"
    )


def _year(file: ReleaseFile, report: Any) -> dict[str, str]:
    """What one who takes part for a year pays at most."""
    per, epsilon = report.unit.per, report.budget.epsilon
    if per is None:
        return {"a year costs one of them": f"at most ε = {epsilon:g}, however many steps"}
    from synthgeo.errors import ConfigError
    from synthgeo.sources.grid import windows_in

    try:
        length = (
            windows_in("1YS", per) if isinstance(per, str) else windows_in("1YS", str(file.time.every)) / per
        )
    except ConfigError:
        return {}
    return {"a year costs one of them": f"at most ε = {epsilon * length:g}: {length:g} periods"}


def verify(file: ReleaseFile) -> int:
    """Read every stored release; how many are as the run remembers them."""
    from streams.runs.run import StreamRun
    from synthgeo.release_file.released import model

    if not file.has_steps:
        model(file)  # a model that is damaged does not load
        return 1
    with StreamRun.view(file.folder) as run:
        return run.verify()


def plan(file: ReleaseFile, *, rows: int, steps: int = 1, **options: Any) -> Plan:
    """The error to expect, from public numbers alone."""
    from synthgeo.planning import plan as make

    return make(_planned(file), rows=rows, steps=steps, **options)


def _planned(file: ReleaseFile) -> Any:
    """A product like the file's that a plan can be made for: trips of a run are planned batch by batch, a
    bound per period as one for life, and bins that are to be found are 20 equal ones.
    """
    from dataclasses import replace

    import synthgeo as sg

    product = file.product()
    if isinstance(product, sg.TrajectoryStream):
        chosen: Any = product.settings
        unit = None if not product.unit.is_user else replace(product.unit, per=None)
        product = sg.TrajectorySynthesizer(
            domain=domain_of(file), budget=product.budget, unit=unit, attributes=product.attributes,
            workers=product.workers, settings=replace(chosen, borrow="auto"),
        )  # fmt: skip
    if product.unit.per is not None:
        product = product.clone().set_params(unit=replace(product.unit, per=None))
    schema = product.get_params().get("schema")
    if schema is not None and schema.pending_bins:
        for name in schema.pending_bins:
            facts = {**schema.columns[name].to_json(), "bins": 20}
            schema = schema.with_column(name, sg.Schema.from_json({"columns": {name: facts}}).columns[name])
        product = product.clone().set_params(schema=schema)
    return product
