"""Channels for Sequence Information Privacy: P(output | value) matrices, their leakage, and drawing from them
exactly.

With belief β over the values, a channel a(y|x) leaks max |ln(a(y|x) / P(y))|, P(y) = Σ β(x) a(y|x): how much
an observer's belief in any value can move. Jiang, Li and Tandon (2024) give a closed form, a(y|x) = β(y) e^-ε
off the diagonal (their Theorem 4 prints β(x)).

**Where it holds.** Then P(y) = β(y). Off the diagonal the ratio is e^-ε. On it, (1 - (1 - β) e^-ε) / β <= e^ε
if and only if β >= 1 / (e^ε + 1). Below that the form leaks more than ε (at ε = 1, β = 0.1: 1.90), and with
more than e^ε + 1 values some β is always below. There the linear programme decides.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from synthgeo.arrays import Floats
from synthgeo.errors import ConfigError
from synthgeo.privacy.noise import Noise

_BITS = 52  # probabilities are whole multiples of 2^-52: a row is drawn exactly
_MARGIN = 1e-7  # of ε, left to the solver's tolerance
_RARE = 1e-6


def closed_form_holds(belief: Floats, epsilon: float) -> bool:
    """Whether the closed form keeps ε for this belief."""
    return bool(belief.min() >= 1 / (math.exp(epsilon) + 1))


def closed_form(belief: Floats, epsilon: float) -> Floats:
    """Theorem 4 with the misprint mended, valid or not."""
    matrix = np.tile(belief * math.exp(-epsilon), (belief.size, 1))
    np.fill_diagonal(matrix, 1 - (1 - belief) * math.exp(-epsilon))
    return matrix


def optimal_channel(belief: Floats, epsilon: float, distance: Floats) -> Floats:
    """The channel with the least expected distance among those that leak at most ε: problem (31), a linear
    programme.

    Variables are a(y|x); for each x and y, e^-ε P(y) <= a(y|x) <= e^ε P(y), also for values the belief rules
    out, so that 2ε local differential privacy holds whatever the truth.
    """
    k = belief.size
    bound = epsilon * (1 - _MARGIN)
    # Variable x * k + y is a(y|x), variable k² + y is P(y). With P(y) as a variable of its own every
    # constraint is sparse, and 81 sequences take a second instead of half a minute.
    pick = sparse.identity(k * k, format="csr")
    column = sparse.kron(np.ones((k, 1)), sparse.identity(k), format="csr")
    ratios = sparse.bmat(
        [[pick, -math.exp(bound) * column], [-pick, math.exp(-bound) * column]], format="csr"
    )
    rows = sparse.hstack([sparse.kron(sparse.identity(k), np.ones((1, k))), sparse.csr_matrix((k, k))])
    outputs = sparse.hstack([sparse.kron(belief[None, :], sparse.identity(k)), -sparse.identity(k)])
    solution = linprog(
        np.concatenate([(belief[:, None] * distance).ravel(), np.zeros(k)]),
        A_ub=ratios,
        b_ub=np.zeros(2 * k * k),
        A_eq=sparse.vstack([rows, outputs], format="csr"),
        b_eq=np.concatenate([np.ones(k), np.zeros(k)]),
        bounds=(0, 1),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if not solution.success:  # the constant channel is always feasible, so this is the solver's trouble
        raise ConfigError(f"the linear programme for this belief was not solved: {solution.message}")
    matrix = np.clip(solution.x[: k * k].reshape(k, k), 0, 1)
    # An output as rare as the solver's tolerance has ratios made of rounding errors: it is left out.
    matrix[:, belief @ matrix < _RARE] = 0.0
    return np.asarray(matrix / matrix.sum(axis=1, keepdims=True))


def design(belief: Floats, epsilon: float, distance: Floats) -> Floats:
    """A channel that leaks at most ε, its probabilities whole multiples of 2^-52.

    The closed form where it holds, the linear programme elsewhere. What the solver's tolerance and the
    rounding leave above ε is removed by mixing with the output's own distribution, which tells nothing.
    """
    if closed_form_holds(belief, epsilon):
        matrix = closed_form(belief, epsilon)
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
