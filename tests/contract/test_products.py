"""What every product promises, whatever it releases. The cases come from ``tests/contract/products.py``."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import re

import numpy as np
import pandas as pd
import pytest
import sklearn.base

import synthgeo as sg
from synthgeo import codec
from synthgeo.parameters import Settings
from synthgeo.sources.declared import CURATOR
from tests.contract.products import CASES, Case, public_products

every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
over_time = pytest.mark.parametrize("case", [c for c in CASES if c.over_time], ids=lambda c: c.name)
ending = pytest.mark.parametrize("case", [c for c in CASES if c.ends], ids=lambda c: c.name)
releasing = pytest.mark.parametrize(
    "case", [c for c in CASES if not c.name.startswith("series")], ids=lambda c: c.name
)
streams = pytest.mark.parametrize(
    "case", [c for c in CASES if hasattr(c.kind, "costs")], ids=lambda c: c.name
)


def test_every_product_has_a_case():
    ignored = {"Accountant", "Ledger", "SeriesRelease", "Accumulated"}  # draw no noise of their own
    assert set(public_products()) - ignored == {case.kind.__name__ for case in CASES}


def state_of(product, folder):
    """All that a product remembers, as bytes; of one that has nothing to save yet, its noise."""
    try:
        product.save(folder / "state")
    except sg.ConfigError:
        return json.dumps(product.noise.state()).encode()
    return (folder / "state").read_bytes()


def same(a, b) -> bool:
    if isinstance(a, pd.DataFrame):
        return a.equals(b)
    if isinstance(a, tuple):
        return all(map(same, a, b))
    return np.array_equal(a, b, equal_nan=True)


@every
def test_inputs_are_left_as_they_were(case: Case):
    inputs = case.inputs()
    before = copy.deepcopy(inputs)
    case.run(case.make(), inputs)
    assert all(same(a, b) for a, b in zip(inputs, before, strict=True))


@every
def test_same_seed_same_output_other_seed_another(case: Case):
    first, again = (case.run(case.make(seed)) for seed in (5, 5))
    assert first == again
    # A mechanism of large ε may answer a short input alike for some seeds, but not for ten.
    assert any(case.run(case.make(seed)) != first for seed in range(6, 16))


@every
def test_nothing_is_spent_before_the_first_use_and_never_more_than_the_budget(case: Case):
    product = case.make()
    assert product.spent is None
    for one in case.inputs():
        case.use(product, one)
        assert product.spent is None or product.budget.covers(product.spent)
    assert product.spent is not None


@ending
def test_after_the_end_it_refuses_and_stays_as_it_was(case: Case, tmp_path):
    product, inputs = case.make(), case.inputs()
    case.run(product, inputs)
    before, spent = state_of(product, tmp_path), product.spent
    with pytest.raises(sg.BudgetExhausted):
        case.use(product, inputs[0])
    assert state_of(product, tmp_path) == before
    assert product.spent == spent


@every
def test_a_refused_input_changes_nothing(case: Case, tmp_path):
    product, twin, inputs = case.make(), case.make(), case.inputs()
    first = inputs[:1] if case.over_time else []
    case.run(product, first)
    case.run(twin, first)
    before, spent = state_of(product, tmp_path), product.spent
    with pytest.raises(sg.InputError):
        case.use(product, case.bad())
    assert state_of(product, tmp_path) == before
    assert product.spent == spent
    rest = inputs[len(first) :]
    assert case.run(product, rest) == case.run(twin, rest)


@over_time
def test_later_inputs_change_no_earlier_output(case: Case):
    inputs = case.inputs()
    other = [*inputs[:3], *reversed(inputs[3:])]
    assert case.run(case.make(), inputs)[:3] == case.run(case.make(), other)[:3]


@over_time
@pytest.mark.parametrize("after", [0, 1, 3])
def test_save_and_load_go_on_bit_for_bit(case: Case, after, tmp_path):
    product, inputs = case.make(), case.inputs()
    case.run(product, inputs[:after])
    product.save(tmp_path / "state")
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o600
    loaded = type(product).load(tmp_path / "state")
    assert loaded.spent == product.spent
    assert case.run(loaded, inputs[after:]) == case.run(product, inputs[after:])


@pytest.mark.parametrize("case", [c for c in CASES if hasattr(c.kind, "fit")], ids=lambda c: c.name)
def test_a_fitted_model_samples_the_same_after_loading(case: Case, tmp_path):
    product = case.fit(case.make(), case.inputs()[0])
    product.save(tmp_path / "model")
    loaded = type(product).load(tmp_path / "model")
    assert loaded.spent == product.spent == product.budget
    assert case.see(loaded.sample(25)) == case.see(product.sample(25))
    with pytest.raises(sg.BudgetExhausted):
        case.fit(loaded, case.inputs()[0])


@every
def test_a_damaged_state_is_refused(case: Case, tmp_path):
    product = case.make()
    case.run(product)
    product.save(tmp_path / "state")
    content = bytearray((tmp_path / "state").read_bytes())
    content[len(content) // 2] ^= 0xFF
    (tmp_path / "damaged").write_bytes(bytes(content))
    (tmp_path / "short").write_bytes(bytes(content[:50]))
    for name in ("damaged", "short", "missing"):
        with pytest.raises(sg.errors.StateError):
            type(product).load(tmp_path / name)


# What it is over comes first, then budget and unit, then time, then the method and how columns are read.
ORDER = ("domain schema states prior transition", "budget", "unit", "schedule t0 horizon window max_steps",
         "reading", "noise", "ledger", "progress")  # fmt: skip


@every
def test_the_constructor_spells_out_its_arguments_in_one_order(case: Case):
    parameters = inspect.signature(case.kind).parameters.values()
    assert {parameter.kind for parameter in parameters} == {inspect.Parameter.KEYWORD_ONLY}
    names = [parameter.name for parameter in parameters]
    assert {"budget", "noise"} <= set(names)
    ranks = [next((i for i, group in enumerate(ORDER) if name in group.split()), None) for name in names]
    known = [rank for rank in ranks if rank is not None]
    assert known == sorted(known)


def public_constructors():
    """Every class that a user can name, by that name."""
    for place in (sg, sg.series):
        for name in place.__all__:
            found = getattr(place, name)
            if inspect.isclass(found) and not issubclass(found, Exception):
                yield name, found


def test_no_public_constructor_has_more_than_twelve_arguments():
    """Settings and columns are dataclasses of choices, which have as many fields as there are choices."""
    for name, kind in public_constructors():
        if not issubclass(kind, Settings):
            assert len(inspect.signature(kind).parameters) <= 12, name


@every
def test_settings_are_documented_and_checked_one_by_one(case: Case):
    if "settings" not in case.kind.parts:
        return
    kind = case.kind.parts["settings"]
    names = [field.name for field in dataclasses.fields(kind)]
    documented = set(re.findall(r"^    ([a-z][a-z0-9_, ]*)$", kind.__doc__, re.MULTILINE))
    assert set(names) == {name for line in documented for name in line.split(", ")}
    with pytest.raises(sg.ConfigError, match=f"settings must be {kind.__name__}"):
        case.make(settings={"theta": 1.0})
    product = case.make()
    assert codec.load(kind, *codec.dump(product.settings)) == product.settings
    product.set_params(settings=product.settings)


@every
def test_parameters_clone_and_set_as_in_scikit_learn(case: Case):
    product = case.make()
    assert list(product.get_params()) == list(inspect.signature(case.kind).parameters)
    copies = [product.clone(), sklearn.base.clone(product)]
    changed = case.make(6).set_params(noise=sg.SeededNoise(5))
    expected = case.run(product)
    for copied in (*copies, changed):
        assert copied.spent is None
        assert case.run(copied) == expected
    assert product.clone().spent is None
    with pytest.raises(sg.ConfigError, match="in use"):
        product.set_params(noise=None)
    with pytest.raises(sg.ConfigError, match="no parameter"):
        product.clone().set_params(colour="red")


@every
def test_the_repr_is_one_short_public_line(case: Case):
    product = case.make()
    fresh = repr(product)
    assert type(product).__name__ in fresh
    assert "\n" not in fresh
    assert " at 0x" not in fresh
    assert len(fresh) < 400
    case.run(product)
    used = repr(product)
    for private in ("17.5", "nobody"):
        assert private not in used
    assert len(used) < 400


@releasing
def test_a_release_says_what_it_is(case: Case):
    product, inputs = case.make(), case.inputs()
    for one in inputs:
        release = case.use(product, one)
        assert isinstance(release, sg.results.Release)
        assert isinstance(release.total, int)
        assert 0 <= release.total == _records(release)
        assert repr(release).startswith(f"{type(release).__name__}(")
        assert f"{release.total}" in repr(release).replace(",", "")
        assert release.spent == product.spent
    told = set(_numbers(json.loads(json.dumps(release.provenance))))
    assert release.provenance["unit"] == product.unit.describe()
    assert not told & {sum(len(one) for one in inputs), *(len(one) for one in inputs)}
    assert not release.releasable  # seeded noise
    assert "not_releasable_because" in release.provenance


def _numbers(value):
    """All numbers in a JSON value."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _numbers(part)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def _records(release) -> int:
    return release.data["trip_id"].nunique() if release.product == "trips" else len(release.data)


