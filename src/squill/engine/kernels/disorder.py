"""Which arriving rows are late: one pass in arrival order."""

from __future__ import annotations

from squill.engine.kernels.jit import kernel
from squill.time import MINUS_INFINITY

__all__ = ["IN_TIME", "arrivals"]

IN_TIME = MINUS_INFINITY
"""What `now_at` holds for a row that is not late; no row is late while the clock stands there."""


@kernel
def arrivals(sync, wait, highest, punctuated, now_at):
    """Write for each late row the current time at its arrival, for the others IN_TIME.

    The current time is max(highest sync seen − wait, last punctuation). Returns the number of late rows, the
    new highest sync, and whether the rows stand in sync order.
    """
    late = 0
    ordered = True
    now = punctuated
    if highest > MINUS_INFINITY + wait and highest - wait > now:
        now = highest - wait
    before = MINUS_INFINITY
    for i in range(len(sync)):
        t = sync[i]
        if t < before:
            ordered = False
        before = t
        if t < now:
            now_at[i] = now
            late += 1
            continue
        now_at[i] = IN_TIME
        if t > highest:
            highest = t
            if highest > MINUS_INFINITY + wait and highest - wait > now:
                now = highest - wait
    return late, highest, ordered
