"""Households with their persons, and a panel of persons who answer every month."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from synthgeo import validate
from synthgeo.arrays import Floats, Ints
from synthgeo.simulate.checks import generator
from synthgeo.simulate.table import REGIONS, SEXES

if TYPE_CHECKING:
    from synthgeo.schema import Schema

TENURES = ("rented", "owned", "free")
TYPES = ("alone", "couple", "family", "single parent", "shared")
RELATIONS = ("head", "partner", "child", "other")
MOST_PERSONS = 6
_TYPE_SHARES = np.array(
    [
        [0.46, 0.24, 0.14, 0.05, 0.11],
        [0.42, 0.26, 0.17, 0.06, 0.09],
        [0.24, 0.30, 0.36, 0.06, 0.04],
        [0.28, 0.27, 0.32, 0.08, 0.05],
        [0.30, 0.28, 0.30, 0.07, 0.05],
        [0.20, 0.32, 0.38, 0.06, 0.04],
    ]
)
_OWNED = np.array([0.25, 0.35, 0.62, 0.50, 0.48, 0.70])


def households(number: int = 8_000, *, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Households and their persons: two tables that are joined by ``household_id``.

    The first has ``household_id``, ``region``, ``tenure``, ``type`` and ``rent`` (0 where the home is owned);
    the second ``household_id``, ``relation``, ``age``, ``sex`` and ``works``. A household has one to six
    persons, as its type says. ``household_schemas()`` describes both.
    """
    rng = generator(seed)
    number = validate.whole(number, "number", low=1)
    region = rng.choice(len(REGIONS), number, p=[0.18, 0.2, 0.14, 0.16, 0.17, 0.15])
    reach = np.cumsum(_TYPE_SHARES[region], axis=1)
    kind = np.minimum((reach < rng.random(number)[:, None]).sum(axis=1), len(TYPES) - 1)
    owned = rng.random(number) < np.where(kind == 4, 0.05, _OWNED[region])
    tenure = np.where(owned, 1, np.where(rng.random(number) < 0.05, 2, 0))
    more = np.minimum(rng.poisson(0.8, number), 2)
    persons = np.select([kind == 0, kind == 1, kind == 2, kind == 3], [1, 2, 3 + more, 2 + more], 3 + more)
    rent = np.where(tenure == 0, 400 + 180 * persons + 60 * (region < 2) + rng.normal(0, 90, number), 0.0)
    parents = pd.DataFrame(
        {
            "household_id": rng.permutation(10 * number)[:number] + 10**6,
            "region": np.array(REGIONS, dtype=object)[region],
            "tenure": np.array(TENURES, dtype=object)[tenure],
            "type": np.array(TYPES, dtype=object)[kind],
            "rent": np.clip(np.rint(rent / 10) * 10, 0, 2_990).astype(np.int64),
        }
    )
    row = np.repeat(np.arange(number), persons)
    place = np.arange(row.size) - np.repeat(np.cumsum(persons) - persons, persons)
    pair = np.isin(kind, (1, 2))[row]
    relation = np.select([place == 0, (place == 1) & pair, np.isin(kind, (2, 3))[row]], [0, 1, 2], default=3)
    head = np.where(kind == 0, rng.normal(58, 18, number), rng.normal(44, 12, number))
    head = np.where(kind == 4, rng.normal(27, 5, number), head) + np.where(owned, 5, 0)
    spread = np.select([relation == 0, relation == 1, relation == 2], [0.0, 3.0, 7.0], default=4.0)
    middle = head[row] - np.select([relation == 2], [29.0], default=0.0)
    age = np.clip(middle + rng.normal(0, 1, row.size) * spread, np.where(relation == 2, 0, 18), 95)
    works = (age >= 18) & (age < 66) & (rng.random(row.size) < np.where(relation == 1, 0.7, 0.82))
    children = pd.DataFrame(
        {
            "household_id": parents["household_id"].to_numpy()[row],
            "relation": np.array(RELATIONS, dtype=object)[relation],
            "age": age.astype(np.int64),
            "sex": np.array(SEXES, dtype=object)[rng.integers(0, 2, row.size)],
            "works": np.where(works, "yes", "no").astype(object),
        }
    )
    shuffled = rng.permutation(len(children))
    return parents, children.iloc[shuffled].reset_index(drop=True)


