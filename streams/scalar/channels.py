"""What an observer learns: beliefs over a public Markov chain, and channels that bound how far they move."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from streams.scalar.local import States, read_states
from synthgeo import validate
from synthgeo.arrays import Floats
from synthgeo.errors import ConfigError, InputError
from synthgeo.privacy.noise import Noise

# Markov chains that everybody knows: an observer's belief, learning in public, temporal leakage.


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


# Channels for Sequence Information Privacy: P(output | value) matrices, their leakage, and drawing from them
# exactly.
#
# With belief β over the values, a channel a(y|x) leaks max |ln(a(y|x) / P(y))|, P(y) = Σ β(x) a(y|x): how
# much an observer's belief in any value can move. Jiang, Li and Tandon (2024) give a closed form, a(y|x) =
# β(y) e^-ε off the diagonal (their Theorem 4 prints β(x)).
#
# **Where it holds.** Then P(y) = β(y). Off the diagonal the ratio is e^-ε. On it, (1 - (1 - β) e^-ε) / β <=
# e^ε if and only if β >= 1 / (e^ε + 1). Below that the form leaks more than ε (at ε = 1, β = 0.1: 1.90), and
# with more than e^ε + 1 values some β is always below. There the linear programme decides.

_BITS = 52  # probabilities are whole multiples of 2^-52: a row is drawn exactly
_MARGIN = 1e-7  # of ε, left to the solver's tolerance
_RARE = 1e-6

WHOLE_PROGRAMME = 81  # up to so many values the programme is solved with all outputs
_TOLERANCE = 0.01
_FIRST_OUTPUTS = 8
_MORE_OUTPUTS = 32
_MOST_OUTPUTS = 256


def closed_form_holds(belief: Floats, epsilon: float) -> bool:
    """Whether the closed form keeps ε for this belief."""
    return bool(belief.min() >= 1 / (math.exp(epsilon) + 1))


def closed_form(belief: Floats, epsilon: float) -> Floats:
    """Theorem 4 with the misprint mended, valid or not."""
    matrix = np.tile(belief * math.exp(-epsilon), (belief.size, 1))
    np.fill_diagonal(matrix, 1 - (1 - belief) * math.exp(-epsilon))
    return matrix


def is_metric(distance: Floats) -> bool:
    """Whether Theorem 4's conditions hold: symmetric, 0 on the diagonal, the triangle inequality."""
    if not (np.array_equal(distance, distance.T) and not distance.diagonal().any()):
        return False
    # One row at a time: k³ numbers at once would be too many for long batches.
    return all(bool(np.all(row[None, :] <= row[:, None] + distance + 1e-9)) for row in distance)


def optimal_channel(belief: Floats, epsilon: float, distance: Floats) -> Floats:
    """The channel with the least expected distance among those that leak at most ε: problem (31), a linear
    programme.

    Variables are a(y|x); for each x and y, e^-ε P(y) <= a(y|x) <= e^ε P(y), also for values the belief rules
    out, so that 2ε local differential privacy holds whatever the truth.
    """
    return _solve(belief, epsilon, distance, np.arange(distance.shape[1]))[0]


