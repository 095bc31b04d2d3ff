"""Spend and state change together or not at all: interrupts inside a step, ledgers, bad settings."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import synthgeo as sg
from tabular.over_time import every_step, rotating_marginals
from tests.conftest import Silence
from tests.tabular.conftest import small_table

BOX = sg.BoxDomain(0, 0, 1, 1)
SCHEMA = sg.Schema(
    {"a": sg.Categorical(list("wxyz")), "b": sg.Ordinal(range(4)), "c": sg.Numeric(0, 10, bins=5)}
)
USERS = sg.PrivacyUnit.user(max_events=4)
ROOT = Path(sg.__file__).parent.parent


def points(kind="PHDStream", **options):
    usual = {"domain": BOX, "budget": sg.PrivacyBudget(1.0), "max_depth": 6}
    return lambda **more: getattr(sg if kind in sg.__all__ else sg.baselines, kind).from_options(
        **(usual | options | more)
    )


def table(kind="TabularStream", **options):
    usual = {"schema": SCHEMA, "budget": sg.PrivacyBudget(2.0), "marginals_per_step": 2}
    return lambda **more: getattr(sg if kind in sg.__all__ else sg.baselines, kind).from_options(
        **(usual | options | more)
    )


PRODUCTS = {
    "PHDStream": points(),
    "PHDStream every step": points(schedule="every_step", counter="kary", horizon=9),
    "PHDStream growing": points(schedule="growing", counter="unbounded_kary"),
    "PHDStream living": points(persist=True),
    "PHDStream users": points(unit=USERS),
    "PHDStream held back": points(t0=3),
    "OfflinePrivTree": points("OfflinePrivTree"),
    "DifferentialPrivTree": points("DifferentialPrivTree"),
    "InitialPrivTree": points("InitialPrivTree"),
    "TabularStream": table(),
    "TabularStream users": table(unit=USERS),
    "TabularStream every step": table(schedule="every_step"),
    "StreamingMWEM": table("StreamingMWEM"),
}
each_product = pytest.mark.parametrize("name", PRODUCTS)


def batches_for(name):
    if "Tabular" in name or "MWEM" in name:
        return [small_table(200, seed).assign(user_id=np.arange(200) % 50) for seed in range(3)]
    frame = sg.simulate.circles(3, 60, deletion=True, seed=4)
    return [
        batch.drop(columns="step").assign(user_id=np.arange(len(batch)) % 20)
        for _, batch in frame.groupby("step")
    ]


class Interrupt:
    """Raises KeyboardInterrupt when the toolkit's code reaches its n-th line; counts lines otherwise."""

    def __init__(self, at=None):
        self.at, self.lines, self.armed = at, 0, True

    def __enter__(self):
        sys.settrace(self._call)
        return self

    def __exit__(self, *_):
        sys.settrace(None)

    def _call(self, frame, event, arg):
        inside = frame.f_code.co_filename.startswith((f"{ROOT}/streams", f"{ROOT}/tabular"))
        return self._line if inside else None

    def _line(self, frame, event, arg):
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._line


def state_of(stream, path):
    """Everything but the source of noise, which an interrupted step has moved on."""
    from synthgeo.state import load_state

    stream.save(path)
    values, arrays = load_state(path, stream.state_kind, stream.state_version)
    values.pop("noise")
    return values, arrays


def assert_same_state(one, other):
    assert one[0] == other[0]
    assert one[1].keys() == other[1].keys()
    for name, array in one[1].items():
        np.testing.assert_array_equal(array, other[1][name])


@pytest.mark.slow
@each_product
def test_an_interrupt_anywhere_leaves_the_stream_before_or_after_the_step(name, tmp_path):
    batches = batches_for(name)
    stream = PRODUCTS[name](noise=sg.SeededNoise(1))
    stream.update(batches[0])
    before = state_of(stream, tmp_path / "before")
    for _ in range(2):  # the first time fills caches
        stream = type(stream).load(tmp_path / "before")
        with Interrupt() as counted:
            stream.update(batches[1])
    for place in np.unique(np.linspace(1, counted.lines, 30).astype(int)):
        stream = type(stream).load(tmp_path / "before")
        with pytest.raises(KeyboardInterrupt), Interrupt(at=int(place)):
            stream.update(batches[1])
        if place == counted.lines:  # the step was taken, only its release was not handed over
            assert stream.release.step == 2
            continue
        assert_same_state(state_of(stream, tmp_path / "after"), before)
        assert stream.update(batches[1]).step == 2
    assert (stream.costs["total"] <= stream.epsilon * (1 + 1e-12)).all()


@each_product
def test_a_batch_that_is_taken_again_counts_once(name):
    """Without noise the released total says how often each batch was counted."""
    batches = [batch[batch["op"] > 0] if "op" in batch else batch for batch in batches_for(name)]
    totals = []
    for interrupted in (False, True):
        stream = PRODUCTS[name](noise=Silence(1))
        for batch in batches:
            step = stream.step
            for place in (20, 50, 90, 150, 250) if interrupted else ():
                with suppress(KeyboardInterrupt), Interrupt(at=place):
                    stream.update(batch)
                if stream.step > step:
                    break
            if stream.step == step:
                stream.update(batch)
        totals.append(stream.release.total)
    assert totals[0] == totals[1] > 0


class Recorded(sg.SeededNoise):
    """Seeded noise that remembers what it gave."""

    def __init__(self, seed):
        super().__init__(seed)
        self.drawn, self.stop_after = [], None

    def discrete_laplace(self, scale, size=None):
        draw = super().discrete_laplace(scale, size)
        self.drawn.append(draw)
        if self.stop_after is not None and len(self.drawn) >= self.stop_after:
            self.stop_after = None
            raise KeyboardInterrupt
        return draw


