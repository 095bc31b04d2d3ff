"""A census-like table over time: people arrive, are counted, and leave again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from synthgeo import validate
from synthgeo.arrays import Floats, Ints
from synthgeo.simulate.city import generator, timestamp

if TYPE_CHECKING:
    from synthgeo.schema import Schema


REGIONS = ("Harbour", "Old Town", "Hill", "Mill", "North", "Valley")
SEXES = ("F", "M")
EDUCATION = ("none", "primary", "secondary", "college", "university")
OCCUPATIONS = ("none", "care", "craft", "farming", "office", "sales", "science", "transport")
STATUS = ("single", "married", "divorced", "widowed")
HOUSEHOLDS = (1, 2, 3, 4, 5, 6)
INCOME_LIMIT = 150_000

# Where people settle, at the beginning and at the end of the stream.
_REGION_SHARES = np.array([[0.10, 0.22, 0.12, 0.20, 0.16, 0.20], [0.32, 0.16, 0.16, 0.12, 0.14, 0.10]])
# Education of adults by region: rows add up to 1.
_EDUCATION = np.array(
    [
        [0.02, 0.10, 0.33, 0.28, 0.27],
        [0.02, 0.14, 0.40, 0.26, 0.18],
        [0.01, 0.05, 0.24, 0.28, 0.42],
        [0.05, 0.24, 0.48, 0.16, 0.07],
        [0.04, 0.20, 0.46, 0.20, 0.10],
        [0.05, 0.26, 0.46, 0.16, 0.07],
    ]
)
# Occupation by education, for the working age: columns as in OCCUPATIONS.
_OCCUPATION = np.array(
    [
        [0.40, 0.08, 0.12, 0.16, 0.02, 0.08, 0.00, 0.14],
        [0.22, 0.12, 0.20, 0.12, 0.06, 0.12, 0.00, 0.16],
        [0.12, 0.14, 0.24, 0.05, 0.17, 0.16, 0.01, 0.11],
        [0.08, 0.16, 0.12, 0.02, 0.34, 0.16, 0.08, 0.04],
        [0.07, 0.12, 0.03, 0.01, 0.32, 0.09, 0.35, 0.01],
    ]
)
# Median pay a year, by occupation.
_WAGE = np.array([0.0, 31_000, 34_000, 24_000, 39_000, 30_000, 58_000, 32_000])


def census(
    people: int = 20_000,
    *,
    steps: int = 24,
    initial: float = 0.3,
    leave: float = 0.01,
    start: Any = "2020-01-01",
    seed: int,
) -> pd.DataFrame:
    """A register of residents, month by month: who arrives (``op`` +1) and who leaves (``op`` -1).

    Of ``people`` in all, a share ``initial`` is there at step 0 and the rest arrives evenly. Each month a
    resident leaves with probability ``leave``; the deletion repeats the record. Attributes depend on each
    other (region with education, education with occupation and age, all with income) and drift: later
    arrivals are younger, better paid and settle by the harbour.

    Columns: ``step``, ``time`` (first of the month), ``op``, ``person_id``, ``region``, ``age`` (0-99),
    ``sex``, ``education``, ``occupation``, ``status``, ``household`` (1-6), ``income`` (0-150,000).
    ``census_schema()`` describes the last eight. Sorted by step; no person leaves in the month of arrival.
    """
    rng = generator(seed)
    people, steps = validate.whole(people, "people", low=1), validate.whole(steps, "steps", low=1)
    initial = validate.share(initial, "initial", one=True)
    leave = validate.share(leave, "leave", zero=True)
    begin = timestamp(start)
    arrive = np.zeros(people, dtype=np.int64)
    if steps > 1:
        later = rng.random(people) >= initial
        arrive[later] = rng.integers(1, steps, int(later.sum()))
    arrive.sort()
    stay = rng.geometric(leave, people) if leave > 0 else np.full(people, steps)
    frame = _people(arrive / max(1, steps - 1), rng)
    frame.insert(0, "step", arrive)
    frame.insert(1, "op", np.int64(1))
    frame.insert(2, "person_id", np.arange(people))
    gone = frame.assign(step=arrive + stay, op=np.int64(-1))
    gone = gone[gone["step"] < steps]
    frame = pd.concat([frame, gone]).sort_values("step", kind="stable", ignore_index=True)
    month = np.datetime64(begin.to_datetime64(), "M") + frame["step"].to_numpy()
    frame.insert(1, "time", month.astype("datetime64[us]"))
    return frame


def census_schema() -> Schema:
    """The public facts about ``census``: values, bounds and bins."""
    from synthgeo.schema import Categorical, Numeric, Ordinal, Schema

    return Schema(
        {
            "region": Categorical(list(REGIONS)),
            "age": Numeric(0, 100, bins=20, integer=True),
            "sex": Categorical(list(SEXES)),
            "education": Ordinal(list(EDUCATION)),
            "occupation": Categorical(list(OCCUPATIONS)),
            "status": Categorical(list(STATUS)),
            "household": Ordinal(list(HOUSEHOLDS)),
            "income": Numeric(0, INCOME_LIMIT, bins=15, integer=True),
        }
    )


def _people(late: Floats, rng: np.random.Generator) -> pd.DataFrame:
    """Records of people who arrive at ``late`` (0 the beginning, 1 the end of the stream)."""
    count = late.size
    region = _draw(_REGION_SHARES[0] + late[:, None] * (_REGION_SHARES[1] - _REGION_SHARES[0]), rng)
    young = rng.random(count) < 0.35 + 0.25 * late
    age = np.where(young, rng.gamma(9.0, 3.0, count), rng.normal(50, 20, count) - 6 * late)
    age = np.clip(age, 0, 99).astype(np.int64)
    sex = (rng.random(count) < 0.49 + 0.02 * (region == 3)).astype(np.int64)

    education = _draw(_EDUCATION[region], rng)
    reached = np.select([age < 6, age < 13, age < 19, age < 23], [0, 1, 2, 3], default=4)
    education = np.minimum(education, reached)  # nobody has a degree before the age for it
    occupation = _draw(_OCCUPATION[education], rng)
    care = (sex == 0) & (occupation == 2) & (rng.random(count) < 0.6)
    occupation = np.where(care, 1, occupation)
    occupation = np.where((age < 16) | ((age >= 67) & (rng.random(count) < 0.9)), 0, occupation)

    married = np.clip((age - 20) / 25, 0, 0.7)
    status = _draw(
        np.stack(
            [1 - married - 0.25 * married, married, 0.15 * married, np.where(age > 60, 0.3, 0.02) * married],
            axis=1,
        ),
        rng,
    )
    status = np.where(age < 18, 0, status)
    household = 1 + rng.poisson(np.where(age < 18, 2.4, np.where(status == 1, 1.5, 0.5)), count)

    experience = 1 + 0.012 * np.clip(age - 20, 0, 35)
    pay = _WAGE[occupation] * experience * (0.8 + 0.1 * education) * np.where(sex == 1, 1.08, 1.0)
    pay *= (1 + 0.15 * late) * np.exp(rng.normal(0, 0.3, count))
    pension = np.where((age >= 67) & (occupation == 0), 14_000 + 4_000 * education, 0.0)
    income = np.clip(pay + pension, 0, INCOME_LIMIT - 1).astype(np.int64)
    return pd.DataFrame(
        {
            "region": np.array(REGIONS, dtype=object)[region],
            "age": age,
            "sex": np.array(SEXES, dtype=object)[sex],
            "education": np.array(EDUCATION, dtype=object)[education],
            "occupation": np.array(OCCUPATIONS, dtype=object)[occupation],
            "status": np.array(STATUS, dtype=object)[status],
            "household": np.clip(household, 1, HOUSEHOLDS[-1]),
            "income": income,
        }
    )


def _draw(shares: Floats, rng: np.random.Generator) -> Ints:
    """One category for each row of unnormalised shares."""
    reach = np.cumsum(shares, axis=1)
    found: Ints = (reach < rng.random(len(shares))[:, None] * reach[:, -1:]).sum(axis=1)
    return found


# Households with their persons, and a panel of persons who answer every month.

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
