"""The registry in a hurry: every case holds and its twin is caught; nothing public is missing; flakes add up.

Black-box cases accuse an honest mechanism with probability at most 1e-9 each over the choice of seeds, which
are fixed here; exact cases and duels draw nothing that matters.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import streams.counters
import streams.scalar as series
import streams.schedule
import synthgeo as sg
from audits.flakes import MOST, total
from audits.registry import Attacker, all_cases
from streams.scalar.base import SeriesMechanism
from synthgeo.privacy.noise import Noise

CASES = all_cases()
BLACK_BOX = [case for case in CASES if case.method == "black box"]
COMPUTED = [case for case in CASES if case.method != "black box"]
COVERED = {name for case in CASES for name in case.covers}

# Take noise, and are no mechanisms of their own: what they are, or where they are audited.
PARTS_OF_OTHERS = {
    "CounterBank": "the interface of banks",
    "LaplaceBank": "the interface of banks",
    "RadixBank": "the interface of banks",
    "Stream": "the driver of streams",
    "PointStream": "the driver of streams of points",
    "PHD": "a mechanism of PHDStream",
    "Expiring": "a mechanism of PHDStream",
    "Lasting": "a mechanism of PHDStream",
    "Structure": "the trees of PHDStream",
    "TreePerStep": "the mechanism of two baselines",
    "Offline": "the mechanism of OfflinePrivTree",
    "Differential": "the mechanism of DifferentialPrivTree",
    "Initial": "the mechanism of InitialPrivTree",
    "check_noise": "checks an argument",
    "SeriesMechanism": "the interface of series mechanisms",
    "NumericMechanism": "the interface of series mechanisms",
    "OfflineMechanism": "the interface of series mechanisms",
    "LocalMechanism": "the interface of series mechanisms",
    "IndependentLaplace": "what LPA and Uniform share",
    "FilterBank": "post-processing of FAST: its noise is the name of a law",
    "Setup": "settings of tabular streams",
    "PanelMechanism": "the mechanism of PanelStream",
    "SlotTotals": "times inside windows, audited with their stream",
    "WindowSlot": "what a window of an expiring table counts, audited with its stream",
    "PrivacyFilter": "spends for TabularSynthesizer",
    "record_table": "the TabularSynthesizer of attributes of trips",
    "make_bank": "makes counters by name",
    "bank_from_state": "reads saved counters",
    "draw_binomial": "the noise of AR1Release (binomial)",
    "noisy_counts": "the noise of frequent_words where δ > 0, audited there",
    "draw": "the sampler of SIPInstant and SIPBatched",
    "respond": "randomised response, called by the local mechanisms",
    "encode_unary": "the noise of UnaryEncoding and WindowResponse",
    "auto": "chooses a series mechanism",
    "release_series": "calls a series mechanism by name",
    "grow": "PrivTree, called by privtree and by PHDStream",
    "decide": "one level of PrivTree",
}
BANKS = {bank.__name__ for bank in streams.counters.BANKS.values()}  # audited by their kind


def takes_noise(thing):
    if inspect.isclass(thing):
        return any(
            "noise" in inspect.signature(vars(base)["__init__"]).parameters
            for base in thing.__mro__
            if base is not object and inspect.isfunction(vars(base).get("__init__"))
        )
    return inspect.isfunction(thing) and "noise" in inspect.signature(thing).parameters


PUBLIC_PRODUCTS = [
    name for module in (sg, sg.baselines) for name in module.__all__ if takes_noise(getattr(module, name))
]


def everything_with_noise():
    """Public functions and classes of the package that are given a source of noise."""
    for package in ("streams", "tabular", "trajectories", "synthgeo.privacy", "synthgeo.hierarchy"):
        root = importlib.import_module(package)
        for info in pkgutil.walk_packages(root.__path__, f"{package}."):
            module = importlib.import_module(info.name)
            for name, thing in vars(module).items():
                own = getattr(thing, "__module__", "") == info.name and not name.startswith("_")
                if own and takes_noise(thing):
                    yield name, thing


def missing(covered):
    """Public mechanisms, and public ways to run them, that no case stands for."""
    wanted = set()
    for name, thing in everything_with_noise():
        if name in PARTS_OF_OTHERS or name in BANKS:
            continue
        is_series = inspect.isclass(thing) and issubclass(thing, SeriesMechanism)
        wanted.add(f"series.{name}" if is_series else name)
    wanted |= set(PUBLIC_PRODUCTS)
    wanted |= {f"series.{kind.__name__}" for kind in series.MECHANISMS.values()}
    wanted |= {f"counter {kind}" for kind in streams.counters.KINDS}
    # "release_driven" is what "auto" means for points.
    wanted |= {f"PHDStream {name}" for name in ("auto", *streams.schedule._NAMED) if name != "release_driven"}
    wanted |= {f"PHDStream counter {kind}" for kind in streams.counters.KINDS if kind != "toeplitz"}
    wanted |= {"PHDStream lifetime", "PHDStream borrow", "PHDStream lasting"}
    wanted |= {"TabularStream lifetime", "TabularStream borrow", "TabularStream inserted"}
    wanted |= {"times inside windows"}
    wanted |= {"TabularStream auto", "TabularStream every_step"}
    wanted |= {f"TabularSynthesizer {way}" for way in ("auto", "annealed", "mwem", "(ε, δ)")}
    wanted |= {"PolygonDomain", "RoadDomain", "StreamRun", "ContributionBounder"}
    wanted |= {f"user-level {product}" for product in ("points", "tables", "trips", "periods")}
    samplers = {name for name, thing in vars(Noise).items() if inspect.isfunction(thing) and name[0] != "_"}
    wanted |= {f"Noise.{name}" for name in samplers - {"state"}}
    return sorted(wanted - set(covered))


def test_every_public_mechanism_has_an_audit_and_a_twin():
    assert missing(COVERED) == []


def test_a_mechanism_without_an_audit_would_be_noticed():
    assert missing(COVERED - {"series.FAST", "measure_pairs", "counter kary"}) == [
        "counter kary",
        "measure_pairs",
        "series.FAST",
    ]


@pytest.mark.parametrize(
    "twin",
    [
        "noise scale halved",
        "sensitivity off by one",
        "literal PHDStream",
        "binary tree with log2 T levels",
        "Algorithm 13's exponent",
        "transition weights from the true data (Algorithm 20, line 4)",
        "float Laplace (least significant bits)",
        "PrivTree with an off-grid δ at ε = 5",
        "empty OD nodes skipped",
        "a block counter that spans a rebuild",
        "SIP's printed closed form at β = 0.1",
        "a true total handed to the fit",
        "a seed reused",
        "a batch that is noised again at each slide",
        "a table's batch that is noised again at each slide",
        "borrowing that looks at the true batch",
        "a bound over the last ten steps",
        "a deletion charged to its own period",
        "noise drawn twice for one batch",
    ],
)
def test_the_twins_that_have_happened_are_there(twin):
    assert any(case.twin == twin for case in CASES)


PRODUCTS = [
    *(name for name in PUBLIC_PRODUCTS if name != "OfflinePrivTree"),
    *(f"series.{kind.__name__}" for kind in series.MECHANISMS.values()),
    *(f"counter {kind}" for kind in streams.counters.KINDS),
]
# Local mechanisms have no scale: their twins spend a step's budget twice, or use the printed channel.
WITHOUT_SCALE = {
    f"series.{name}"
    for name in (
        "SIPInstant",
        "SIPBatched",
        "RandomizedResponse",
        "UnaryEncoding",
        "TemporalResponse",
        "WindowResponse",
        "ToPS",
    )
}


@pytest.mark.parametrize("product", PRODUCTS)
def test_half_the_noise_is_tried_on_every_product(product):
    if product in WITHOUT_SCALE:
        return
    assert any(product in case.covers and case.twin == "noise scale halved" for case in CASES)


@pytest.mark.parametrize("product", [name for name in PRODUCTS if not name.startswith("counter ")])
def test_every_product_is_computed_at_three_budgets(product):
    """Exactly or by a duel: the worst loss that is found is at most the promise (``test_computed``)."""
    assert len({case.claimed.epsilon for case in COMPUTED if product in case.covers}) >= 3


def test_names_are_unique():
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)


def check(case):
    found = case.attack(Attacker(quick=True))
    assert case.holds(found), f"{case.name}: {found}"
    assert case.caught(found), f"{case.name}: {found}"


@pytest.mark.parametrize("case", COMPUTED, ids=lambda case: case.name)
def test_computed(case):
    check(case)


@pytest.mark.statistical
@pytest.mark.parametrize("case", BLACK_BOX, ids=lambda case: case.name)
def test_black_box(case):
    check(case)


def test_the_stated_flake_probabilities_of_the_suite_add_up_to_little(request):
    """Of all tests collected in this run, so of the whole suite in ``make test``."""
    assert total(request.session.items) < MOST
