"""Versions of state in a folder: what is written, what is kept, what is refused, what damage is seen."""

from __future__ import annotations

import datetime as dt
import os
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_series_equal

from squill.engine.batch import Batch
from squill.engine.state.folder import StoredState
from squill.engine.state.journal import Journal
from squill.engine.state.manifest import MANIFEST, read_manifest
from squill.engine.state.merge import MOST_FILES
from squill.errors import CheckpointError, InternalError
from squill.time import INFINITY

PLAN = {"any": "plan"}


def saved(folder: Path, state: Any) -> Any:
    """Return what comes back of a state."""
    Journal(PLAN).checkpoint(folder, state)
    return StoredState(folder).read()


def disk(folder: Path) -> int:
    return sum(item.stat().st_size for item in folder.iterdir())


@pytest.mark.parametrize(
    "value",
    [
        None, True, 5, -(2**80), 1.5, float("inf"), "text", b"\x00\xff", range(3, 9, 2), (), (1, "a", None), [],
        [[1], (2,)], {}, {"a": {"b": [1]}}, {"$": 1}, {1: "a", None: "b"}, {(1, 2): 3}, {b"k": 1}, np.int32(7),
        np.float64(-0.0), list(range(100)),
        [float(i) for i in range(100)], [str(i) for i in range(100)], [b"x" * i for i in range(100)],
        [(i, i / 2) for i in range(100)], [(i, None if i % 2 else i) for i in range(100)], [2**70] * 100, [True] * 100,
        {i: (i, 0.5) for i in range(100)}, {"a/b": 1, "a": {"b": 2}, "a~1b": 3}, dt.date(2020, 2, 29),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(2020, 1, 1, tzinfo=ZoneInfo("Europe/Rome")),
        dt.timedelta(days=-1, microseconds=1), dt.time(1, 2, 3, 4), Decimal("-1.10"), [dt.date(2020, 1, 1)] * 100,
    ],
    ids=lambda value: repr(value)[:30],
)  # fmt: skip
def test_plain_values_come_back_as_they_were(value: Any, tmp_path: Path) -> None:
    found = saved(tmp_path, {"it": value})["it"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "frame", [pl.DataFrame({"a": [1, None], "b": ["x", "y"]}), pl.DataFrame(), pl.DataFrame(height=3)], ids=str
)
def test_frames_come_back(frame: pl.DataFrame, tmp_path: Path) -> None:
    found = saved(tmp_path, {"it": [frame]})["it"][0]
    assert found.equals(frame)
    assert (found.schema, found.height) == (frame.schema, frame.height)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 63, 64, 65, 1000])
@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.int32, np.float64, np.uint64])
def test_arrays_come_back(size: int, dtype: Any, tmp_path: Path) -> None:
    array = np.arange(size).astype(dtype)
    state = {"a": array, "odd": array[1:], "rows": array.reshape(-1, 1), "every other": array[::2]}
    found = saved(tmp_path, state)
    for name, expected in state.items():
        assert found[name].dtype == expected.dtype
        assert found[name].shape == expected.shape
        assert np.array_equal(found[name], expected)
        assert found[name].flags.writeable


SERIES = {
    "Int8": pl.Series([1, None, -3], dtype=pl.Int8),
    "UInt64": pl.Series([2**64 - 1, 0], dtype=pl.UInt64),
    "Int128": pl.Series([2**100, None], dtype=pl.Int128),
    "Float32": pl.Series([1.5, None, float("nan")], dtype=pl.Float32),
    "Boolean": pl.Series([True, None, False]),
    "Date": pl.Series([0, None], dtype=pl.Int32).cast(pl.Date),
    "Datetime": pl.Series([0, None]).cast(pl.Datetime("us", "Europe/Berlin")),
    "Duration": pl.Series([5, None]).cast(pl.Duration("ms")),
    "Time": pl.Series([5, None]).cast(pl.Time),
    "String": pl.Series(["", None, "é", "a text that is longer than twelve bytes"]),
    "Binary": pl.Series([b"", None, b"\xff" * 40]),
    "Decimal": pl.Series([Decimal("1.50"), None], dtype=pl.Decimal(20, 2)),
    "Categorical": pl.Series(["a", None, "b"], dtype=pl.Categorical),
    "Enum": pl.Series(["q", None, "p"], dtype=pl.Enum(["p", "q"])),
    "List": pl.Series([[1], [], None], dtype=pl.List(pl.Int64)),
    "Array": pl.Series([[1, 2], None], dtype=pl.Array(pl.Int64, 2)),
    "Struct": pl.Series([{"a": 1, "b": "x"}, {"a": None, "b": None}]),
    "Null": pl.Series([None, None]),
}


