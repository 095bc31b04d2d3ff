"""Exact audits of whole products by replay: no statistics, any number of adaptive queries.

World A is run with seeded noise, and every answer it got is kept: each noisy number, each noisy comparison,
each choice. World B is run on the neighbour with the same answers forced upon it. The log-likelihood ratio of
the transcript then adds up query by query, exactly, from the numbers that each world really put under the
noise. A private product passes for every transcript when

* the ratio stays within ε, and * world B asks the same questions and releases the same result: data reaches
the output through the queries alone.

It works because all noise is drawn through one object, as ``exact + noise.discrete_laplace(scale, size)``:
the draw comes back as an array that sees what it is added to. A comparison of that sum with a threshold
(PrivTree) counts as the bit it releases. Counters keep their noise apart from their sums, so their draws
cannot be traced this way: ``whitebox.counter_costs`` is for them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from synthgeo.arrays import Floats, Ints
from synthgeo.auditing.whitebox import exponential_law, log_survival
from synthgeo.errors import SynthGeoError
from synthgeo.privacy.noise import SeededNoise


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
