"""`EarlyAnswers`: the answers of a progressive query, one after the other."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from squill.errors import PlanError, UserFunctionError
from squill.plan.node import Node
from squill.plan.schema import Schema
from squill.runtime.progressive.early import EarlyAnswer
from squill.runtime.progressive.provenance import ProvenanceOf
from squill.runtime.progressive.status import EarlyStatus, Watch
from squill.runtime.progressive.store import AnswerStore, Late
from squill.wording import kind_of, shortened

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["EarlyAnswers", "Step", "checked_until"]

Until = Callable[[EarlyAnswer], object] | float | None


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a progress point brings: the changes since the one before, and which part of the rows is there.

    ``from_nothing``  the changes are those since the start: the query has begun again after a failure.
    """

    point: int
    changes: Sequence[pl.DataFrame]
    fraction: float
    is_final: bool
    from_nothing: bool = False


def checked_until(until: Any) -> Until:
    if until is None or callable(until):
        return until
    if isinstance(until, (int, float)) and not isinstance(until, bool) and 0 < until <= sys.float_info.max:
        return float(until)
    raise PlanError(
        f"progressive: until is {shortened(until)}",
        "give a function of the early answer that says when it is good enough, or a number of seconds above 0.",
    )


class EarlyAnswers:
    """An iterator of `EarlyAnswer`s. Leaving the loop, or `close()`, stops the query and frees what it holds.

    As a context it closes itself. Nothing runs before the first answer is asked for. What flows are rows of these
    columns, of which `late` makes answers when somebody looks at them.
    """

    def __init__(
        self,
        *,
        node: Node,
        flowing: Schema,
        steps: Callable[[], Iterator[Step]],
        until: Until,
        provenance: ProvenanceOf,
        explain: Callable[[], str],
        watch: Watch | None = None,
        late: Late | None = None,
    ) -> None:
        self._node = node
        self._flowing = flowing
        self._late = late
        self._steps = steps
        self._until = until
        self._provenance = provenance
        self._explain = explain
        self._watch = Watch() if watch is None else watch
        self._state = "not begun"
        self._point: int | None = None
        self._answers = self._run()

    def __iter__(self) -> Iterator[EarlyAnswer]:
        # A generator of its own: it ends with the loop, also where somebody keeps this object, and closes the other.
        yield from self._answers

    def __next__(self) -> EarlyAnswer:
        return next(self._answers)

    def close(self) -> None:
        """Stop the query; answers that were given stay."""
        self._answers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def explain(self) -> str:
        """Return the plan as it runs, and what the first answer costs."""
        return self._explain()

    def status(self) -> EarlyStatus:
        """Return how far it is and, where shards share the work, which one the others wait for. From any thread."""
        behind = self._watch.behind() if self._state == "running" else None
        return EarlyStatus(state=self._state, progress=self._point, behind=behind, restarts=self._watch.restarts)

    def show(self, rows: int = 10, *, chart: str | bool = True, console: Console | None = None) -> EarlyAnswer | None:
        """Show the first `rows` rows of each answer, in one place; return the last answer.

        `chart` is the column that is drawn as bars, with its intervals where it has them: the first one with
        intervals, or the last number, unless you name it; False draws none. In a notebook altair draws it (the extra
        `notebook`), in a terminal, or on a `console` that you give, it stands in the table.
        """
        from squill.runtime.progressive.show import show

        return show(self, rows, chart=chart, console=console)

    def _run(self) -> Generator[EarlyAnswer, None, None]:
        begin = time.perf_counter()
        self._state = "running"
        store = AnswerStore(self._flowing, self._late)
        steps = self._steps()
        try:
            for step in steps:
                # What was given stays as it was; a sum of floats may come out another way when it is computed again.
                changes = [*(store.removals() if step.from_nothing else ()), *step.changes]
                answer = EarlyAnswer(
                    node=self._node,
                    store=store,
                    changes=changes,
                    progress=step.point,
                    fraction=step.fraction,
                    is_final=step.is_final,
                    elapsed=time.perf_counter() - begin,
                    provenance=self._provenance,
                    before=self._point,
                )
                store.add(answer, changes)
                is_enough = self._is_enough(answer)
                self._point = step.point
                yield answer
                del answer, step, changes  # so that the store may forget what nobody holds
                if is_enough:
                    return
        finally:
            self._state = "over"
            steps.close()  # type: ignore[attr-defined]

    def _is_enough(self, answer: EarlyAnswer) -> bool:
        if callable(self._until):
            said = self._until(answer)
            try:
                return bool(said)
            except (TypeError, ValueError) as error:
                raise UserFunctionError(
                    f"progressive: until= gave {kind_of(said)} for the answer at {answer.progress}, which is "
                    "neither true nor false",
                    "give a function of the early answer that says whether it is good enough.",
                ) from error
        return self._until is not None and answer.elapsed >= self._until
