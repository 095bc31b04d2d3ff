"""How a run knows a batch again: by its records, whatever holds them."""

from __future__ import annotations

import hmac
import sqlite3
from contextlib import closing

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from streams.runs.identity import content_of
from streams.runs.run import StreamRun
from synthgeo.errors import ConfigError, LedgerError
from synthgeo.sources import open_source
from synthgeo.sources.declared import CURATOR
from synthgeo.sources.fingerprint import RowSample
from tests.streams.tally import Tally


def points(**options):
    usual = {"domain": sg.BoxDomain(0, 0, 1, 1), "budget": sg.PrivacyBudget(1.0), "max_depth": 6}
    return sg.PHDStream.from_options(**(usual | {"noise": sg.SeededNoise(1)} | options))


def frame(seed, rows=40):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"x": rng.random(rows), "y": rng.random(rows), "note": rng.integers(0, 9, rows)})


@pytest.fixture
def run(folder):
    with StreamRun.open(folder / "run", points()) as run:
        yield run


def test_a_list_of_files_is_known_by_what_is_in_them(run, folder):
    path = folder / "a.csv"
    frame(1).to_csv(path, index=False)
    run.step("d1", [path])
    assert run.step("d1", [str(path)]).step == 1
    frame(2).to_csv(path, index=False)
    with pytest.raises(LedgerError, match="other content"):
        run.step("d1", [path])


def test_the_same_records_are_the_same_batch_in_every_form(run, folder):
    whole = frame(1)
    run.step("d1", whole)
    whole.to_parquet(folder / "a.parquet")
    whole.iloc[:15].to_parquet(folder / "part-1.parquet")
    whole.iloc[15:].to_parquet(folder / "part-2.parquet")
    for form in (
        whole[::-1],
        whole.drop(columns="note"),  # not read
        folder / "a.parquet",
        [folder / "part-2.parquet", folder / "part-1.parquet"],
        str(folder / "part-*.parquet"),
        whole[["x", "y"]].to_numpy(),
    ):
        assert run.step("d1", form).step == 1
        with pytest.raises(LedgerError, match=r"records of batch 'd1', step 1, and each would pay twice"):
            run.step("d2", form)
    assert run.steps == 1


def test_what_a_run_keeps_of_a_batch_is_salted(folder):
    """A fingerprint of little data can be guessed, and two runs must not tell that they read the same."""
    path = folder / "a.csv"
    frame(1, rows=3).to_csv(path, index=False)
    known = content_of(points(), path)
    kept = {
        hashing(known) for hashing in (str, lambda text: hmac.new(b"", text.encode(), "sha256").hexdigest())
    }
    for name in ("one", "two"):
        with StreamRun.open(folder / name, points()) as run:
            run.step("d1", path)
        with closing(sqlite3.connect(next((folder / name).glob("*.sqlite")))) as journal:
            ((content,),) = journal.execute("SELECT content FROM book").fetchall()
        assert content not in kept
        kept.add(content)
    for file in folder.glob("*/**/*"):
        assert file.is_dir() or known.encode() not in file.read_bytes(), file


def test_the_rows_of_a_run_are_hashed_under_its_own_key(folder):
    """Other rows with the same fingerprint could be computed where the hash of each row had no key."""
    path, seen = folder / "a.csv", set()
    frame(1, rows=30).to_csv(path, index=False)
    for name in ("one", "two"):
        with StreamRun.open(folder / name, points()) as run:
            counted = run._stream.count(path, identify=run._rows_key)
            assert counted.identity.fingerprint == content_of(points(), path, key=run._rows_key)
            seen.add(counted.identity.fingerprint)
            run.step("d1", path)
            salted = run._journal.salted(counted.identity.fingerprint)
            assert run._journal.of_batch("d1")["content"] == salted
    assert len(seen | {content_of(points(), path)}) == 3


def test_records_that_come_again_are_taken_when_told(run):
    run.step("d1", frame(1))
    run.step("d2", frame(1), allow_repeat=True)
    assert run.batches == ["d1", "d2"]


