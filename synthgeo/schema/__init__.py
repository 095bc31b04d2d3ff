"""What the columns of a table can hold: public facts that turn values into codes and back."""

from __future__ import annotations

from synthgeo.schema.columns import Attribute, Categorical, Location, Numeric, Ordinal
from synthgeo.schema.datetime import DateTime
from synthgeo.schema.table import Rule, Schema

__all__ = ["Attribute", "Categorical", "DateTime", "Location", "Numeric", "Ordinal", "Rule", "Schema"]
