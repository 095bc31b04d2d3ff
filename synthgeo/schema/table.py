"""The public facts about a table: its columns, their values, and combinations that cannot exist.

>>> schema = Schema({"age": Numeric(0, 100, bins=4), "sex": Categorical(["F", "M"])})
>>> schema.sizes
{'age': 4, 'sex': 2}
>>> schema.encode({"age": np.array([30, 99]), "sex": np.array(["M", "F"], dtype=object)}).tolist()
[[1, 1], [3, 0]]
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from synthgeo.errors import ConfigError, SynthGeoError
from synthgeo.schema.columns import (
    Attribute,
    Categorical,
    Chunk,
    Codes,
    Column,
    Location,
    Numeric,
    Ordinal,
    location_from_json,
)
from synthgeo.schema.datetime import DateTime
from synthgeo.sources.chunk import refuse

_MOST_RULE_CELLS = 10**7


@dataclass(frozen=True, eq=False)
class Rule:
    """Which combinations of some attributes can exist: ``allowed`` has one axis per attribute."""

    attributes: tuple[str, ...]
    allowed: NDArray[np.bool_]


class Schema:
    """Columns by name, and the combinations of their values that cannot exist.

    ``impossible`` lists structural zeros: each entry maps two or more columns to a value, or a list of
    values, that do not occur together. ``depends`` lists functional dependencies: each entry is ``(fine,
    coarse, mapping)``, where ``mapping`` gives the value of ``coarse`` for every value of ``fine``. All
    of this is public knowledge: it must not be read off the private data. Rows that contradict it are
    refused."""

    def __init__(
        self,
        columns: Mapping[str, Column],
        *,
        impossible: Sequence[Mapping[str, Any]] = (),
        depends: Sequence[tuple[str, str, Mapping[Any, Any]]] = (),
    ) -> None:
        if not isinstance(columns, Mapping) or not columns:
            raise ConfigError("a schema needs at least one column")
        for name, column in columns.items():
            if not isinstance(name, str) or not name:
                raise ConfigError(f"column names must be text, got {name!r}")
            if not isinstance(column, Column):
                raise ConfigError(
                    f"column {name!r}: expected Categorical, Ordinal, Numeric, DateTime or Location"
                )
        self.columns: dict[str, Column] = dict(columns)
        self.impossible = [dict(entry) for entry in impossible]
        self.depends = [(fine, coarse, dict(mapping)) for fine, coarse, mapping in depends]
        inputs = [given for name, column in self.columns.items() for given in column.inputs(name)]
        if len(set(inputs)) != len(inputs):
            raise ConfigError(f"two columns of the schema read the same data: {sorted(inputs)}")
        self.inputs = inputs
        if not self.pending_bins:
            _ = self.rules  # a rule that makes no sense is refused here, not at the first batch

    @property
    def pending_bins(self) -> list[str]:
        """Numeric columns whose bins are still to be found."""
        return [n for n, c in self.columns.items() if isinstance(c, Numeric) and c.edges is None]

    @cached_property
    def attributes(self) -> tuple[Attribute, ...]:
        """The coded dimensions of the table, in order."""
        pending = self.pending_bins
        if pending:
            raise ConfigError(
                f"column {pending[0]!r} has bins='auto': give its bins, or use TabularSynthesizer"
            )
        found = [attribute for name, column in self.columns.items() for attribute in column.attributes(name)]
        names = [attribute.name for attribute in found]
        if len(set(names)) != len(names):
            raise ConfigError(f"attribute names clash: {sorted(names)}")
        return tuple(found)

    @property
    def kinds(self) -> dict[str, str]:
        """What is asked of each column of the data."""
        return {given: column.reads for name, column in self.columns.items() for given in column.inputs(name)}

    @property
    def sizes(self) -> dict[str, int]:
        """How many codes each attribute has."""
        return {attribute.name: attribute.size for attribute in self.attributes}

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """Which combinations can exist, as arrays over codes."""
        rules = []
        for name, column in self.columns.items():
            allowed = column.allowed(name)
            if allowed is not None:
                rules.append(Rule(tuple(a.name for a in column.attributes(name)), allowed))
        rules += [self._impossible(entry) for entry in self.impossible]
        rules += [self._depends(*entry) for entry in self.depends]
        return tuple(rules)

    def _empty_rule(self, names: Sequence[str]) -> tuple[tuple[str, ...], NDArray[np.bool_]]:
        for name in names:
            if name not in self.columns:
                raise ConfigError(f"a rule names column {name!r}, which the schema does not have")
            if len(self.columns[name].attributes(name)) != 1:
                raise ConfigError(f"a rule cannot name column {name!r}: it has several attributes")
        order = [a.name for a in self.attributes]
        found = sorted(
            (self.columns[name].attributes(name)[0] for name in names), key=lambda a: order.index(a.name)
        )
        shape = [a.size for a in found]
        if int(np.prod(shape, dtype=object)) > _MOST_RULE_CELLS:
            raise ConfigError(f"a rule over {list(names)} has more than {_MOST_RULE_CELLS} combinations")
        return tuple(a.name for a in found), np.ones(shape, dtype=bool)

    def _impossible(self, entry: Mapping[str, Any]) -> Rule:
        if len(entry) < 2:
            raise ConfigError(f"an impossible combination needs at least two columns, got {dict(entry)!r}")
        names, allowed = self._empty_rule(list(entry))
        masks = [self.columns[name].matching(name, entry[name])[name] for name in names]
        allowed[np.ix_(*masks)] = False
        return Rule(names, allowed)

    def _depends(self, fine: str, coarse: str, mapping: Mapping[Any, Any]) -> Rule:
        names, allowed = self._empty_rule([fine, coarse])
        view = allowed if names == (fine, coarse) else allowed.T
        mapped = np.zeros(view.shape[0], dtype=bool)
        for value, image in mapping.items():
            rows = self.columns[fine].matching(fine, value)[fine]
            view[rows] = self.columns[coarse].matching(coarse, image)[coarse]
            mapped |= rows
        if getattr(self.columns[fine], "missing", False):
            mapped[-1] = True  # a missing fine value says nothing about the coarse one
        if not mapped.all():
            raise ConfigError(f"the dependency of {coarse!r} on {fine!r} leaves out values of {fine!r}")
        return Rule(names, allowed)

    def encode(self, chunk: Chunk) -> Codes:
        """Codes of a chunk of columns, one row per row; ``InputError`` names the column and row of a bad
        value.
        """
        parts = [column.encode(name, chunk) for name, column in self.columns.items()]
        codes = np.concatenate(parts, axis=1)
        position = {attribute.name: i for i, attribute in enumerate(self.attributes)}
        for rule in self.rules:
            good = rule.allowed[tuple(codes[:, position[name]] for name in rule.attributes)]
            others = ", ".join(repr(name) for name in rule.attributes[1:])
            problem = f"holds a combination with {others} that the schema calls impossible"
            refuse(~good, rule.attributes[0], problem)
        return codes

    def decode(self, codes: Codes, rng: np.random.Generator) -> pd.DataFrame:
        """A frame for codes. What a code leaves open (where in a bin, in a cell, in an hour) is drawn
        from ``rng``.
        """
        out: dict[str, Any] = {}
        at = 0
        for name, column in self.columns.items():
            width = len(column.attributes(name))
            out.update(column.decode(name, codes[:, at : at + width], rng))
            at += width
        return pd.DataFrame(out)

    def matching(self, given: Mapping[str, Any]) -> dict[str, NDArray[np.bool_]]:
        """Which codes of each attribute a set of conditions accepts."""
        accepted: dict[str, NDArray[np.bool_]] = {}
        for name, wanted in given.items():
            if name not in self.columns:
                raise ConfigError(f"given names column {name!r}, which the schema does not have")
            accepted.update(self.columns[name].matching(name, wanted))
        return accepted

    def with_column(self, name: str, column: Column) -> Schema:
        """The same schema with one column replaced."""
        return Schema({**self.columns, name: column}, impossible=self.impossible, depends=self.depends)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a file that people can edit."""
        out: dict[str, Any] = {"columns": {name: column.to_json() for name, column in self.columns.items()}}
        if self.impossible:
            out["impossible"] = self.impossible
        if self.depends:
            out["depends"] = [
                {"fine": fine, "coarse": coarse, "mapping": [[a, b] for a, b in mapping.items()]}
                for fine, coarse, mapping in self.depends
            ]
        return out

    @classmethod
    def from_json(cls, source: Mapping[str, Any] | str | os.PathLike[str]) -> Schema:
        """The schema that ``to_json`` wrote: the values, their text, or the path of a file that holds
        them.
        """
        try:
            if isinstance(source, Mapping):
                value: Any = source
            elif isinstance(source, str) and source.lstrip().startswith("{"):
                value = json.loads(source)
            else:
                value = json.loads(Path(source).read_text())
            if "draft" in value:  # written by ``synthgeo table schema --values``
                raise ConfigError(f"not a schema yet: {value['draft']}")
            columns = {name: _named(name, entry) for name, entry in value["columns"].items()}
            depends = [
                (d["fine"], d["coarse"], dict(map(tuple, d["mapping"]))) for d in value.get("depends", [])
            ]
            return cls(columns, impossible=value.get("impossible", []), depends=depends)
        except OSError as problem:
            raise ConfigError(f"cannot read the schema {source}: {problem.strerror}") from problem
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as problem:
            raise ConfigError(f"not a schema: {type(problem).__name__} {problem}") from problem

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``to_json`` to a file."""
        Path(path).write_text(json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n")

    def fingerprint(self) -> str:
        """A short hash of the schema, for provenance."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"Schema({', '.join(f'{name}: {column.kind}' for name, column in self.columns.items())})"


