"""Exact audits of adaptive products by replay.

World A is run with seeded noise and its transcript kept: every noisy histogram and every choice. World B is
run on the neighbour with those same answers forced upon it. Then the log-likelihood ratio of the transcript
is computed exactly, query by query, from the numbers each world really handed over. It must stay within ε,
and everything released must be equal in both worlds: a difference means that private data reached the output
by another way than the queries.
"""

from __future__ import annotations

import numpy as np

from synthgeo.audit.whitebox import exponential_law
from tabular.purse import Purse


class Tape:
    """Answers of world A, then the ratio that world B adds up."""

    def __init__(self) -> None:
        self.entries: list[tuple] = []
        self.replaying = False
        self.position = 0
        self.log_ratio = 0.0

    def rewind(self) -> None:
        self.replaying, self.position = True, 0

    def next(self) -> tuple:
        self.position += 1
        return self.entries[self.position - 1]


def recording_purse(tape: Tape, *, noise_factor: float = 1.0, rate_factor: float = 1.0):
    """A Purse whose queries go through the tape. The factors make twins: less noise, larger exponent."""

    class Recording(Purse):
        def measure(self, counts, fraction):
            amount = self._take(fraction)
            scale = noise_factor / amount
            if tape.replaying:
                kind, before, answer, old_scale = tape.next()
                assert kind == "measure"
                assert scale == old_scale
                tape.log_ratio += float((np.abs(answer - counts) - np.abs(answer - before)).sum()) / scale
                return answer
            answer = (counts + self.noise.discrete_laplace(scale, counts.size)).astype(np.float64)
            tape.entries.append(("measure", counts.copy(), answer, scale))
            return answer

        def choose(self, scores, sensitivity, fraction):
            rate = rate_factor * self._take(fraction) / (2 * sensitivity)
            scores = np.asarray(scores, dtype=np.float64)
            law = exponential_law(scores, rate)
            if tape.replaying:
                kind, before, choice, old_rate = tape.next()
                assert kind == "choose"
                assert rate == old_rate
                # What can be chosen at all must not depend on the data.
                assert np.array_equal(before > 0, law > 0)
                tape.log_ratio += float(np.log(before[choice] / law[choice]))
                return choice
            # Any draw from the law will do here; the ratio is exact whatever was drawn.
            choice = int(np.searchsorted(np.cumsum(law), self.noise.rng.random() * law.sum()))
            tape.entries.append(("choose", law, choice, rate))
            return choice

    return Recording
