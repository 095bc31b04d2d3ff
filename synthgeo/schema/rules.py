"""Rules of a table: combinations that cannot exist, columns that follow from others, order and sums.

A rule about codes (``Rule``) shapes the model: what it forbids has probability 0. A rule about values (a
``Relation`` such as ``start <= end``) forbids whole combinations of bins, and inside the others values are
drawn so that it holds.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from synthgeo.arrays import Floats, Ints
from synthgeo.errors import ConfigError

Bools = NDArray[np.bool_]
MOST_RULE_CELLS = 10**7


class Rule:
    """Which combinations of some attributes can exist: ``allowed`` has one axis per attribute."""

    def __init__(self, attributes: tuple[str, ...], allowed: Bools) -> None:
        self.attributes = attributes
        self.allowed = allowed

    #: Whether values may be merged that the rule tells apart: rows are then drawn until they keep it.
    mergeable = False

    def keeps(self, codes: Mapping[str, Ints]) -> Bools:
        """Which rows keep the rule."""
        return np.asarray(self.allowed[tuple(codes[name] for name in self.attributes)])

    def grouped(self, groups: Mapping[str, Ints]) -> Rule:
        """The rule over groups of codes: a combination of groups can exist if one of its codes' can."""
        allowed = self.allowed
        for axis, name in enumerate(self.attributes):
            group = groups[name]
            if not np.array_equal(group, np.arange(group.size)):
                moved = np.moveaxis(allowed, axis, 0)
                merged = np.zeros((int(group.max()) + 1, *moved.shape[1:]), dtype=bool)
                np.logical_or.at(merged, group, moved)
                allowed = np.moveaxis(merged, 0, axis)
        return Rule(self.attributes, allowed)


class Dependency(Rule):
    """A column that follows from another: ``image`` is the coarse code of each fine one, -1 where the fine
    value says nothing.
    """

    mergeable = True

    def __init__(
        self, fine: str, coarse: str, image: Ints, attributes: tuple[str, ...], allowed: Bools
    ) -> None:
        super().__init__(attributes, allowed)
        self.fine, self.coarse, self.image = fine, coarse, image


@dataclass(frozen=True)
class Relation:
    """Σ coefficient · column + constant <= 0 (or < 0): rows in which a column is missing keep it.

    >>> parse("start + 2 <= end")[0]
    Relation(terms={'start': 1.0, 'end': -1.0}, constant=2.0, strict=False)
    """

    terms: Mapping[str, float]
    constant: float
    strict: bool

    def excess(self, values: Mapping[str, Floats]) -> Floats:
        """By how much rows break it; at most 0 where they keep it, NaN where a column is missing."""
        total: Floats = np.asarray(self.constant, dtype=np.float64)
        for name, coefficient in self.terms.items():
            total = total + coefficient * values[name]
        # What rounding of the last digit does is no breach.
        size = sum(abs(c) * np.abs(values[name]) for name, c in self.terms.items()) + abs(self.constant)
        return np.where(np.abs(total) <= 1e-12 * size, 0.0, total)

    def keeps(self, values: Mapping[str, Floats]) -> Bools:
        """Which rows keep it."""
        found = self.excess(values)
        return np.isnan(found) | ((found < 0) if self.strict else (found <= 0))


class BinRule(Rule):
    """What a ``Relation`` says about bins: a combination can exist if some of its values keep it.

    ``least[i][code]`` is the least that attribute i adds to the sum, -inf for a missing value."""

    mergeable = True

    def __init__(
        self, attributes: tuple[str, ...], least: Sequence[Floats], constant: float, strict: bool
    ) -> None:
        self.attributes, self.least, self.constant, self.strict = attributes, list(least), constant, strict

    @cached_property
    def allowed(self) -> Bools:  # type: ignore[override]
        shape = [len(values) for values in self.least]
        if math.prod(shape) > MOST_RULE_CELLS:
            raise ConfigError(
                f"a rule over {list(self.attributes)} has more than {MOST_RULE_CELLS} combinations"
            )
        total = np.zeros(shape) + self.constant
        for axis, values in enumerate(self.least):
            total = total + values.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        return total < 0 if self.strict else total <= 1e-12 * max(1.0, abs(self.constant))

    def keeps(self, codes: Mapping[str, Ints]) -> Bools:
        total = self.constant + sum(
            v[codes[name]] for name, v in zip(self.attributes, self.least, strict=True)
        )
        found = total < 0 if self.strict else total <= 1e-12 * max(1.0, abs(self.constant))
        return np.asarray(found)

    def grouped(self, groups: Mapping[str, Ints]) -> BinRule:
        least = []
        for name, values in zip(self.attributes, self.least, strict=True):
            merged = np.full(int(groups[name].max()) + 1, np.inf)
            np.minimum.at(merged, groups[name], values)
            least.append(merged)
        return BinRule(self.attributes, least, self.constant, self.strict)


