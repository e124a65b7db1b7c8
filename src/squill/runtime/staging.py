"""A folder that becomes visible in one step.

It is made beside its place under a hidden name, filled, and moved there; a folder that is there already changes
places with it. So whoever looks sees the old content or the new one, whole, whatever happens in between. An error, or
Ctrl-C, after that and before the context is left puts everything back. What a killed process has left under a hidden
name is removed by the next one that writes to the same place, and by whoever goes on with its run.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import shutil
import uuid
from pathlib import Path
from typing import Self

from squill.arguments import is_one_of
from squill.engine.unfinished import hidden_beside, left_behind
from squill.errors import ClusterError, PlanError
from squill.plan.dataset import MANIFEST
from squill.runtime.interrupts import to_the_end
from squill.runtime.stored_answer import sync_to_disk
from squill.wording import shortened

__all__ = ["MODES", "Staging", "check_mode", "remove_left_by"]

MODES = ("error", "overwrite")
SUFFIX = ".squill-unfinished"
AT_FDCWD = -100
RENAME_EXCHANGE = 2


class Staging:
    """A hidden folder while in context, at `folder`; `commit` gives it its place at `target`.

    Left by an error, also by one after `commit`, everything is as it was.
    """

    def __init__(self, target: Path, mode: str, operator: str, run_id: str) -> None:
        check_mode(mode, operator)
        self._run_id = run_id
        self.target = target.resolve()
        self._operator = operator
        self._mode = mode
        self._made: list[Path] = []
        self._number: int | None = None
        """Of our folder, by which it is known under either name."""
        try:
            _check_target(self.target, mode, operator)
            self._was_empty = self.target.exists()  # or it is a dataset, which is never empty
        except OSError as error:
            raise _failure(operator, self.target, error) from error

    def __enter__(self) -> Self:
        parent = self.target.parent
        self._made = [folder for folder in (parent, *parent.parents) if not folder.exists()]
        self.folder = hidden_beside(self.target, self._run_id, SUFFIX)
        try:
            parent.mkdir(parents=True, exist_ok=True)
            for left in left_behind(self.target, SUFFIX):
                shutil.rmtree(left, ignore_errors=True)
            remove_left_by(self._run_id, self.target)
            self.folder.mkdir()
            self._number = self.folder.stat().st_ino
        except OSError as error:
            self._clean()
            raise _failure(self._operator, self.target, error) from error
        return self

    def commit(self) -> None:
        """Let the folder take its place; an older one goes."""
        try:
            for folder, _, _ in os.walk(self.folder):
                sync_to_disk(Path(folder))
            _check_target(self.target, self._mode, self._operator)
            if self.target.exists() and any(self.target.iterdir()):
                _exchange(self.folder, self.target)
            else:
                self.folder.rename(self.target)
            sync_to_disk(self.target.parent)
        except OSError as error:
            raise _failure(self._operator, self.target, error) from error

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if kind is None:
            self._made = []
        else:
            to_the_end(self._take_back)
        to_the_end(self._clean)

    def _take_back(self) -> None:
        """Undo `commit`, where it had come so far."""
        if not self.target.exists() or self.target.stat().st_ino != self._number:
            return
        if self.folder.exists():
            _exchange(self.target, self.folder)
            return
        self.target.rename(self.folder)
        if self._was_empty:
            self.target.mkdir()

    def _clean(self) -> None:
        # Under its hidden name there is what was not committed, or what was there before.
        shutil.rmtree(self.folder, ignore_errors=True)
        for folder in self._made:
            if folder.exists() and not any(folder.iterdir()):
                folder.rmdir()


def check_mode(mode: str, operator: str) -> None:
    """Raise for a mode that there is not."""
    if not is_one_of(mode, MODES):
        raise PlanError(f"{operator}: mode is {shortened(mode)}", 'use "error" (the default) or "overwrite".')


def _check_target(target: Path, mode: str, operator: str) -> None:
    shown = repr(str(target))
    if target == Path.cwd() or target == Path(target.anchor):
        what = "the working folder" if target == Path.cwd() else "the root of all folders"
        raise PlanError(f"{operator}: {shown} is {what}", "name a folder below it.")
    _check_above(target, operator)
    if not target.exists():
        return
    if not target.is_dir():
        raise PlanError(f"{operator}: {shown} is a file", "name a folder that is not there yet.")
    if (target / MANIFEST).is_file():
        if mode != "overwrite":
            raise PlanError(
                f"{operator}: {shown} is a dataset already",
                'mode="overwrite" replaces it once the new one is whole; or use another path.',
            )
    elif any(target.iterdir()):
        raise PlanError(
            f"{operator}: {shown} is not empty and is no dataset of Squill",
            "use a folder that is not there yet: what others have put there is not overwritten.",
        )


def _check_above(target: Path, operator: str) -> None:
    """Raise where there is no room for a folder: below a file, or in a dataset, which goes as a whole."""
    for folder in target.parents:
        if folder.is_file():
            raise PlanError(
                f"{operator}: {str(target)!r} is below {str(folder)!r}, which is a file", "name a folder below folders."
            )
        if (folder / MANIFEST).is_file():
            raise PlanError(
                f"{operator}: {str(target)!r} is in the folder of a dataset, {str(folder)!r}",
                "use a folder beside it: the files of a dataset are its answer, and who replaces it replaces all.",
            )


def remove_left_by(run_id: str, target: Path) -> None:
    """Remove the hidden folders of dead drivers of a run, of which one at most lives: wherever that was."""
    for folder in target.parent.glob(f".{glob.escape(target.name)}.*.{run_id}{SUFFIX}"):
        shutil.rmtree(folder, ignore_errors=True)


def _exchange(one: Path, other: Path) -> None:
    """Let two folders change their names: in one step where the system can, else in two."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is not None:
        if rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
            return
        number = ctypes.get_errno()
        if number not in (errno.ENOSYS, errno.EINVAL):
            raise OSError(number, os.strerror(number), str(other))
    aside = one.with_name(f".{uuid.uuid4().hex[:12]}.{one.name.lstrip('.')}")
    other.rename(aside)
    try:
        one.rename(other)
    except BaseException:
        aside.rename(other)
        raise
    aside.rename(one)


def _failure(operator: str, target: Path, error: OSError) -> ClusterError:
    return ClusterError(
        f"{operator}: {str(target)!r} cannot be written: {error.strerror or error}",
        "nothing was changed; see to the folder, or use another one.",
    )
