"""Bounding users: never more than m events each, and nobody's events depend on anybody else's."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthgeo.errors import ConfigError, ContributionError, StateError
from synthgeo.privacy.contribution import ContributionBounder, bucket_of
from synthgeo.privacy.unit import PrivacyUnit
from synthgeo.privacy.users import UserIds
from synthgeo.sources import Reading, open_source, values

events = st.tuples(st.integers(0, 4), st.integers(0, 3), st.sampled_from([1, 1, 1, -1]))
streams = st.lists(st.lists(events, max_size=25), min_size=1, max_size=4)


def bounder(m, **options):
    return ContributionBounder(PrivacyUnit.user(max_events=m), **options)


def columns(batch, *, text=False):
    users = [f"u{user}" if text else user for user, _, _ in batch]
    keys = np.array([key for _, key, _ in batch], dtype=np.uint64)
    ops = np.array([op for _, _, op in batch], dtype=np.int64)
    return np.array(users, dtype=object if text else np.int64), keys, ops


def kept_events(stream, m, *, deletes, text=False):
    """What is kept of a stream: a Counter of (user, key, op) for each batch."""
    bound = bounder(m, deletes=deletes)
    kept = []
    for batch in stream:
        batch = batch if deletes else [event for event in batch if event[2] == 1]
        mask = bound.admit(*columns(batch, text=text))
        kept.append(Counter(event for event, keep in zip(batch, mask, strict=True) if keep))
    return kept


@settings(deadline=None)
@given(stream=streams, m=st.integers(2, 6), deletes=st.booleans(), text=st.booleans())
def test_never_more_than_m_events_of_a_user(stream, m, deletes, text):
    total = Counter()
    for batch in kept_events(stream, m, deletes=deletes, text=text):
        for (user, _, _), count in batch.items():
            total[user] += count
    assert max(total.values(), default=0) <= m


@settings(deadline=None)
@given(stream=streams, m=st.integers(2, 6), deletes=st.booleans(), user=st.integers(0, 4))
def test_removing_a_user_changes_no_other_users_events(stream, m, deletes, user):
    """The guarantee: neighbours at user level differ in that user's (at most m) kept events only."""
    without = [[event for event in batch if event[0] != user] for batch in stream]
    for full, reduced in zip(
        kept_events(stream, m, deletes=deletes), kept_events(without, m, deletes=deletes), strict=True
    ):
        assert Counter({event: n for event, n in full.items() if event[0] != user}) == reduced


@settings(deadline=None)
@given(stream=streams, m=st.integers(2, 6), deletes=st.booleans(), data=st.data())
def test_order_of_rows_does_not_matter(stream, m, deletes, data):
    shuffled = [data.draw(st.permutations(batch)) for batch in stream]
    assert kept_events(stream, m, deletes=deletes) == kept_events(shuffled, m, deletes=deletes)


@settings(deadline=None)
@given(stream=streams, m=st.integers(2, 6))
def test_kept_deletions_take_back_kept_insertions(stream, m):
    """At no time are there fewer than zero open insertions, and a kept insertion can always be deleted."""
    there = Counter()
    for batch, kept in zip(stream, kept_events(stream, m, deletes=True), strict=True):
        wanted = Counter((user, key) for user, key, op in batch if op == -1)
        for (user, key, op), count in kept.items():
            there[user, key] += count if op == 1 else 0
        for pair, asked in wanted.items():
            taken = kept[(*pair, -1)]
            assert taken == min(asked, there[pair])
            there[pair] -= taken
    assert min(there.values(), default=0) >= 0


@settings(deadline=None)
@given(stream=streams, m=st.integers(2, 6), deletes=st.booleans(), cut=st.integers(0, 3))
def test_saved_state_goes_on_as_if_nothing_happened(stream, m, deletes, cut):
    bound = bounder(m, deletes=deletes)
    again = bounder(m, deletes=deletes)
    for number, batch in enumerate(stream):
        batch = batch if deletes else [event for event in batch if event[2] == 1]
        if number == cut:
            values, arrays = again.to_state()
            again = ContributionBounder.from_state(values, arrays)
        assert np.array_equal(bound.admit(*columns(batch)), again.admit(*columns(batch)))


