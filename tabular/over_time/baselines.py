"""The baseline of the dissertation: an independent model for every batch, added up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streams.mechanism import Arrays, laplace_scale
from synthgeo.arrays import Floats, Ints
from synthgeo.errors import ConfigError
from synthgeo.privacy.noise import laplace_variance
from synthgeo.privacy.selection import exponential_mechanism
from synthgeo.sources import Histogram
from tabular.model.fitting import Measurement, ModelSnapshot, Snapshot, fit
from tabular.model.junction_tree import Clique
from tabular.over_time.method import Setup, TableMechanism
from tabular.workload import l1_scores, score_sensitivity

_ITERATIONS = 60


class RowSnapshot(Snapshot):
    """A table that is a pile of synthetic rows, with the expected marginals of a workload."""

    def __init__(self, names: list[str], sums: dict[Clique, Floats], rows: NDArray[np.int32]) -> None:
        self.names = names
        self.sums = sums
        self.rows = rows
        self.total = float(len(rows))

    def expected(self, cliques: Sequence[Clique]) -> dict[Clique, Floats]:
        out = {}
        for clique in cliques:
            if clique not in self.sums and len(clique) > 1:
                raise ConfigError(f"the baseline adds up the workload's marginals only, not {clique}")
            found = self.sums.get(clique)
            out[clique] = self._column(clique[0]) if found is None else found
        return out

    def _column(self, name: str) -> Floats:
        return np.bincount(self.rows[:, self.names.index(name)]).astype(np.float64)

    def sample(self, rows: int, rng: np.random.Generator, given: Mapping[Clique, Floats]) -> Ints:
        """Rows of the pile, with replacement when more are wanted than meet the conditions."""
        fits = np.ones(len(self.rows), dtype=bool)
        for clique, accepted in given.items():
            fits &= accepted[tuple(self.rows[:, self.names.index(name)] for name in clique)] > 0
        pool = np.flatnonzero(fits)
        if rows == pool.size and not given:
            return self.rows.astype(np.int64)
        if rows and not pool.size:
            raise ConfigError("no synthetic row of the baseline meets the conditions")
        taken = rng.choice(pool, rows, replace=rows > pool.size) if rows else pool[:0]
        return self.rows[taken].astype(np.int64)


class Fresh(TableMechanism):
    """MWEM with a graphical model on each batch alone; the synthetic table is the sum of all batches' models.

    Guarantee
    ---------
    Pure event-level ε: a batch's events enter their own step only. Each of its k picks costs a k-th of
    ``event.structure`` (a score moves by at most its weight) and each measured marginal a k-th of
    ``event.counts``, one record being in one cell. The listing's exponent ε/(2k) would cost twice its share,
    and its |batch| is the true size: here the size follows from the noisy marginals.
    """

    name = "StreamingMWEM"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.pick = setup.event.structure / setup.picks
        self.scale = laplace_scale(setup.event.counts / setup.picks)
        self.sums: dict[Clique, Floats] = {
            c: np.zeros(setup.cells[c]) for c in [*setup.workload, *setup.singles]
        }
        self.rows = np.zeros((0, len(setup.sizes)), dtype=np.int32)
        self.steps = 0
        # With a lifetime: what each of its batches added, and how many rows.
        self.added: tuple[tuple[dict[Clique, Floats], int], ...] = ()

    def needs(self) -> list[Clique]:
        return list(self.setup.workload)

    def advance(self, counts: Histogram, *, step: int, structure: bool) -> None:  # noqa: ARG002
        setup, batch = self.setup, self.index.split(counts)
        candidates = list(setup.workload)
        model = setup.empty_model()
        found: list[Measurement] = []
        sigma = float(np.sqrt(laplace_variance(self.scale)))
        for _ in range(min(setup.picks, len(candidates))):
            scores = l1_scores(batch, model.counts(candidates), setup.weights, dict.fromkeys(candidates, 0.0))
            held = [m.clique for m in found]
            fits = setup.room(held, candidates)
            open_to = [ok and c not in held for ok, c in zip(fits, candidates, strict=True)]
            if not any(open_to):
                break  # no room in the model for another one
            choice = candidates[
                exponential_mechanism(
                    np.where(open_to, scores, -np.inf),
                    epsilon=self.pick.epsilon,
                    sensitivity=score_sensitivity(setup.workload.weights),
                    noise=setup.noise,
                )
            ]
            noisy = batch[choice] + setup.noise.discrete_laplace(self.scale, batch[choice].size)
            found.append(Measurement(choice, noisy.astype(np.float64), sigma))
            total = float(
                np.average([m.values.sum() for m in found], weights=[1 / m.values.size for m in found])
            )
            model = fit(
                setup.layout([m.clique for m in found]),
                found,
                total=total,
                iterations=_ITERATIONS,
            )
            model.total = max(total, 0.0)
        self.model = model
        # New arrays, not new contents: earlier releases keep what they were given.
        added = model.counts(list(self.sums))
        self.sums = {clique: self.sums[clique] + added[clique] for clique in self.sums}
        drawn = ModelSnapshot(model).sample(round(model.total), setup.noise.rng, {})
        self.rows = np.concatenate([self.rows, drawn.astype(np.int32)])
        self.steps += 1
        if setup.lifetime is not None:
            self._forget(added, len(drawn), setup.lifetime)

    def _forget(self, added: dict[Clique, Floats], rows: int, lifetime: int) -> None:
        """Take what has expired out of the sums and off the pile."""
        self.added = (*self.added, (added, rows))
        if len(self.added) > lifetime:
            (gone, number), *rest = self.added
            self.added, self.steps = tuple(rest), lifetime
            self.sums = {clique: np.maximum(self.sums[clique] - gone[clique], 0.0) for clique in self.sums}
            self.rows = self.rows[number:]

    def table(self) -> Snapshot:
        return RowSnapshot(list(self.setup.sizes), self.sums, self.rows)

    def deviations(self) -> dict[Clique, float]:
        return {c: float(np.sqrt(self.steps * laplace_variance(self.scale))) for c in self.setup.workload}

    def own_state(self) -> tuple[dict[str, Any], Arrays]:
        arrays: Arrays = {"rows": self.rows}
        arrays |= {f"sum/{i}": vector for i, vector in enumerate(self.sums.values())}
        for step, (added, _) in enumerate(self.added):
            arrays |= {f"added/{step}/{i}": vector for i, vector in enumerate(added.values())}
        return {"steps": self.steps, "added": [rows for _, rows in self.added]}, arrays

    def restore_own(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.rows, self.steps = arrays["rows"], int(values["steps"])
        self.sums = {clique: arrays[f"sum/{i}"] for i, clique in enumerate(self.sums)}
        self.added = tuple(
            ({clique: arrays[f"added/{step}/{i}"] for i, clique in enumerate(self.sums)}, int(rows))
            for step, rows in enumerate(values.get("added", []))
        )
