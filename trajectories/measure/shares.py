"""How ε is divided among the measurements of trips."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from synthgeo.errors import ConfigError
from synthgeo.hierarchy.privtree import GRID, SplitRule
from synthgeo.privacy.budget import PrivacyBudget
from synthgeo.privacy.noise import MAX_SCALE

# Of the ε of pairs: ends, the tree of pairs, the counts of its blocks. The tree has little left to do where
# ends are known.
ENDS_SHARE, TREE_SHARE, COUNT_SHARE = 0.55, 0.02, 0.43
# Of the ε of times: departures by day and four hours, paces by length, slow and fast trips by hour, trips by
# zones and block.
DEPARTURES_SHARE, PACES_SHARE, BY_HOUR_SHARE, ZONES_SHARE = 0.1, 0.15, 0.35, 0.4


@dataclass(frozen=True)
class Shares:
    """ε of each measurement, for one trip; 0 where a measurement is left out."""

    cells: float
    transitions: float
    pairs: float
    lengths: float
    times: float
    tree: bool = True  # whether the blocks of pairs are looked for; False: they are known already
    recording: float = 0.0

    @classmethod
    def of(cls, per_trip: PrivacyBudget, weights: dict[str, float], *, tree: bool = True) -> Shares:
        """Divide what one trip may cost in proportion to ``weights``; a weight of 0 leaves out."""
        used = {name: weight for name, weight in weights.items() if weight > 0}
        parts = per_trip.split(list(used.values()))
        epsilon = {name: part.epsilon for name, part in zip(used, parts, strict=True)}
        return cls(**{name: epsilon.get(name, 0.0) for name in weights}, tree=tree)

    @property
    def ends(self) -> float:
        """ε of the two counts of ends."""
        return self.pairs * ENDS_SHARE

    @property
    def pair_tree(self) -> float:
        """ε of the tree of pairs."""
        return self.pairs * TREE_SHARE if self.tree else 0.0

    @property
    def pair_counts(self) -> float:
        """ε of the counts of pairs: what ends and tree leave."""
        return self.pairs - self.ends - self.pair_tree

    @property
    def time_counts(self) -> tuple[float, float, float]:
        """ε of departures by day and four hours, of paces by length, of slow and fast trips by hour."""
        return self.times * DEPARTURES_SHARE, self.times * PACES_SHARE, self.times * BY_HOUR_SHARE

    @property
    def zones(self) -> float:
        """ε of trips by zones and block: what the other counts of times leave."""
        return self.times - sum(self.time_counts)

    def check(self) -> None:
        """Refuse shares too small for the noise they ask for: before anything is read or spent."""
        scales = {
            "cells": SplitRule(self.cells).scale * GRID.one if self.cells else 0.0,
            "transitions": GRID.one / self.transitions if self.transitions else 0.0,
            "pairs": SplitRule(self.pair_tree, fanout=4).scale * GRID.one
            if self.tree
            else 1 / self.pair_counts,
            "lengths": 1 / self.lengths if self.lengths else 0.0,
            "times": GRID.one / (self.times * DEPARTURES_SHARE) if self.times else 0.0,
            "recording": 2 / self.recording if self.recording else 0.0,
        }
        for name, scale in scales.items():
            if not scale <= MAX_SCALE:
                raise ConfigError(
                    f"the share of {name} is ε = {getattr(self, name):.2g} per trip: too little for any "
                    "noise to be drawn. Give more ε, a smaller bound per user, or a larger share"
                )

    def as_dict(self) -> dict[str, float]:
        """The measurements that are made, for the statement of a release."""
        return {name: epsilon for name, epsilon in asdict(self).items() if epsilon and name != "tree"}


__all__ = [
    "BY_HOUR_SHARE", "COUNT_SHARE", "DEPARTURES_SHARE", "ENDS_SHARE", "PACES_SHARE", "TREE_SHARE",
    "ZONES_SHARE", "Shares",
]  # fmt: skip