def _named(name: str, value: Any) -> Column:
    """The column, or an error that says which one is wrong."""
    try:
        return column_from_json(value)
    except SynthGeoError as problem:
        raise ConfigError(f"column {name!r}: {problem}") from problem
    except KeyError as problem:
        raise ConfigError(f"column {name!r}: {problem} is not given") from problem
    except (TypeError, AttributeError, ValueError) as problem:
        raise ConfigError(f"column {name!r}: not the facts of a column ({problem})") from problem


def column_from_json(value: Mapping[str, Any]) -> Column:
    """The column whose ``to_json`` gave this."""
    kind = value.get("type")
    rest = {key: item for key, item in value.items() if key != "type"}
    if kind == "categorical":
        return Categorical(rest.pop("values"), **rest)
    if kind == "ordinal":
        return Ordinal(rest.pop("values"), **rest)
    if kind == "numeric":
        return Numeric(rest.pop("low"), rest.pop("high"), **rest)
    if kind == "datetime":
        return DateTime(rest.pop("start"), rest.pop("end"), **rest)
    if kind == "location":
        return location_from_json(value)
    raise ConfigError(f"unknown type of column {kind!r}")


__all__ = ["Attribute", "Categorical", "DateTime", "Location", "Numeric", "Ordinal", "Rule", "Schema"]