def test_empty_batches_are_steps_like_any_other(run):
    empty = frame(1).head(0)
    for i in range(3):
        run.step(f"night {i}", empty)
    run.step("day", frame(1))
    assert run.steps == 4
    assert run.step("night 1", empty).step == 2


def test_batches_of_rows_that_are_all_left_out_are_empty(folder):
    stream = points(reading=sg.Reading(bad_rows="drop"))
    with StreamRun.open(folder / "run", stream) as run:
        for name in ("a", "b"):
            (folder / f"{name}.csv").write_text(f"x,y\n{name},?\n")
            run.step(name, folder / f"{name}.csv")
        assert run.steps == 2


def test_numbers_may_come_again(folder):
    with StreamRun.open(folder / "numbers", Tally(noise=sg.SeededNoise(1))) as run:
        for i in range(3):
            run.step(f"h{i}", np.array([7]))
        assert run.steps == 3


def test_a_file_that_did_not_change_is_not_read_again(run, folder, monkeypatch):
    path = folder / "a.parquet"
    frame(1).to_parquet(path)
    run.step("d1", path)

    def read(*_args, **_options):
        raise AssertionError("was read again")

    with monkeypatch.context() as patch:
        patch.setattr("streams.runs.run.content_of", read)
        assert run.step("d1", path).step == 1
        path.touch()
        with pytest.raises(AssertionError, match="read again"):
            run.step("d1", path)
    assert run.step("d1", path).step == 1


def test_a_file_of_a_list_that_changes_while_it_is_read_is_refused(folder, monkeypatch):
    path = folder / "a.parquet"
    frame(1).to_parquet(path)
    with StreamRun.open(folder / "run", points()) as run:
        compute = StreamRun._compute

        def meanwhile(run, batch, counted):
            result = compute(run, batch, counted)
            frame(2).to_parquet(path)
            return result

        monkeypatch.setattr(StreamRun, "_compute", meanwhile)
        with pytest.raises(LedgerError, match="changed while"):
            run.step("d1", [path])
        assert run.steps == 0


@pytest.mark.parametrize("name", ["\ud800", "a\nb", "a\0b", "x\x1b[31m"])
def test_odd_names_are_refused(run, name):
    with pytest.raises(ConfigError, match="batch_id"):
        run.step(name, frame(1))


def test_brackets_in_a_name_are_names(run):
    run.step("[/]", frame(1))
    assert "[/]" in str(run.report())
    assert run.release("[/]").step == 1


SCHEMA = sg.Schema({"x": sg.Numeric(0, 1, bins=4), "note": sg.Categorical(range(9))})


@pytest.mark.parametrize(
    "stream",
    [
        points(),
        points(unit=sg.PrivacyUnit.user(max_events=2, key="note")),
        sg.TabularStream(schema=SCHEMA, budget=sg.PrivacyBudget(1.0), noise=sg.SeededNoise(1)),
    ],
    ids=["points", "users", "table"],
)
def test_a_batch_is_read_once_for_its_counts_and_its_identity(stream, folder, monkeypatch):
    from synthgeo.sources.text import TextSource

    frame(1).to_csv(folder / "a.csv", index=False)
    loads, passes = TextSource.loads, []

    def counting(source, columns, **options):
        passes.append(columns)
        return loads(source, columns, **options)

    monkeypatch.setattr(TextSource, "loads", counting)
    with StreamRun.open(folder / "run", stream) as run:
        run.step("d1", folder / "a.csv")
        assert len(passes) == 1
        run.step("d1", folder / "a.csv")  # known by its name, its size and its time
        assert len(passes) == 1
        with pytest.raises(LedgerError, match="records of batch 'd1'"):
            run.step("d2", folder / "a.csv")


def test_arrow_batches_that_can_be_read_once_are_a_batch(run):
    import pyarrow as pa

    table = pa.Table.from_pandas(frame(1))
    run.step("d1", table.to_reader())
    assert run.step("d1", table.to_reader()).step == 1


# Rows that come again: in another file, or in an export that grows.


