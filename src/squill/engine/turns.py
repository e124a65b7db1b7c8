"""Whose turn it is: sources that share queries form a group, and one thread at a time runs a group's queries.

A thread that brings work waits for its turn, unless it is inside a turn already (a function that was given
results pushes into another source, or into its own): it then leaves the work to whoever has the turn. So
nobody waits while holding a turn, and no two threads can wait for each other; work left behind is done
before the turn ends.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

__all__ = ["Turn", "inside_a_turn", "taking_turns"]

Job = Callable[[], None]


class _Here(threading.local):
    """How many turns this thread is inside of."""

    depth = 0


_here = _Here()
_joining = threading.Lock()


def inside_a_turn() -> bool:
    """Say whether this thread is running queries, so that it must not wait for others."""
    return _here.depth > 0


class Turn:
    """The right to run the queries of one group of sources.

    Examples
    --------
    >>> turn, done = Turn(), []
    >>> def first():
    ...     turn.run(lambda: done.append("asked for inside"))
    ...     done.append("first")
    >>> turn.run(first)
    >>> done
    ['first', 'asked for inside']
    """

    def __init__(self) -> None:
        self._state = threading.Condition(threading.Lock())
        self._owner: int | None = None
        self._asked: deque[Job] = deque()
        self._joined: Turn | None = None

    def run(self, job: Job, *, wait: bool = True) -> None:
        """Do the job; without `wait`, or from inside a turn, leave it to the thread whose turn it is, if any.

        Raises
        ------
        BaseException
            The first error of this job and of those that were left to this thread, after all are done.
        """
        turn = self._take(job, wait=wait)
        if turn is None:
            return
        errors: list[BaseException] = []
        _here.depth += 1
        try:
            following: Job | None = job
            while following is not None:
                try:
                    following()
                except BaseException as error:  # noqa: BLE001 - raised when the turn is over
                    errors.append(error)
                following = turn._next()
        finally:
            _here.depth -= 1
        raise_first(errors)

    def _take(self, job: Job | None, *, wait: bool) -> Turn | None:
        me = threading.get_ident()
        while True:
            turn = self.root
            with turn._state:
                if turn._joined is not None:
                    continue
                if turn._owner is None:
                    turn._owner = me
                    return turn
                if turn._owner == me or not wait or _here.depth:
                    if job is not None and job not in turn._asked:
                        turn._asked.append(job)
                    return None
                turn._state.wait()

    def _next(self) -> Job | None:
        """Return work that was left behind, or end the turn."""
        with self._state:
            if self._asked:
                return self._asked.popleft()
            self._owner = None
            self._state.notify_all()
        return None

    @property
    def root(self) -> Turn:
        turn = self
        while turn._joined is not None:
            turn = turn._joined
        return turn

    @property
    def mine(self) -> bool:
        """Whether this thread has the turn."""
        return self.root._owner == threading.get_ident()

    def _join(self, other: Turn) -> None:
        """Let the two be one from now on; this thread has both."""
        with other._state:
            asked, other._asked = other._asked, deque()
            other._joined = self
            other._state.notify_all()
        with self._state:
            self._asked.extend(asked)


@contextmanager
def taking_turns(turns: Sequence[Turn]) -> Iterator[bool]:
    """Take the turn of all these groups, which become one group; yields False where it cannot be waited for.

    That is only so inside a turn, when another thread runs one of the groups.
    """
    taken = _take_all(turns)
    if taken is None:
        yield False
        return
    first = turns[0].root
    for turn in turns[1:]:
        if turn.root is not first:
            first._join(turn.root)
    errors: list[BaseException] = []
    _here.depth += 1
    try:
        yield True
    except BaseException as error:  # noqa: BLE001 - raised when the turn is over
        errors.append(error)
    if taken:
        _work_off(first, errors)
    _here.depth -= 1
    raise_first(errors)


def _take_all(turns: Sequence[Turn]) -> list[Turn] | None:
    """Return the turns that were not this thread's and now are; None when one would have to be waited for."""
    taken: list[Turn] = []
    inside = inside_a_turn()
    # One thread at a time takes several turns, or two might each hold what the other waits for.
    if not _joining.acquire(blocking=not inside):
        return None
    try:
        for turn in turns:
            if turn.mine:
                continue
            found = turn._take(None, wait=True)
            if found is None:
                for item in taken:
                    _work_off(item, [])
                return None
            taken.append(found)
    finally:
        _joining.release()
    return taken


def _work_off(turn: Turn, errors: list[BaseException]) -> None:
    while (job := turn._next()) is not None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - raised when the turn is over
            errors.append(error)


def raise_first(errors: Sequence[BaseException]) -> None:
    """Raise the first of these errors, with a note on each of the others."""
    if not errors:
        return
    first = errors[0]
    for error in errors[1:]:
        first.add_note(f"another query failed too: {type(error).__name__}: {error}")
    raise first
