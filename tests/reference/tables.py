"""A table over time without noise: rows that came and went, counted one by one."""

from __future__ import annotations

from collections import Counter


class RowsReference:
    """Net counts of every marginal, from a list of events."""

    def __init__(self):
        self.events = []

    def update(self, rows, signs):
        self.events += list(zip(rows, signs, strict=True))

    def total(self):
        return sum(sign for _, sign in self.events)

    def marginal(self, names, clique, values):
        """Counts in the order of ``values`` for each column of ``clique``, the last one fastest."""
        places = [names.index(name) for name in clique]
        net: Counter = Counter()
        for row, sign in self.events:
            net[tuple(row[place] for place in places)] += sign
        cells = [()]
        for _ in clique:
            cells = [(*cell, value) for cell in cells for value in values]
        return [net[cell] for cell in cells]
