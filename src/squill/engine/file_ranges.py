"""Parts of files that Polars does not read by itself: ranges of lines, record batches, row groups from afar."""

from __future__ import annotations

import io
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from squill.plan.arrow_frames import arrow_holds, from_arrow
from squill.plan.build.locations import file_size, is_compressed, open_file, read_errors
from squill.plan.nodes import FilePart
from squill.plan.paths import is_local
from squill.plan.schema import Schema

__all__ = ["arrow_frames", "batch_parts", "line_parts", "lines", "require_rows", "rows_told"]

SEARCHED_BYTES = 1 << 22


def line_parts(path: str, file_format: str, part_bytes: int) -> list[tuple[FilePart, int]]:
    """Return ranges of whole lines of about so many bytes, and their sizes.

    A csv file that holds a quotation mark is one part, because a line end inside quotes ends no line.
    """
    size = file_size(path)
    cuts = _line_cuts(path, file_format, size, part_bytes) if size >= 2 * part_bytes else []
    if not cuts:
        return [(FilePart(path), size)]
    ends = [*cuts, size]
    return [(FilePart(path, low, high - low), high - low) for low, high in zip([0, *cuts], ends, strict=True)]


def _line_cuts(path: str, file_format: str, size: int, part_bytes: int) -> list[int]:
    try:
        with open_file(path) as file:
            beginning = file.read(4)
            if is_compressed(beginning) or beginning.removeprefix(BOM_UTF8).startswith((b"\n", b"\r")):
                return []
            if file_format == "csv" and _has_quote(file):
                return []
            found = (_after_line_end(file, target) for target in range(part_bytes, size, part_bytes))
            return sorted({cut for cut in found if cut < size})
    except read_errors():
        return []  # reading it says what is wrong


def _has_quote(file: pa.NativeFile) -> bool:
    file.seek(0)
    while block := file.read(SEARCHED_BYTES):
        if b'"' in block:
            return True
    return False


def _after_line_end(file: pa.NativeFile, offset: int) -> int:
    """Return where the first line begins that does not begin before the offset."""
    # The offset itself may be such a place.
    offset -= 1
    size = 4_096
    file.seek(offset)
    while block := file.read(size):
        found = block.find(b"\n")
        if found >= 0:
            return offset + int(found) + 1
        offset, size = offset + len(block), min(4 * size, SEARCHED_BYTES)
    return offset


def lines(part: FilePart, file_format: str) -> io.BytesIO:
    """Return a range of lines as a file of its own; a csv file's first line tells the columns of each of its ranges."""
    with open_file(part.path) as file:
        header = _first_line(file) if file_format == "csv" and part.first else b""
        file.seek(part.first)
        content = file.read(part.size)
    if part.size is not None and len(content) < part.size:
        raise OSError(f"it has {part.first + len(content):,} bytes, and had {part.first + part.size:,} before")
    return io.BytesIO(header + content)


def _first_line(file: pa.NativeFile) -> bytes:
    end = _after_line_end(file, 1)
    file.seek(0)
    return bytes(file.read(end))


def batch_parts(path: str, columns: Schema, part_bytes: int) -> list[tuple[FilePart, int]]:
    """Return ranges of record batches of about so many bytes, and their sizes; the columns are those of the file."""
    size = file_size(path)
    if not arrow_holds(columns):
        return [(FilePart(path), size)]
    try:
        with open_file(path) as file:
            batches = pa.ipc.open_file(file).num_record_batches
    except read_errors():
        return [(FilePart(path), size)]  # a stream of batches, or reading it says what is wrong
    if batches < 2:
        return [(FilePart(path), size)]
    count = max(1, part_bytes * batches // max(size, 1))
    return [
        (FilePart(path, first, min(count, batches - first)), size * min(count, batches - first) // batches)
        for first in range(0, batches, count)
    ]


def arrow_frames(
    part: FilePart, file_format: str, schema: Schema, names: Sequence[str], chunk_rows: int
) -> Iterator[pl.DataFrame]:
    """Yield the given columns of a range of record batches, or of the row groups of a range of rows."""
    types = {name: schema[name] for name in names}
    with pa.memory_map(part.path) if is_local(part.path) else open_file(part.path) as file:
        batches = _record_batches(file, part) if file_format == "ipc" else _row_groups(file, part, names, chunk_rows)
        for batch in batches:
            frame = from_arrow(batch.select(list(names)))
            # A cast of a frame is a query, even where nothing is to do, which with one thread takes milliseconds.
            yield frame if frame.schema == types else frame.cast(types)  # type: ignore[arg-type]


def rows_told(metadata: pq.FileMetaData) -> int:
    """Return how many rows a parquet file says that it has; raise when its row groups say another number."""
    rows = int(metadata.num_rows)
    found = sum(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
    if found != rows:
        raise OSError(f"it says that it has {rows:,} rows, and there are {found:,} in its row groups")
    return rows


def require_rows(part: FilePart, rows: int | None) -> None:
    """Raise when a file has fewer rows than when it was cut into parts; a filter would hide it."""
    if rows is not None and part.size is not None and rows < part.first + part.size:
        raise OSError(f"it has {rows:,} rows, and had {part.first + part.size:,} before")


def _record_batches(file: pa.NativeFile, part: FilePart) -> Iterator[pa.RecordBatch]:
    # A mapped file is given as bytes: as a file Arrow reads it on other threads, which takes ten times as long.
    reader = pa.ipc.open_file(file.read_buffer() if isinstance(file, pa.MemoryMappedFile) else file)
    end = reader.num_record_batches if part.size is None else part.first + part.size
    for number in range(part.first, end):
        yield reader.get_batch(number)


def _row_groups(file: pa.NativeFile, part: FilePart, names: Sequence[str], chunk_rows: int) -> Iterator[pa.RecordBatch]:
    reader = pq.ParquetFile(file)
    numbers, first = [], 0
    rows = rows_told(reader.metadata)
    require_rows(part, rows)
    end = rows if part.size is None else part.first + part.size
    for number in range(reader.num_row_groups):
        if part.first <= first < end:
            numbers.append(number)
        first += reader.metadata.row_group(number).num_rows
    missing = sum(reader.metadata.row_group(number).num_rows for number in numbers)
    for batch in reader.iter_batches(chunk_rows, row_groups=numbers, columns=list(names)):
        missing -= batch.num_rows
        yield batch
    if missing:
        raise OSError(f"{missing:,} of its rows did not come")
