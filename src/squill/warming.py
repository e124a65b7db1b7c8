"""`sq.warm`: compile ahead."""

from __future__ import annotations

from squill.errors import PlanError
from squill.stream import Stream
from squill.wording import articled, shortened

__all__ = ["warm"]


def warm(*streams: Stream, processes: int | None = None) -> float:
    """Compile what these queries need, before their first rows come; return how many seconds it took.

    Loops are compiled once per host, when a query first needs them, and kept on disk. A service whose first answer
    must not wait for that warms its queries when it is installed. Each query is run over a few made-up rows in a
    process of its own, `processes` at a time (default: the cores there are). Functions of yours that take frames, and
    operators, are not called; what your aggregates and patterns compute is.

    Examples
    --------
    >>> import squill as sq
    >>> clicks = sq.from_frame({"t": [1, 2], "ad": ["a", "b"]}, start="t")
    >>> seconds = sq.warm(clicks.group_apply("ad", lambda g: g.tumbling_window(10).count()))
    """
    if processes is not None and (type(processes) is not int or processes < 1):
        raise PlanError(f"warm: processes is {shortened(processes)}", "give a whole number of at least 1.")
    for item in streams:
        if not isinstance(item, Stream):
            raise PlanError(
                f"warm: {shortened(item)} is {articled(type(item).__name__)}, not a stream", "sq.warm(stream.count())"
            )
    from squill.engine.warm import warm as compile_ahead

    return compile_ahead([item.plan for item in streams], processes)