@pytest.mark.parametrize("name", ["PHDStream every step", "TabularStream", "DifferentialPrivTree"])
def test_a_batch_that_is_taken_again_draws_fresh_noise(name):
    noise = Recorded(3)
    stream = PRODUCTS[name](noise=noise)
    batches = batches_for(name)
    stream.update(batches[0])
    before = len(noise.drawn)
    noise.stop_after = before + 1
    with pytest.raises(KeyboardInterrupt):
        stream.update(batches[1])
    thrown_away = noise.drawn[before]
    stream.update(batches[1])
    again = noise.drawn[before + 1]
    assert thrown_away.shape == again.shape
    assert not np.array_equal(thrown_away, again) or thrown_away.size < 3


@pytest.fixture
def ledger(tmp_path):
    with sg.Ledger.open(tmp_path / "ledger.sqlite", dataset="d", cap=sg.PrivacyBudget(9.0)) as book:
        yield book


private_products = pytest.mark.parametrize("name", [name for name in PRODUCTS if "Offline" not in name])


@private_products
def test_an_interrupted_step_is_charged_once(name, ledger):
    stream = PRODUCTS[name](ledger=ledger)
    batch = batches_for(name)[0]
    for place in (30, 60):
        with pytest.raises(KeyboardInterrupt), Interrupt(at=place):
            stream.update(batch)
    stream.update(batch)
    assert len(ledger.entries) == 1


@private_products
def test_a_ledger_given_to_load_is_charged_once_for_each_stream(name, ledger, tmp_path):
    batches = batches_for(name)
    stream = PRODUCTS[name]()
    kind = type(stream)
    stream.save(tmp_path / "fresh")
    kind.load(tmp_path / "fresh", ledger=ledger)
    assert ledger.entries == []  # nothing spent yet
    for batch in batches:
        stream.update(batch)
    stream.save(tmp_path / "used")
    loaded = kind.load(tmp_path / "used", ledger=ledger)
    assert ledger.spent == stream.budget
    loaded.update(batches[0])
    loaded.save(tmp_path / "later")
    kind.load(tmp_path / "later", ledger=ledger).update(batches[1])
    assert ledger.spent == stream.budget


def test_a_charge_is_remembered_over_save_and_load(ledger, tmp_path):
    stream = points()(ledger=ledger)
    stream.update(np.full((20, 2), 0.4))
    stream.save(tmp_path / "state")
    sg.PHDStream.load(tmp_path / "state", ledger=ledger).update(np.full((20, 2), 0.6))
    assert len(ledger.entries) == 1


TINY = sg.PrivacyBudget(1e-14)
MANY = sg.PrivacyUnit.user(max_events=10**9)


@pytest.mark.parametrize(
    "make",
    [
        lambda **more: points(budget=TINY)(**more),
        lambda **more: points(budget=sg.PrivacyBudget(1e-6))(**more),
        lambda **more: points(unit=MANY)(**more),
        lambda **more: points(theta=np.inf)(**more),
        lambda **more: points(theta=1e300)(**more),
        lambda **more: points("DifferentialPrivTree", budget=TINY)(**more),
        lambda **more: points("DifferentialPrivTree", theta=np.inf)(**more),
        lambda **more: points("InitialPrivTree", unit=MANY)(**more),
        lambda **more: table(budget=TINY)(**more),
        lambda **more: table(budget=sg.PrivacyBudget(1e-11))(**more),
        lambda **more: table(schedule="every_step", budget=TINY)(**more),
        lambda **more: table("StreamingMWEM", budget=TINY)(**more),
    ],
)
def test_settings_that_cannot_work_are_refused_before_the_ledger_hears_of_them(make, ledger):
    with pytest.raises(sg.ConfigError):
        make(ledger=ledger)
    assert ledger.entries == []


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("schedule", ["auto", "every_step"])
def test_no_structure_share_makes_an_event_pay_more_than_epsilon(share, schedule, monkeypatch):
    """The first batch's events: what every selection and every noisy sum of that step costs, added up."""
    spent = []
    for module in (rotating_marginals, every_step):
        choose = module.exponential_mechanism
        monkeypatch.setattr(
            module,
            "exponential_mechanism",
            lambda scores, *, epsilon, choose=choose, **rest: (
                spent.append(epsilon) or choose(scores, epsilon=epsilon, **rest)
            ),
        )

    class Counted(sg.SeededNoise):
        def discrete_laplace(self, scale, size=None):
            spent.append(1 / scale)
            return super().discrete_laplace(scale, size)

    stream = table(structure_share=share, schedule=schedule)(noise=Counted(2))
    stream.update(small_table(2000))
    assert min(spent) > 0
    assert sum(spent) <= stream.epsilon * (1 + 1e-12)
    if share < 0.99:  # else counts have so little of ε that no pair is worth asking for
        assert sum(spent) > 0.05 * stream.epsilon
    costs = stream.costs
    assert costs["counts"].min() > 0
    assert costs["total"].max() <= stream.epsilon * (1 + 1e-12)


def test_a_batch_that_was_counted_before_another_step_is_not_taken():
    """It would be a second answer of the same step, at its own cost."""
    stream = points()()
    early = stream.count(np.full((5, 2), 0.5))
    stream.update(np.full((5, 2), 0.25))
    with pytest.raises(sg.ConfigError, match="counted as step 1; count it again"):
        stream.take(early)
    assert stream.step == 1
