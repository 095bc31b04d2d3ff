"""``plan``: what error to expect at which ε, before any private row is read.

A product is run on a *stand-in*: data of the assumed size, drawn from the public domain or schema, with a few
busy places (or kinds of rows) and many quiet ones, as real data has. Private data is never read, so a plan
costs nothing, may be published, and may be made for as many settings as one likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from synthgeo import validate
from synthgeo.arrays import Floats, Points
from synthgeo.domain.box import SpatialDomain
from synthgeo.errors import ConfigError
from synthgeo.extras import require
from synthgeo.hierarchy.base import hierarchy_of
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import SeededNoise
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.ragged import owners_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from synthgeo.schema import Schema

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
MOST_ROWS = 2_000_000
# Places of the stand-in: how fine they are, how many, how unequal, and the share of points between them.
_PLACE_BITS, _PLACES, _BETWEEN = 12, 200, 0.2
# Rows of a stand-in table: how many kinds, the share of a column that is its kind's own, and about how many
# values hold most of its rows.
_KINDS, _OWN, _COMMON = 8, 0.37, 2.0
# Persons of a stand-in panel who give other answers than in the wave before.
_MOVED = 0.1
# Cells on which places are compared, as bits of a Morton key: 64 cells.
_COMPARED_BITS = 6

_WORDS = (
    (0.05, "close: small places and categories are right too"),
    (0.15, "good: larger places and categories are right"),
    (0.35, "rough: only the largest are right"),
    (1.01, "noise: the signal drowns"),
)


@dataclass(frozen=True)
class Plan:
    """Expected errors by ε. ``table`` has a row for each:

    * ``noise``: standard deviation of the noise in one released count (the mean over cells or marginals);
    * ``signal``: what such a count is on average;
    * ``error``: total variation distance between the stand-in and its release, 0 (the same) to 1 (nothing in
      common), over 64 cells of the domain or all pairs of columns;
    * ``verdict``: the same in words.

    Where several bounds per user were tried there is a row for each ε and ``bound``, with the ``rows`` that
    the bound keeps; the error is that against all rows, also those that it leaves out.
    """

    product: str
    rows: int
    steps: int
    protects: str
    table: pd.DataFrame
    made: str = "release"
    bound: str = ""

    @property
    def least(self) -> float | None:
        """The least ε of the table at which the signal does not drown; None if it drowns at all of them."""
        good = self.table.loc[~self.table["verdict"].str.startswith("noise"), "epsilon"]
        return None if good.empty else float(good.iloc[0])

    @property
    def best_bound(self) -> int | None:
        """At the largest ε, the least bound per user whose error is at most a twentieth above the least
        error; None where no bounds were tried.
        """
        if "bound" not in self.table:
            return None
        most = self.table[self.table["epsilon"] == self.table["epsilon"].max()]
        return int(most.loc[most["error"] <= 1.05 * most["error"].min(), "bound"].min())

    def __str__(self) -> str:
        about = f"{self.product}: {self.rows:,} rows in {self.steps} step{'s' if self.steps > 1 else ''}"
        least = self.least
        levels = self.table["epsilon"]
        if least is None:
            better = "more rows, fewer steps, or a smaller bound per user would help"
            found = f"at ε = {levels.max():g}{self.bound} the {self.made} is noise: {better}"
        elif least > levels.min():
            drowned = levels[levels < least].max()
            found = f"at ε = {drowned:g}{self.bound} the {self.made} is noise; at {least:g} it is not"
        else:
            found = f"the {self.made} is not noise at any of these"
        if self.best_bound is not None:
            found += f"; at ε = {levels.max():g} take a bound of {self.best_bound} per user"
        return "\n".join([f"{about}; protects {self.protects}", self.table.to_string(index=False), found])

    def _repr_html_(self) -> str:
        from html import escape

        lines = str(self).splitlines()
        return f"<p>{escape(lines[0])}</p>{self.table.to_html(index=False)}<p>{escape(lines[-1])}</p>"

    def plot(self, *, ax: Any = None) -> Axes:
        """Error against ε."""
        plt = require("matplotlib.pyplot", extra="report")
        if ax is None:
            _, ax = plt.subplots(figsize=(6, 4), layout="constrained")
        if "bound" in self.table:
            for bound, rows in self.table.groupby("bound"):
                ax.plot(rows["epsilon"], rows["error"], marker="o", label=f"{bound} per user")
            ax.legend(fontsize=8)
        else:
            ax.plot(self.table["epsilon"], self.table["error"], marker="o", color="#0b6e99")
        low = 0.0
        for high, words in _WORDS:
            ax.axhspan(low, min(high, 1), color="#0b6e99", alpha=0.02 + 0.05 * (high > 0.3))
            place = (0.99, (low + min(high, 1)) / 2)
            style = {"ha": "right", "va": "center", "fontsize": 8, "color": "#666666"}
            ax.text(*place, words.partition(":")[0], transform=ax.get_yaxis_transform(), **style)
            low = high
        ax.set(xscale="log", xlabel="ε", ylabel="total variation distance", ylim=(0, 1))
        ax.set_title(f"{self.product}, {self.rows:,} rows in {self.steps} steps", fontsize=9)
        axes: Axes = ax
        return axes


def plan(
    product: Any,
    *,
    rows: int,
    steps: int = 1,
    epsilons: Sequence[float] = EPSILONS,
    repeats: int = 2,
    seed: int = 0,
    users: int | None = None,
    bounds: Sequence[int] | None = None,
) -> Plan:
    """Expected error of a product against ε, for an assumed number of rows over ``steps`` steps.

    ``product`` is a stream or a synthesizer as it would be made for the data; depth, lifetime, unit and all
    else are taken from it. It is not touched. Rows of trips are trips, which are compared by where they begin
    and end. In a panel the same persons answer in every step: each has as many rows as there are steps.

    Which bound per user to take: with ``users``, how many there may be, and ``bounds``, each bound m is tried
    too. Users have about as many rows each; m keeps at most m of each, and everything runs at ε / m.

    >>> import synthgeo as sg
    >>> stream = sg.PHDStream(domain=sg.BoxDomain(0, 0, 1, 1), budget=sg.PrivacyBudget(1.0))
    >>> found = plan(stream, rows=2000, epsilons=(0.01, 4.0), repeats=1)
    >>> found.table["error"].is_monotonic_decreasing
    True
    """
    rows = validate.whole(rows, "rows", low=1, high=MOST_ROWS)
    steps = validate.whole(steps, "steps", low=1, high=10_000)
    repeats = validate.whole(repeats, "repeats", low=1)
    levels = sorted(validate.positive(epsilon, "each epsilon") for epsilon in epsilons)
    if not levels:
        raise ConfigError("give at least one epsilon")
    if product.unit.of == "trajectory" and hasattr(product, "update"):
        raise ConfigError(
            "each trip is measured once, in its own batch, with all of ε: plan a TrajectorySynthesizer with "
            "the same domain and budget, and as many rows as one batch has trips"
        )
    if steps > 1 and not hasattr(product, "update"):
        raise ConfigError(f"{type(product).__name__} releases once: steps must be 1")
    make: Any = _PointStandIn if hasattr(product, "domain") else _TableStandIn
    if getattr(product, "same_persons", False):
        make = _PanelStandIn
    bounded = _bounded(product, rows, users, bounds)
    found = []
    for epsilon in levels:
        for bound, (one, kept, people) in bounded.items():
            runs = []
            for turn in range(repeats):
                stand_in = make(one, rows, steps, np.random.default_rng(seed + turn))
                if people is not None:
                    stand_in.users = {one.unit.key: np.arange(kept) % people}
                    stand_in.kept = kept
                runs.append(stand_in.run(_with(one, epsilon, seed + turn)))
            noise, signal, error = np.mean(runs, axis=0)
            words = next(text for most, text in _WORDS if error <= most)
            figures = round(float(noise), 3), round(float(signal), 2), round(float(error), 4)
            found.append((epsilon, *(() if bound is None else (bound, kept)), *figures, words))
    names = ["epsilon", *(() if bounds is None else ("bound", "rows")), "noise", "signal", "error", "verdict"]
    table = pd.DataFrame(found, columns=names)
    made = "map" if hasattr(product, "domain") else "table"
    said = _bound(product.unit) if bounds is None else ""
    return Plan(type(product).__name__, rows, steps, product.unit.describe(), table, made, said)


def _bounded(
    product: Any, rows: int, users: int | None, bounds: Sequence[int] | None
) -> dict[int | None, tuple[Any, int, int | None]]:
    """The product with each bound per user, the rows that the bound keeps, and whose they are."""
    if (users is None) != (bounds is None):
        raise ConfigError("give both users, how many there may be, and bounds, or neither")
    if users is None or bounds is None:
        return {None: (product, rows, None)}
    if product.unit.of != "trajectory" or product.unit.key is None:
        raise ConfigError(
            "bounds are tried for trips of users: give unit=PrivacyUnit.user(max_trajectories=m)"
        )
    users = validate.whole(users, "users", low=1, high=rows)
    tried = sorted({validate.whole(bound, "each bound", low=1) for bound in bounds})
    if not tried:
        raise ConfigError("give at least one bound")
    each = -(-rows // users)
    return {
        bound: (
            product.clone().set_params(unit=replace(product.unit, max_contributions=bound), ledger=None),
            min(users * min(bound, each), rows), users,
        )
        for bound in tried
    }  # fmt: skip


def _bound(unit: PrivacyUnit) -> str:
    """How much one user may contribute, in words; nothing where one record is protected."""
    if unit.key is None:
        return ""
    return f" and {unit.max_contributions} {'trips' if unit.of == 'trajectory' else 'events'} per user"


def _with(product: Any, epsilon: float, seed: int) -> Any:
    """The same product with another ε, seeded noise and no ledger: what it makes is thrown away."""
    budget = PrivacyBudget(epsilon, product.budget.delta)
    return product.clone().set_params(budget=budget, noise=SeededNoise(seed), ledger=None)


def _users(product: Any, rows: int) -> dict[str, np.ndarray]:
    """Users who contribute as much as their bound allows, where users are protected."""
    if product.unit.key is None:
        return {}
    places = 2 if getattr(product, "deletions", False) else 1  # an insertion keeps one for its deletion
    return {product.unit.key: np.arange(rows) // max(product.unit.max_contributions // places, 1)}


class _PointStandIn:
    """Points around busy places of the domain; for trips, pairs of such points."""

    def __init__(self, product: Any, rows: int, steps: int, rng: np.random.Generator) -> None:
        self.domain, self.rows, self.steps, self.rng = product.domain, rows, steps, rng
        self.hierarchy = hierarchy_of(self.domain)
        root = np.zeros(1, dtype=np.uint64)
        number = min(_PLACES, rows // 10 + 1)
        middles = self.hierarchy.sample(root, 0, np.array([number]), rng)
        keys, _ = self.hierarchy.locate(middles, _PLACE_BITS)
        self.places = np.unique(keys)
        popular = 1 / np.arange(1, self.places.size + 1)
        self.weight = rng.permutation(popular / popular.sum())
        self.users = _users(product, rows)
        self.kept = rows  # by the bound per user

    def draw(self, number: int) -> Points:
        counts = self.rng.multinomial(round(number * (1 - _BETWEEN)), self.weight)
        near = self.hierarchy.sample(self.places, _PLACE_BITS, counts, self.rng)
        root = np.zeros(1, dtype=np.uint64)
        far = self.hierarchy.sample(root, 0, np.array([number - len(near)]), self.rng)
        return self.rng.permutation(np.concatenate([near, far]))

    def run(self, product: Any) -> tuple[float, float, float]:
        if not hasattr(product, "update"):
            return self._run_trips(product)
        held: list[Points] = []
        release = None
        for batch in np.array_split(np.arange(self.rows), self.steps):
            xy = self.draw(len(batch))
            held = [*held, xy][-(product.lifetime or self.steps) :]
            frame = pd.DataFrame({"x": xy[:, 0], "y": xy[:, 1]})
            frame = frame.assign(**{name: users[batch] for name, users in self.users.items()})
            release = (
                product.set_params(columns=replace(product.columns, x="x", y="y", crs=None)).update(frame)
                if product.step == 0
                else product.update(frame)
            )
        assert release is not None
        errors = release.expected_error().set_index("quantity")
        noise = float(errors.loc["one cell (mean)", "standard_deviation"])
        signal = sum(map(len, held)) / max(len(release.released), 1)
        return noise, signal, places_apart(self.domain, np.concatenate(held), release.xy)

    def _run_trips(self, product: Any) -> tuple[float, float, float]:
        start, end = self.draw(self.rows), self.draw(self.rows)
        frame = pd.DataFrame({"ax": start[:, 0], "ay": start[:, 1], "bx": end[:, 0], "by": end[:, 1]})
        frame = frame[: self.kept].assign(**self.users)
        if product.attributes is not None:
            others = _TableStandIn(_Attributes(product.attributes, product.unit), self.kept, 1, self.rng)
            frame = frame.join(others.schema.decode(others.draw(self.kept), self.rng))
        crs = self.domain.crs
        product.fit(frame, origin=("ax", "ay"), destination=("bx", "by"), crs=crs)
        release = product.sample(self.rows)
        first = release.xy[release.start[:-1]]
        last = release.xy[release.start[1:] - 1]
        noise = product.transition_noise()  # ends alone are measured with other shares of ε than points
        signal = self.kept / max(product.model.partition.size, 1)
        apart = places_apart(self.domain, start, first) + places_apart(self.domain, end, last)
        return noise, signal, apart / 2


def places_apart(domain: SpatialDomain, real: Points, made: Points) -> float:
    """Total variation distance between two sets of points, over 64 cells of the domain."""
    if not len(made):
        return 1.0
    shares = []
    for xy in (real, made):
        keys, inside = hierarchy_of(domain).locate(xy, _COMPARED_BITS)
        counts = np.bincount(keys[inside].astype(np.int64), minlength=1 << _COMPARED_BITS)
        shares.append(counts / max(int(inside.sum()), 1))
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def pairs_apart(schema: Schema, real: np.ndarray, made: np.ndarray) -> float:
    """Total variation distance between two tables of codes: the mean over all pairs of columns."""
    if not len(made):
        return 1.0
    sizes = list(schema.sizes.values())
    if len(sizes) == 1:
        return _variation(real[:, 0], made[:, 0], sizes[0])
    pairs = [(a, b) for a in range(len(sizes)) for b in range(a)]
    found = [
        _variation(
            real[:, a] * sizes[b] + real[:, b], made[:, a] * sizes[b] + made[:, b], sizes[a] * sizes[b]
        )
        for a, b in pairs
    ]
    return float(np.mean(found))


@dataclass(frozen=True)
class _Attributes:
    """What a stand-in table is drawn for, where it is one of attributes of trips."""

    schema: Schema
    unit: PrivacyUnit


class _TableStandIn:
    """Rows of a few kinds, each with its own shares of every column's values."""

    def __init__(self, product: Any, rows: int, steps: int, rng: np.random.Generator) -> None:
        self.schema, self.rows, self.steps, self.rng = product.schema, rows, steps, rng
        if self.schema.pending_bins:
            raise ConfigError(
                f"a plan needs the bins of column {self.schema.pending_bins[0]!r}: give a number"
            )
        popular = 1 / np.arange(1, _KINDS + 1)
        self.kinds = popular / popular.sum()
        weights = [np.full(size, min(0.5, _COMMON / size)) for size in self.schema.sizes.values()]
        self.shares = [
            (1 - _OWN) * rng.dirichlet(weight) + _OWN * rng.dirichlet(weight, _KINDS) for weight in weights
        ]
        self.users = _users(product, rows)

    def draw(self, number: int) -> np.ndarray:
        """Codes of rows, those that the schema rules out replaced."""
        good = np.empty((0, len(self.shares)), dtype=np.int64)
        for _ in range(20):
            kind = owners_of(np.concatenate([[0], np.cumsum(self.rng.multinomial(2 * number, self.kinds))]))
            codes = np.column_stack([_choose(shares[kind], self.rng) for shares in self.shares])
            names = list(self.schema.sizes)
            for rule in self.schema.rules:
                at = tuple(codes[:, names.index(name)] for name in rule.attributes)
                codes = codes[rule.allowed[at]]
            good = np.concatenate([good, codes])
            if len(good) >= number:
                return self.rng.permutation(good)[:number]
        raise ConfigError("the rules of the schema leave hardly any rows: no stand-in can be drawn")

    def run(self, product: Any) -> tuple[float, float, float]:
        codes = self.draw(self.rows)
        frame = self.schema.decode(codes, self.rng).assign(**self.users)
        if hasattr(product, "update"):
            parts = np.array_split(np.arange(self.rows), self.steps)
            release = [product.update(frame.iloc[part].reset_index(drop=True)) for part in parts][-1]
            codes = np.concatenate([codes[part] for part in parts[-(product.lifetime or self.steps) :]])
        else:
            release = product.fit(frame).sample()
        return self.compared(codes, release)

    def compared(self, codes: np.ndarray, release: Any) -> tuple[float, float, float]:
        """Noise, signal and error of a release of rows with these codes."""
        errors = release.expected_error()
        sizes = np.array(list(self.schema.sizes.values()))
        noise = float(errors.iloc[:, 1].mean())
        made = self.schema.encode({name: release.data[name].to_numpy() for name in release.data})
        return noise, float(np.mean(len(codes) / sizes)), pairs_apart(self.schema, codes, made)


class _PanelStandIn(_TableStandIn):
    """The same persons in every wave, some of whom become others from one wave to the next."""

    def run(self, product: Any) -> tuple[float, float, float]:
        persons = max(self.rows // self.steps, 1)
        codes = self.draw(persons)
        who = {product.unit.key: np.arange(persons)}
        for step in range(self.steps):
            if step:
                moved = self.rng.random(persons) < _MOVED
                codes = np.where(moved[:, None], self.draw(persons), codes)
            release = product.update(self.schema.decode(codes, self.rng).assign(**who))
        return self.compared(codes, release)


def _choose(shares: Floats, rng: np.random.Generator) -> np.ndarray:
    """One column number for each row of ``shares``, with these probabilities."""
    below = np.cumsum(shares, axis=1)
    return np.asarray(np.minimum((rng.random((len(shares), 1)) > below).sum(axis=1), shares.shape[1] - 1))


def _variation(real: np.ndarray, made: np.ndarray, size: int) -> float:
    counts = [np.bincount(codes, minlength=size) / len(codes) for codes in (real, made)]
    return float(np.abs(counts[0] - counts[1]).sum() / 2)


__all__ = ["Plan", "plan"]