@pytest.mark.parametrize("kind", SERIES)
def test_columns_come_back_alone_and_in_batches(kind: str, tmp_path: Path) -> None:
    series = SERIES[kind].alias("it")
    times = np.arange(len(series))
    batch = Batch(times, times + 5, {"it": series})
    state = {
        "column": series,
        "empty": series[:0],
        "slice": series[1:],
        "batches": [batch, batch.slice(1, len(series))],
    }
    found = saved(tmp_path, state)
    for name in ("column", "empty", "slice"):
        assert_series_equal(found[name], state[name])  # type: ignore[arg-type]
    assert_series_equal(found["batches"][0].columns["it"], series)
    assert_series_equal(found["batches"][1].columns["it"], series[1:])


def test_batches_come_back_with_what_they_know(tmp_path: Path) -> None:
    times = np.array([1, 2, 3])
    x = {"x": pl.Series("x", ["a", "b", "c"])}
    ordered = Batch(times, 7, x)
    ordered.is_ordered = True
    given = [
        ordered, Batch(times, np.array([4, 1, INFINITY]), x, range(5, 8)), Batch(times, times, {}, np.array([4, 8, 9])),
        Batch(times, np.full(3, INFINITY), x), Batch.relational(x, 3), Batch.empty({"x": pl.String()}),
    ]  # fmt: skip
    restored = saved(tmp_path, given)
    assert restored[0].duration == 7
    for expected, found in zip(given, restored, strict=True):
        assert np.array_equal(found.sync, expected.sync)
        assert np.array_equal(found.other, expected.other)
        assert (found.is_ordered, found.is_timeless) == (expected.is_ordered, expected.is_timeless)
        assert np.array_equal(found.ids, expected.ids) if expected.ids is not None else found.ids is None
        assert {n: c.to_list() for n, c in found.columns.items()} == {
            n: c.to_list() for n, c in expected.columns.items()
        }


def test_what_cannot_be_saved_names_the_operator(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="3:stitch/open holds a complex"):
        Journal(PLAN).checkpoint(tmp_path, {"3:stitch": {"open": 1j}})


# -- versions -------------------------------------------------------------------------------------------------


def test_a_version_writes_what_changed(tmp_path: Path) -> None:
    journal, array = Journal(PLAN), np.arange(1_000_000)
    assert journal.checkpoint(tmp_path, {"a": array}) > 8_000_000
    array[[5, 70_000, 999_999]] += 1
    assert journal.checkpoint(tmp_path, {"a": array}) < 3_000
    assert journal.checkpoint(tmp_path, {"a": array}) < 3_000
    assert np.array_equal(StoredState(tmp_path).read()["a"], array)


def test_arrays_may_grow_shrink_and_change(tmp_path: Path) -> None:
    random, journal = np.random.default_rng(0), Journal(PLAN)
    array = random.integers(0, 9, 500)
    for _ in range(40):
        size = int(random.integers(0, 1000))
        kept = array[:size]
        array = np.concatenate([kept, random.integers(0, 3, size - len(kept))])
        if size:
            array[random.integers(0, size, 3)] = 0
        journal.checkpoint(tmp_path, {"a": array, "b": array.astype(np.uint8)})
        found = StoredState(tmp_path).read()
        assert np.array_equal(found["a"], array)
        assert np.array_equal(found["b"], array.astype(np.uint8))
    journal.wait()


