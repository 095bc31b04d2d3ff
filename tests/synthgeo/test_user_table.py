"""Users bounded in parts: through files of events, and with their memory in a table on disk."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from synthgeo.errors import ConfigError, StateError
from synthgeo.privacy.contribution import ContributionBounder
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.privacy.user_table import StoredBounder
from synthgeo.privacy.users import UserIds
from synthgeo.sources import open_source, source, spill
from synthgeo.sources.source import UserEvents
from tests.synthgeo.source_keys import Admitted, GridKeys
from tests.synthgeo.test_sources_agreement import GRID, random_frame

KEY = GridKeys(op=True)
UNIT = PrivacyUnit.user(max_events=4, key="user")
MORE = PrivacyUnit.user(max_events=60, key="user")


def counted(source, bounder, period=0):
    return source.count_users(KEY, KEY.columns, "user", Admitted(period=period), bounder, weights=2)


@pytest.fixture(scope="module")
def frames():
    return [random_frame(seed, 400) for seed in range(3)]


@pytest.mark.parametrize("per", [None, 1])
def test_a_table_on_disk_keeps_what_memory_keeps(frames, tmp_path, per):
    unit = PrivacyUnit.user(max_events=4, key="user", per=per)
    memory, stored = ContributionBounder(unit), StoredBounder(unit, tmp_path, buckets=5)
    for step, frame in enumerate(frames):
        frame = frame.assign(op=1)
        expected = counted(open_source(frame), memory, step)
        assert expected.weights.sum() > 0 or per is None
        assert counted(open_source(frame), stored, step).equals(expected)
        stored = StoredBounder.from_state(*stored.to_state())


@pytest.mark.parametrize("weights", [1, 2])
def test_many_events_are_bounded_a_bucket_at_a_time(monkeypatch, weights):
    """Never more than a bucket's events at once, the same ones kept, nobody split over two buckets."""
    rng = np.random.default_rng(5)
    users, keys = rng.integers(0, 400, 4000), rng.integers(0, 30, 4000).astype(np.uint64)
    events = UserEvents(UserIds.of(users), keys, np.ones((4000, weights), np.int64))
    sizes, homes = [], []

    @dataclass
    class Counts:
        width: int = weights

        def __call__(self, events, bounder):
            sizes.append(len(events.keys))
            homes.append(set(events.users.low.tolist()))
            return events.histogram(bounder.admit(events.users, events.keys))

    whole, one = ContributionBounder(UNIT), ContributionBounder(UNIT)
    expected = source.count_in_parts(events, Counts(), whole)
    assert sizes == [4000]
    sizes.clear(), homes.clear()
    monkeypatch.setattr(source, "WHOLE", 1000)
    assert source.count_in_parts(events, Counts(), one).equals(expected)
    assert sum(sizes) == 4000
    assert max(sizes) < 4000 / 64 * 3
    assert sum(map(len, homes)) == len(set.union(*homes))
    sizes.clear(), homes.clear()
    again = source.count_in_parts(events, Counts(), one)  # what they remember together is what one remembers
    monkeypatch.undo()
    assert again.equals(source.count_in_parts(events, Counts(), whole))


def test_events_on_disk_are_bounded_like_events_in_memory(frames, tmp_path, monkeypatch):
    frame = pd.concat(frames)
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=100)
    expected, bounder, left = None, None, None
    for held, whole, at_once in ((1 << 20, 1 << 20, 99), (1 << 20, 150, 99), (150, 100, 999), (150, 100, 8)):
        monkeypatch.setattr(spill.count_spilled, "__kwdefaults__", {"held": held, "whole": whole})
        monkeypatch.setattr(spill, "AT_ONCE", at_once)
        for own in (
            ContributionBounder(UNIT, deletes=True),
            StoredBounder(UNIT, tmp_path, buckets=4, deletes=True),
        ):
            source = open_source(tmp_path / "a.parquet").identified({"lon": "number", "user": "id"})
            found = counted(source, own)
            expected = found if expected is None else expected
            bounder = source.identity if bounder is None else bounder
            assert found.equals(expected)
            assert source.identity == bounder
            again = counted(source, own)  # what was used is remembered
            left = again if left is None else left
            assert again.equals(left)
    assert expected.equals(counted(open_source(frame), ContributionBounder(UNIT, deletes=True)))