def test_everything_fits_until_the_bound():
    bound = bounder(3)
    keys = np.arange(2, dtype=np.uint64)
    assert bound.admit(["ann", "ann"], keys).tolist() == [True, True]
    assert bound.admit(["ann", "ann"], keys).sum() == 1
    assert bound.admit(["ann", "bob"], keys).tolist() == [False, True]


def test_an_insertion_reserves_its_deletion():
    bound = bounder(4, deletes=True)
    home = np.zeros(3, dtype=np.uint64)
    assert bound.admit([1, 1, 1], home, np.array([1, 1, 1])).sum() == 2
    assert bound.admit([1, 1, 1], home, np.array([-1, -1, -1])).sum() == 2
    assert not bound.admit([1], home[:1], np.array([1])).any()


def test_deletion_of_a_dropped_insertion_is_dropped():
    bound = bounder(2, deletes=True)
    places = np.array([10, 11], dtype=np.uint64)
    kept = bound.admit([1, 1], places, np.array([1, 1]))
    assert kept.sum() == 1
    assert np.array_equal(bound.admit([1, 1], places, np.array([-1, -1])), kept)


def test_no_place_is_favoured():
    """With room for one of two places, about half of 10,000 users keep each. Fixed salt: deterministic."""
    users = np.repeat(np.arange(10_000), 2)
    places = np.tile(np.array([0, 1], dtype=np.uint64), 10_000)
    kept = bounder(1).admit(users, places)
    first = np.count_nonzero(kept & (places == 0))
    assert kept.sum() == 10_000
    assert 4_800 < first < 5_200
    other = bounder(1, salt=1).admit(users, places)
    assert 4_800 < np.count_nonzero(kept == other) / 2 < 5_200


def test_many_equal_events_are_sampled_like_the_rest():
    """Nine visits home and one elsewhere, room for five: elsewhere survives for about half of the users."""
    users = np.repeat(np.arange(4_000), 10)
    places = np.tile(np.array([0] * 9 + [1], dtype=np.uint64), 4_000)
    kept = bounder(5).admit(users, places)
    assert kept.sum() == 20_000
    assert 1_850 < np.count_nonzero(kept & (places == 1)) < 2_150


def test_numbers_and_their_text_are_one_user_and_leading_zeros_another():
    ids = UserIds.of(np.array([7, -7, 2**62]))
    same = UserIds.of(np.array(["7", "-7", str(2**62)], dtype=object))
    assert np.array_equal(ids.low, same.low)
    assert np.array_equal(ids.high, same.high)
    texts = ["7", "007", "+7", "7 7", "7.5", "-0", "0", "٧", str(2**64 + 7), "-", "ann", "Ann"]
    pairs = {
        (int(high), int(low))
        for high, low in zip(*(getattr(UserIds.of(texts), side) for side in ("high", "low")), strict=True)
    }
    assert len(pairs) == len(texts)
    assert UserIds.of(np.array([2**64 - 1], dtype=np.uint64)).high[0] != UserIds.of(np.array([-1])).high[0]


@settings(max_examples=20, deadline=None)
@given(users=st.lists(st.integers(-3, 3), min_size=1, max_size=30))
def test_every_way_to_give_users_means_the_same(users):
    expected = UserIds.of(np.array(users))
    for form in (
        users,
        pd.Series(users),
        pd.Series(users, dtype="Int64"),
        np.array(users, dtype=object),
        pd.Series([str(user) for user in users]),
        np.array([str(user) for user in users]),
        np.array(users, dtype=float),
        [f"{user}.0" if at % 2 else user for at, user in enumerate(users)],
    ):
        ids = UserIds.of(form)
        assert np.array_equal(ids.low, expected.low)
        assert np.array_equal(ids.high, expected.high)


def test_a_text_file_has_the_ids_of_typed_data(tmp_path):
    """7, 7.0 and 7.00 are one user in a file as they are elsewhere, and 7.5 is 7.50."""
    texts = ["7", "7.0", "7.00", "-7.0", "7.5", "7.50", "007", "u", "u.0"]
    (tmp_path / "ids.csv").write_text("\n".join(["user", *texts, ""]))
    found = values.ids(open_source(tmp_path / "ids.csv").read(["user"]), "user")
    expected = UserIds.of([7, 7.0, "7", -7, 7.5, 7.5, "007", "u", "u.0"])
    assert found.high.tolist() == expected.high.tolist()
    assert found.low.tolist() == expected.low.tolist()


