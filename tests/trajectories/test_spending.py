"""When a fit spends: after everything that can be refused was refused, once, and not for what nobody saw."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import numpy as np
import pytest

import synthgeo as sg
import trajectories.measure.measured as module
from synthgeo.hierarchy.cells import Partition
from trajectories.reading.points import Trips

BOX = sg.BoxDomain(0, 0, 1000, 1000)


def trips(count=60, users=None, shift=0.0):
    rng = np.random.default_rng(1)
    xy = rng.uniform(0, 1000, (4 * count, 2)) + shift
    owner = None if users is None else np.arange(count) % users
    return Trips(xy, np.arange(0, 4 * count + 1, 4), user=owner)


@pytest.fixture
def ledger(tmp_path):
    with sg.Ledger.open(tmp_path / "ledger.sqlite", dataset="d", cap=sg.PrivacyBudget(10.0)) as opened:
        yield opened


def synthesizer(ledger=None, epsilon=1.0, **options):
    budget, noise = sg.PrivacyBudget(epsilon), sg.SeededNoise(3)
    settings = {"domain": BOX, "budget": budget, "noise": noise, "max_depth": 8, **options}
    return sg.TrajectorySynthesizer.from_options(ledger=ledger, **settings)


@pytest.mark.slow
def test_a_users_trips_are_bounded_whoever_hands_them_over():
    """400 trips of one user at ε = 30 for each of three: the released total says how many were counted."""
    unit = sg.PrivacyUnit.user(max_trajectories=3)
    model = synthesizer(epsilon=90.0, unit=unit).fit_trips(trips(400, users=1))
    assert model.model.total < 30
    several = synthesizer(epsilon=90.0, unit=unit).fit_trips(trips(400, users=100))
    assert several.model.total == pytest.approx(300, abs=30)


@pytest.mark.parametrize(("epsilon", "timed"), [(1.0, True), (1.0, False), (6.0, True)])
def test_what_the_measurements_are_given_adds_up_to_epsilon(monkeypatch, epsilon, timed):
    """Each ε as it reaches a measurement, not as the statement has it."""
    given = []
    for name in (
        "measure_cells", "count_ends", "measure_pairs", "measure_links", "measure_lengths", "measure_times",
        "measure_zones", "measure_recording",
    ):  # fmt: skip
        inner = getattr(module, name)

        def spy(*args, _inner=inner, **options):
            given.extend(v for k, v in options.items() if k in ("epsilon", "epsilon_tree", "epsilon_count"))
            given.extend(options.get("epsilons", ()))
            return _inner(*args, **options)

        monkeypatch.setattr(module, name, spy)
    made = trips(200)
    when = np.tile(np.arange(4) * 60.0, 200) + 3600.0 if timed else None
    synthesizer(epsilon=epsilon).fit_trips(Trips(made.xy, made.start, when))
    assert len(given) == (11 if timed else 7)
    assert sum(given) == pytest.approx(epsilon, rel=1e-6)


def test_bounding_twice_keeps_what_bounding_once_kept():
    from trajectories.reading.points import bounded

    unit = sg.PrivacyUnit.user(max_trajectories=3)
    once = bounded(trips(200, users=17), unit)
    assert np.bincount(once.user).max() == 3
    np.testing.assert_array_equal(bounded(once, unit).xy, once.xy)


def test_trips_without_users_are_refused_where_users_are_protected(ledger):
    model = synthesizer(ledger, unit=sg.PrivacyUnit.user(max_trajectories=3))
    with pytest.raises(sg.InputError, match="whose each trip is"):
        model.fit_trips(trips())
    assert ledger.spent is None


@pytest.mark.parametrize("structure", [True, False])
@pytest.mark.parametrize("timed", [True, False])
def test_what_one_trip_may_spend_is_its_part_of_epsilon(timed, structure):
    """Four trips of a user, each with its attributes, cost ε = 8 together."""
    fares = sg.Schema({"fare": sg.Numeric(0, 9, bins=3)})
    unit = sg.PrivacyUnit.user(max_trajectories=4)
    setup = synthesizer(epsilon=8.0, unit=unit, attributes=fares, attribute_share=0.25)._setup
    trip, attributes = setup.per_trip
    assert (trip.epsilon, attributes.epsilon) == pytest.approx((1.5, 0.5))
    measured = sum(setup.shares(timed=timed, structure=structure).as_dict().values())
    assert measured == pytest.approx(1.5)
    assert 4 * (measured + attributes.epsilon) <= 8.0 * (1 + 1e-12)


@pytest.mark.parametrize(
    "odd",
    [
        {"unit": sg.PrivacyUnit.user(max_trajectories=10**7)},
        {"epsilon": 1e-7},
        {"split": (1e-9, 1.0, 1.0)},
        {"split": (1.0, 1e-9, 1.0)},
        {"split": (1.0, 1.0, 1e-9)},
        {"calibration": 1e-13},
        {"times": 1e-13},
        {"theta": float("inf")},
        {"calibration": 0.5, "times": 0.4, "recording": 0.2},
        {"unit": sg.PrivacyUnit.user(max_events=3)},
        {"unit": sg.PrivacyUnit.event()},
        {"partition": Partition(np.array([0, 0], dtype=np.uint64), np.array([1, 2]), np.array([0.5, 0.25]))},
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_read(ledger, odd):
    with pytest.raises(sg.ConfigError):
        synthesizer(ledger, **odd)
    assert ledger.spent is None


def test_no_trips_and_trips_elsewhere_are_refused_unpaid(ledger):
    nobody = Trips(np.empty((0, 2)), np.zeros(1, np.int64))
    roads = sg.RoadDomain.from_graph(sg.simulate.city_graph(4, 3, seed=1))
    cells = Partition(np.zeros(1, dtype=np.uint64), np.array([4]), np.array([62_500.0]))
    corner = Trips(np.full((8, 2), 990.0), np.array([0, 4, 8]))
    for model, data in (
        (synthesizer(ledger), nobody),
        (synthesizer(ledger), trips(shift=5000.0)),
        (synthesizer(ledger, domain=roads), trips()),
        (synthesizer(ledger, partition=cells), corner),
    ):
        with pytest.raises(sg.InputError, match=r"othing was spent|nothing spent"):
            model.fit_trips(data)
        assert model.spent is None
        assert ledger.spent is None


@pytest.fixture
def interrupted(ledger, monkeypatch):
    """A synthesizer whose first fit was stopped in the middle of its measurements."""
    model, stop = synthesizer(ledger), iter([True])
    measure = module.measure_links

    def once(*args, **options):
        if next(stop, False):
            raise KeyboardInterrupt
        return measure(*args, **options)

    monkeypatch.setattr(module, "measure_links", once)
    with pytest.raises(KeyboardInterrupt):
        model.fit_trips(trips())
    return model


def test_an_interrupted_fit_is_made_again_on_its_charge(interrupted, ledger):
    assert ledger.spent == sg.PrivacyBudget(1.0)
    assert interrupted.spent is None
    with pytest.raises(sg.ConfigError, match="fit"):
        interrupted.sample(1)
    interrupted.fit_trips(trips())
    assert ledger.spent == interrupted.spent == sg.PrivacyBudget(1.0)
    assert interrupted.sample(3).total == 3
    with pytest.raises(sg.BudgetExhausted):
        interrupted.fit_trips(trips())


def test_an_interrupt_between_charge_and_model_is_not_charged_again(ledger, monkeypatch):
    model, reserve, stop = synthesizer(ledger), ledger.reserve, iter([True])

    def then_stopped(*args, **entry):
        found = reserve(*args, **entry)
        if next(stop, False):
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(ledger, "reserve", then_stopped)
    with pytest.raises(KeyboardInterrupt):
        model.fit_trips(trips())
    with pytest.raises(sg.ConfigError, match="fit"):
        model.sample(1)
    other = copy.copy(model)
    model.fit_trips(trips())
    assert ledger.spent == sg.PrivacyBudget(1.0)
    other.fit_trips(trips())  # another model, and the charge was for one
    assert ledger.spent == sg.PrivacyBudget(2.0)


def test_a_warning_about_what_was_measured_is_paid_for(ledger):
    """Whoever makes an error of it has the model, and does not hear of it for nothing."""
    model = synthesizer(ledger, epsilon=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="noise exceeds"):
            model.fit_trips(trips())
    assert ledger.spent == model.spent == sg.PrivacyBudget(0.01)
    assert model.sample(3).total == 3


def test_copies_pay_for_themselves(interrupted, ledger):
    twin = pickle.loads(pickle.dumps(synthesizer()))
    assert twin.spent is None
    other = copy.copy(interrupted)
    other.fit_trips(trips())
    assert ledger.spent == sg.PrivacyBudget(1.0)
    interrupted.fit_trips(trips(70))
    assert ledger.spent == sg.PrivacyBudget(2.0)


def test_a_charge_that_is_refused_spends_nothing(tmp_path):
    with sg.Ledger.open(tmp_path / "l.sqlite", dataset="d", cap=sg.PrivacyBudget(0.5)) as small:
        model = synthesizer(small)
        with pytest.raises(sg.errors.LedgerError):
            model.fit_trips(trips())
        assert model.spent is None


def test_a_loaded_model_is_charged_where_it_was_not(ledger, tmp_path):
    path = tmp_path / "model"
    synthesizer().fit_trips(trips()).save(path)
    for _ in range(2):
        loaded = sg.TrajectorySynthesizer.load(path, ledger=ledger)
        assert ledger.spent == loaded.spent == sg.PrivacyBudget(1.0)
    synthesizer(ledger).fit_trips(trips(80)).save(path)
    sg.TrajectorySynthesizer.load(path, ledger=ledger)
    assert ledger.spent == sg.PrivacyBudget(2.0)


def test_the_saved_model_holds_no_hash_of_the_trips(ledger, tmp_path):
    """The key of the charge is random: two fits of the same trips differ in it. No fingerprint is saved, of
    the trips as they came or as they were cleaned.
    """
    models = [synthesizer(ledger).fit_trips(trips()) for _ in range(2)]
    assert len({model._charge for model in models}) == 2
    models[0].save(tmp_path / "model")
    content = (tmp_path / "model").read_bytes()
    with np.load(io.BytesIO(content[content.index(b"PK") :])) as archive:
        said = archive["header"].tobytes().decode() + repr({name: archive[name] for name in archive.files})
    for known in (trips(), models[0]._setup.clean(trips())):
        assert known.fingerprint() not in said
        assert known.fingerprint()[:16] not in said