def held_of(events, held=1):
    """The events of each user and sign that are left to be bounded, and how many there were at once."""
    buckets, found, sizes = spill._Buckets(1, held), {}, []
    with buckets.opened(1):
        for start in range(0, len(events.keys), 30):
            buckets.add(events.take(slice(start, start + 30)))
        for _, group in buckets:
            sizes.append(len(group.keys))
            for user, sign, key in zip(group.users.low, group.weights[:, 0], group.keys, strict=True):
                found.setdefault((int(user), int(sign)), []).append(int(key))
    return {kind: sorted(keys) for kind, keys in found.items()}, sizes


def events_of(*users):
    """Events in which a user has so many; every third is a deletion."""
    users = np.repeat(*(np.array(column) for column in zip(*users, strict=True))).astype(np.uint64)
    keys = np.concatenate([np.arange((users == user).sum()) for user in dict.fromkeys(users.tolist())])
    weights = np.where(keys % 3 == 0, -1, 1)[:, None]
    return source.UserEvents(UserIds(users * 0, users), keys.astype(np.uint64), weights)


def test_a_user_with_too_many_events_is_cut_in_each_kind(monkeypatch):
    """Events of others, and of the user's other kinds, are as they were: equal rows held at once are few."""
    monkeypatch.setattr(spill, "AT_ONCE", 25)
    monkeypatch.setattr(spill, "MOST_OF_A_USER", 25)
    found, sizes = held_of(events_of((7, 300), (8, 3), (9, 1)))
    assert {kind: len(keys) for kind, keys in found.items()} == {
        (7, -1): 25, (7, 1): 25, (8, -1): 1, (8, 1): 2, (9, -1): 1,
    }  # fmt: skip
    assert max(sizes) <= 54


@pytest.mark.parametrize("own", [20, 30, 39, 45, 90, 300])
def test_nobody_decides_which_events_of_another_user_are_cut(own, monkeypatch):
    """Nor does the order of rows: a batch is in files by then, which are read in pieces."""
    assert max(spill.AT_ONCE, spill.HELD) <= spill.MOST_OF_A_USER
    monkeypatch.setattr(spill, "AT_ONCE", 25)
    monkeypatch.setattr(spill, "MOST_OF_A_USER", 25)
    alone, _ = held_of(events_of((7, own)), held=25)
    mine = {kind: alone[kind] for kind in ((7, -1), (7, 1))}
    for others in (1, 10, 100, 1000):
        events = events_of((7, own), (8, others))
        for rows in (slice(None), np.random.default_rng(others).permutation(own + others)):
            found, _ = held_of(events.take(rows), held=25)
            assert {kind: found[kind] for kind in mine} == mine, others


def test_windows_of_files_use_the_table(frames, tmp_path):
    frame = frames[0].assign(op=1)
    frame.to_parquet(tmp_path / "a.parquet")
    memory, stored = ContributionBounder(UNIT), StoredBounder(UNIT, tmp_path / "users", buckets=3)
    windows = open_source(tmp_path / "a.parquet").windows(**GRID), open_source(frame).windows(**GRID)
    for (_, ours), (_, other) in zip(*windows, strict=True):
        assert counted(ours, stored).equals(counted(other, memory))


def stream(**options):
    return sg.PHDStream.from_options(
        domain=sg.BoxDomain(0, 0, 1, 1, crs=4326), budget=sg.PrivacyBudget(1.0), unit=MORE, x="lon", y="lat",
        noise=sg.SeededNoise(5), **options,
    )  # fmt: skip


