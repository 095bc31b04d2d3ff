"""The strongest exact attack on a whole product: both worlds at once, with the answers that tell most.

Replay follows a transcript as the noise happens to write it, and most transcripts tell little. A pure ε
bounds *every* transcript, so here the answers are chosen: both worlds run in lockstep, and each time both
have put their number under the noise, the same answer is handed to both, pushed to the side that favours the
first world; each choice is the most telling one. Any such answer has positive probability, so its log-
likelihood ratio is a loss that the product really has, computed exactly: no statistics, no confidence. By
Neyman and Pearson's lemma that ratio is the best statistic there is. It comes close to ε where a product
spends all it has on numbers that the unit moves, and halved noise doubles it.

Gaussian noise has no largest loss. Its sums add up in ``rho`` (zCDP, the squared distance of the two worlds
in standard deviations, halved), from which ``gaussian_epsilon`` gives the exact ε at a δ.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from synthgeo.arrays import Floats, Ints
from synthgeo.auditing.whitebox import exponential_law, log_survival
from synthgeo.errors import SynthGeoError
from synthgeo.privacy.noise import SeededNoise, contrast

# How far, in scales of the noise, an answer is pushed by default: far enough to split any node of a PrivTree.
PUSH = 4.0
_PATIENCE = 600.0


@dataclass(frozen=True)
class DuelResult:
    """What the attack found: the exact log-likelihood ratio of one transcript, and what both worlds made."""

    loss: float
    rho: float
    questions: int
    results: tuple[Any, Any]


def duel(
    run: Callable[[Any, DuelNoise], Any],
    pair: tuple[Any, Any],
    *,
    seed: int = 1,
    push: float = PUSH,
    thin: float = 1.0,
) -> DuelResult:
    """Run ``run(data, noise)`` on both of ``pair`` at once.

    ``push`` is how far answers go beyond the first world's number, in scales of the noise. With 0 they are
    that number, as if there were no noise: what a product chooses next is then close to what it should, and
    choices tell most. ``thin`` below 1 is a twin: noise scaled down so.

    ``ReplayError`` when the worlds ask different questions: what is asked depends on private data then, and
    the loss is infinite.
    """
    referee = _Referee()
    noises = tuple(DuelNoise(seed, world, referee, push, thin) for world in (0, 1))
    results: list[Any] = [None, None]
    problems: list[BaseException | None] = [None, None]

    def play(world: int) -> None:
        try:
            results[world] = run(pair[world], noises[world])
            noises[world].finish()
        except BaseException as problem:  # noqa: BLE001 - raised again below, in the caller's thread
            problems[world] = problem
            referee.barrier.abort()

    other = threading.Thread(target=play, args=(1,), daemon=True)
    other.start()
    play(0)
    other.join()
    for problem in problems:
        if problem is not None and not isinstance(problem, threading.BrokenBarrierError):
            raise problem
    if any(problems):
        raise ReplayError("one world asked and the other had nothing to answer")
    return DuelResult(noises[1].log_ratio, referee.rho, referee.questions, (results[0], results[1]))


def gaussian_epsilon(rho: float, delta: float) -> float:
    """The exact ε at ``delta`` of Gaussian noise whose two worlds are sqrt(2 ρ) standard deviations apart
    (Balle and Wang 2018).
    """
    apart = math.sqrt(2 * rho)

    def excess(epsilon: float) -> float:
        low, high = apart / 2 - epsilon / apart, -apart / 2 - epsilon / apart
        return math.exp(log_ndtr(low)) - math.exp(epsilon + log_ndtr(high)) - delta

    if apart == 0 or excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, rho + 2 * math.sqrt(rho * math.log(1 / delta)) + 1))


class DuelNoise(SeededNoise):
    """Noise of one world. Draws wait for the other world's number; ``log_ratio`` adds up in world 1."""

    def __init__(self, seed: int, world: int, referee: _Referee, push: float, thin: float) -> None:
        super().__init__(seed)
        self._world, self._referee, self._push, self._thin = world, referee, push, thin
        self._untraced = 0
        self.log_ratio = 0.0

    def finish(self) -> None:
        """Say that this world has no more questions."""
        if self._untraced:
            raise ReplayError(f"{self._untraced} draws were not added to anything that a duel can see")
        self._referee.ask(self._world, ("end",), None)

    def discrete_laplace(self, scale: Any, size: int | None = None) -> Any:
        """A draw that waits to be added to what it hides."""
        shape = np.shape(scale) if np.ndim(scale) else (1 if size is None else int(size),)
        scale = np.asarray(scale, dtype=np.float64) * self._thin
        self._untraced += int(np.prod(shape))
        drawn = super().discrete_laplace(scale if np.ndim(scale) else float(scale), size)
        return Draw.of(drawn, self, np.broadcast_to(scale, shape))

    def discrete_gaussian(self, sigma: float, size: int) -> Any:
        """A Gaussian draw that waits likewise."""
        self._untraced += int(size)
        drawn = super().discrete_gaussian(sigma * self._thin, size)
        return Draw.of(drawn, self, np.broadcast_to(np.float64(sigma * self._thin), (size,)), gaussian=True)

    def contrast_gaussian(self, sigma: float, shape: tuple[int, ...]) -> Any:
        """Contrasts of Gaussian draws: in the units of ``contrast``, which multiplies by the cells."""
        self._untraced += math.prod(shape)
        drawn = contrast(
            SeededNoise.discrete_gaussian(self, sigma * self._thin, math.prod(shape)).reshape(shape)
        )
        scale = np.broadcast_to(np.float64(sigma * self._thin * math.prod(shape)), shape)
        return Draw.of(drawn, self, scale, gaussian=True)

    def settle(self, exact: Floats, draw: Draw) -> tuple[Floats, Floats, float]:
        """The common answer, world 0's exact numbers, and what the answer adds to the log-ratio."""
        self._untraced -= draw.size
        scale, plain = draw.scale, draw.view(np.ndarray)

        def answer(first: Floats, second: Floats) -> tuple[Floats, Floats]:
            apart = first - second
            if draw.gaussian:
                self._referee.rho += float(((apart / scale) ** 2).sum() / 2)
                return first + plain * (self._push > 0), first
            if self._push == 0:
                return first, first
            pushed = np.abs(plain) + np.ceil(self._push * scale).astype(np.int64)
            return first + np.where(apart == 0, plain, np.sign(apart).astype(np.int64) * pushed), first

        header = ("sum", exact.shape, scale.tobytes(), draw.gaussian)
        common, before = self._referee.ask(self._world, header, np.array(exact), answer)
        added = 0.0
        if self._world == 1 and not draw.gaussian:
            added = float(((np.abs(common - exact) - np.abs(common - before)) / scale).sum())
            self.log_ratio += added
        return common, before, added

    def choose(self, scores: Any, *, epsilon: float, sensitivity: float, monotonic: bool = False) -> int:
        """The choice of the exponential mechanism that favours world 0 most."""
        rate = epsilon / sensitivity / (1 if monotonic else 2) / self._thin
        law = exponential_law(scores, rate)

        def answer(first: Floats, second: Floats) -> tuple[int, float]:
            possible = first > 0
            ratio = np.full(first.size, -np.inf)
            ratio[possible] = np.log(first[possible] / second[possible])
            choice = int(np.argmax(ratio))
            return choice, float(ratio[choice])

        header = ("choice", rate, (law > 0).tobytes())
        choice, ratio = self._referee.ask(self._world, header, law, answer)
        if self._world == 1:
            self.log_ratio += ratio
        return int(choice)


