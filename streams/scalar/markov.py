"""Markov chains that everybody knows: an observer's belief, learning in public, temporal leakage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streams.scalar.local import States, read_states
from synthgeo import validate
from synthgeo.arrays import Floats
from synthgeo.errors import ConfigError, InputError


class MarkovBelief:
    """What an observer of releases believes about the next values of a chain of any order.

    ``transition`` has one axis for each value before, oldest first, and one for the next; ``prior`` is the
    law of the first value, or of as many first values as the order of the chain. The belief is held over the
    last order - 1 values together with the next one.
    """

    def __init__(self, prior: Any, transition: Any) -> None:
        moves = np.array(transition, dtype=np.float64)
        first = np.array(prior, dtype=np.float64)
        self.order = moves.ndim - 1
        k = moves.shape[-1] if moves.ndim else 0
        if self.order < 1 or k < 2 or moves.shape != (k,) * (self.order + 1):
            raise ConfigError(f"transition must be k x k (k x k x k for order 2), got shape {moves.shape}")
        if first.shape not in {(k,), (k,) * self.order}:
            raise ConfigError(
                f"prior must hold {k} probabilities, or those of the first {self.order} values together"
            )
        for name, values in (("prior", first.reshape(1, -1)), ("transition", moves.reshape(-1, k))):
            sums = values.sum(axis=1)
            if not (np.isfinite(values).all() and values.min() >= 0 and np.allclose(sums, 1, atol=1e-9)):
                raise ConfigError(f"{name} must hold probabilities that sum to 1")
        self.prior = first / first.sum()
        self.transition = moves / moves.sum(axis=-1, keepdims=True)
        self._starts = self._start_conditionals()
        self.joint: Floats = self._starts[0]
        self.step = 0

    def _start_conditionals(self) -> list[Floats]:
        """P(value | values before) for the first values, which have fewer before them than the order."""
        joint = self.prior
        while joint.ndim < self.order:  # a prior of one value: the first ones are drawn alike
            joint = joint[..., None] * self.prior
        found = []
        for count in range(1, self.order + 1):
            together = joint.sum(axis=tuple(range(count, self.order)))
            before = together.sum(axis=-1, keepdims=True)
            uniform = np.full_like(together, 1 / together.shape[-1])
            found.append(np.divide(together, before, out=uniform, where=before > 0))
        return found

    def ahead(self, length: int) -> Floats:
        """The joint law of what is held before the next value and of the next ``length`` values."""
        joint = self.joint
        for i in range(1, length):
            joint = self._extended(joint, self.step + i)
        return joint

    def batch(self, length: int) -> Floats:
        """The law of the next ``length`` values, sequences in lexicographic order."""
        joint = self.ahead(length)
        return np.asarray(joint.sum(axis=tuple(range(joint.ndim - length))).ravel())

    def learn(self, likelihood: Floats, length: int) -> None:
        """Take in P(what was released | sequence) for every sequence of the ``length`` values released."""
        joint = self.ahead(length)
        shape = joint.shape[joint.ndim - length :]
        posterior = joint * likelihood.reshape(shape)
        self.move_on(posterior / posterior.sum(), length)

    def move_on(self, joint: Floats, length: int) -> None:
        """Go ``length`` values on, with this law of what is held and of those values."""
        if self.order == 1:  # the same numbers as the sum below, to the last bit whatever numpy's blocking is
            last = joint.reshape(-1, joint.shape[-1]).sum(axis=0) if length > 1 else joint
            self.joint = last @ self.transition
        else:
            longer = self._extended(joint, self.step + length)
            self.joint = np.asarray(longer.sum(axis=tuple(range(max(0, longer.ndim - self.order)))))
        self.step += length

    def _extended(self, joint: Floats, step: int) -> Floats:
        law = self._starts[step] if step < self.order else self.transition
        return np.asarray(joint[..., None] * law)


def learn_chain(
    series: Sequence[Any], *, states: States, order: int = 1, pseudocount: float = 1.0
) -> dict[str, Any]:
    """``states``, ``prior`` and ``transition`` for the local mechanisms, counted in *public* series.

    ``series`` is one series or several. Every transition counts as seen ``pseudocount`` times more, so that
    none is impossible. Learning from the series to be protected would leak it.

    >>> chain = learn_chain([0, 0, 1, 1, 0, 0, 0], states=[0, 1])
    >>> np.round(chain["transition"], 2).tolist()
    [[0.67, 0.33], [0.5, 0.5]]
    """
    alphabet = read_states(states)
    places = {_key(state): i for i, state in enumerate(alphabet.tolist())}
    count = validate.whole(order, "order", low=1)
    extra = validate.non_negative(pseudocount, "pseudocount")
    k = alphabet.shape[0]
    moves = np.full((k,) * (count + 1), extra)
    first = np.full((k,) * count, extra)
    several = np.ndim(series[0]) > alphabet.ndim - 1 if len(series) else False
    for one in series if several else [series]:
        try:
            index = np.array([places[_key(value)] for value in np.asarray(one).tolist()])
        except KeyError as problem:
            raise InputError(f"a public series holds {problem.args[0]!r}, which is no state") from None
        if index.size >= count:
            first[tuple(index[:count])] += 1
        windows = [index[i : index.size - count + i] for i in range(count + 1)]
        if index.size > count:
            np.add.at(moves, tuple(windows), 1.0)
    if first.sum() == 0 or not moves.sum(axis=-1).all():
        raise InputError("some states have no transition: give longer public series, or a pseudocount > 0")
    return {
        "states": alphabet.tolist(),
        "prior": (first / first.sum()).tolist(),
        "transition": (moves / moves.sum(axis=-1, keepdims=True)).tolist(),
    }


def _key(state: Any) -> Any:
    return tuple(state) if isinstance(state, list) else float(state)


def temporal_leakage(epsilons: Sequence[float], *, prior: Any, transition: Any) -> Floats:
    """What an observer who knows the chain learns about each single value from ε_t-private releases of all.

    Temporal privacy leakage (Cao, Yoshikawa, Xiao and Xiong, "Quantifying Differential Privacy under Temporal
    Correlations", 2017): backward leakage B_t = L(B_{t-1}) + ε_t by P(x_{t-1} | x_t), forward leakage F_t =
    L(F_{t+1}) + ε_t by P(x_{t+1} | x_t), together B_t + F_t - ε_t. L(α) is the largest over pairs of rows q,
    d of ln((q (e^α - 1) + 1) / (d (e^α - 1) + 1)), q and d summed over the subset of columns that makes it
    largest.

    >>> temporal_leakage([0.1, 0.1, 0.1], prior=[0.5, 0.5], transition=[[1, 0], [0, 1]]).round(6).tolist()
    [0.3, 0.3, 0.3]
    """
    belief = MarkovBelief(prior, transition)
    if belief.order != 1:
        raise ConfigError("temporal leakage is for chains of first order")
    shares = np.array([validate.non_negative(value, "each of epsilons") for value in epsilons])
    moves, law = belief.transition, belief.prior
    backward, forward = shares.copy(), shares.copy()
    for t in range(1, shares.size):
        joint = law[:, None] * moves
        law = joint.sum(axis=0)
        before = np.divide(joint, law, out=np.zeros_like(joint), where=law > 0).T
        backward[t] += _carried(before[law > 0], backward[t - 1])
    for t in range(shares.size - 2, -1, -1):
        forward[t] += _carried(moves, forward[t + 1])
    return np.asarray(backward + forward - shares)


def _carried(rows: Floats, leakage: float) -> float:
    """L(α): how much of what leaks about the neighbouring value leaks about this one."""
    growth = np.expm1(min(leakage, 700.0))
    q, d = rows[:, None, :], rows[None, :, :]
    ratio = np.divide(q, d, out=np.full(np.broadcast_shapes(q.shape, d.shape), np.inf), where=d > 0)
    order = np.argsort(-ratio, axis=2)  # the best subset holds the columns with the largest ratios
    top = np.cumsum(np.take_along_axis(np.broadcast_to(q, ratio.shape), order, 2), axis=2)
    low = np.cumsum(np.take_along_axis(np.broadcast_to(d, ratio.shape), order, 2), axis=2)
    return float(np.max(np.log1p(top * growth) - np.log1p(low * growth), initial=0.0))