def test_white_space_and_the_coding_of_accents_tell_no_ids_apart(tmp_path):
    """In files, in columns of text and among objects alike, unless the declaration says otherwise."""
    texts = ["7", " 7", "7 ", "\u00a07.0", "007", "É", "E\u0301 ", "ann", "Ann"]
    (tmp_path / "ids.csv").write_text("\n".join(["user", *texts, ""]), encoding="utf-8")
    pd.DataFrame({"user": texts}).to_parquet(tmp_path / "ids.parquet")
    (tmp_path / "ids.jsonl").write_text("".join(json.dumps({"user": text}) + "\n" for text in texts))
    sources = [*(tmp_path / f"ids.{kind}" for kind in ("csv", "parquet", "jsonl")), {"user": [*texts]}]
    rules = {
        ("space",): [0, 0, 0, 0, 1, 2, 2, 3, 4],
        ("space", "case", "zeros"): [0, 0, 0, 0, 0, 1, 1, 2, 2],
        (): [0, 1, 2, 3, 4, 5, 6, 7, 8],
    }
    for rule, expected in rules.items():
        for data in sources:
            source = open_source(data, reading=Reading(ids=rule))
            assert values.ids(source.read(["user"]), "user").codes().tolist() == expected
    assert UserIds.of(texts).codes().tolist() == rules["space",]


@pytest.mark.parametrize("empty", ["", "  ", "\u00a0", "NA", " NA "])
def test_an_id_of_which_nothing_is_left_drops_its_row(tmp_path, empty):
    (tmp_path / "ids.csv").write_text(f"user,x\nann,1\n{empty},2\n", encoding="utf-8")
    for data in (tmp_path / "ids.csv", {"user": ["ann", empty], "x": [1, 2]}):
        for reading in (Reading(missing=("", "NA")), Reading(missing=("", "NA"), bad_rows="drop")):
            source = open_source(data, reading=reading)
            if reading.bad_rows == "error":
                with pytest.raises(ContributionError, match="the id is missing"):
                    source.read(["user"], check=user_ids)
            else:
                assert source.read(["user"], check=user_ids).rows == 1


def user_ids(chunk):
    return values.ids(chunk, "user")


def test_a_stream_that_began_without_a_rule_of_ids_goes_on_without_one():
    before = {name: value for name, value in Reading().to_dict().items() if name != "ids"}
    assert Reading.from_dict(before).ids == ()
    assert Reading.from_dict(None).ids == Reading.from_dict(Reading().to_dict()).ids == ("space",)
    with pytest.raises(ConfigError, match="ids must be a list of 'space', 'case', 'zeros'"):
        Reading(ids=("none",))


def test_users_that_agree_in_half_of_their_id_stay_apart():
    """A clash of 64 of 128 bits, which the fast path takes for one user, is seen and resolved."""
    low = np.array([5, 5, 5, 9], dtype=np.uint64)
    ids = UserIds(np.array([1, 2, 1, 0], dtype=np.uint64), low)
    bound = bounder(1)
    kept = bound.admit(ids, np.zeros(4, dtype=np.uint64))
    assert kept[[1, 3]].all()
    assert kept[[0, 2]].sum() == 1
    assert not bound.admit(ids, np.zeros(4, dtype=np.uint64)).any()


@pytest.mark.parametrize(
    ("users", "message"),
    [
        (["a", None, "b"], r"'user_id', row 1: the id is missing"),
        ([1.0, np.nan], r"'user_id', row 1: the id is missing"),
        (pd.Series([1, 2, None], dtype="Int64"), r"'user_id', row 2: the id is missing"),
        (np.array([1.5, np.inf]), r"'user_id', row 1: an id is a number or text"),
        ([True, False], r"'user_id', row 0: an id is a number or text"),
        ([b"a"], r"'user_id', row 0: an id is a number or text"),
        (["a", ("a", 1)], r"'user_id', row 1: an id is a number or text"),
        (np.array([[1], [2]]), r"one column"),
    ],
)
def test_unusable_user_keys_are_refused_and_change_nothing(users, message):
    bound = bounder(1)
    with pytest.raises(ContributionError, match=message):
        bound.admit(users, np.zeros(len(users), dtype=np.uint64))
    assert bound.admit([1], np.zeros(1, dtype=np.uint64)).all()