class _Referee:
    """Where the two worlds meet at every question."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2, action=self._answer, timeout=_PATIENCE)
        self.questions = 0
        self.rho = 0.0
        self._asked: list[Any] = [None, None]
        self._common: Any = None

    def ask(self, world: int, header: tuple[Any, ...], numbers: Any, answer: Any = None) -> Any:
        """Wait for the other world's question, which must be the same; the common answer."""
        self._asked[world] = header, numbers, answer
        self.barrier.wait()
        return self._common

    def _answer(self) -> None:
        (header, first, answer), (other, second, _) = self._asked
        if header != other:
            raise ReplayError(
                f"question {self.questions} differs between the worlds: {header[0]}, {other[0]}"
            )
        if answer is not None:
            self.questions += 1
            self._common = answer(first, second)


# Exact audits of whole products by replay: no statistics, any number of adaptive queries.
#
# World A is run with seeded noise, and every answer it got is kept: each noisy number, each noisy comparison,
# each choice. World B is run on the neighbour with the same answers forced upon it. The log-likelihood ratio
# of the transcript then adds up query by query, exactly, from the numbers that each world really put under
# the noise. A private product passes for every transcript when
#
# * the ratio stays within ε, and * world B asks the same questions and releases the same result: data reaches
# the output through the queries alone.
#
# It works because all noise is drawn through one object, as ``exact + noise.discrete_laplace(scale, size)``:
# the draw comes back as an array that sees what it is added to. A comparison of that sum with a threshold
# (PrivTree) counts as the bit it releases. Counters keep their noise apart from their sums, so their draws
# cannot be traced this way: ``whitebox.counter_costs`` is for them.


