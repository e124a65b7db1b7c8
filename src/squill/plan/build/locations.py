"""Files wherever they are: local paths, and addresses (see `remote_files`).

pyarrow is imported when a file is opened, not before: `import squill` stays quick.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterator
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING

import polars as pl

from squill.errors import SourceReadError
from squill.plan.paths import is_local, local_text

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "file_size",
    "folders_below",
    "is_compressed",
    "is_listed",
    "matching_files",
    "open_file",
    "read_errors",
    "suffix_of",
]

MARKS = "*?["
COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x78\x01", b"\x78\x9c", b"\x78\xda")
"""How gzip, zstd and zlib begin: Polars reads such files, but not from the middle."""
PACKED = (".gz", ".zst")
"""What a packed file's name ends in, after what it would end in otherwise; Polars unpacks csv and ndjson."""


def read_errors() -> tuple[type[Exception], ...]:
    """Return what reading a file may raise."""
    import pyarrow as pa

    return (OSError, pa.ArrowException, pl.exceptions.PolarsError)


def is_compressed(beginning: bytes) -> bool:
    """Return whether a file that begins so is compressed."""
    return beginning.startswith(COMPRESSED)


def open_file(path: str) -> pa.NativeFile:
    """Return the file, open for reading anywhere in it."""
    if is_local(path):
        import pyarrow as pa

        return pa.OSFile(path)
    from squill.plan.build.remote_files import filesystem

    system, inner = filesystem(path)
    return system.open_input_file(inner)


def file_size(path: str) -> int:
    """Return the size in bytes, zero where it cannot be told: reading the file says what is wrong with it."""
    try:
        if is_local(path):
            return Path(path).stat().st_size
        from squill.plan.build.remote_files import filesystem

        system, inner = filesystem(path)
        return int(system.get_file_info(inner).size or 0)
    except read_errors():
        return 0


def matching_files(text: str, suffixes: Collection[str]) -> list[str]:
    """Return the files that a path, a folder or a glob stands for, in name order.

    In a folder those count whose names end in one of the suffixes, and that nobody is still writing (`is_listed`).
    A glob that no file matches stands for the folders that match it.
    """
    if is_local(text):
        return _local_files(text, suffixes)
    from squill.plan.build.remote_files import files_of, filesystem, is_local_system

    system, inner = filesystem(text)
    if is_local_system(system):
        return _local_files(inner, suffixes)
    try:
        found = files_of(system, inner, suffixes, only_folders=text.endswith("/"))
    except read_errors() as error:
        raise SourceReadError(
            f"scan: {text!r} cannot be reached: {str(error).partition(chr(10))[0] or type(error).__name__}",
            "check the address and the access to it; where folders are not listed, name the files.",
        ) from error
    if found == [inner]:
        return [text]
    # What a filesystem drops of an address is the same for all its files: the scheme, a host, options; or nothing.
    core = inner.strip("/")
    before, _, after = text.rpartition(core) if core and core in text else ("", "", "")
    before = before or text.partition("://")[0] + "://"
    return [path if not is_local(path) else before + path.lstrip("/") + after.lstrip("/") for path in found]


def folders_below(text: str, path: str) -> tuple[str, ...]:
    """Return the names of the folders in which a file is below what it was found by: a folder, or where a glob begins.

    Examples
    --------
    >>> folders_below("s3://shop/sales/year=*/*.csv", "s3://shop/sales/year=2024/a.csv")
    ('year=2024',)
    >>> folders_below("s3://shop/sales/", "s3://shop/sales/year=2024/day=1/a.csv")
    ('year=2024', 'day=1')
    >>> folders_below("s3://shop/year=*/*.csv?region=eu", "s3://shop/year=2024/a.csv?region=eu")
    ('year=2024',)
    >>> folders_below("s3://shop/sales/year=2024/a.csv", "s3://shop/sales/year=2024/a.csv")
    ()
    """
    if text == path:
        return ()
    given = (local_text(text) or text) if is_local(path) else text
    if is_local(given) and Path(given).is_dir():
        return Path(path).relative_to(given).parts[:-1]
    names = PurePosixPath(given).parts
    # What follows a question mark in an address may be options, as s3://bucket/a.csv?region=…, or be in a name.
    found = PurePosixPath(path.removesuffix("".join(text.partition("?")[1:]))).parts
    fixed = next((place for place, name in enumerate(names) if any(mark in name for mark in MARKS)), len(names))
    return found[fixed:-1]


def suffix_of(path: PurePath) -> str:
    """Return what a file's name ends in, in small letters; that it is packed does not count.

    Examples
    --------
    >>> [suffix_of(Path(name)) for name in ("a.CSV", "a.b.ndjson.gz", "gz", "a.gz")]
    ['.csv', '.ndjson', '', '']
    """
    name = path.with_suffix("") if path.suffix.lower() in PACKED else path
    return name.suffix.lower()


def is_listed(below: PurePath) -> bool:
    """Return whether a folder shows a file, by its path in it: not where a name begins with a dot or an underscore.

    That is how Spark, Hive and others hide what is not, or not yet, data: `_temporary`, `_SUCCESS`, `.part.crc`. The
    folder of a partition is none of these: `_year=2024`.

    Examples
    --------
    >>> from pathlib import PurePosixPath
    >>> names = ["a.csv", "x/a.csv", "_temporary/0/a.csv", "x/.a.csv", "_year=2024/a.csv"]
    >>> [is_listed(PurePosixPath(name)) for name in names]
    [True, True, False, False, True]
    """
    return not any(name.startswith(".") or (name.startswith("_") and "=" not in name) for name in below.parts)


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield the files that a folder shows and those below it, also where links lead to, but never below itself."""
    for base, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        here = Path(base)
        links = (name for name in folders if (here / name).is_symlink())
        around = {name for name in links if here.resolve().is_relative_to((here / name).resolve())}
        folders[:] = [name for name in folders if name not in around and is_listed(PurePath(name))]
        yield from (here / name for name in names if is_listed(PurePath(name)))


def _refuse(error: OSError) -> None:
    """Raise for a folder that cannot be read: without its files an answer would be wrong without a word."""
    if isinstance(error, FileNotFoundError):
        return  # it was removed meanwhile
    raise SourceReadError(
        f"scan: the folder {error.filename!r} cannot be read: {error.strerror}",
        "let it be read, or leave it out: a glob or a list names the files that you want.",
    ) from error


def _local_files(text: str, suffixes: Collection[str]) -> list[str]:
    path = Path(text)
    if path.is_dir():
        return sorted(str(file) for file in _files_below(path) if suffix_of(file) in suffixes and file.is_file())
    if path.is_file():
        return [text]
    if not any(mark in text for mark in MARKS):
        return []
    # Path.glob wants the pattern apart from the folder that it starts in.
    # Two stars may find a file several times, and a folder beside what is in it.
    found = set(glob.glob(text, recursive=True))  # noqa: PTH207
    files = sorted(name for name in found if Path(name).is_file())
    # A glob of folders alone, year=202*, stands for what is in them.
    return files or sorted({name for folder in found for name in _local_files(folder, suffixes)})
