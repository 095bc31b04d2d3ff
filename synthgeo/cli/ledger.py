"""``synthgeo ledger``: what all products of one dataset have spent together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from synthgeo.cli.options import Delta, Epsilon, Json, budget_of
from synthgeo.cli.output import emit, show_table, words
from synthgeo.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="What all products of one dataset have spent together.")
Where = Annotated[Path, typer.Argument(help="The ledger's SQLite file.")]


@app.command()
def create(
    path: Where,
    dataset: Annotated[str, typer.Option("--dataset", help="Name of the dataset that it guards.")],
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    refuse_repeats: Annotated[
        bool,
        typer.Option("--refuse-repeats", help="Refuse a second fit of the same product on the same data."),
    ] = False,
) -> None:
    """Make a ledger; --epsilon and --delta are the cap, the most that all products may spend together."""
    from synthgeo.privacy.ledger import Ledger, OnRepeat

    if path.exists():
        raise ConfigError(f"{path} exists already")
    on_repeat: OnRepeat = "refuse" if refuse_repeats else "record"
    with Ledger.open(path, dataset=dataset, cap=budget_of(epsilon, delta), on_repeat=on_repeat) as made:
        print(f"{path}: ledger of {made.dataset!r}, cap {words(made.cap)}")


@app.command()
def show(path: Where, as_json: Json = False) -> None:
    """List every charge, the sum, and what is left under the cap."""
    from synthgeo.privacy.ledger import Ledger

    if not path.exists():
        raise ConfigError(f"there is no ledger {path}")
    with Ledger.open(path, read_only=True) as found:
        count = found.verify()
        if as_json:
            emit(
                {
                    "dataset": found.dataset,
                    "cap": found.cap.to_dict(),
                    "spent": None if found.spent is None else found.spent.to_dict(),
                    "remaining": None if found.remaining is None else found.remaining.to_dict(),
                    "entries": [
                        {
                            "number": entry.number,
                            "time": entry.time,
                            "product": entry.product,
                            "budget": entry.budget.to_dict(),
                            "unit": entry.unit.describe(),
                            "covers": entry.covers,
                            "repeats": entry.repeats,
                            "version": entry.version,
                        }
                        for entry in found.entries
                    ],
                }
            )
            return
        rows = [
            (
                entry.number,
                entry.time,
                entry.product,
                words(entry.budget),
                entry.unit.describe(),
                entry.covers,
                entry.repeats,
            )
            for entry in found.entries
        ]
        if count:
            show_table(["number", "time", "product", "spent", "protects", "covers", "repeats"], rows)
        left = words(found.remaining)
        print(f"{found.dataset}: spent {words(found.spent)} of {words(found.cap)}, left {left}")