Equation = tuple[str, dict[str, float], float]
_OPERATORS = {ast.LtE: ("<=", 1), ast.Lt: ("<", 1), ast.GtE: ("<=", -1), ast.Gt: ("<", -1), ast.Eq: ("==", 1)}
_QUOTED = re.compile(r"`([^`]+)`")


def parse(text: str) -> tuple[Relation | None, Equation | None]:
    """A relation like ``start <= end``, ``a + 2*b < c`` or ``total == a + b``; names that are not words stand
    in backquotes. Gives either a ``Relation`` or, for a sum, (column, terms, constant).
    """
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(f"a relation is a text like 'start <= end', got {text!r}")
    names: dict[str, str] = {}

    def stand_in(found: re.Match[str]) -> str:
        word = f"_quoted_{len(names)}"
        names[word] = found[1]
        return word

    try:
        tree = ast.parse(_QUOTED.sub(stand_in, text.strip()), mode="eval").body
    except SyntaxError:
        tree = None
    if not isinstance(tree, ast.Compare) or len(tree.ops) != 1 or type(tree.ops[0]) not in _OPERATORS:
        raise ConfigError(f"the relation {text!r} is not one comparison by <=, <, >=, > or ==")
    sign, turn = _OPERATORS[type(tree.ops[0])]
    left, right = (_linear(side, text, names) for side in (tree.left, tree.comparators[0]))
    if sign == "==":
        if len(left) != 1 or left.get("", 0.0) or next(iter(left.values())) != 1.0:
            left, right = right, left
        named = next(iter(left))
        if len(left) != 1 or left.get(named) != 1.0 or not named or named in right or len(right) < 2:
            raise ConfigError(f"the relation {text!r} must read: column == sum of others")
        return None, (named, {name: c for name, c in right.items() if name}, right.get("", 0.0))
    terms = {name: turn * (left.get(name, 0.0) - right.get(name, 0.0)) for name in {**left, **right}}
    constant = terms.pop("", 0.0)
    terms = {name: c for name, c in terms.items() if c}
    if not terms:
        raise ConfigError(f"the relation {text!r} names no column")
    return Relation(terms, constant, sign == "<"), None


def _linear(node: ast.expr, text: str, names: Mapping[str, str]) -> dict[str, float]:
    """Coefficients by column; the constant under ''."""
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
    ):
        return {"": float(node.value)}  # type: ignore[arg-type]
    if isinstance(node, ast.Name):
        return {names.get(node.id, node.id): 1.0}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return {name: -c for name, c in _linear(node.operand, text, names).items()}
    if isinstance(node, ast.BinOp):
        left, right = _linear(node.left, text, names), _linear(node.right, text, names)
        if isinstance(node.op, ast.Add | ast.Sub):
            turn = 1.0 if isinstance(node.op, ast.Add) else -1.0
            return {name: left.get(name, 0.0) + turn * right.get(name, 0.0) for name in {**left, **right}}
        if isinstance(node.op, ast.Mult) and (set(left) == {""} or set(right) == {""}):
            factor, rest = (left[""], right) if set(left) == {""} else (right[""], left)
            return {name: factor * c for name, c in rest.items()}
    raise ConfigError(f"the relation {text!r} may add, subtract and multiply by numbers only")
