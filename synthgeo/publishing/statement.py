"""The privacy statement in plain words."""

from __future__ import annotations

import json
import math
from typing import Any


def statement_lines(provenance: dict[str, Any]) -> list[tuple[str, str]]:
    """Who is protected, against what, how much, and what is not covered."""
    if not provenance.get("private", True):
        return [
            (
                "Nobody is protected.",
                f"{provenance['mechanism']} makes no privacy promise; it is here for comparison.",
            )
        ]
    epsilon = provenance["budget"]["epsilon"]
    delta = provenance["budget"]["delta"]
    odds = math.exp(min(epsilon, 700.0))  # beyond, floating point ends
    most = 1 / (1 + math.exp(-epsilon))
    factor = f"{odds:.2f}" if odds < 1e6 else f"{odds:.0e}"
    failure = (
        ""
        if delta == 0
        else f" Outside an event of probability at most {delta:g}, which the promise leaves open (δ)."
    )
    return [
        (
            "Who is protected:",
            f"{provenance['unit']}. The promise is the same whether or not it is in the data.",
        ),
        (
            "Against what:",
            "anybody who sees all that was released, whatever else they know or will learn, however they "
            "compute. They may learn facts about the population; what they cannot learn is whether this one "
            "was part of the data, or what it was.",
        ),
        (
            "How much:",
            f"ε = {epsilon:g}. Seeing the releases changes the odds of any guess about one such contribution "
            f"by a factor of at most {factor}: even odds become at most {most:.0%}.{failure}",
        ),
        (
            "What is public:",
            "the domain or schema, the times of the releases, all parameters, and the code. Sampling, "
            "rounding and drawing cost nothing.",
        ),
        ("Noise:", f"{provenance['noise']}."),
        (
            "Answered once:",
            "a ledger sees to it that no copy of the private state answered too; where the curator kept "
            "none, it is the curator's word.",
        ),
    ]


def statement_json(provenance: dict[str, Any]) -> str:
    """The statement as it stands in the files."""
    return json.dumps(provenance, indent=2, ensure_ascii=False)
