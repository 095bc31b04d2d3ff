"""The tables of docs/benchmarks.md on trips over time and on their attributes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks._markdown import folded, load, machine, table, table_of

PLACES = ("sf", "manhattan", "city")


def over_time(place: str) -> list[str]:
    """Every month by every method, and what of the one-off's excess over the floor is left."""
    result = load(f"trip_streams_{place}")
    if result is None:
        return []
    found, config = result["results"], result["config"]
    facts = ", ".join(f"{name} {value}" for name, value in config.items())
    rows = [[name, share] for name, share in found["of_excess"].items()]
    lines = [
        f"({facts}; {machine(result)})",
        "",
        *table(["method, from the third on", "of the one-off's excess"], rows),
    ]
    closed = [row for row in found["table"] if "closed" in row and row["month"] in (6, 8)]
    if closed:
        shares = [[row["month"], row["method"], row["closed"], row["closed_really"]] for row in closed]
        lines += table(["month", "method", "trips through the street", "really"], shares)
    return [*lines, *folded("every month", table_of(found["table"]))]


def attributes() -> list[str]:
    """New York's taxis with fare, distance, passengers and payment."""
    result = load("trip_attributes")
    if result is None:
        return []
    return [f"({machine(result)})", "", *table_of(result["results"]["table"])]


BLOCKS: dict[str, Callable[[], list[str]]] = {
    **{f"trip streams {place}": partial(over_time, place) for place in PLACES},
    "trip attributes": attributes,
}