class ReplayError(SynthGeoError):
    """World B asked other questions than world A: what is asked depends on private data."""


class ReplayNoise(SeededNoise):
    """Seeded noise that records world A's answers, and after ``rewind`` forces them on world B.

    ``log_ratio`` is ln P_A(transcript) - ln P_B(transcript) once both worlds have run.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._first_seed = seed
        self._tape: list[tuple[Any, ...]] = []
        self._place: int | None = None
        self._untraced = 0
        self.log_ratio = 0.0

    def rewind(self) -> None:
        """Start world B. Post-processing gets the same random numbers again."""
        self._check_traced()
        self._rng = SeededNoise(self._first_seed).rng
        self._place = 0

    def finish(self) -> float:
        """The log-ratio, after checking that world B asked every question that world A did."""
        self._check_traced()
        if self._place is None or self._place != len(self._tape):
            raise ReplayError(f"world B asked {self._place} questions, world A {len(self._tape)}")
        return self.log_ratio

    def _check_traced(self) -> None:
        if self._untraced:
            raise ReplayError(f"{self._untraced} draws were not added to anything that replay can see")

    def _next(self, *expected: Any) -> tuple[Any, ...]:
        assert self._place is not None
        if self._place >= len(self._tape) or self._tape[self._place][: len(expected)] != expected:
            raise ReplayError(f"question {self._place} differs between the worlds: {expected}")
        self._place += 1
        return self._tape[self._place - 1][len(expected) :]

    def discrete_laplace(self, scale: Any, size: int | None = None) -> Any:
        """A draw that waits to be added to what it hides."""
        shape = np.shape(scale) if np.ndim(scale) else (1 if size is None else int(size),)
        if self._place is None:
            drawn = super().discrete_laplace(scale, size)
        else:
            drawn = np.zeros(shape, dtype=np.int64)  # the answer is on the tape
        self._untraced += drawn.size
        return Draw.of(drawn, self, np.broadcast_to(np.asarray(scale, dtype=np.float64), shape))

    def settle(self, exact: Floats, draw: Draw) -> tuple[Floats, Floats, float]:
        """Answer ``exact + draw``: the answer, world A's exact numbers, and what the answer as a value adds
        to the ratio.
        """
        self._untraced -= draw.size
        scale = draw.scale
        if self._place is None:
            answer = exact + draw.view(np.ndarray)
            self._tape.append(("sum", answer.shape, scale.tobytes(), exact, answer))
            return answer, exact, 0.0
        before, answer = self._next("sum", exact.shape, scale.tobytes())
        added = float(((np.abs(answer - exact) - np.abs(answer - before)) / scale).sum())
        self.log_ratio += added
        return answer, before, added

    def choose(self, scores: Any, *, epsilon: float, sensitivity: float, monotonic: bool = False) -> int:
        """The exponential mechanism's answer. Put in its place where a product calls it."""
        rate = epsilon / sensitivity / (1 if monotonic else 2)
        law = exponential_law(scores, rate)
        possible = (law > 0).tobytes()
        if self._place is None:
            # Any draw from the law will do: the ratio is exact for whatever was drawn.
            choice = int(np.searchsorted(np.cumsum(law), float(self._bits.random()) * float(law.sum())))
            self._tape.append(("choice", rate, possible, law, choice))
            return choice
        before, choice = self._next("choice", rate, possible)
        self.log_ratio += float(np.log(before[choice] / law[choice]))
        return int(choice)


