"""Files at addresses that pyarrow or fsspec opens.

An address is a scheme and what that scheme understands: ``s3://bucket/clicks/*.parquet``. Those of the scheme
``file`` become local paths at once. fsspec is used for schemes that pyarrow does not know, if it is installed.
"""

from __future__ import annotations

import fnmatch
import importlib
import io
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
from pyarrow import fs as arrow_fs

from squill.errors import SourceReadError
from squill.plan.build.locations import MARKS, is_listed, suffix_of

__all__ = ["files_of", "filesystem", "is_local_system"]


def is_local_system(system: arrow_fs.FileSystem) -> bool:
    return isinstance(system, arrow_fs.LocalFileSystem)


def files_of(
    system: arrow_fs.FileSystem, inner: str, suffixes: Collection[str], *, only_folders: bool = False
) -> list[str]:
    """Return the files that a path, a folder or a glob of a filesystem stands for; a glob perhaps of folders only."""
    found = system.get_file_info(inner)
    if found.type == arrow_fs.FileType.File:
        return [inner]
    if found.type == arrow_fs.FileType.Directory:
        depth = len(_names(inner))
        return [path for path in _below(system, inner) if _is_data(_names(path)[depth:], suffixes)]
    if not any(mark in inner for mark in MARKS):
        return []
    below = _below(system, re.split(r"[*?\[]", inner, maxsplit=1)[0].rpartition("/")[0])
    pattern = _names(inner)
    files = [path for path in below if _matches(_names(path), pattern)] if not only_folders else []
    # A glob of folders alone, year=202*, stands for what is in them.
    return files or [path for path in below if _is_data_inside(_names(path), pattern, suffixes)]


def _names(path: str) -> tuple[str, ...]:
    return tuple(filter(None, path.split("/")))


def _is_data(below: tuple[str, ...], suffixes: Collection[str]) -> bool:
    path = PurePosixPath(*below)
    return suffix_of(path) in suffixes and is_listed(path)


def _is_data_inside(names: tuple[str, ...], pattern: tuple[str, ...], suffixes: Collection[str]) -> bool:
    return any(_is_data(names[depth:], suffixes) and _matches(names[:depth], pattern) for depth in range(1, len(names)))


def _below(system: arrow_fs.FileSystem, folder: str) -> list[str]:
    selector = arrow_fs.FileSelector(folder, recursive=True, allow_not_found=True)
    return sorted(info.path for info in system.get_file_info(selector) if info.type == arrow_fs.FileType.File)


def _matches(names: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Return whether a path is meant by a glob, as `glob.glob` has it: a mark stands for no dot that begins a name.

    Examples
    --------
    >>> [_matches(("a", name), ("a", "*.csv")) for name in ("b.csv", ".b.csv", "b.txt")]
    [True, False, False]
    >>> [_matches(tuple(path.split("/")), ("a", "**", "*.csv")) for path in ("a/b.csv", "a/x/y/b.csv", "a/.x/b.csv")]
    [True, True, False]
    """
    if not pattern or not names:
        return not names and all(part == "**" for part in pattern)
    first, *_ = pattern
    is_hidden = names[0].startswith(".") and not first.startswith(".")
    if first == "**":
        return _matches(names, pattern[1:]) or (not is_hidden and _matches(names[1:], pattern))
    return not is_hidden and fnmatch.fnmatchcase(names[0], first) and _matches(names[1:], pattern[1:])


def filesystem(text: str) -> tuple[arrow_fs.FileSystem, str]:
    """Return the filesystem of an address, and the path in it."""
    scheme, sign, rest = text.partition("://")
    text = scheme.lower() + sign + rest
    try:
        system, inner = arrow_fs.FileSystem.from_uri(text)
    except pa.ArrowInvalid as unknown:
        return _from_fsspec(text, unknown)
    except OSError as error:
        raise SourceReadError(
            f"scan: {text!r} cannot be reached: {str(error).splitlines()[0]}", "check the address and the access to it."
        ) from error
    return system, str(inner)


def _from_fsspec(text: str, unknown: Exception) -> tuple[arrow_fs.FileSystem, str]:
    scheme = text.partition("://")[0]
    try:
        core: Any = importlib.import_module("fsspec.core")
    except ImportError:
        raise SourceReadError(
            f"scan: pyarrow knows no filesystem for {text!r} ({scheme}://), and fsspec is not installed",
            "pyarrow opens file://, s3://, gs://, abfs:// and hdfs://; pip install fsspec for others.",
        ) from unknown
    try:
        system, inner = core.url_to_fs(text)
    except (ValueError, ImportError) as error:
        raise SourceReadError(
            f"scan: neither pyarrow nor fsspec has a filesystem for {text!r} ({scheme}://): {error}",
            "check the scheme, or install the package that fsspec needs for it.",
        ) from error
    return arrow_fs.PyFileSystem(_Files(system)), str(inner)


class _Files(arrow_fs.FSSpecHandler):  # type: ignore[misc]
    """Files that fsspec opens. Whatever is raised there is an OSError: what is wrong with a file, or its connection."""

    def get_file_info(self, paths: list[str]) -> list[arrow_fs.FileInfo]:
        with _as_os_error():
            return list(super().get_file_info(paths))

    def get_file_info_selector(self, selector: arrow_fs.FileSelector) -> list[arrow_fs.FileInfo]:
        with _as_os_error():
            return list(super().get_file_info_selector(selector))

    def open_input_file(self, path: str) -> pa.PythonFile:
        with _as_os_error():
            if not self.fs.isfile(path):
                raise FileNotFoundError(path)
            file = self.fs.open(path, mode="rb")
            # Of a file whose length nobody says only what comes next can be read.
            is_whole = getattr(file, "size", 0) is None
            return pa.PythonFile(_Steady(io.BytesIO(file.read()) if is_whole else file), mode="r")


class _Steady:
    """A file of fsspec as Arrow reads it."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1) -> bytes:
        with _as_os_error():
            return bytes(self._file.read(size))

    def seek(self, offset: int, whence: int = 0) -> int:
        with _as_os_error():
            return int(self._file.seek(offset, whence))


@contextmanager
def _as_os_error() -> Iterator[None]:
    """Raise what a package of somebody else's raises, which may be anything, as an OSError."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        said = str(error).partition("\n")[0]
        raise OSError(f"{type(error).__name__}: {said}" if said else type(error).__name__) from error