@pytest.mark.parametrize("kind", ["Int64", "String", "nulls"])
def test_a_queue_is_not_written_again_when_its_front_leaves(kind: str, tmp_path: Path) -> None:
    size = 100_000
    numbers = pl.Series("x", np.arange(size))
    columns = {"Int64": numbers, "String": numbers.cast(pl.String), "nulls": pl.Series("x", [None, 7] * (size // 2))}
    times = np.arange(size)
    rows, journal = Batch(times, times + 3, {"x": columns[kind]}), Journal(PLAN)
    first = journal.checkpoint(tmp_path, [rows])
    rest = rows.slice(20_000, size)
    more = Batch(times[:10], times[:10] + 3, {"x": columns[kind][:10].clone()})
    assert journal.checkpoint(tmp_path, [rest, more]) < 10_000 < first
    # What was restored is known too.
    stored, again = StoredState(tmp_path), Journal(PLAN)
    found = stored.read()
    stored.go_on(again)
    assert found[0].columns["x"].to_list() == rest.columns["x"].to_list()
    assert again.checkpoint(tmp_path, [found[0].slice(1, 70_000), found[1]]) < 10_000


def test_rows_that_are_gone_leave_the_disk(tmp_path: Path) -> None:
    journal, times = Journal(PLAN), np.arange(100_000)
    batches = [Batch(times + i, times + i + 1, {}) for i in range(3)]
    journal.checkpoint(tmp_path, batches)
    for i in range(40):
        batches = [*batches[1:], Batch(times + i, times + i + 1, {})]
        journal.checkpoint(tmp_path, batches)
    journal.wait()
    live = 3 * 2 * times.nbytes
    assert disk(tmp_path) < 2 * live + 3_000_000
    assert [batch.sync[0] for batch in StoredState(tmp_path).read()] == [37, 38, 39]


def test_merging_keeps_the_state_and_bounds_the_files(tmp_path: Path) -> None:
    random, journal, array = np.random.default_rng(0), Journal(PLAN), np.zeros(100_000, np.int64)
    for version in range(3 * MOST_FILES):
        array[random.integers(0, len(array), 20)] = version
        journal.checkpoint(tmp_path, {"a": array, "s": pl.Series([version])})
        assert np.array_equal(StoredState(tmp_path).read()["a"], array)
    journal.wait()
    journal.checkpoint(tmp_path, {"a": array, "s": pl.Series([1])})
    journal.wait()
    assert len(list(tmp_path.iterdir())) <= MOST_FILES + 3
    found = StoredState(tmp_path)
    assert np.array_equal(found.read()["a"], array)
    assert found.manifest.version == 3 * MOST_FILES + 1


def test_a_restored_journal_writes_logs(tmp_path: Path) -> None:
    array = np.arange(1_000_000)
    Journal(PLAN).checkpoint(tmp_path, {"a": array})
    stored, journal = StoredState(tmp_path), Journal(PLAN)
    array = stored.read()["a"]
    stored.go_on(journal)
    array[3] = 0
    assert journal.checkpoint(tmp_path, {"a": array}) < 3_000
    assert np.array_equal(StoredState(tmp_path).read()["a"], array)


def test_another_folder_gets_everything(tmp_path: Path) -> None:
    journal, array = Journal(PLAN), np.arange(10_000)
    for folder in ("one", "two", "one", "one"):
        array[0] += 1
        journal.checkpoint(tmp_path / folder, {"a": array})
        assert np.array_equal(StoredState(tmp_path / folder).read()["a"], array)
    assert StoredState(tmp_path / "two").read()["a"][0] == 2


# -- what goes wrong ------------------------------------------------------------------------------------------


def refused(text: str) -> Any:
    return pytest.raises(CheckpointError, match=text)


def test_a_write_that_fails_leaves_the_version_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, array = Journal(PLAN), np.arange(10_000)
    journal.checkpoint(tmp_path, {"a": array})
    before = array.copy()
    array[5000] = 0

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, refused("cannot be written: .*No space left"):
        patched.setattr(os, "fsync", full)
        journal.checkpoint(tmp_path, {"a": array})
    assert np.array_equal(StoredState(tmp_path).read()["a"], before)
    assert len(list(tmp_path.glob("*.state"))) == 1
    # Nothing of what the failed one saw is taken for written.
    journal.checkpoint(tmp_path, {"a": array})
    assert np.array_equal(StoredState(tmp_path).read()["a"], array)


def test_a_folder_belongs_to_one_run(tmp_path: Path) -> None:
    first, second = Journal(PLAN), Journal(PLAN)
    first.checkpoint(tmp_path, {"a": 1})
    with refused("a checkpoint of another run is in"):
        second.checkpoint(tmp_path, {"a": 2})
    stored = StoredState(tmp_path)
    stored.go_on(second)
    second.checkpoint(tmp_path, {"a": 3})
    with refused("another run has gone on in .*: it holds version 2 of that one, this query was at version 1"):
        first.checkpoint(tmp_path, {"a": 4})
    assert StoredState(tmp_path).read() == {"a": 3}


def test_of_runs_that_commit_at_the_same_time_one_goes_on(tmp_path: Path) -> None:
    array = np.arange(50_000)
    Journal(PLAN).checkpoint(tmp_path, {"a": array})
    for attempt in range(10):
        journals, together, outcomes = [], threading.Barrier(4), list[Any]()
        for _ in range(4):
            stored, journal = StoredState(tmp_path), Journal(PLAN)
            stored.read()
            stored.go_on(journal)
            journals.append(journal)

        def go_on(number: int) -> None:
            together.wait()  # noqa: B023 - joined below
            try:
                journals[number].checkpoint(tmp_path, {"a": np.full(50_000, 10 * attempt + number)})  # noqa: B023
                outcomes.append(10 * attempt + number)  # noqa: B023
            except CheckpointError as error:
                outcomes.append(str(error))  # noqa: B023

        threads = [threading.Thread(target=go_on, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(outcomes) == 4
        (winner,) = [outcome for outcome in outcomes if isinstance(outcome, int)]
        assert all("another run has gone on in" in outcome for outcome in outcomes if outcome != winner)
        assert set(StoredState(tmp_path).read()["a"]) == {winner}


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with refused("holds other files, such as letter.txt"):
        Journal(PLAN).checkpoint(tmp_path, {})


def test_a_checkpoint_that_was_removed_is_missed(tmp_path: Path) -> None:
    journal = Journal(PLAN)
    journal.checkpoint(tmp_path, {})
    (tmp_path / MANIFEST).unlink()
    with refused("a checkpoint is gone from"):
        journal.checkpoint(tmp_path, {})


def test_leftovers_of_a_crash_are_removed(tmp_path: Path) -> None:
    journal = Journal(PLAN)
    journal.checkpoint(tmp_path, {"a": np.arange(9)})
    (tmp_path / "00000002-0000.state").write_bytes(b"half")
    (tmp_path / f"{MANIFEST}.unfinished").write_bytes(b"half")
    assert np.array_equal(StoredState(tmp_path).read()["a"], np.arange(9))
    journal.checkpoint(tmp_path, {"a": np.arange(3)})
    assert {item.suffix for item in tmp_path.iterdir()} == {"", ".state"}
    assert len(list(tmp_path.iterdir())) <= 3


def versions(folder: Path, first: int = 0) -> Path:
    """Write a base and two logs with arrays, columns and rows."""
    journal, array = Journal(PLAN), np.arange(first, first + 1000)
    rows = Batch(array, array + 1, {"s": pl.Series("s", [f"row {i}" for i in range(1000)])})
    for version in range(3):
        array = array.copy()
        array[version * 100] = -1
        journal.checkpoint(folder, {"a": array, "tail": array[:3], "rows": [rows.slice(version, 900 + version)]})
    return folder


def read_all(folder: Path) -> None:
    StoredState(folder).read()


def test_an_altered_byte_anywhere_is_seen(tmp_path: Path) -> None:
    folder = versions(tmp_path)
    assert len(list(folder.iterdir())) == 4
    spans = [(folder / place.file, place.offset, place.stored) for place in read_manifest(folder).places]
    spans.append((folder / MANIFEST, 0, (folder / MANIFEST).stat().st_size))
    for file, offset, size in spans:
        content = file.read_bytes()
        for at in [*range(offset, offset + size, max(1, size // 25)), offset + size - 1]:
            file.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
            with pytest.raises(CheckpointError):
                read_all(folder)
        file.write_bytes(content)
    read_all(folder)


def test_a_cut_or_missing_file_is_seen(tmp_path: Path) -> None:
    folder = versions(tmp_path)
    for file in sorted(folder.iterdir()):
        content = file.read_bytes()
        for size in (0, 1, len(content) // 2, len(content) - 1):
            file.write_bytes(content[:size])
            with pytest.raises(CheckpointError):
                read_all(folder)
        file.write_bytes(content + b"\x00")
        with pytest.raises(CheckpointError):
            read_all(folder)
        file.unlink()
        with refused("is missing|has no MANIFEST"):
            read_all(folder)
        file.write_bytes(content)
    read_all(folder)


def test_files_of_two_checkpoints_do_not_mix(tmp_path: Path) -> None:
    one, two = versions(tmp_path / "one"), versions(tmp_path / "two", first=7)
    for mine, other in zip(sorted(one.glob("*.state")), sorted(two.glob("*.state")), strict=True):
        mine.write_bytes(other.read_bytes())
    with refused("is not as it was written"):
        read_all(one)


def test_merging_does_not_bless_damage(tmp_path: Path) -> None:
    random, journal, array = np.random.default_rng(0), Journal(PLAN), np.zeros(100_000, np.int64)
    journal.checkpoint(tmp_path, {"a": array})
    base = next(iter(tmp_path.glob("*.state")))
    content = bytearray(base.read_bytes())
    content[1000] ^= 1
    base.write_bytes(content)
    for version in range(MOST_FILES + 5):
        array[random.integers(0, len(array), 5)] = version
        journal.checkpoint(tmp_path, {"a": array})
    journal.wait()
    with refused("is not as it was written"):
        read_all(tmp_path)


@pytest.mark.parametrize(
    ("first_line", "text"),
    [
        ("something else 1", "is not the manifest of a checkpoint"),
        ("squill checkpoint 999", "has format 999, this version of Squill reads 2"),
        ("squill checkpoint 0", "has format 0, this version of Squill reads 2"),
    ],
)
def test_other_formats_are_named_and_left_alone(first_line: str, text: str, tmp_path: Path) -> None:
    folder = versions(tmp_path)
    manifest = folder / MANIFEST
    rest = manifest.read_bytes().partition(b"\n")[2]
    manifest.write_bytes(first_line.encode() + b"\n" + rest)
    before = {item.name: item.read_bytes() for item in folder.iterdir()}
    with refused(text):
        read_all(folder)
    with refused(text):
        Journal(PLAN).checkpoint(folder, {})
    assert {item.name: item.read_bytes() for item in folder.iterdir()} == before


def test_what_is_not_a_checkpoint_is_said(tmp_path: Path) -> None:
    with refused("there is no checkpoint: .* is not there"):
        read_all(tmp_path / "nowhere")
    with refused("it has no MANIFEST"):
        read_all(tmp_path)
    (tmp_path / "file").write_text("x")
    with refused("is not a folder"):
        read_all(tmp_path / "file")
    with refused("cannot be written"):
        Journal(PLAN).checkpoint(tmp_path / "file", {})
