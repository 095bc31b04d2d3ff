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
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from synthgeo.arrays import Bools, Floats
from synthgeo.errors import ConfigError, SynthGeoError
from synthgeo.schema.binned import MOST_DECLARED, Binned, Numeric
from synthgeo.schema.columns import (
    Attribute,
    Categorical,
    Chunk,
    Codes,
    Column,
    Condition,
    Identifier,
    Ordinal,
)
from synthgeo.schema.datetime import Date, DateTime, Duration, TimeOfDay
from synthgeo.schema.location import Location, location_from_json
from synthgeo.schema.rules import (
    MOST_RULE_CELLS,
    BinRule,
    Dependency,
    Equation,
    Relation,
    Rule,
    parse,
)
from synthgeo.sources.chunk import refuse

_DAY = 86_400.0
# How often values inside bins are drawn again before they are moved until they keep a relation.
_REDRAWS = 12

#: Values of a table on their lines, by column: NaN where missing.
Values = dict[str, Floats]


class Schema:
    """Columns by name, and the combinations of their values that cannot exist.

    ``impossible`` lists structural zeros: each entry maps two or more columns to a value, a range (low,
    high) or a list of values that do not occur together. ``depends`` lists functional dependencies: each
    entry is ``(fine, coarse, mapping)``, where ``mapping`` gives the value of ``coarse`` for every value of
    ``fine``. ``relations`` are texts: an order such as ``"start <= end"`` or ``"a + b <= c"``, or a sum such
    as ``"total == fare + tip"``, whose column is not modelled but computed. All of this is public knowledge:
    it must not be read off the private data. Rows that contradict it are refused, and no synthetic row
    does."""

    def __init__(
        self,
        columns: Mapping[str, Column],
        *,
        impossible: Sequence[Mapping[str, Any]] = (),
        depends: Sequence[tuple[str, str, Mapping[Any, Any]]] = (),
        relations: Sequence[str] = (),
    ) -> None:
        if not isinstance(columns, Mapping) or not columns:
            raise ConfigError("a schema needs at least one column")
        for name, column in columns.items():
            if not isinstance(name, str) or not name:
                raise ConfigError(f"column names must be text, got {name!r}")
            if not isinstance(column, Column):
                raise ConfigError(f"column {name!r}: expected a column such as sg.Categorical or sg.Numeric")
        self.columns: dict[str, Column] = dict(columns)
        self.impossible = [_entry(entry) for entry in _listed(impossible, "impossible")]
        self.depends = [_dependency(entry) for entry in _listed(depends, "depends")]
        self.relations = [str(text) for text in _listed(relations, "relations")]
        self._order, self.derived = self._parse()
        inputs = [given for name, column in self.columns.items() for given in column.inputs(name)]
        if len(set(inputs)) != len(inputs):
            raise ConfigError(f"two columns of the schema read the same data: {sorted(inputs)}")
        self.inputs = inputs
        ruled = {name for entry in self.impossible for name in entry}
        ruled |= {name for fine, coarse, _ in self.depends for name in (fine, coarse)}
        for name in ruled & set(self.pending_values):
            raise ConfigError(f"a rule cannot name column {name!r}: its values are still to be found")
        if not self.pending_bins and not self.pending_values:
            if not self.attributes:
                raise ConfigError("a schema needs a column that is not an identifier")
            _ = self.rules, self._forbidden  # a rule that makes no sense is refused here, not later

    def _parse(self) -> tuple[list[Relation], dict[str, Equation]]:
        """The orders and the sums among the relations; in orders a sum is replaced by its parts."""
        orders: list[Relation] = []
        derived: dict[str, Equation] = {}
        for text in self.relations:
            order, equation = parse(text)
            named = [*order.terms] if order is not None else [equation[0], *equation[1]] if equation else []
            for name in named:
                if not isinstance(self.columns.get(name), Binned):
                    raise ConfigError(
                        f"the relation {text!r} names {name!r}, which is no column of numbers or dates"
                    )
            in_days = any(isinstance(self.columns[name], Date) for name in named)
            if order is not None:
                scale = _DAY if in_days else 1.0
                orders.append(Relation(order.terms, order.constant * scale, order.strict))
            elif equation is not None:
                name, terms, constant = equation
                if name in derived or any(other in derived for other in terms):
                    raise ConfigError(f"the relation {text!r} uses a column that is a sum itself")
                derived[name] = (name, terms, constant * (_DAY if in_days else 1.0))
        for name, (_, terms, constant) in derived.items():  # a sum stays within its bounds
            column = self.columns[name]
            assert isinstance(column, Binned)
            if not column.missing and any(self.columns[other].missing for other in terms):  # type: ignore[attr-defined]
                raise ConfigError(f"column {name!r} is a sum of columns with missing values: missing=True")
            orders.append(Relation(terms, constant - column.high, False))
            orders.append(Relation({o: -c for o, c in terms.items()}, column.low - constant, False))
        return [_substituted(order, derived) for order in orders], derived

    @property
    def modelled(self) -> dict[str, Column]:
        """The columns that are measured: all but sums."""
        return {name: column for name, column in self.columns.items() if name not in self.derived}

    @property
    def pending_bins(self) -> list[str]:
        """Columns whose bins are still to be found."""
        return [name for name, column in self.modelled.items() if _pending(column)]

    @property
    def pending_values(self) -> list[str]:
        """Columns whose values are still to be found."""
        return [name for name, c in self.modelled.items() if isinstance(c, Categorical) and c.pending]

    @cached_property
    def attributes(self) -> tuple[Attribute, ...]:
        """The coded dimensions of the table, in order."""
        pending = self.pending_bins
        if pending:
            raise ConfigError(
                f"column {pending[0]!r} has bins='auto', which are not found yet: fit, or give its bins"
            )
        if self.pending_values:
            raise ConfigError(
                f"column {self.pending_values[0]!r} has values='private', which are not found yet: fit, or "
                "list its values"
            )
        found = [attribute for name, column in self.modelled.items() for attribute in column.attributes(name)]
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
        for name, column in self.modelled.items():
            allowed = column.allowed(name)
            if allowed is not None:
                rules.append(Rule(tuple(a.name for a in column.attributes(name)), allowed))
        rules += [rule for rule in map(self._impossible, self.impossible) if not rule.allowed.all()]
        rules += [self._depends(*entry) for entry in self.depends]
        rules += [rule for rule in map(self._over_bins, self._order) if rule is not None]
        return tuple(rules)

    @property
    def dependencies(self) -> list[Dependency]:
        """The rules by which one column follows from another."""
        return [rule for rule in self.rules if isinstance(rule, Dependency)]

    def _ruled(self, names: Sequence[str]) -> list[Attribute]:
        """The attributes of columns that a rule names, in the schema's order."""
        for name in names:
            if name not in self.columns:
                raise ConfigError(f"a rule names column {name!r}, which the schema does not have")
            if name in self.derived:
                raise ConfigError(f"a rule cannot name column {name!r}: it is a sum")
            if len(self.columns[name].attributes(name)) != 1:
                raise ConfigError(f"a rule cannot name column {name!r}: it has several attributes, or none")
        order = [a.name for a in self.attributes]
        found = (self.columns[name].attributes(name)[0] for name in names)
        return sorted(found, key=lambda a: order.index(a.name))

    def _empty_rule(self, names: Sequence[str]) -> tuple[tuple[str, ...], NDArray[np.bool_]]:
        found = self._ruled(names)
        shape = [a.size for a in found]
        if int(np.prod(shape, dtype=object)) > MOST_RULE_CELLS:
            raise ConfigError(f"a rule over {list(names)} has more than {MOST_RULE_CELLS} combinations")
        return tuple(a.name for a in found), np.ones(shape, dtype=bool)

    def _share(self, name: str, wanted: Any) -> Floats:
        """The share of each code of a column that a value, range or list of a rule names."""
        try:
            return self.columns[name].matching(name, wanted).factors[(name,)]
        except ConfigError as problem:
            raise ConfigError(str(problem).replace("given:", "a rule:")) from None

    def _named(self, name: str, wanted: Any) -> Bools:
        """The codes that a value or range of a dependency names. Ranges that meet at an edge share one value
        of the next bin: it belongs to that bin's range.
        """
        share = self._share(name, wanted)
        return share >= 1 if isinstance(wanted, tuple) else share > 0

    def _impossible(self, entry: Mapping[str, Any]) -> Rule:
        if len(entry) < 2:
            raise ConfigError(f"an impossible combination needs at least two columns, got {dict(entry)!r}")
        names, allowed = self._empty_rule(list(entry))
        # Codes of which a part is meant are told apart by value, in ``_forbidden``.
        masks = [self._share(name, entry[name]) >= 1 for name in names]
        allowed[np.ix_(*masks)] = False
        return Rule(names, allowed)

    @cached_property
    def _forbidden(self) -> list[dict[str, Condition]]:
        """Impossible combinations that name a part of some code."""
        found = []
        for entry in self.impossible:
            conditions = {name: self.columns[name].matching(name, wanted) for name, wanted in entry.items()}
            shares = [condition.factors[(name,)] for name, condition in conditions.items()]
            if any(((share > 0) & (share < 1)).any() for share in shares):
                found.append(conditions)
        return found

    def _depends(self, fine: str, coarse: str, mapping: Mapping[Any, Any]) -> Rule:
        names, allowed = self._empty_rule([fine, coarse])
        view = allowed if names == (fine, coarse) else allowed.T
        mapped = np.zeros(view.shape[0], dtype=bool)
        for value, image in mapping.items():
            rows = self._named(fine, value)
            view[rows] = self._named(coarse, image)
            mapped |= rows
        silent = np.zeros(view.shape[0], dtype=bool)
        if getattr(self.columns[fine], "missing", False):
            silent[-1] = not mapped[-1]  # a missing fine value says nothing about the coarse one
        if not (mapped | silent).all():
            raise ConfigError(
                f"the dependency of {coarse!r} on {fine!r} leaves out values of {fine!r}"
                + (" (ranges must end at edges of bins)" if isinstance(self.columns[fine], Binned) else "")
            )
        if (view[~silent].sum(axis=1) != 1).any():
            return Rule(names, allowed)  # several values each: no function
        image_of = np.where(silent, -1, view.argmax(axis=1)).astype(np.int64)
        return Dependency(fine, coarse, image_of, names, allowed)

    def _over_bins(self, relation: Relation) -> Rule | None:
        found = self._ruled(list(relation.terms))
        if len(found) < 2:
            return self._bounded(relation, found[0])
        least = [self._least(a.name, relation.terms[a.name]) for a in found]
        rule = BinRule(tuple(a.name for a in found), least, relation.constant, relation.strict)
        most = relation.constant + sum(
            float(np.max(self._least(a.name, relation.terms[a.name], most=True))) for a in found
        )
        return None if most < 0 else rule  # one that always holds needs no table

    def _bounded(self, relation: Relation, attribute: Attribute) -> Rule | None:
        least = self._least(attribute.name, relation.terms[attribute.name]) + relation.constant
        allowed = least < 0 if relation.strict else least <= 0
        return None if allowed.all() else Rule((attribute.name,), allowed)

    def _least(self, name: str, coefficient: float, *, most: bool = False) -> Floats:
        """The least that each code of a column adds to a relation; -inf for a missing value."""
        column = self.columns[name]
        assert isinstance(column, Binned)
        low, high = column.spans
        found = coefficient * (low if (coefficient > 0) != most else high)
        return np.append(found, -np.inf) if column.missing else found

    def encode(self, chunk: Chunk, *, narrow: bool = False) -> Codes:
        """Codes of a chunk of columns, one row per row; ``InputError`` names the column and row of a bad
        value.

        ``narrow`` asks for the smallest type that holds them, for whoever only counts.
        """
        narrow = narrow and not self.rules and not self._valued  # these calculate with codes
        kind = np.min_scalar_type(max(self.sizes.values()) - 1) if narrow else np.dtype(np.int64)
        # Whole columns together: they are read by column.
        parts = [
            column.encode(name, chunk).T.astype(kind, copy=False)
            for name, column in self.modelled.items()
            if column.inputs(name)
        ]
        codes: Codes = np.concatenate(parts).T
        by_name = self.by_name(codes)
        for rule in self.rules:
            if isinstance(rule, BinRule):
                continue  # its values are looked at below
            others = ", ".join(repr(name) for name in rule.attributes[1:])
            problem = f"holds a combination with {others} that the schema calls impossible"
            refuse(~rule.keeps(by_name), rule.attributes[0], problem)
        if self._valued:
            self._check_values(chunk, by_name)
        return codes

    @cached_property
    def _valued(self) -> list[str]:
        """Columns whose values, not only their codes, are under some rule."""
        named = {name for relation in self._order for name in relation.terms} | set(self.derived)
        named |= {name for _, terms, _ in self.derived.values() for name in terms}
        named |= {name for entry in self._forbidden for name in entry}
        return [name for name, column in self.columns.items() if name in named and isinstance(column, Binned)]

    def _check_values(self, chunk: Chunk, codes: Mapping[str, NDArray[np.int64]]) -> None:
        values: Values = {}
        for name in self._valued:
            column = self.columns[name]
            assert isinstance(column, Binned)
            found, absent = column.numbers(name, chunk)
            values[name] = np.where(absent, np.nan, found)
        for relation in self._order:
            first, *others = relation.terms
            beside = ", ".join(map(repr, others)) or "its bounds"
            refuse(~relation.keeps(values), first, f"breaks a relation with {beside} that the schema states")
        for name, (_, terms, constant) in self.derived.items():
            column = self.columns[name]
            assert isinstance(column, Binned)
            total = _sum(terms, constant, values)
            slack = 0.51 * (column.step or 1e-6 * max(abs(column.low), abs(column.high)))
            wrong = ~(np.abs(values[name] - total) <= slack) & ~(np.isnan(values[name]) & np.isnan(total))
            refuse(wrong, name, f"is not the sum of {', '.join(map(repr, terms))} that the schema states")
        for conditions in self._forbidden:
            met = self._met(conditions, codes, values)
            refuse(met, next(iter(conditions)), "holds a combination that the schema calls impossible")

    def _met(
        self, conditions: Mapping[str, Condition], codes: Mapping[str, NDArray[np.int64]], values: Values
    ) -> Bools:
        """Rows that meet all of some conditions."""
        met = np.ones(len(next(iter(codes.values()))), dtype=bool)
        for name, condition in conditions.items():
            column = self.columns[name]
            if isinstance(column, Binned):
                met &= column.holds(values[name], condition.within)
            else:
                met &= condition.factors[(name,)][codes[name]] > 0
        return met

    def by_name(self, codes: Codes) -> dict[str, NDArray[np.int64]]:
        """The codes of each attribute."""
        return {attribute.name: codes[:, i] for i, attribute in enumerate(self.attributes)}

    def settled(self, codes: Codes) -> Codes:
        """Codes in which every column that follows from another does."""
        if not self.dependencies:
            return codes
        codes = codes.copy()
        by_name = self.by_name(codes)
        for _ in self.dependencies:  # chains: city, state, country
            for rule in self.dependencies:
                image = rule.image[by_name[rule.fine]]
                by_name[rule.coarse][:] = np.where(image >= 0, image, by_name[rule.coarse])
        return codes

    def draw(
        self,
        codes: Codes,
        rng: np.random.Generator,
        *,
        masses: Mapping[str, Floats] | None = None,
        conditions: Mapping[str, Condition] | None = None,
    ) -> tuple[Values, Bools]:
        """Values inside the codes, for the columns that have bins, and which rows keep all rules and
        conditions. ``masses`` are released counts by attribute: values then follow their slope.
        """
        masses, conditions = masses or {}, conditions or {}
        by_name = self.by_name(codes)
        within = {name: condition.within for name, condition in conditions.items()}

        def drawn(name: str, rows: Any) -> Floats:
            column = self.columns[name]
            assert isinstance(column, Binned)
            return column.draw(by_name[name][rows], rng, masses=masses.get(name), within=within.get(name))

        every = slice(None)
        values = {n: drawn(n, every) for n, column in self.modelled.items() if isinstance(column, Binned)}
        for _ in range(_REDRAWS):
            broken = ~self._kept(by_name, values)
            if not broken.any():
                break
            for name in self._valued:
                if name not in self.derived:
                    values[name][broken] = drawn(name, broken)
        for relation in self._order:
            self._mend(relation, by_name, values, conditions)
        good = self.settled_values(codes, values)
        for rule in self.rules:
            good &= rule.keeps(by_name)
        for name, condition in conditions.items():
            column = self.columns[name]
            if isinstance(column, Binned):
                good &= column.holds(values[name], condition.within)
        return values, good

    def settled_values(self, codes: Codes, values: Values) -> Bools:
        """Compute the columns that are sums, and say which rows keep the rules about values."""
        for name, (_, terms, constant) in self.derived.items():
            column = self.columns[name]
            assert isinstance(column, Binned)
            total = _sum(terms, constant, values)
            values[name] = total if column.step is None else column.value(np.rint(total / column.step))
        return self._kept(self.by_name(codes), values)

    def _kept(self, codes: Mapping[str, NDArray[np.int64]], values: Values) -> Bools:
        """Which rows keep the rules about values."""
        good = np.ones(len(next(iter(codes.values()))), dtype=bool)
        for relation in self._order:
            good &= relation.keeps(values)
        for conditions in self._forbidden:
            good &= ~self._met(conditions, codes, values)
        return good

    def _mend(
        self,
        relation: Relation,
        codes: Mapping[str, NDArray[np.int64]],
        values: Values,
        conditions: Mapping[str, Condition],
    ) -> None:
        """Move values that break a relation towards the ends of their bins at which it holds."""
        broken = np.flatnonzero(~relation.keeps(values))
        if not broken.size:
            return
        ends, excess = {}, relation.excess({name: values[name][broken] for name in relation.terms})
        room = np.zeros(broken.size)
        for name, coefficient in relation.terms.items():
            column = self.columns[name]
            assert isinstance(column, Binned)
            low, high = column.spans
            ends[name] = (low if coefficient > 0 else high)[codes[name][broken]]
            if name in conditions and len(conditions[name].within[0]) == 1:
                limits = conditions[name].within[0][0]
                ends[name] = np.clip(ends[name], *limits)
            room += coefficient * (values[name][broken] - ends[name])
        share = np.minimum(np.where(room > 0, excess / np.maximum(room, 1e-300), 1.0), 1.0)
        for name, coefficient in relation.terms.items():
            column = self.columns[name]
            assert isinstance(column, Binned)
            moved = values[name][broken] - share * (values[name][broken] - ends[name])
            if column.step is not None:
                toward = np.floor if coefficient > 0 else np.ceil
                moved = column.value(toward(np.round(moved / column.step, 6)))
            low, high = column.spans
            at = codes[name][broken]
            values[name][broken] = np.clip(moved, low[at], high[at])
        if relation.strict:
            still = broken[~relation.keeps({name: values[name][broken] for name in relation.terms})]
            where = np.isin(broken, still)
            for name in relation.terms:
                values[name][still] = ends[name][where]

    def frame(
        self,
        codes: Codes,
        values: Values,
        rng: np.random.Generator,
        conditions: Mapping[str, Condition] | None = None,
    ) -> pd.DataFrame:
        """A table of codes, and of values where columns have bins. What a code leaves open otherwise (where
        in a cell, in an hour) is drawn from ``rng``.
        """
        out: dict[str, Any] = {}
        at = 0
        for name, column in self.columns.items():
            width = 0 if name in self.derived else len(column.attributes(name))
            own = codes[:, at : at + width]
            at += width
            if isinstance(column, Binned):
                out.update(column.write(name, values[name]))
            else:
                condition = (conditions or {}).get(name)
                within = None if condition is None else condition.within
                out.update(column.decode(name, own, rng, within))
        return pd.DataFrame(out)

    def decode(
        self, codes: Codes, rng: np.random.Generator, *, masses: Mapping[str, Floats] | None = None
    ) -> pd.DataFrame:
        """A table for codes, one row per row."""
        codes = self.settled(codes)
        return self.frame(codes, self.draw(codes, rng, masses=masses)[0], rng)

    def conditions(
        self, given: Mapping[str, Any], masses: Mapping[str, Floats] | None = None
    ) -> dict[str, Condition]:
        """What a set of conditions accepts, by column."""
        found: dict[str, Condition] = {}
        for name, wanted in given.items():
            if name not in self.columns:
                raise ConfigError(f"given names column {name!r}, which the schema does not have")
            column = self.columns[name]
            if name in self.derived and isinstance(column, Binned):
                one = column.with_edges([column.low, column.high])
                found[name] = Condition({}, one.matching(name, wanted).within)
            else:
                found[name] = column.matching(name, wanted, (masses or {}).get(name))
        return found

    def likelihood(self, conditions: Mapping[str, Condition]) -> dict[tuple[str, ...], Floats]:
        """How likely each code (or combination) is to meet conditions. What is asked of a coarse column is
        asked of the column that it follows from.
        """
        found: dict[tuple[str, ...], Floats] = {}
        for condition in conditions.values():
            found.update(condition.factors)
        for _ in self.dependencies:
            for rule in self.dependencies:
                if (rule.coarse,) in found:
                    asked = (np.append(found[(rule.coarse,)], 1.0)[rule.image] > 0).astype(np.float64)
                    before = found.get((rule.fine,))
                    found[(rule.fine,)] = asked if before is None else np.asarray(before * asked)
        return found

    def with_column(self, name: str, column: Column) -> Schema:
        """The same schema with one column replaced."""
        return Schema(
            {**self.columns, name: column},
            impossible=self.impossible,
            depends=self.depends,
            relations=self.relations,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a file that people can edit."""
        out: dict[str, Any] = {"columns": {name: column.to_json() for name, column in self.columns.items()}}
        if self.impossible:
            out["impossible"] = [
                {name: _to_json(value) for name, value in entry.items()} for entry in self.impossible
            ]
        if self.depends:
            out["depends"] = [
                {
                    "fine": fine,
                    "coarse": coarse,
                    "mapping": [[_to_json(a), _to_json(b)] for a, b in mapping.items()],
                }
                for fine, coarse, mapping in self.depends
            ]
        if self.relations:
            out["relations"] = self.relations
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
            strange = sorted(set(value) - _KEYS)
            if strange:
                raise ConfigError(f"not a schema: unknown key {strange[0]!r}; there are {', '.join(_KEYS)}")
            if not isinstance(value["columns"], Mapping):
                raise ConfigError("not a schema: columns maps names to facts about a column")
            _check_size(value["columns"].values())
            columns = {name: _named(name, entry) for name, entry in value["columns"].items()}
            return cls(
                columns,
                impossible=_listed(value.get("impossible", []), "impossible"),
                depends=_listed(value.get("depends", []), "depends"),
                relations=_listed(value.get("relations", []), "relations"),
            )
        except SynthGeoError:
            raise
        except OSError as problem:
            raise ConfigError(f"cannot read the schema {source}: {problem.strerror}") from problem
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as problem:
            reason = str(problem).partition("\n")[0]
            raise ConfigError(f"not a schema: {type(problem).__name__} {reason}") from problem

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``to_json`` to a file."""
        Path(path).write_text(json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n")

    def fingerprint(self) -> str:
        """A short hash of the schema, for provenance."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _repr_html_(self) -> str:
        from synthgeo.notebook import facts_html

        return facts_html("schema", {name: _in_words(column) for name, column in self.columns.items()})

    def __repr__(self) -> str:
        return f"Schema({', '.join(f'{name}: {column.kind}' for name, column in self.columns.items())})"


# What a schema's file may say; a misspelt rule would else be forgotten without a word.
_KEYS = dict.fromkeys(("columns", "impossible", "depends", "relations", "comment")).keys()


def _pending(column: Column) -> bool:
    return isinstance(column, Binned) and column.edges is None


def _listed(value: Any, what: str) -> list[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        raise ConfigError(f"{what} must be a list, got {value!r}")
    return list(value)


def _entry(entry: Any) -> dict[str, Any]:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"an entry of impossible maps columns to values, got {entry!r}")
    return {name: _from_json(value) for name, value in entry.items()}


def _dependency(entry: Any) -> tuple[str, str, dict[Any, Any]]:
    """A dependency as (fine, coarse, mapping), also from the shape it has in a file."""
    if isinstance(entry, Mapping):
        try:
            pairs = [(_from_json(a), _from_json(b)) for a, b in entry["mapping"]]
            return entry["fine"], entry["coarse"], dict(pairs)
        except (KeyError, TypeError, ValueError):
            raise ConfigError(
                'an entry of depends is {"fine": column, "coarse": column, "mapping": [[value, value], ...]}'
                f", got {entry!r}"
            ) from None
    if not isinstance(entry, Sequence) or len(entry) != 3 or not isinstance(entry[2], Mapping):
        raise ConfigError(f"an entry of depends is (fine, coarse, mapping), got {entry!r}")
    return entry[0], entry[1], dict(entry[2])


def _to_json(value: Any) -> Any:
    """A value of a rule for a file: a range is told apart from a list, and a date from a text."""
    if isinstance(value, tuple):
        return {"range": [_to_json(end) for end in value]}
    if isinstance(value, list | set | frozenset | np.ndarray):
        return [_to_json(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _from_json(value: Any) -> Any:
    """The inverse of ``_to_json``."""
    if isinstance(value, Mapping):
        ends = value.get("range")
        if set(value) != {"range"} or not isinstance(ends, list | tuple) or len(ends) != 2:
            raise ConfigError(f'a range in a rule is {{"range": [low, high]}}, got {dict(value)!r}')
        return tuple(value["range"])
    return [_from_json(item) for item in value] if isinstance(value, list) else value


def _sum(terms: Mapping[str, float], constant: float, values: Values) -> Floats:
    total: Floats = np.asarray(constant, dtype=np.float64)
    for name, coefficient in terms.items():
        total = total + coefficient * values[name]
    return total


def _substituted(relation: Relation, derived: Mapping[str, Equation]) -> Relation:
    """A relation in terms of modelled columns."""
    terms: dict[str, float] = {}
    constant = relation.constant
    for name, coefficient in relation.terms.items():
        _, parts, shift = derived.get(name, (name, {name: 1.0}, 0.0))
        constant += coefficient * shift
        for part, c in parts.items():
            terms[part] = terms.get(part, 0.0) + coefficient * c
    return Relation({name: c for name, c in terms.items() if c}, constant, relation.strict)


def _in_words(column: Column) -> str:
    """The kind of a column and what it holds, shortened."""
    facts = {key: value for key, value in column.to_json().items() if key not in ("type", "domain")}
    text = ", ".join(f"{key} {value}" for key, value in facts.items())
    return f"{column.kind}: {text if len(text) < 120 else text[:117] + '...'}"


def _check_size(entries: Iterable[Any]) -> None:
    """Refuse a file whose columns ask for more bins and cells together than any table needs."""
    sizes = [entry.get(word) for entry in entries if isinstance(entry, Mapping) for word in ("bins", "cells")]
    if sum(size for size in sizes if isinstance(size, int) and size > 0) > 4 * MOST_DECLARED:
        raise ConfigError(f"not a schema: it asks for more than {4 * MOST_DECLARED:,} bins and cells")


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
    if kind == "location":
        return location_from_json(value)
    if kind not in _KINDS:
        raise ConfigError(f"unknown type of column {kind!r}; there are {', '.join(sorted(_KINDS))}, location")
    column, first = _KINDS[kind]
    leading = [rest.pop(key) for key in first]
    made: Column = column(*leading, **rest)
    return made


_KINDS: dict[Any, tuple[Any, tuple[str, ...]]] = {
    "categorical": (Categorical, ("values",)),
    "ordinal": (Ordinal, ("values",)),
    "numeric": (Numeric, ("low", "high")),
    "date": (Date, ("start", "end")),
    "datetime": (DateTime, ("start", "end")),
    "time_of_day": (TimeOfDay, ()),
    "duration": (Duration, ("low", "high")),
    "identifier": (Identifier, ()),
}
__all__ = ["Attribute", "Location", "Rule", "Schema"]