def replayed_selection(
    scores: Any, *, epsilon: float, sensitivity: float, noise: ReplayNoise, monotonic: bool = False
) -> int:
    """Stands in for ``exponential_mechanism`` in a module under replay."""
    return noise.choose(scores, epsilon=epsilon, sensitivity=sensitivity, monotonic=monotonic)


class Draw(np.ndarray):
    """Noise that has not met its number yet."""

    noise: Any
    scale: Floats
    gaussian: bool

    @classmethod
    def of(cls, drawn: Ints, noise: Any, scale: Floats, *, gaussian: bool = False) -> Draw:
        """``noise.settle(exact, draw)`` will be asked for the answer."""
        array = np.asarray(drawn).view(cls)
        array.noise, array.scale, array.gaussian = noise, scale, gaussian
        return array

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if (
            ufunc is np.add
            and method == "__call__"
            and not options
            and sum(isinstance(i, Draw) for i in inputs) == 1
        ):
            other = next(i for i in inputs if not isinstance(i, Draw))
            exact = np.broadcast_to(np.asarray(other), self.shape)
            return _Noisy.of(exact, self)
        raise ReplayError(f"a draw met {ufunc.__name__} before it was added to anything")


class _Noisy(np.ndarray):
    """An answer. Compared with a threshold it counts as the bits of the comparison, else as its value."""

    parts: tuple[Any, ...]

    @classmethod
    def of(cls, exact: Floats, draw: Draw) -> _Noisy:
        noise = draw.noise
        answer, before, added = noise.settle(exact, draw)
        array = np.asarray(answer).view(cls)
        array.parts = (noise, exact, before, draw.scale, added)
        return array

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [i.view(np.ndarray) if isinstance(i, _Noisy) else i for i in inputs]
        result = getattr(ufunc, method)(*plain, **options)
        if ufunc is np.greater and method == "__call__" and inputs[0] is self and hasattr(self, "parts"):
            noise, exact, before, scale, added = self.parts
            noise.log_ratio += _comparison_ratio(before, exact, inputs[1], scale, result) - added
        return result

    def __array_finalize__(self, source: Any) -> None:
        """Slices and copies are plain answers."""


def _comparison_ratio(before: Any, exact: Any, threshold: Any, scale: Floats, result: Any) -> float:
    """ln P_A - ln P_B of the outcomes of (exact + noise > threshold)."""
    total = np.zeros(np.shape(result))
    for sign, numbers in ((1, before), (-1, exact)):
        m = np.floor(np.asarray(threshold, dtype=np.float64) - numbers)
        for width in np.unique(scale):
            here = scale == width
            yes, no = log_survival(m, float(width)), log_survival(-m - 1, float(width))
            total = total + sign * np.where(here, np.where(result, yes, no), 0.0)
    return float(total.sum())