@releasing
def test_only_private_mechanisms_with_system_noise_are_releasable(case: Case):
    product = case.make(None)
    release = case.use(product, case.inputs()[0])
    private = getattr(product, "is_private", True)
    assert isinstance(product.noise, sg.SystemNoise)
    assert release.releasable == private
    assert release.provenance["private"] == private


@pytest.mark.parametrize("case", [c for c in CASES if c.name.startswith("series")], ids=lambda c: c.name)
def test_a_series_says_whether_it_may_be_published(case: Case):
    assert case.make(None).releasable
    product = case.make()
    case.run(product)
    assert not product.releasable
    assert product.provenance()["releasable"] is False
    json.dumps(product.provenance())


@releasing
def test_another_draw_costs_nothing(case: Case):
    product = case.make()
    for one in case.inputs():
        release = case.use(product, one)
    spent = product.spent
    again = release.redraw(1)
    assert type(again) is type(release)
    assert product.spent == again.spent == spent
    assert isinstance(release.expected_error(), pd.DataFrame)


@streams
def test_no_event_pays_more_than_its_epsilon(case: Case):
    stream = case.make()
    case.run(stream)
    costs = stream.costs
    assert len(costs) == stream.step
    assert (costs["total"] <= stream.epsilon * (1 + 1e-12)).all()
    assert (costs["total"] > 0).all()