def household_schemas() -> tuple[Schema, Schema]:
    """The public facts about both tables of ``households``."""
    from synthgeo.schema import Categorical, Numeric, Schema

    parent = Schema(
        {
            "region": Categorical(list(REGIONS)),
            "tenure": Categorical(list(TENURES)),
            "type": Categorical(list(TYPES)),
            "rent": Numeric(0, 3_000, bins=15, integer=True),
        }
    )
    child = Schema(
        {
            "relation": Categorical(list(RELATIONS)),
            "age": Numeric(0, 100, bins=20, integer=True),
            "sex": Categorical(list(SEXES)),
            "works": Categorical(["yes", "no"]),
        }
    )
    return parent, child


WORK = ("employed", "unemployed", "student", "inactive")
HEALTH = ("good", "fair", "poor")
# From one month to the next, by work.
_MOVES = np.array(
    [[0.965, 0.02, 0.0, 0.015], [0.12, 0.83, 0.02, 0.03], [0.04, 0.01, 0.94, 0.01], [0.03, 0.02, 0.0, 0.95]]
)
_HEALTH_MOVES = np.array([[0.95, 0.04, 0.01], [0.10, 0.84, 0.06], [0.03, 0.07, 0.90]])
_STAYING = np.array([0.985, 0.955, 0.97, 0.98])  # in the panel, by work
_FIRST_MONTH = np.datetime64("2025-01", "M")


def panel(persons: int = 10_000, *, waves: int = 12, seed: int) -> pd.DataFrame:
    """A panel survey: the same persons answer every month, some leave, others join.

    Columns: ``wave`` (from 1), ``time`` (first of the month), ``person_id``, ``region``, ``work``, ``health``
    and ``pay`` (0 without work). Answers change slowly, and together: who loses work loses pay, and leaves
    the panel more often. About as many join as leave. ``panel_schema()`` describes the last four.
    """
    rng = generator(seed)
    persons, waves = validate.whole(persons, "persons", low=1), validate.whole(waves, "waves", low=1)
    ids, next_id = np.arange(persons), persons
    region, work, health, level = _answers(persons, rng)
    out = []
    for wave in range(waves):
        if wave:
            stays = rng.random(ids.size) < _STAYING[work]
            new = rng.poisson(persons * 0.025)
            work, health = _moved(work, _MOVES, rng), _moved(health, _HEALTH_MOVES, rng)
            region = np.where(rng.random(ids.size) < 0.004, rng.integers(0, len(REGIONS), ids.size), region)
            level = level * np.exp(np.where(rng.random(ids.size) < 0.08, rng.normal(0.03, 0.1, ids.size), 0))
            ids = np.concatenate([ids[stays], next_id + np.arange(new)])
            next_id += new
            fresh = _answers(new, rng)
            region, work, health, level = (
                np.concatenate([old[stays], more])
                for old, more in zip((region, work, health, level), fresh, strict=True)
            )
        pay = np.where(work == 0, np.clip(np.rint(level / 10) * 10, 100, 7_990), 0).astype(np.int64)
        out.append(
            pd.DataFrame(
                {
                    "wave": wave + 1,
                    "time": (_FIRST_MONTH + np.timedelta64(wave, "M")).astype("datetime64[us]"),
                    "person_id": ids + 50_000,
                    "region": np.array(REGIONS, dtype=object)[region],
                    "work": np.array(WORK, dtype=object)[work],
                    "health": np.array(HEALTH, dtype=object)[health],
                    "pay": pay,
                }
            )
        )
    return pd.concat(out, ignore_index=True)


def panel_schema() -> Schema:
    """The public facts about ``panel``."""
    from synthgeo.schema import Categorical, Numeric, Ordinal, Schema

    return Schema(
        {
            "region": Categorical(list(REGIONS)),
            "work": Categorical(list(WORK)),
            "health": Ordinal(list(HEALTH)),
            "pay": Numeric(
                0, 8_000, bins=[0, 10, 1000, 1500, 2000, 2500, 3000, 4000, 5000, 8000], integer=True
            ),
        }
    )


def _answers(number: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints, Floats]:
    """Region, work, health and pay of new persons."""
    region = rng.integers(0, len(REGIONS), number)
    work = rng.choice(len(WORK), number, p=[0.62, 0.08, 0.12, 0.18])
    health = np.where(
        work == 3, rng.choice(3, number, p=[0.4, 0.35, 0.25]), rng.choice(3, number, p=[0.72, 0.22, 0.06])
    )
    level = np.exp(rng.normal(7.7, 0.4, number)) * (1 + 0.08 * (region < 3))
    return region, work, health, level


def _moved(state: Ints, moves: Floats, rng: np.random.Generator) -> Ints:
    """Where each goes next."""
    reach = np.cumsum(moves[state], axis=1)
    found: Ints = np.minimum((reach < rng.random(state.size)[:, None]).sum(axis=1), moves.shape[1] - 1)
    return found
