"""Which input rows take part in the derivation of which rows of a plan's answer.

Every operator is run once, by the engine, on the numbered rows of its inputs. What handles rows one by one, or in
pairs, carries their numbers along; of what looks at many rows at once, its keys tell which of them a row is made of.
So from some rows of the answer one goes down the plan, from the rows of an operator to those of its inputs:

============================  =======================================================================================
a row of                      is derived from
============================  =======================================================================================
where, select, select_many    the row that it was
aggregate, snapshot_apply     all rows of its key
distinct                      all rows that are equal to it
union                         the rows of either input that it is, or that are equal to it
join                          the left and the right row of its pair
where_exists                  the left row that it was, and all right rows that match it
where_not_exists              the left row that it was
============================  =======================================================================================

Outer joins have been lowered to these. Rows of equal values are told apart below the answer, not in it: what is behind
one is asked of all that are equal to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import polars as pl

from squill.errors import UnsupportedOperatorError
from squill.plan.expressions import column
from squill.plan.node import Node, walk
from squill.plan.nodes import (
    Aggregate,
    Chop,
    Distinct,
    Exists,
    FileSource,
    FrameSource,
    Join,
    Select,
    SelectMany,
    SnapshotApply,
    Source,
    Union,
    Where,
)
from squill.plan.nodes.movement import Move, Split
from squill.plan.schema import Schema
from squill.runtime.progressive.late import given_rows, rows_made

__all__ = ["Derivation", "refused"]

Behind = Callable[[pl.Series], tuple[pl.Series, ...]]


@dataclass(frozen=True)
class _Rows:
    """The rows of a node, each with its number, and how numbers of them lead to those of the rows of its inputs."""

    frame: pl.DataFrame
    behind: Behind


class Derivation:
    """A plan that was run over the rows of its sources, which are `alive` at a progress point."""

    def __init__(self, root: Node, alive: Mapping[int, pl.DataFrame], progress: int) -> None:
        self._root = root
        self._alive = alive
        self._progress = progress
        self._number, self._other = _free_names(root, alive)
        self._rows: dict[int, _Rows] = {}
        for node in walk(root):
            self._rows[id(node)] = self._run(node)

    @property
    def answer(self) -> pl.DataFrame:
        """The answer's rows."""
        return self._rows[id(self._root)].frame.drop(self._number)

    def behind(self, chosen: pl.Series) -> dict[int, pl.Series]:
        """Return, by source, the numbers of the rows from which the chosen rows of the answer are derived."""
        wanted = {id(self._root): self._numbers(self._root).filter(chosen)}
        for node in reversed([node for node in walk(self._root) if node.inputs]):
            found = self._rows[id(node)].behind(wanted.setdefault(id(node), _none()))
            for parent, numbers in zip(node.inputs, found, strict=True):
                before = wanted.get(id(parent), _none())
                wanted[id(parent)] = pl.concat([before, numbers]).unique().sort()
        # Of the rows that the filter of a source has kept, its rows.
        return {source: self._rows[source].behind(wanted[source])[0] for source in self._alive}

    def _numbers(self, node: Node) -> pl.Series:
        return self._rows[id(node)].frame[self._number]

    def _run(self, node: Node) -> _Rows:
        frames = [self._rows[id(parent)].frame for parent in node.inputs]
        match node:
            case Source():
                return self._source(node)
            case Split() | Move() | Chop():
                return _Rows(frames[0], lambda numbers: (numbers,))
            case Where() | SelectMany():
                return self._row_by_row(node, frames[0])
            case Select():
                number = column(self._number, pl.Int64())
                return self._row_by_row(replace(node, columns=(*node.columns, number)), frames[0])
            case Aggregate() | SnapshotApply():
                return self._by_key(node, node.keys, frames[0])
            case Distinct():
                return self._by_key(node, node.schema.names, frames[0])
            case Union():
                return self._union(node, frames)
            case Join():
                return self._pairs(node, *frames)
            case Exists():
                return self._matched(node, *frames)
        raise refused(f"{node.name} does not say which of its input rows a row came from")

    # -- numbers of rows ----------------------------------------------------------------------------------

    def _numbered(self, frame: pl.DataFrame, rows: int) -> pl.DataFrame:
        return frame.with_columns(pl.int_range(rows, dtype=pl.Int64, eager=True).alias(self._number))

    def _given(self, frame: pl.DataFrame, node: Node, *more: str) -> Source:
        columns = Schema({**node.schema, **{name: frame.schema[name] for name in more}})
        return given_rows(columns, node.codecs)

    def _source(self, node: Source) -> _Rows:
        alive = self._alive[id(node)]
        rows = self._numbered(alive, alive.height)
        predicate = node.predicate if isinstance(node, (FrameSource, FileSource)) else None
        if predicate is not None:
            given = given_rows(Schema(rows.schema.items()), node.codecs)
            rows = rows_made(Where(parent=given, predicate=predicate), {id(given): rows}, self._progress)
        return self._carried(rows.select(*node.schema, self._number), self._number)

    def _carried(self, made: pl.DataFrame, *carried: str) -> _Rows:
        """Return rows that hold the numbers of what they are derived from."""
        origins = [made[name] for name in carried]
        frame = self._numbered(made.drop(carried), made.height)
        return _Rows(frame, lambda numbers: tuple(origin.gather(numbers) for origin in origins))

    # -- operators ----------------------------------------------------------------------------------------

    def _row_by_row(self, node: Where | Select | SelectMany, frame: pl.DataFrame) -> _Rows:
        given = self._given(frame, node.parent, self._number)
        made = rows_made(replace(node, parent=given), {id(given): frame}, self._progress)
        return self._carried(made, self._number)

    def _by_key(self, node: Aggregate | SnapshotApply | Distinct, keys: tuple[str, ...], frame: pl.DataFrame) -> _Rows:
        given = self._given(frame, node.parent)
        made = rows_made(replace(node, parent=given), {id(given): frame}, self._progress)
        rows = self._numbered(made, made.height)

        def behind(numbers: pl.Series) -> tuple[pl.Series, ...]:
            if not keys:
                return (frame[self._number] if numbers.len() else _none(),)
            return (frame.join(rows[numbers], on=keys, how="semi", nulls_equal=True)[self._number],)

        return _Rows(rows, behind)

    def _union(self, node: Union, frames: list[pl.DataFrame]) -> _Rows:
        parts = [frame.select(*node.schema, self._number) for frame in frames]
        offsets = [sum(frame.height for frame in frames[:place]) for place in range(len(frames))]

        def behind(numbers: pl.Series) -> tuple[pl.Series, ...]:
            own = [numbers - offset for offset in offsets]
            return tuple(
                part.filter((part >= 0) & (part < frame.height)) for part, frame in zip(own, frames, strict=True)
            )

        together = pl.concat(parts)
        return _Rows(self._numbered(together, together.height), behind)

    def _pairs(self, node: Join | Exists, left: pl.DataFrame, right: pl.DataFrame) -> _Rows:
        """Return the pairs that match."""
        other = right.rename({self._number: self._other})
        matching = replace(node.matching, right_as=(*node.matching.right_as, (self._other, self._other)))
        join = Join(
            left=self._given(left, node.left, self._number),
            right=self._given(other, node.right, self._other),
            matching=matching,
            how=node.how if isinstance(node, Join) else "inner",
        )
        made = rows_made(join, {id(join.left): left, id(join.right): other}, self._progress)
        return self._carried(made, self._number, self._other)

    def _matched(self, node: Exists, left: pl.DataFrame, right: pl.DataFrame) -> _Rows:
        """Return left rows that have a match, or that have none."""
        tested = replace(node, left=self._given(left, node.left, self._number), right=self._given(right, node.right))
        made = rows_made(tested, {id(tested.left): left, id(tested.right): right}, self._progress)
        kept = self._carried(made, self._number)

        def behind(numbers: pl.Series) -> tuple[pl.Series, ...]:
            (own,) = kept.behind(numbers)
            if node.negated or not own.len():
                return own, _none()
            pairs = self._pairs(node, left[own], right)
            return own, pairs.behind(pairs.frame[self._number])[1]

        return _Rows(kept.frame, behind)


def _none() -> pl.Series:
    return pl.Series(dtype=pl.Int64)


def _free_names(root: Node, alive: Mapping[int, pl.DataFrame]) -> tuple[str, str]:
    """Return two names that no column of the plan has."""
    taken = {name for node in walk(root) for name in node.schema}.union(*(frame.columns for frame in alive.values()))
    taken |= {name for node in walk(root) if isinstance(node, (Join, Exists)) for name, _ in node.matching.right_as}
    free = (name for place in range(len(taken) + 2) if (name := f"__squill_row_{place}__") not in taken)
    return next(free), next(free)


def refused(why: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        f"provenance: the rows behind one row cannot be told exactly: {why}",
        "provenance() without a row gives all input rows behind the answer.",
    )
