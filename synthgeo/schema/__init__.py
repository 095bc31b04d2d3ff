"""What the columns of a table can hold: public facts that turn values into codes and back."""

from __future__ import annotations

from synthgeo.schema.binned import Binned, Numeric
from synthgeo.schema.columns import Attribute, Categorical, Condition, Identifier, Ordinal
from synthgeo.schema.datetime import Date, DateTime, Duration, TimeOfDay
from synthgeo.schema.location import Location
from synthgeo.schema.rules import BinRule, Dependency, Rule
from synthgeo.schema.table import Schema

__all__ = [
    "Attribute",
    "BinRule",
    "Binned",
    "Categorical",
    "Condition",
    "Date",
    "DateTime",
    "Dependency",
    "Duration",
    "Identifier",
    "Location",
    "Numeric",
    "Ordinal",
    "Rule",
    "Schema",
    "TimeOfDay",
]
