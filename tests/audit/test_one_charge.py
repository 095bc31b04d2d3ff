"""One charge, one answer: what copies of one stream give away together, by exact replay."""

from __future__ import annotations

import copy
from contextlib import nullcontext, suppress

import numpy as np

import synthgeo as sg
from synthgeo.auditing.duels import ReplayNoise

PLACES = np.random.default_rng(3).random((40, 2))


def loss_of_five_copies(path, *, kept: bool) -> float:
    """The exact loss about one point of the second batch, of five copies of a stream that all take it.

    ``kept`` says whether there is a ledger. Without one this is what copies did under a single charge.
    """
    noise = ReplayNoise(7)
    for world in range(2):
        cap = sg.PrivacyBudget(1.0)
        book = sg.Ledger.open(path / f"{world}.sqlite", dataset="d", cap=cap) if kept else nullcontext()
        with book as ledger:
            stream = sg.baselines.DifferentialPrivTree(
                domain=sg.BoxDomain(0, 0, 1, 1),
                budget=cap,
                settings=sg.PointSettings(max_depth=4),
                noise=noise,
                ledger=ledger,
            )
            stream.update(PLACES)
            for one in [copy.copy(stream) for _ in range(5)]:
                with suppress(sg.errors.LedgerError):
                    one.update(PLACES[: 40 - world])
        if world == 0:
            noise.rewind()
    return abs(noise.finish())


def test_five_copies_lose_no_more_than_their_charge(tmp_path):
    assert 0 < loss_of_five_copies(tmp_path, kept=True) <= 1 + 1e-9


def test_the_twin_without_a_ledger_loses_more(tmp_path):
    assert loss_of_five_copies(tmp_path, kept=False) > 1.2
