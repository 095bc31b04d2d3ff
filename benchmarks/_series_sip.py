"""Jiang, Li and Tandon 2024, propositions 1 and 2, figures 3 to 10: Sequence Information Privacy beside
local mechanisms. Kosarak and the eye-tracking data are not public; chains of their kind stand in.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import streams.scalar.channels as channels
import synthgeo as sg
from benchmarks._series import SEED, Report

S = sg.series


def stay(p: float, k: int = 2) -> np.ndarray:
    """A chain that stays with probability p, else goes to a neighbour (or to the other of two states)."""
    if k == 2:
        return np.array([[p, 1 - p], [1 - p, p]])
    moves = np.zeros((k, k))
    for state in range(k):
        near = [s for s in (state - 1, state + 1) if 0 <= s < k]
        moves[state, near] = 0.8 * (1 - p) / len(near)
        moves[state] += 0.2 * (1 - p) / k
        moves[state, state] += p
    return moves / moves.sum(axis=1, keepdims=True)


def expected(report: Report, runs: int) -> None:  # noqa: ARG001 - one shape for all
    """Propositions 1 and 2, leakage, and batches, on a binary chain."""
    length = 120
    prior, moves = [0.5, 0.5], stay(0.9)
    chain = sg.simulate.markov_chain(length, prior=prior, transition=moves, seed=SEED).tolist()
    flip = 1.0 - np.eye(2)
    rows = []
    for each in (0.25, 0.5, 1.0, 2.0):
        options = {
            "budget": sg.PrivacyBudget(each * length),
            "horizon": length,
            "prior": prior,
            "transition": moves.tolist(),
        }
        mechanism = S.SIPInstant(**options, noise=sg.SeededNoise(SEED))
        instant, valid, leaks, printed = 0.0, [], 0.0, 0.0
        for value in chain:
            belief, used = mechanism.belief, mechanism.channel()
            error = channels.expected_distance(used, belief, flip)
            instant += error / length
            leaks = max(leaks, channels.leakage(used, belief))
            printed = max(printed, channels.leakage(channels.closed_form(belief, each), belief))
            if channels.closed_form_holds(belief, each):
                valid.append(error)
            mechanism.update(value)
        row = {
            "ε per value": each,
            "response": 1 / (math.exp(each) + 1),
            "instant": instant,
            "most, valid": max(valid, default=math.nan),
            "1/(2e^ε)": 1 / (2 * math.exp(each)),
            "leak": leaks,
            "printed leaks": printed,
        }
        for batch in (2, 3, 4):
            batched = S.SIPBatched(**options, batch=batch, noise=sg.SeededNoise(SEED))
            total = 0.0
            for start in range(0, length - length % batch, batch):
                belief = batched.batch_belief(batch)
                sequences = np.array(np.unravel_index(np.arange(2**batch), (2,) * batch)).T
                apart = np.abs(sequences[:, None] - sequences[None]).sum(axis=2)
                total += channels.expected_distance(batched.channel(), belief, apart)
                batched.update(chain[start : start + batch])
            row[f"batch {batch}"] = total / (length - length % batch)
        rows.append(row)
    report.table("Expected error per value on a binary chain that stays with probability 0.9", rows)
    report.claim(
        "as printed: where the closed form is valid, the expected error is at most 1/(2e^ε) (Propositions 1 and 2)",
        all(not row["most, valid"] > row["1/(2e^ε)"] * (1 + 1e-6) for row in rows),
        ", ".join(f"ε={r['ε per value']:g}: {r['most, valid']:.4f} <= {r['1/(2e^ε)']:.4f}" for r in rows),
    )
    report.claim(
        "as printed: instantaneous release is never above randomised response at the same ε (Proposition 2)",
        all(row["instant"] <= row["response"] for row in rows),
        ", ".join(f"ε={r['ε per value']:g}: {r['instant']:.4f} <= {r['response']:.4f}" for r in rows),
    )
    report.claim(
        "as printed: the closed form of Theorem 4 leaks at most ε",
        all(row["printed leaks"] <= row["ε per value"] * (1 + 1e-9) for row in rows),
        ", ".join(f"ε={r['ε per value']:g}: {r['printed leaks']:.2f}" for r in rows),
    )
    report.claim(
        "ours leaks at most ε, also where the printed form leaks more",
        all(row["leak"] <= row["ε per value"] for row in rows),
        ", ".join(f"ε={r['ε per value']:g}: {r['leak']:.4f}" for r in rows),
    )
    report.claim(
        "as printed: batches of 2, 3 and 4 improve on it, each on the one before (figure 5)",
        all(row["instant"] > row["batch 2"] > row["batch 3"] > row["batch 4"] for row in rows),
        "; ".join(
            f"ε={r['ε per value']:g}: "
            + ", ".join(f"{r[name]:.3f}" for name in ("instant", "batch 2", "batch 3", "batch 4"))
            for r in rows
        ),
    )


def correlated_noise(report: Report, runs: int) -> None:  # noqa: ARG001 - one shape for all
    """Figures 3 and 4 (Example 1): two bits, exactly: how the noise of the second follows the first."""
    rows = []
    each = 1.0
    for first in (0.5, 0.95):
        for flip in (0.02, 0.1, 0.25, 0.5, 0.75, 0.98):
            moves = stay(1 - flip)
            prior = np.array([1 - first, first])
            one = channels.design(prior, each, 1 - np.eye(2))
            joint = np.zeros((2, 2))  # of the two flips
            leak_apart = 0.0
            marginal = prior @ moves
            for x1 in (0, 1):
                for y1 in (0, 1):
                    reach = prior[x1] * one[x1, y1]
                    if reach == 0:
                        continue
                    belief = (prior * one[:, y1]) / (prior @ one[:, y1]) @ moves
                    two = channels.design(belief, each, 1 - np.eye(2))
                    for x2 in (0, 1):
                        for y2 in (0, 1):
                            joint[int(x1 != y1), int(x2 != y2)] += reach * moves[x1, x2] * two[x2, y2]
                    apart = channels.design(marginal, each, 1 - np.eye(2))
                    leak_apart = max(leak_apart, channels.leakage(apart, belief))
            a, b = joint.sum(axis=1)[1], joint.sum(axis=0)[1]
            spread = math.sqrt(a * (1 - a) * b * (1 - b))
            product = np.outer(joint.sum(axis=1), joint.sum(axis=0))
            information = float(
                np.sum(np.where(joint > 0, joint * np.log(np.maximum(joint, 1e-300) / product), 0))
            )
            p = marginal[1]
            rows.append(
                {
                    "P(X₁ = 1)": first,
                    "correlation": (1 - 2 * flip) * math.sqrt(first * (1 - first) / (p * (1 - p))),
                    "of the noise": (joint[1, 1] - a * b) / spread if spread > 0 else 0.0,
                    "information": information,
                    "noise at 2": b,
                    "leak, independent": leak_apart,
                }
            )
    report.table("Two bits, ε = 1 each: correlation of data and of noise (figures 3 and 4)", rows)
    middle = [row for row in rows if abs(row["correlation"]) < 1e-9]
    even = rows[:6]
    report.claim(
        "as printed: independent data get independent noise (figures 3 and 4)",
        all(row["information"] < 1e-9 for row in middle),
        ", ".join(f"{row['information']:.1e}" for row in middle),
    )
    report.claim(
        "as printed: the more correlated the data, the less noise at the second step (figure 3)",
        even[0]["noise at 2"]
        < even[1]["noise at 2"]
        < even[2]["noise at 2"]
        <= even[3]["noise at 2"] + 1e-12,
        ", ".join(f"{row['correlation']:.2f}: {row['noise at 2']:.3f}" for row in even),
    )
    report.claim(
        "as printed: a channel that ignores the correlation leaks more than ε (figures 3 and 4)",
        max(row["leak, independent"] for row in rows) > each,
        f"up to {max(row['leak, independent'] for row in rows):.2f}",
    )


def _distance(mechanism: Any, chain: np.ndarray) -> float:
    """Mean distance of a release from a chain of states."""
    out = np.asarray(mechanism.run(chain))
    apart = np.abs(out - chain) if out.ndim == 1 else np.linalg.norm(out - chain, axis=1)
    return float(np.nanmean(apart))


def synthetic(report: Report, runs: int) -> None:
    """Figure 5: weak and strong correlation, randomised response at ε and 2 ε, ToPS, batches."""
    length = 200 * runs
    rows = []
    for case, (first, p) in {"weak": (0.5, 0.5), "strong": (0.9, 0.9)}.items():
        known = {"prior": [1 - first, first], "transition": stay(p).tolist()}
        chain = sg.simulate.markov_chain(length, **known, seed=SEED).astype(float)
        for each in (0.5, 1.0, 2.0):
            budget, twice = sg.PrivacyBudget(each * length), sg.PrivacyBudget(2 * each * length)
            over = {"budget": budget, "horizon": length, "noise": sg.SeededNoise(SEED)}
            rows.append(
                {
                    "correlation": case,
                    "ε per value": each,
                    "response": _distance(S.RandomizedResponse(**over), chain),
                    "response, 2ε": _distance(S.RandomizedResponse(**{**over, "budget": twice}), chain),
                    "ToPS": _distance(S.ToPS(states=[0, 1], **over), chain),
                    "instant": _distance(S.SIPInstant(**over, **known), chain),
                    "batch 2": _distance(S.SIPBatched(**over, **known, batch=2), chain),
                    "batch 4": _distance(S.SIPBatched(**over, **known, batch=4), chain),
                }
            )
    report.table("A binary chain: mean distance per value (figure 5)", rows)
    weak, strong = rows[:3], rows[3:]
    report.claim(
        "as printed: instantaneous release lies between response at ε and at 2 ε (figure 5)",
        all(r["response, 2ε"] <= r["instant"] * 1.1 and r["instant"] <= r["response"] * 1.1 for r in weak),
        ", ".join(f"{r['response, 2ε']:.3f} {r['instant']:.3f} {r['response']:.3f}" for r in weak),
    )
    report.claim(
        "as printed: the advantage is larger under strong correlation (figure 5)",
        all(
            s["instant"] / s["response"] < w["instant"] / w["response"]
            for w, s in zip(weak, strong, strict=True)
        ),
        ", ".join(
            f"{w['instant'] / w['response']:.2f} and {s['instant'] / s['response']:.2f}"
            for w, s in zip(weak, strong, strict=True)
        ),
    )
    report.claim(
        "as printed: ToPS is worse than SIP (figures 5 and 6)",
        all(r["ToPS"] > r["instant"] for r in rows),
        ", ".join(f"{r['ToPS']:.3f} against {r['instant']:.3f}" for r in rows),
    )


def clicks(report: Report, runs: int) -> None:
    """Figure 6: categories of clicks; uniform shares, and shares within windows with unary encoding."""
    k, people, length = 8, 2 * runs, 30
    known = {"prior": [1 / k] * k, "transition": stay(0.6, k).tolist()}
    states = list(range(k))
    rows = []
    for each in (0.5, 1.0, 2.0):
        row: dict[str, Any] = {"ε per value": each}
        over = {"budget": sg.PrivacyBudget(each * length), "horizon": length}
        window = {"budget": sg.PrivacyBudget(each * 10), "window": 10, "states": states}
        makers = {
            "response": lambda n, o=over: S.RandomizedResponse(states=states, **o, noise=n),
            "unary": lambda n, o=over: S.UnaryEncoding(states=states, **o, noise=n),
            "ToPS": lambda n, o=over: S.ToPS(states=states, **o, noise=n),
            "instant": lambda n, o=over: S.SIPInstant(states=states, **known, **o, noise=n),
            "batch 2": lambda n, o=over: S.SIPBatched(states=states, **known, **o, batch=2, noise=n),
            "w-event response": lambda n, o=window: S.WindowResponse(**o, noise=n),
            "w-event unary": lambda n, o=window: S.WindowResponse(**o, encoding="unary", noise=n),
        }
        for label, make in makers.items():
            row[label] = float(
                np.mean(
                    [
                        _distance(
                            make(sg.SeededNoise(SEED + u)),
                            sg.simulate.markov_chain(length, **known, seed=SEED + u).astype(float),
                        )
                        for u in range(people)
                    ]
                )
            )
        rows.append(row)
    report.table("Clicks in 8 categories: mean distance per value (figure 6)", rows)
    report.claim(
        "as printed: larger batches gain, and SIP beats response, unary encoding and ToPS (figure 6)",
        all(
            row["batch 2"] < row["instant"] < min(row["response"], row["unary"], row["ToPS"]) for row in rows
        ),
        "; ".join(", ".join(f"{name} {value:.2f}" for name, value in row.items()) for row in rows),
    )
    report.claim(
        "as printed: unary encoding gains little over response in distance (figure 6b)",
        all(row["w-event unary"] > 0.8 * row["w-event response"] for row in rows),
        ", ".join(f"{row['w-event unary'] / row['w-event response']:.2f}" for row in rows),
    )


def gazes(report: Report, runs: int) -> None:  # noqa: ARG001 - one shape for all
    """Figures 7 to 9: points on a grid, chains of first and second order, and who is recognised."""
    side, people, length, short = 3, 4, 60, 20
    cells = [[float(x), float(y)] for x in range(side) for y in range(side)]
    rng = np.random.default_rng(SEED)
    habits = []
    for _ in range(people):  # each person looks more at places of their own
        centre = rng.uniform(0, side - 1, 2)
        near = np.exp(-np.abs(np.array(cells) - centre).sum(axis=1))
        hop = np.exp(-2.0 * np.abs(np.array(cells)[:, None] - np.array(cells)[None]).sum(axis=2)) * near[None]
        habits.append(hop / hop.sum(axis=1, keepdims=True))
    shared = np.mean(habits, axis=0)
    uniform = np.full(side**2, 1 / side**2)
    series = [
        np.array(cells)[sg.simulate.markov_chain(length, prior=uniform, transition=h, seed=SEED + i)]
        for i, h in enumerate(habits)
    ]
    known = {"prior": uniform.tolist(), "transition": shared.tolist(), "states": cells}
    second = S.learn_chain(series, states=cells, order=2, pseudocount=0.1)
    rows = []
    for each in (0.5, 1.0, 2.0):
        over = {"budget": sg.PrivacyBudget(each * length), "horizon": length, "distance": "euclidean"}
        twice = {**over, "budget": sg.PrivacyBudget(2 * each * length)}
        makers = {
            "temporal": lambda n, o=over: S.TemporalResponse(**known, **o, noise=n),
            "temporal, 2ε": lambda n, o=twice: S.TemporalResponse(**known, **o, noise=n),
            "instant": lambda n, o=over: S.SIPInstant(**known, **o, noise=n),
            "instant, second order": lambda n, o=over: S.SIPInstant(
                states=cells, **{k: second[k] for k in ("prior", "transition")}, **o, noise=n
            ),
            "batch 2": lambda n, o=over: S.SIPBatched(**known, **o, batch=2, noise=n),
        }
        for label, make in makers.items():
            # A programme over 81 sequences for each batch: the first values only.
            seen = [x[:short] if label.startswith("batch") else x for x in series]
            outs = [np.asarray(make(sg.SeededNoise(SEED + i)).run(x)) for i, x in enumerate(seen)]
            far = float(
                np.mean([np.linalg.norm(out - x, axis=1).mean() for out, x in zip(outs, seen, strict=True)])
            )
            rows.append(
                {
                    "ε per value": each,
                    "mechanism": label,
                    "distance": far,
                    "recognised": _recognised(outs, habits, cells),
                }
            )
    report.table("Gazes on a 3 by 3 grid: distance per value, and people recognised (figures 7 to 9)", rows)
    by = {(row["ε per value"], row["mechanism"]): row for row in rows}
    report.claim(
        "as printed: SIP is nearer than temporal LDP at ε, batches nearer still (figure 9)",
        all(
            by[e, "batch 2"]["distance"] < by[e, "instant"]["distance"] < by[e, "temporal"]["distance"]
            for e in (0.5, 1.0, 2.0)
        ),
        "; ".join(
            f"ε={e:g}: "
            + ", ".join(
                f"{by[e, m]['distance']:.2f}" for m in ("batch 2", "instant", "temporal", "temporal, 2ε")
            )
            for e in (0.5, 1.0, 2.0)
        ),
    )
    report.claim(
        "as printed: instantaneous SIP is nearer even than temporal LDP at 2 ε (figure 9)",
        all(by[e, "instant"]["distance"] < by[e, "temporal, 2ε"]["distance"] for e in (0.5, 1.0, 2.0)),
        ", ".join(
            f"{by[e, 'instant']['distance'] / by[e, 'temporal, 2ε']['distance']:.2f}" for e in (0.5, 1.0, 2.0)
        ),
    )


def _recognised(outs: Sequence[np.ndarray], habits: Sequence[np.ndarray], cells: list[list[float]]) -> float:
    """The share of pieces of 20 releases that are likeliest under the chain of the person they are of."""
    numbers = {tuple(cell): i for i, cell in enumerate(cells)}
    right, pieces = 0, 0
    for person, out in enumerate(outs):
        path = np.array([numbers[tuple(point)] for point in out.tolist()])
        for start in range(0, path.size - 19, 20):
            piece = path[start : start + 20]
            likely = [float(np.log(h[piece[:-1], piece[1:]]).sum()) for h in habits]
            right += int(np.argmax(likely) == person)
            pieces += 1
    return right / pieces


def run_time(report: Report, runs: int) -> None:  # noqa: ARG001 - one shape for all
    """Figure 10: time against the length of the series."""
    known = {"prior": [0.5, 0.5], "transition": stay(0.9).tolist()}
    rows = []
    for length in (10, 100, 1000):
        chain = sg.simulate.markov_chain(length, **known, seed=SEED).astype(float)
        over = {"budget": sg.PrivacyBudget(float(length)), "horizon": length}
        row: dict[str, Any] = {"length": length}
        for label, mechanism in (
            ("temporal, s", S.TemporalResponse(**known, **over)),
            ("instant, s", S.SIPInstant(**known, **over)),
            ("batch 5, s", S.SIPBatched(**known, **over, batch=5)),
        ):
            start = time.process_time()
            mechanism.run(chain)
            row[label] = time.process_time() - start
        rows.append(row)
    report.table("CPU time by length (figure 10)", rows)
    report.claim(
        "as printed: time grows linearly in the length (figure 10; 100 times the values in at most 200 times the time)",
        all(rows[2][c] < 200 * max(rows[0][c], 1e-4) for c in ("instant, s", "batch 5, s")),
        ", ".join(
            f"{c} {rows[0][c]:.4f}, {rows[2][c]:.3f}" for c in ("instant, s", "batch 5, s", "temporal, s")
        ),
    )


PIECES = (expected, correlated_noise, synthetic, clicks, gazes, run_time)
