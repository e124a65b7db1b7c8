"""Where the answer of a live query goes, epoch by epoch.

A shard writes its rows to a file before the epoch is committed; the sink is given the files after the commit. So
whatever fails, the same rows are given again under the same epoch: a folder, in which a file is renamed, has each
exactly once; a function, a table and the console may see the last epoch again after a crash between their call and
the note that it was made, and are told its number.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from squill.engine.arrow_form import arrow_table
from squill.errors import ClusterError, PlanError, UserFunctionError
from squill.plan.build.files import read_stored
from squill.plan.paths import written_path
from squill.plan.sinks import SUFFIXES, Folder, Table
from squill.runtime.live.orders import OutputOrder
from squill.runtime.stored_answer import sync_to_disk
from squill.wording import shortened

__all__ = ["FolderSink", "FunctionSink", "Sink", "TableSink", "console_sink", "sink_for"]

HIDDEN = ".unfinished"
CONSOLE = "console"
Files = Sequence[tuple[str, int]]


class Sink:
    """Base of the sinks."""

    hands_over = False
    """Whether it takes frames; else it takes the files themselves."""

    def order(self, epoch: int, answers: Path | None) -> OutputOrder | None:
        """Return where shards write their rows, such as the checkpoint's folder `answers`; None is in memory."""
        raise NotImplementedError

    def deliver(self, epoch: int, frame: pl.DataFrame) -> None:
        """Take the rows of an epoch."""
        raise NotImplementedError

    def publish(self, files: Files, *, again: bool) -> None:
        """Let files be seen; `again` after a restart, when some may have been, and taken away since."""
        raise NotImplementedError

    def prepare(self, last: Files | None) -> None:
        """Get ready, with the files of the last committed epoch; None when none was ever committed."""


class FunctionSink(Sink):
    """Calls a function with each epoch's rows; if it takes two arguments, with the epoch's number too."""

    hands_over = True

    def __init__(self, fn: Callable[..., object], name: str | None = None) -> None:
        self._fn = fn
        self._name = name or getattr(fn, "__qualname__", type(fn).__qualname__)
        self._takes_epoch = _takes_two(fn)

    def order(self, epoch: int, answers: Path | None) -> OutputOrder | None:
        if answers is None:
            return None
        return OutputOrder(folder=str(answers), format="ipc", stem=f"{epoch:08}")

    def deliver(self, epoch: int, frame: pl.DataFrame) -> None:
        try:
            if self._takes_epoch:
                self._fn(frame, epoch)
            else:
                self._fn(frame)
        except Exception as error:
            raise UserFunctionError(
                f"start({self._name}): it raised {type(error).__name__}: {error}; the first of the {frame.height} rows "
                f"of epoch {epoch} that it was given is {frame.row(0, named=True)}",
                "the epoch is kept in the checkpoint: once the function works, start again and it is given it.",
            ) from error


class FolderSink(Sink):
    """Files of epochs in a folder; only those of committed epochs have names that a glob for the format matches."""

    def __init__(self, target: Folder) -> None:
        self._path = Path(target.path).absolute()
        self._format = target.format
        try:
            self._path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PlanError(
                f"start: {target.path!r} cannot be a folder of answers: {error.strerror or error}", "name another one."
            ) from error

    @property
    def path(self) -> Path:
        return self._path

    def rows(self) -> pl.DataFrame:
        """Return all that is there, in the order of the epochs."""
        files = sorted(self._path.glob(f"*{self._suffix}"))
        return pl.concat([read_stored(file, self._format) for file in files]) if files else pl.DataFrame()

    def order(self, epoch: int, answers: Path | None) -> OutputOrder | None:
        return OutputOrder(folder=str(self._path), format=self._format, stem=f"{epoch:08}")

    def publish(self, files: Files, *, again: bool) -> None:
        for text, rows in files:
            hidden = Path(text)
            try:
                hidden.rename(hidden.with_name(hidden.name.removeprefix(".").rpartition("-")[0] + self._suffix))
            except FileNotFoundError as error:
                if not again:
                    raise ClusterError(
                        f"start: {rows} rows of the answer are lost: {text!r} was removed before it had its name",
                        "nobody but the query may remove what is in its folder; begin anew with a fresh checkpoint.",
                    ) from error
        if files:
            sync_to_disk(self._path)

    @property
    def _suffix(self) -> str:
        return SUFFIXES[self._format]

    def prepare(self, last: Files | None) -> None:
        found = min(self._path.glob(f"*{self._suffix}"), default=None)
        if last is None and found is not None:
            raise PlanError(
                f"start: the folder {str(self._path)!r} holds an answer already, such as {found.name}",
                "a query that begins needs a folder of its own; to go on with one, give the checkpoint that it had.",
            )
        # What epochs that were never committed have left.
        names = {Path(text).name for text, _ in last or ()}
        for item in self._path.glob(f".*{HIDDEN}"):
            if item.name not in names:
                item.unlink(missing_ok=True)


class TableSink(FunctionSink):
    """Appends each epoch's rows to a table of Spark's catalog."""

    def __init__(self, target: Table, session: Any) -> None:
        def append(frame: pl.DataFrame) -> None:
            rows = session.createDataFrame(arrow_table(frame))
            rows.write.mode("append").saveAsTable(target.name)

        super().__init__(append, f"table {target.name}")


def console_sink() -> Sink:
    """Return a sink that prints."""
    return FunctionSink(lambda frame, epoch: print(f"epoch {epoch}\n{frame}"), "console")  # noqa: T201


def sink_for(given: object, session: Any = None) -> Sink:
    """Return the sink that the user means: a function, a folder, "console" or a table."""
    if isinstance(given, Sink):
        return given
    if isinstance(given, str) and given == CONSOLE:
        return console_sink()
    if isinstance(given, Folder):
        return FolderSink(given)
    if isinstance(given, (str, os.PathLike)):
        return FolderSink(Folder(path=str(written_path(given, "start: sink"))))
    if isinstance(given, Table):
        if session is None:
            raise ClusterError(
                f"start: the table {given.name!r} is of Spark's catalog; this cluster has no Spark session",
                "use a cluster of sq.spark(…), or another sink.",
            )
        return TableSink(given, session)
    if callable(given):
        return FunctionSink(given)
    raise PlanError(
        f"start: {shortened(given)} is no sink",
        'give a function of a frame, the path of a folder, "console" or sq.table(…).',
    )


def _takes_two(fn: Callable[..., object]) -> bool:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return False
    plain = [item for item in parameters if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)]
    required = [item for item in plain if item.default is item.empty]
    return len(required) == 2
