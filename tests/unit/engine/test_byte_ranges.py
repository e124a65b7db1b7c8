"""Text is read where Polars has it: inside views, in one of many buffers, behind nulls."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squill.engine.columns import byte_ranges_of
from squill.engine.text_buffers import TextBuffers
from tests.resident import resident_bytes


def ranges_read(series: pl.Series) -> list[bytes | None]:
    starts, lengths, data, valid = byte_ranges_of(series)
    assert not any(array.flags.writeable for array in (starts, lengths, data, valid))
    ranges = zip(starts.tolist(), lengths.tolist(), valid.tolist(), strict=True)
    return [bytes(data[start : start + length]) if is_valid else None for start, length, is_valid in ranges]


@settings(deadline=None)  # the first one compiles
@given(
    st.lists(st.lists(st.none() | st.binary(max_size=40), max_size=12), min_size=1, max_size=4),
    st.integers(0, 5),
    st.lists(st.integers(0, 10_000), max_size=20),
)
def test_byte_ranges_are_the_rows_wherever_their_bytes_lie(
    chunks: list[list[bytes | None]], skipped: int, places: list[int]
) -> None:
    """Of several chunks, sliced, and out of order, as filters and movements leave them."""
    series = pl.concat([pl.Series(rows, dtype=pl.Binary) for rows in chunks], rechunk=False)[skipped:]
    assert ranges_read(series) == series.to_list()
    order = [place % len(series) for place in places if len(series)]
    assert ranges_read(series[order]) == series[order].to_list()
    kept = series.filter(pl.Series([number % 3 != 1 for number in range(len(series))], dtype=pl.Boolean))
    assert ranges_read(kept) == kept.to_list()


@pytest.mark.parametrize("dtype", [pl.String(), pl.Categorical(), pl.Enum(["ab", "", "a longer text than a view"])])
def test_byte_ranges_of_text(dtype: pl.DataType) -> None:
    series = pl.Series(["ab", None, "", "a longer text than a view"], dtype=dtype)
    assert ranges_read(series) == [b"ab", None, b"", b"a longer text than a view"]
    assert ranges_read(series.clear()) == []


def test_byte_ranges_of_nulls_are_empty_whatever_lies_there() -> None:
    """A mask over views that are no longer looked at."""
    series = pl.Series(["a longer text than a view"] * 3).set(pl.Series([False, True, False]), None)
    assert byte_ranges_of(series)[1].tolist() == [25, 0, 25]


def test_byte_ranges_keep_their_column_alive() -> None:
    starts, lengths, data, _ = byte_ranges_of(pl.Series([f"row {number} of a column" for number in range(10_000)]))
    others = [pl.Series([f"something else, {number}" for number in range(10_000)]) for _ in range(5)]
    assert bytes(data[starts[9_999] : starts[9_999] + lengths[9_999]]) == b"row 9999 of a column"
    assert len(others) == 5


def test_byte_ranges_of_numbers_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="Int64 has no bytes"):
        byte_ranges_of(pl.Series([1]))


def test_byte_ranges_do_not_reach_to_buffers_without_bytes() -> None:
    """An empty buffer may be said to lie anywhere, terabytes away."""
    views, data = pa.array(["another text, longer than a view"], pa.string_view()).buffers()[1:]
    array = pa.Array.from_buffers(pa.string_view(), 1, [None, views, data, pa.py_buffer(b"")])
    series = pl.Series(array)
    assert ranges_read(series) == [b"another text, longer than a view"]
    buffers = series.to_arrow(compat_level=pl.CompatLevel.newest()).buffers()[1:]
    filled = [buffer for buffer in buffers if buffer.size]
    first, last = min(item.address for item in filled), max(item.address + item.size for item in filled)
    assert len(byte_ranges_of(series)[2]) == last - first


def test_byte_ranges_of_a_column_of_many_buffers() -> None:
    """As one read from many row groups is, and each part of it."""
    pieces = [pl.Series([f"row {row} of piece {piece}" for row in range(20)]) for piece in range(300)]
    whole = pl.concat(pieces).rechunk()
    assert len(TextBuffers(whole).data) >= 300
    part = whole[5_000:5_050]
    assert ranges_read(part) == [text.encode() for text in part.to_list()]


def test_buffers_are_told_by_arrow_where_polars_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    series = pl.Series(["ab", None, "a longer text than a view"] * 5)[1:]
    told = ranges_read(series)
    monkeypatch.setattr(pl.Series, "_export_arrow_to_c", None)
    assert ranges_read(series) == told == [text and text.encode() for text in series.to_list()]


def test_buffers_let_go_of_their_column() -> None:
    """What was exported is released when nobody reads it any more, or memory would grow with every batch."""
    before = resident_bytes()
    for number in range(200):
        text = pl.Series([f"text {number} of a column that is let go"]).new_from_index(0, 20_000) + "!"
        byte_ranges_of(text)
    assert resident_bytes() - before < 40 << 20


def test_buffers_that_are_held_to_the_end_of_a_process_say_nothing() -> None:
    code = (
        "import polars; from squill.engine.columns import byte_ranges_of; KEPT = byte_ranges_of(polars.Series(['a']))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr == ""


def test_columns_of_any_number_of_buffers_leave_no_types_behind() -> None:
    pieces = [pl.Series([f"a text of its own, {number}"]) for number in range(40)]
    columns = [pl.concat(pieces[:count]).rechunk() for count in range(1, 40)]
    before = len(ctypes._pointer_type_cache)  # type: ignore[attr-defined]
    for column in columns:
        byte_ranges_of(column)
    assert len(ctypes._pointer_type_cache) == before  # type: ignore[attr-defined]
