"""Files at addresses that pyarrow or fsspec opens.

An address is a scheme and what that scheme understands: ``s3://bucket/clicks/*.parquet``. Those of the scheme
``file`` become local paths at once. fsspec is used for schemes that pyarrow does not know, if it is installed.
"""

from __future__ import annotations

import fnmatch
import importlib
import re
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
from pyarrow import fs as arrow_fs

from squill.errors import SourceReadError
from squill.plan.build.locations import MARKS, is_listed, suffix_of

__all__ = ["files_of", "filesystem", "is_local_system"]


def is_local_system(system: arrow_fs.FileSystem) -> bool:
    return isinstance(system, arrow_fs.LocalFileSystem)


def files_of(system: arrow_fs.FileSystem, inner: str, suffixes: Collection[str]) -> list[str]:
    """Return the files that a path, a folder or a glob of a filesystem stands for."""
    found = system.get_file_info(inner)
    if found.type == arrow_fs.FileType.File:
        return [inner]
    if found.type == arrow_fs.FileType.Directory:
        return [path for path in _below(system, inner) if _is_data(path, inner, suffixes)]
    if not any(mark in inner for mark in MARKS):
        return []
    fixed = re.split(r"[*?\[]", inner, maxsplit=1)[0].rpartition("/")[0]
    below = _below(system, fixed)
    pattern = _glob_pattern(inner.strip("/"))
    files = [path for path in below if pattern.fullmatch(path.lstrip("/"))]
    inside = _glob_pattern(inner.strip("/") + "/**/*")
    return files or [path for path in below if inside.fullmatch(path.lstrip("/")) and _is_data(path, fixed, suffixes)]


def _is_data(path: str, folder: str, suffixes: Collection[str]) -> bool:
    below = PurePosixPath(path.lstrip("/")).relative_to(folder.strip("/"))
    return suffix_of(below) in suffixes and is_listed(below)


def _below(system: arrow_fs.FileSystem, folder: str) -> list[str]:
    selector = arrow_fs.FileSelector(folder, recursive=True, allow_not_found=True)
    return sorted(info.path for info in system.get_file_info(selector) if info.type == arrow_fs.FileType.File)


def _glob_pattern(text: str) -> re.Pattern[str]:
    """Return a glob as a regular expression: ** is any number of folders, * and ? stay inside a name."""
    parts = []
    for name in text.split("/"):
        if name == "**":
            parts.append("(?:[^/]+/)*")
        else:
            one = fnmatch.translate(name).replace(".*", "[^/]*")
            parts.append(one.replace("(?s:", "(?:").removesuffix(r"\Z").removesuffix(r"\z") + "/")
    return re.compile("".join(parts).removesuffix("/"))


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
    return arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(system)), str(inner)