def rounded(seed, rows=400, step=0.1):
    """Points of a coarse grid: most rows have equals, of other people."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"x": rng.integers(0, 9, rows) * step, "y": rng.integers(0, 9, rows) * step})


def test_attended_use_refuses_an_export_that_grows_and_names_the_batch(run):
    """Yesterday's rows and today's: each of yesterday's used to pay twice."""
    run.step("d1", frame(1, 300))
    run.step("d2", frame(2, 300))
    with pytest.raises(LedgerError, match=r"rows of 'd2' again .*100%.*allow_repeat"):
        run.step("d3", pd.concat([frame(2, 300), frame(3, 40)]))
    with pytest.raises(LedgerError, match="'d1', 'd2'"):
        run.step(
            "d3", pd.concat([frame(1, 300), frame(2, 300), frame(3, 900)]).sample(frac=1, random_state=1)
        )
    assert run.steps == 2
    run.step("d3", frame(3, 300))
    run.step("d4", pd.concat([frame(4, 300), frame(3, 300)[:30]]))  # a few late rows are no export
    run.step("d5", pd.concat([frame(2, 300), frame(5, 40)]), allow_repeat=True)
    assert not run.remarks


def test_unattended_use_takes_repeats_as_ordinary_steps_and_tells_the_curator(folder, caplog, monkeypatch):
    """A refusal was seen by all, and one row more or less decided it."""
    caplog.set_level("INFO", logger="synthgeo.curator")
    monkeypatch.setattr(CURATOR, "handlers", [caplog.handler])
    stream = points(reading=sg.Reading(unattended=True))
    (folder / "a.csv").write_text("x,y\n0.5,0.5\n")
    with StreamRun.open(folder / "run", stream) as run:
        run.step("d1", frame(1, 300))
        run.step("d2", frame(1, 300))
        run.step("d3", pd.concat([frame(1, 300), frame(3, 40)]))
        run.step("d4", folder / "a.csv")
        (folder / "a.csv").write_text("x,y\n0.5,0.6\n")
        run.step("d4", folder / "a.csv")
        run.step("d4", folder / "a.csv")
        run.step("d5", frame(1)[:0])
        assert run.steps == 5
    with StreamRun.view(folder / "run") as view:
        remarks = view.remarks
    assert list(remarks) == ["d2", "d3", "d4", "d5"]
    assert "records of batch 'd1'" in remarks["d2"][0]
    assert "rows of 'd" in remarks["d3"][0]
    assert remarks["d4"] == ["batch 'd4' was step 4, with other content"]
    assert remarks["d5"] == ["no row of this batch can be used"]
    assert all(text in caplog.text for text in remarks["d2"])


def test_rows_that_are_equal_by_chance_are_no_repeats(run):
    for day in range(6):
        run.step(f"d{day}", rounded(day))
    assert run.steps == 6


def test_rows_are_known_again_in_another_process_and_for_the_last_steps(folder, monkeypatch):
    monkeypatch.setattr("streams.runs.run._COMPARED", 3)
    for day in range(12):
        with StreamRun.open(folder / "run", points() if not day else None) as run:
            run.step(f"d{day}", frame(day, 60))
            assert len(run._journal.notes("rows")) <= 7
    with StreamRun.open(folder / "run") as run:
        with pytest.raises(LedgerError, match="'d11'"):
            run.step("again", pd.concat([frame(11, 60), frame(50, 5)]))
        hashes = run._journal.notes("rows")[12]["hashes"]
    with StreamRun.open(folder / "other", points()) as other:
        other.step("d11", frame(11, 60))
        assert other._journal.notes("rows")[1]["hashes"] != hashes  # the key is the run's


