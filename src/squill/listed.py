"""`ListedEvents`: the stream that `sq.from_events` makes, and the events that came too late in it."""

from __future__ import annotations

import polars as pl

from squill.plan.nodes import EventsSource
from squill.stream import Stream

__all__ = ["ListedEvents"]


class ListedEvents(Stream):
    """Single events as a stream; it is made by `sq.from_events`.

    Examples
    --------
    >>> import squill as sq
    >>> clicks = sq.from_events([sq.point(5, ad="a"), sq.point(3, ad="b"), sq.point(6, ad="c")], disorder=sq.drop())
    >>> clicks.collect().rows()
    [(5, 6, 'a'), (6, 7, 'c')]
    >>> clicks.late.rows()
    [(3, 4, 'b', 2)]
    """

    __slots__ = ()

    @property
    def late(self) -> pl.DataFrame:
        """All late events in arrival order, as they were given, whatever the policy did with them, with `late_by`.

        An end edge is shown with its event's start and the end that came too late, a start edge without an end.
        The events are gone through for this; under `sq.throw()` a late one raises, as it does in a query.
        """
        from squill.engine.ingress_events import late_events

        assert isinstance(self.plan, EventsSource)
        return late_events(self.plan)
