"""``synthgeo membership``: does a release give away who was in the data?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from synthgeo.cli.evaluate import NOTICE, REFUTED, What, named_columns, real_data, release_of
from synthgeo.cli.options import Json, X, XyCrs, Y
from synthgeo.cli.output import emit, show_facts


def membership(
    what: What,
    members: Annotated[
        list[str], typer.Option("--members", help="Private records that the release was made from; globs.")
    ],
    others: Annotated[
        list[str],
        typer.Option("--others", help="Records of the same kind that were kept back from it; globs."),
    ],
    confidence: Annotated[
        float, typer.Option("--confidence", help="Of the interval that is reported.")
    ] = 0.99,
    x: X = None,
    y: Y = None,
    xy_crs: XyCrs = None,
    as_json: Json = False,
) -> None:
    """Attack a release by the distance of records to the closest synthetic one, beside what its ε allows.

    For the curator only: it reads private data. Exit code 9: the attack does better than ε allows.
    """
    from synthgeo.auditing.membership import attack_release

    release, named = release_of(what)
    named |= named_columns(x, y, xy_crs)
    inside, outside = (_records(patterns, release, named) for patterns in (members, others))
    columns = {} if release.product == "table" else _left(named, inside)
    result = attack_release(release, inside, outside, confidence=confidence, **columns)
    low, high = result.interval
    if as_json:
        emit(
            {
                "notice": NOTICE,
                "advantage": result.advantage,
                "interval": [low, high],
                "confidence": confidence,
                "allowed": result.allowed,
                "members": result.members,
                "others": result.non_members,
                "violates": result.violates,
            }
        )
    else:
        show_facts(
            f"membership advantage: {result.advantage:.3f}",
            {
                "between": f"{low:.3f} and {high:.3f}, with confidence {confidence:g}",
                "epsilon allows": "nothing was claimed"
                if result.allowed is None
                else f"{result.allowed:.3f}",
                "records": f"{result.members} members, {result.non_members} others",
                "notice": NOTICE,
            },
        )
    if result.violates:
        raise typer.Exit(REFUTED)


def _records(patterns: list[str], release: Any, named: dict[str, str]) -> Any:
    return real_data(patterns, release, **({} if release.product == "table" else named))


def _left(named: dict[str, str], data: Any) -> dict[str, str]:
    """``real_data`` has already read coordinates whose columns were named."""
    known = {"x", "y", "crs"} & set(named) and {"x", "y"} <= set(data)
    return {"x": "x", "y": "y"} if known else {}
