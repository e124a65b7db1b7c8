"""Files wherever they are: local paths, and addresses (see `remote_files`).

pyarrow is imported when a file is opened, not before: `import squill` stays quick.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["file_size", "files_in_place", "is_local", "matching_files", "open_file", "read_errors"]

ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
MARKS = "*?["


def read_errors() -> tuple[type[Exception], ...]:
    """Return what reading a file may raise."""
    import pyarrow as pa

    return (OSError, pa.ArrowException, pl.exceptions.PolarsError)


def is_local(path: str) -> bool:
    return ADDRESS.match(path) is None


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

    In a folder those count whose names end in one of the suffixes.
    """
    if is_local(text):
        return _local_files(text, suffixes)
    from squill.plan.build.remote_files import files_of, filesystem, is_local_system

    system, inner = filesystem(text)
    if is_local_system(system):
        return _local_files(inner, suffixes)
    # What a filesystem drops of an address is the same for all its files: the scheme, a host, options.
    before, _, after = text.rpartition(inner.strip("/")) if inner.strip("/") in text else ("", "", "")
    before = before or text.partition("://")[0] + "://"
    return [before + path.lstrip("/") + after.lstrip("/") for path in files_of(system, inner, suffixes)]


def files_in_place(folder: str, suffixes: Collection[str]) -> list[str]:
    """Return the files in and below a local folder that have their final names, relative to it, in name order.

    Where a name, that of a folder on the way included, begins with a dot or an underscore, somebody is still writing:
    Spark moves its files out of ``_temporary`` once they are whole.
    """
    found = [Path(path).relative_to(folder) for path in _local_files(folder, suffixes)]
    return [str(path) for path in found if not any(part.startswith((".", "_")) for part in path.parts)]


def _local_files(text: str, suffixes: Collection[str]) -> list[str]:
    path = Path(text)
    if path.is_dir():
        return sorted(str(file) for file in path.rglob("*") if file.suffix in suffixes and file.is_file())
    if path.is_file():
        return [text]
    if not any(mark in text for mark in MARKS):
        return []
    # Path.glob wants the pattern apart from the folder that it starts in.
    return sorted(name for name in glob.glob(text, recursive=True) if Path(name).is_file())  # noqa: PTH207