def _solve(belief: Floats, epsilon: float, distance: Floats, outputs: Any) -> tuple[Floats, float, Floats]:
    """The best channel with these outputs only, its expected distance, and the dual prices of the rows.

    With a(y|x) = e^-ε P(y) + s(x, y) the lower bounds are s >= 0, and what is left is s <= (e^ε - e^-ε) P(y),
    Σ_y s = 1 - e^-ε and Σ_x β s = (1 - e^-ε) P(y): half the constraints of problem (31), and sparse.
    """
    k, m = belief.size, outputs.size
    low, high = math.exp(-epsilon * (1 - _MARGIN)), math.exp(epsilon * (1 - _MARGIN))
    # Variable x * m + y is s(x, y), variable k m + y is P(y).
    column = sparse.kron(np.ones((k, 1)), sparse.identity(m), format="csr")
    least = sparse.hstack([sparse.identity(k * m), -(high - low) * column], format="csr")
    rows = sparse.hstack([sparse.kron(sparse.identity(k), np.ones((1, m))), sparse.csr_matrix((k, m))])
    sums = sparse.hstack([sparse.kron(belief[None, :], sparse.identity(m)), -(1 - low) * sparse.identity(m)])
    apart = distance[:, outputs]
    solution = linprog(
        np.concatenate([(belief[:, None] * apart).ravel(), low * (belief @ apart)]),
        A_ub=least,
        b_ub=np.zeros(k * m),
        A_eq=sparse.vstack([rows, sums], format="csr"),
        b_eq=np.concatenate([np.full(k, 1 - low), np.zeros(m)]),
        bounds=(0, None),
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if not solution.success:  # the constant channel is always feasible, so this is the solver's trouble
        raise ConfigError(f"the linear programme for this belief was not solved: {solution.message}")
    matrix = np.clip(solution.x[: k * m].reshape(k, m) + low * solution.x[k * m :], 0, 1)
    # An output as rare as the solver's tolerance has ratios made of rounding errors: it is left out.
    matrix[:, belief @ matrix < _RARE] = 0.0
    channel = np.zeros(distance.shape)
    channel[:, outputs] = matrix / matrix.sum(axis=1, keepdims=True)
    return channel, float(solution.fun), np.asarray(solution.eqlin.marginals[:k])


def outputs_channel(
    belief: Floats, epsilon: float, distance: Floats, *, tolerance: float
) -> tuple[Floats, float]:
    """A channel over many sequences, near the best: solved for few outputs, which are added as they pay.

    The best channel uses few of its k outputs unless ε is large. The programme is solved for some of them;
    its dual prices u (one for each value) tell what a further output y is worth per unit of its probability:
    the least of Σ_x β(x) d(x, y) a(x) - u(x) (a(x) - e^-ε) over a(x) in [e^-ε, e^ε] with Σ β a = 1, a
    fractional knapsack. Outputs of negative worth enter; (1 - e^-ε) Σ u plus the least worth is a lower
    bound, and what is returned beside the channel is how far above it the channel is at most, as a share.
    Stops within ``tolerance``. Privacy does not depend on where it stops.
    """
    k = belief.size
    chosen = np.argsort(-belief, kind="stable")[:_FIRST_OUTPUTS]
    while True:
        channel, error, prices = _solve(belief, epsilon, distance, chosen)
        worth = _output_worth(belief, epsilon, distance, prices)
        bound = -math.expm1(-epsilon) * float(prices.sum()) + min(0.0, float(worth.min()))
        gap = (error - bound) / error if error > 0 else 0.0
        fresh = np.setdiff1d(np.argsort(worth, kind="stable")[:_MORE_OUTPUTS], chosen)
        fresh = fresh[worth[fresh] < -1e-12]
        if gap <= tolerance or not fresh.size or chosen.size + fresh.size > min(k, _MOST_OUTPUTS):
            return channel, max(0.0, gap)
        chosen = np.concatenate([chosen, fresh])


def _output_worth(belief: Floats, epsilon: float, distance: Floats, prices: Floats) -> Floats:
    """The least reduced cost of each output, per unit of its probability."""
    high, low = math.exp(epsilon), math.exp(-epsilon)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(belief > 0, prices / belief, np.where(prices > 0, math.inf, -math.inf))
    keys = distance.T - each[None, :]  # of output y and value x
    order = np.argsort(keys, axis=1, kind="stable")
    mass = belief[order]
    before = np.cumsum(mass, axis=1) - mass
    # Values of total mass 1 / (e^ε + 1) get e^ε, the last of them in part, and the others e^-ε.
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(mass > 0, np.clip((1 / (high + 1) - before) / mass, 0, 1), before < 1 / (high + 1))
    a = low + part * (high - low)
    costs = np.take_along_axis(belief[None, :] * distance.T - prices[None, :], order, axis=1)
    return np.asarray((a * costs).sum(axis=1) + low * prices.sum())


def design(belief: Floats, epsilon: float, distance: Floats, *, tolerance: float = 0.0) -> Floats:
    """A channel that leaks at most ε, its probabilities whole multiples of 2^-52.

    The closed form where it holds and is best (distances that obey the triangle inequality, 0 on the diagonal
    and nowhere else), the linear programme elsewhere; over more than ``WHOLE_PROGRAMME`` values, or with a
    ``tolerance``, one that is near the best. What the solver's tolerance and the rounding leave above ε is
    removed by mixing with the output's own distribution, which tells nothing.
    """
    if closed_form_holds(belief, epsilon) and is_metric(distance):
        matrix = closed_form(belief, epsilon)
    elif tolerance or belief.size > WHOLE_PROGRAMME:
        matrix, _ = outputs_channel(belief, epsilon, distance, tolerance=tolerance or _TOLERANCE)
    else:
        matrix = optimal_channel(belief, epsilon, distance)
    alone = (belief @ matrix)[None, :]
    for share in (0.0, *np.geomspace(1e-12, 1.0, 60).tolist()):
        rounded = _round((1 - share) * matrix + share * alone)
        if leakage(rounded, belief) <= epsilon:
            return rounded
    raise ConfigError("no channel within the leakage was found for this belief")  # share 1 leaks nothing


def _round(matrix: Floats) -> Floats:
    """Probabilities as multiples of 2^-52 that sum to 1 exactly; impossible outputs stay impossible."""
    used = matrix.max(axis=0) > 1e-13
    steps = np.where(used, np.floor(matrix * 2.0**_BITS), 0.0)
    # What rounding took is given back to the largest entry of each row.
    rest = 2.0**_BITS - steps.sum(axis=1)
    steps[np.arange(steps.shape[0]), steps.argmax(axis=1)] += rest
    return np.asarray(steps / 2.0**_BITS)


def leakage(channel: Floats, belief: Floats) -> float:
    """The most that an observer's belief in any value can move, in natural logarithms; infinite if it can be
    ruled out.
    """
    outputs = belief @ channel
    seen = channel.max(axis=0) > 0
    with np.errstate(divide="ignore"):
        return float(np.max(np.abs(np.log(channel[:, seen]) - np.log(outputs[seen]))))


def expected_distance(channel: Floats, belief: Floats, distance: Floats) -> float:
    """The mean distance between value and output."""
    return float(np.sum(belief[:, None] * channel * distance))


def posterior(channel: Floats, belief: Floats, output: int) -> Floats:
    """The observer's belief after an output."""
    joint = belief * channel[:, output]
    return np.asarray(joint / joint.sum())


def draw(channel: Floats, value: int, noise: Noise) -> int:
    """Draw an output: exact, since the row's probabilities are multiples of 2^-52."""
    edges = np.cumsum(np.rint(channel[value] * 2.0**_BITS).astype(np.int64))
    return int(np.searchsorted(edges, noise.integers(2**_BITS, 1)[0], side="right"))