def test_deletions_need_to_be_asked_for():
    one = np.zeros(1, dtype=np.uint64)
    with pytest.raises(ContributionError, match="'op', row 0: is a deletion"):
        bounder(2).admit([1], one, np.array([-1]))
    with pytest.raises(ContributionError, match=r"'op', row 0: must be \+1 or -1"):
        bounder(2, deletes=True).admit([1], one, np.array([0]))
    with pytest.raises(ConfigError, match="at least 2"):
        bounder(1, deletes=True)
    with pytest.raises(ConfigError, match="bounded by user"):
        ContributionBounder(PrivacyUnit.event())


def test_wrong_array_types_are_refused():
    with pytest.raises(TypeError, match="uint64"):
        bounder(1).admit([1], np.zeros(1))
    with pytest.raises(TypeError, match="ops"):
        bounder(1).admit([1], np.zeros(1, dtype=np.uint64), np.array([1, 1]))


def test_copy_is_independent():
    bound = bounder(1)
    trial = bound.copy()
    one = np.zeros(1, dtype=np.uint64)
    assert trial.admit([1], one).all()
    assert bound.admit([1], one).all()
    assert not trial.admit([1], one).any()


def test_nothing_private_in_its_words():
    bound = bounder(2)
    bound.admit(["secret-user"], np.array([123456], dtype=np.uint64))
    assert "secret" not in repr(bound)
    assert repr(bound) == repr(bounder(2))


@pytest.mark.parametrize("damage", ["order", "shape", "type", "missing", "version", "unit"])
def test_damaged_state_is_refused(damage):
    bound = bounder(2)
    bound.admit([1, 2, 3], np.zeros(3, dtype=np.uint64))
    values, arrays = bound.to_state()
    if damage == "order":
        arrays["users_first"] = arrays["users_first"][::-1]
    elif damage == "shape":
        arrays["users_values"] = arrays["users_values"][:2]
    elif damage == "type":
        arrays["users_first"] = arrays["users_first"].astype(np.float64)
    elif damage == "missing":
        del arrays["users_second"]
    elif damage == "version":
        values["version"] = 99
    else:
        values["unit"] = {"kind": "user"}
    with pytest.raises(StateError):
        ContributionBounder.from_state(values, arrays)


def test_ids_beyond_64_bits_are_one_on_every_engine():
    """A bound doubled where one batch came as Parquet and the next as CSV."""
    big = [2**63, 2**64 - 1, 10**19]
    forms = [np.array(big, dtype=np.uint64), big, [str(user) for user in big], pd.Series(big, dtype="UInt64")]
    ids = [UserIds.of(form) for form in forms]
    assert len({(tuple(i.high.tolist()), tuple(i.low.tolist())) for i in ids}) == 1
    assert len(set(ids[0].low.tolist())) == 3


@settings(deadline=None)
@given(
    stream=streams,
    m=st.integers(2, 6),
    deletes=st.booleans(),
    buckets=st.integers(1, 5),
    per=st.sampled_from([None, 2]),
)
def test_parts_of_a_bounder_keep_what_the_whole_keeps(stream, m, deletes, buckets, per):
    """By buckets of users, joined after each batch; a bucket without events is not asked."""
    unit = PrivacyUnit.user(max_events=m, per=per)
    whole, joined = (ContributionBounder(unit, deletes=deletes) for _ in range(2))
    for step, batch in enumerate(stream):
        batch = [event for event in batch if deletes or event[2] == 1]
        users, keys, ops = columns(batch)
        times = {"period": step // 2, "born": np.full(len(batch), step // 2)}
        expected = whole.admit(users, keys, ops, **times)
        bucket, found = bucket_of(UserIds.of(users), buckets), np.zeros(len(batch), dtype=bool)
        parts = joined.parts(buckets)
        for number in np.unique(bucket):
            rows, part = bucket == number, parts[number].opened()
            own = times | {"born": times["born"][rows]}
            found[rows] = part.admit(users[rows], keys[rows], ops[rows], **own)
            parts[number] = parts[number].closed(part)
        joined.join(parts)
        kept = [
            Counter(event for event, keep in zip(batch, mask, strict=True) if keep)
            for mask in (expected, found)
        ]
        assert kept[0] == kept[1]