@streams
def test_looking_at_the_last_release_again_changes_nothing(case: Case):
    first, second = case.make(), case.make()
    with pytest.raises(sg.ConfigError, match="nothing yet"):
        _ = first.release
    for batch in case.inputs():
        released, twin = case.use(first, batch), case.use(second, batch)
        again = first.release
        assert (again.step, again.spent) == (released.step, released.spent)
        assert case.see(again) == case.see(first.release)
        assert case.see(released) == case.see(twin)


# Unattended use: nothing that one unit decides stops a release.


def few_rows(case: Case) -> dict[str, object]:
    """Neighbouring inputs with a row or none, in the domain or outside of it."""
    one = case.inputs()[0]
    if isinstance(one, tuple):  # households
        parents, children = one
        return {
            "none": (parents[:0], children[:0]),
            "one": (parents[:1], children[children.household_id == parents.household_id.iloc[0]]),
            "no children": (parents, children[:0]),
            "children of nobody": (parents[:0], children),
            "children without a parent": (parents[1:], children),
            "a doubled parent": (pd.concat([parents, parents[:1]]), children),
            "all wrong": (parents.assign(region="nowhere"), children),
        }
    if "b" in one:  # a table
        wrong = one.assign(b=99, c=-5.0)
    elif "work" in one:  # a panel
        wrong = one.assign(work="nobody")
    else:
        places = [name for name in ("x", "y", "lon", "lat") if name in one]
        wrong = one.assign(**{name: one[name] + 50_000.0 for name in places})
    found = {"none": one[:0], "all wrong": wrong, "one right": pd.concat([wrong, one[:1]])}
    return found if "trip_id" in one else found | {"one": one[:1], "doubled": pd.concat([one, one])}


@releasing
def test_unattended_use_releases_whatever_one_unit_does(case: Case):
    for name, data in few_rows(case).items():
        product = case.make(reading=sg.Reading(unattended=True))
        assert isinstance(case.use(product, data), sg.results.Release), name
        assert product.spent is not None or case.name.endswith("held back"), name


def test_attended_use_refuses_before_anything_is_spent_and_unattended_use_says_why(caplog, monkeypatch):
    caplog.set_level("INFO", logger="synthgeo.curator")
    monkeypatch.setattr(CURATOR, "handlers", [caplog.handler])
    refused = 0
    for case in (case for case in CASES if case.name in ("TabularSynthesizer", "HouseholdSynthesizer")):
        for data in few_rows(case).values():
            caplog.clear()
            case.use(case.make(reading=sg.Reading(unattended=True)), data)
            product = case.make(reading=sg.Reading(bad_rows="drop"))
            told = [record.getMessage() for record in caplog.records]
            if not told:
                case.use(product, data)
                continue
            refused += 1
            with pytest.raises(sg.InputError, match=told[0].split(":")[0].split(" in ")[0]):
                case.use(product, data)
            assert product.spent is None
    assert refused >= 6