def test_a_step_that_was_interrupted_is_no_repeat_of_itself(run, monkeypatch):
    monkeypatch.setattr(run, "_decide", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run.step("d1", frame(1, 300))
    monkeypatch.undo()
    assert run.step("d1", frame(1, 300)).step == 1


def sampled(frame, key=b"k"):
    source = open_source(frame)
    found = source.identified({"x": "number", "y": "number"}, key=key).identity
    same = source.fingerprint({"x": "number", "y": "number"}, key=key)
    assert found.fingerprint == same  # a sample changes nothing
    return found.sample


@pytest.mark.parametrize("rows", [30, 400, 5_000, 60_000])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_sample_tells_the_share_of_rows_that_come_again(rows, share):
    again, other = int(share * rows), frame(2, 2 * rows)
    before = pd.concat([frame(1, rows), frame(3, rows // 4)])  # another size
    now = pd.concat([frame(1, rows)[:again], other[: rows - again]])
    told = sampled(now).repeated(sampled(before))
    assert share - 0.25 <= told <= share + 0.08  # cautious: two standard deviations less
    assert len(sampled(now).hashes) <= 512
    assert not sampled(now, b"other").repeated(sampled(before))
    whole = RowSample.together([sampled(before[:rows]), sampled(before[rows:])])
    assert sampled(now).repeated(whole) == pytest.approx(told, abs=0.1)


def test_samples_together_hold_every_row_up_to_their_limit():
    large, small = sampled(frame(1, 60_000)), sampled(frame(2, 400))
    both = RowSample.together([small, large])
    assert both.hashes.max() <= both.limit == large.limit < small.limit


def test_a_sample_of_many_equal_rows_holds_all_of_each():
    """Rows are sampled by their hashes, so that all rows that are equal are there or none is."""
    rare = frame(1, 600)
    many = pd.concat([rare, *[rare[:3]] * 20_000])
    sample = sampled(many)
    assert len(sample.hashes) == 512
    assert sample.counts.max() in (1, 20_001)
    assert sampled(rare).repeated(sample) == 0  # two rows of it may be equal by chance
    assert sample.hashes.tolist() == sampled(rare).hashes.tolist()


def test_a_declared_unique_key_counts_each_event_once_by_its_own_rows(folder):
    """An export that grows used to count, and to charge, each event once for each file it stood in."""

    def release(*batches):
        unit = sg.PrivacyUnit.event(unique="ride_id")
        stream = points(unit=unit, budget=sg.PrivacyBudget(1000.0))
        assert not stream.deletions
        return [stream.update(batch).total for batch in batches]

    one, two = (frame(seed, 50).assign(ride_id=np.arange(50) + 50 * seed) for seed in (1, 2))
    assert release(one, pd.concat([one, two]), pd.concat([one, one, two])) == pytest.approx(
        [50, 100, 100], abs=2
    )
    alike = one.assign(ride_id=one.ride_id + 500)  # equal rows of other events count
    assert release(one, pd.concat([one, alike])) == pytest.approx([50, 100], abs=2)
    with pytest.raises(ConfigError, match="max_events=2"):
        points(unit=sg.PrivacyUnit.event(unique="ride_id"), deletions=True)
    with StreamRun.open(folder / "run", points(unit=sg.PrivacyUnit.event(unique="ride_id"))) as run:
        run.step("d1", one)
        run.step("d2", pd.concat([one, two]))  # nothing is paid twice, so nothing is refused
        run.step("d3", one)


@pytest.mark.parametrize("when", ["_write", "_decide", "_commit"])
def test_a_step_that_is_undone_leaves_no_note_to_the_next(folder, caplog, monkeypatch, when):
    """Its remarks and the sample of its rows stood under the number of the step that came instead."""
    caplog.set_level("INFO", logger="synthgeo.curator")
    monkeypatch.setattr(CURATOR, "handlers", [caplog.handler])

    def interrupted(*_):
        raise OSError(28, "No space left on device")

    with StreamRun.open(folder / "run", points(reading=sg.Reading(unattended=True))) as run:
        run.step("d1", frame(1, 300))
        with monkeypatch.context() as patch:
            patch.setattr(StreamRun, when, interrupted)
            with pytest.raises(LedgerError, match="interrupted"):
                run.step("d2", frame(1, 300))
        decided = when == "_commit"
        assert run.steps == 1 + decided
        assert bool(run.remarks) == decided
        assert list(run._journal.notes("rows")) == [1, 2][: run.steps]
        run.step("d3", frame(3, 300))
        run.step("d4", frame(3, 300))  # the rows of d3, compared with nothing else
        assert list(run.remarks) == ["d2", "d4"][not decided :]
        assert decided or "step 2: " not in caplog.text
        assert list(run._journal.notes("rows")) == list(range(1, run.steps + 1))