def test_a_run_goes_on_with_its_table_after_a_crash(frames, tmp_path, monkeypatch):
    """A step that dies after the table was written leaves the old version, and is done again."""
    expected = stream()
    stored = stream()
    stored.store_users(tmp_path / "users", buckets=4)
    batches = [frame[["lon", "lat", "user"]] for frame in frames]
    with sg.StreamRun.open(tmp_path / "run", stored) as run:
        run.step("1", batches[0])
        expected.update(batches[0])
        before = files(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(type(run), "_decide", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                run.step("2", batches[1])
        assert before < files(tmp_path)
    with sg.StreamRun.open(tmp_path / "run") as run:
        for name, batch in zip("23", batches[1:], strict=True):
            ours, theirs = run.step(name, batch), expected.update(batch)
            assert np.array_equal(ours.xy, theirs.xy)
            assert len(files(tmp_path)) <= 8  # this version and the one before
    assert oct((tmp_path / "users").iterdir().__next__().stat().st_mode)[-3:] == "700"
    assert all(oct(path.stat().st_mode)[-3:] == "600" for path in files(tmp_path))


def files(folder):
    return set((folder / "users").rglob("*.parquet"))


SCHEMA = sg.Schema(
    {
        "lon": sg.Numeric(0, 2, bins="auto", decimals=2),
        "lat": sg.Numeric(-1, 2, bins=3),
        "op": sg.Categorical([-1, 1]),
    }
)


def test_tables_of_users_are_counted_in_parts(frames, tmp_path):
    """One-off from a file, and as a stream with a table of users: what memory gives."""
    rows = frames[0][["lon", "lat", "op", "user"]].assign(lon=frames[0]["lon"].abs())
    rows.to_parquet(tmp_path / "a.parquet", row_group_size=150)
    fitted, streamed = [], []
    for data in (rows, tmp_path / "a.parquet"):
        once = sg.TabularSynthesizer(
            schema=SCHEMA, budget=sg.PrivacyBudget(1.0), unit=UNIT, noise=sg.SeededNoise(3)
        )
        fitted.append(once.fit(data).sample(50).data.to_csv())
        schema = sg.Schema({"lat": SCHEMA.columns["lat"], "op": SCHEMA.columns["op"]})
        table = sg.TabularStream(
            schema=schema,
            budget=sg.PrivacyBudget(1.0),
            unit=MORE,
            deletions=False,
            columns=sg.ColumnNames(op="none"),
            noise=sg.SeededNoise(3),
        )
        if data is not rows:
            table.store_users(tmp_path / "users", buckets=3)
        table.update(data)
        table.save(tmp_path / "state")
        streamed.append(sg.TabularStream.load(tmp_path / "state").update(data).data.to_csv())
    assert fitted[0] == fitted[1]
    assert streamed[0] == streamed[1]


def test_a_damaged_or_lost_table_is_refused_before_anything_is_spent(frames, tmp_path):
    stored = stream()
    stored.store_users(tmp_path / "users", buckets=1)
    batch = frames[0][["lon", "lat", "user"]]
    stored.update(batch)
    (path,) = files(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[:-9] + b"123456789")
    with pytest.raises(StateError, match="is damaged"):
        stored.update(batch)
    path.unlink()
    with pytest.raises(StateError, match="belongs to a later state"):
        stored.update(batch)
    assert stored.step == 1
    path.write_bytes(content)
    stored.update(batch)


def test_users_are_stored_before_the_first_step_and_by_streams_of_users(frames, tmp_path):
    used = stream()
    used.update(frames[0][["lon", "lat", "user"]])
    events = sg.PHDStream(domain=sg.BoxDomain(0, 0, 1, 1), budget=sg.PrivacyBudget(1.0))
    for made in (used, events):
        with pytest.raises(ConfigError, match="before their first step"):
            made.store_users(tmp_path)
    nowhere = stream()
    (tmp_path / "file").touch()
    nowhere.store_users(tmp_path / "file")
    with pytest.raises(ConfigError, match="cannot be kept"):
        nowhere.update(frames[0][["lon", "lat", "user"]])
