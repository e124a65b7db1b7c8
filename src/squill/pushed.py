"""`PushedSource`: a stream that the program feeds while queries over it run.

The module is not called `source`: importing it would hide the function `squill.source`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from squill.plan.build.sources import at_least_zero, push_source, wall_seconds
from squill.plan.nodes import Disorder
from squill.stream import Stream
from squill.time import Duration

if TYPE_CHECKING:
    from squill.engine.ingress_push import Feed

__all__ = ["PushedSource"]


class PushedSource(Stream):
    """A stream whose rows are pushed; it is made by `sq.source`.

    Queries are subscribed first, then rows are pushed; results come on the thread that pushes.

    Examples
    --------
    >>> import squill as sq
    >>> clicks = sq.source({"t": pl.Int64, "ad": pl.String}, start="t")
    >>> counted = clicks.group_apply("ad", lambda g: g.tumbling_window(10).count())
    >>> subscription = counted.subscribe(lambda frame: print(frame.rows()), emit="closed")
    >>> clicks.push([{"t": 1, "ad": "a"}, {"t": 4, "ad": "a"}, {"t": 7, "ad": "b"}])
    >>> clicks.push({"t": 25, "ad": "b"})
    [(10, 20, 'a', 2), (10, 20, 'b', 1)]
    >>> clicks.complete()
    [(30, 40, 'b', 1)]
    """

    __slots__ = ("_feed",)
    _feed: Feed

    @classmethod
    def create(
        cls,
        schema: Mapping[str, Any],
        start: str,
        end: str | None,
        lifetime: str,
        *,
        disorder: Disorder,
        punctuate_every: Duration | None,
        max_delay: Duration | None,
        keep_late: int,
        name: str | None,
        keep_time: bool,
    ) -> PushedSource:
        """Return a source for rows of these columns; `sq.source` says what the arguments mean."""
        from squill.engine.ingress_push import Feed

        feed = Feed(
            max_delay=wall_seconds(max_delay, "source: max_delay"),
            keep_late=at_least_zero(keep_late, "source: keep_late"),
        )
        node = push_source(schema, start, end, lifetime, name, disorder, punctuate_every, feed, keep_time=keep_time)
        feed.bind(node)
        source = cls(node)
        source._feed = feed
        return source

    def push(self, data: Any) -> None:
        """Give rows to all subscribed queries: a frame, a dict of columns, one row as a dict, or a list of rows.

        A push that is refused (wrong columns, no start, an end before its start, late under `sq.throw()`)
        changes nothing.
        """
        self._feed.push(data)

    def punctuate(self, t: Any) -> None:
        """Promise that no row before `t` follows, and send everything on; a `t` in the past means now."""
        self._feed.punctuate(t)

    def flush(self) -> None:
        """Send on the rows that wait for company under `max_delay`."""
        self._feed.flush()

    def complete(self) -> None:
        """End the source: time goes to infinity and everything comes out."""
        self._feed.complete()

    @property
    def counts(self) -> dict[str, int]:
        """How many rows were `late`, were `empty` (their end is their start: left out) and are `waiting`.

        Late rows count since the source was made, whether or not they are kept or were taken.
        """
        return self._feed.counts

    @property
    def late(self) -> pl.DataFrame:
        """The late rows that are kept, as they arrived, whatever the policy did with them, with `late_by`.

        These are the newest `keep_late` of those that `take_late` has not taken. A payload column `late_by` stays
        what it is: how late a row was is then called `late_by_`.
        """
        return self._feed.late()

    def take_late(self) -> pl.DataFrame:
        """Return the late rows that are kept and forget them: called often enough, it misses none."""
        frame = self._feed.late()
        self._feed.forget_late()
        return frame
