"""A census-like table over time: people arrive, are counted, and leave again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from synthgeo import validate
from synthgeo.arrays import Floats, Ints
from synthgeo.simulate.checks import generator, timestamp

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
