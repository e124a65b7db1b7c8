"""Paths as users give them: checked once, before anything is done with them.

What no file system can take ends in errors of many kinds, depending on who sees it first: the system, Polars, the
database of a catalog. So every path passes here, and what is wrong with it is said in one way.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from squill.errors import PlanError, SquillError
from squill.wording import shortened

__all__ = ["FOLDER_HINT", "is_local", "local_text", "path_text", "unfit_text", "written_path"]

ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
FOLDER_HINT = 'give that of a folder, such as "out/".'
LONGEST_NAME = 255
LONGEST_PATH = 4095 - LONGEST_NAME
"""Bytes. Systems take 4095, and files of ours come below what is given."""


def is_local(path: str) -> bool:
    return ADDRESS.match(path) is None


def unfit_text(text: str) -> str | None:
    r"""Return why a text can be no name, of a file or in a database; None when it can.

    Examples
    --------
    >>> unfit_text("a\0b"), unfit_text("\ud800"), unfit_text("☃")
    ('it holds a null character', "it holds '\\ud800', which is half a character", None)
    """
    if "\0" in text:
        return "it holds a null character"
    # Python writes bytes of a name that are no UTF-8 in this way too; Polars and databases take neither.
    half = re.search("[\ud800-\udfff]", text)
    return None if half is None else f"it holds {half.group()!r}, which is half a character"


def local_text(text: str) -> str | None:
    """Return the path on this host that is meant; None of an address elsewhere.

    Examples
    --------
    >>> local_text("out"), local_text("file:///tmp/an%20answer"), local_text("s3://bucket/out")
    ('out', '/tmp/an answer', None)
    """
    if is_local(text):
        return text
    # By hand: `urlsplit` raises where there is a bracket, which in a path is a glob.
    scheme, _, rest = text.partition("://")
    path = re.split("[?#]", rest, maxsplit=1)[0]
    return unquote(path[path.find("/") :] if "/" in path else "") if scheme.lower() == "file" else None


def path_text(given: object, operator: str, hint: str = FOLDER_HINT, error: type[SquillError] = PlanError) -> str:
    """Return a path or an address as text, or raise for what can be none; nothing need be there.

    As in a shell ``~`` is the home folder. It is here that it becomes one: tasks on other hosts have other homes.

    Examples
    --------
    >>> path_text(Path("out"), "to_storage")
    'out'
    """
    if not isinstance(given, (str, os.PathLike)):
        raise error(f"{operator}: {shortened(given)} is no path", hint)
    text = os.fsdecode(given)
    if text == "~" or text.startswith("~/"):
        text = str(Path(text).expanduser()) + "/" * text.endswith("/")
    if not text:
        raise error(f"{operator}: the path is empty", "give '.' for the folder that you are in.")
    local = local_text(text)
    wrong = unfit_text(text if local is None else local) or (None if local is None else _too_long(local))
    if wrong is not None:
        raise error(f"{operator}: {shortened(text)} is no path: {wrong}", hint)
    if local is not None:
        _look_at(local, operator, error)
    return text


def written_path(given: object, operator: str, hint: str = FOLDER_HINT) -> Path:
    """Return where something is to be written: files are read from anywhere, and written to folders of the hosts.

    Examples
    --------
    >>> written_path("file:///tmp/an%20answer", "to_storage")
    PosixPath('/tmp/an answer')
    """
    text = path_text(given, operator, hint)
    local = local_text(text)
    if local is not None:
        return Path(local)
    raise PlanError(
        f"{operator}: {text!r} is an address of {text.partition('://')[0]}; files are written to mounted folders only",
        "give the path of a folder that all machines see, or write there with to_spark() or of batches().",
    )


def _too_long(text: str) -> str | None:
    longest = max(len(name.encode()) for name in text.split("/"))
    if longest > LONGEST_NAME:
        return f"a name in it has {longest} bytes, and {LONGEST_NAME} are allowed"
    whole = len(text.encode())
    return None if whole <= LONGEST_PATH else f"it has {whole} bytes, and {LONGEST_PATH} are allowed"


def _look_at(text: str, operator: str, error: type[SquillError]) -> None:
    """Raise when one may not even see whether something is there."""
    try:
        Path(text).stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as failure:
        raise error(
            f"{operator}: {text!r} cannot be looked at: {failure.strerror}", "may you read the folders above it?"
        ) from failure
