"""Loops over times: windows and grids."""

from __future__ import annotations

from squill.engine.kernels.jit import inlined, kernel

__all__ = ["bounds", "bounds_and_order", "hopping_lifetimes", "hopping_starts", "quantized_lifetimes"]

INFINITY = 2**63 - 1
MINUS_INFINITY = -(2**63) + 1


@kernel
def bounds_and_order(ticks):
    """Return the least and the greatest value, and whether none is below the one before it."""
    n = len(ticks)
    falls = 0
    for i in range(1, n):
        falls += ticks[i] < ticks[i - 1]
    if n > 0 and falls == 0:
        return ticks[0], ticks[n - 1], True
    low, high = INFINITY, MINUS_INFINITY
    for i in range(n):
        low = min(low, ticks[i])
        high = max(high, ticks[i])
    return low, high, falls == 0


@kernel
def bounds(ticks):
    """Return the least and the greatest value; for no values infinity and minus infinity."""
    low, high = INFINITY, MINUS_INFINITY
    for i in range(len(ticks)):
        low = min(low, ticks[i])
        high = max(high, ticks[i])
    return low, high


@inlined
def since_grid(x, step, phase):
    """How many ticks before x the last grid point phase + k·step is; the point itself may be out of range."""
    return (x % step - phase) % step


@inlined
def leaves_upwards(x, more):
    """Whether x + more is no finite time, for more ≥ 0."""
    return x > 0 and more > INFINITY - 1 - x


@kernel
def hopping_lifetimes(sync, size, hop, phase, is_right, start, end):
    """Set start := g(t), end := g(t + size); g(x) the first grid point after x (or not before it: is_right).

    Neighbours mostly share a window, so a grid point is computed only when it changes. The phase is below
    the hop. Returns the first row whose window leaves the range of times, or −1.
    """
    shift = 1 if is_right else 0
    for i in range(len(sync)):
        t = sync[i]
        if leaves_upwards(t, size):
            return i
        follows = i > 0 and sync[i - 1] <= t
        x = t - shift
        if follows and x < start[i - 1]:
            start[i] = start[i - 1]
        else:
            more = hop - since_grid(x, hop, phase)
            if leaves_upwards(x, more):
                return i
            start[i] = x + more
        x += size
        if follows and x < end[i - 1]:
            end[i] = end[i - 1]
        else:
            more = hop - since_grid(x, hop, phase)
            if leaves_upwards(x, more):
                return i
            end[i] = x + more
    return -1


@kernel
def hopping_starts(sync, size, hop, phase, is_right, start):
    """Set start := g(t), as `hopping_lifetimes` does; where the hop divides the size, ends follow from it.

    Returns the first row whose window leaves the range of times, or −1.
    """
    shift = 1 if is_right else 0
    before = INFINITY
    point = MINUS_INFINITY
    for i in range(len(sync)):
        t = sync[i]
        x = t - shift
        if not (before <= t and x < point):
            more = hop - since_grid(x, hop, phase)
            if leaves_upwards(x, more) or leaves_upwards(x + more, size):
                return i
            point = x + more
        start[i] = point
        before = t
    return -1


@kernel
def quantized_lifetimes(start, end, size, period, phase, end_phase, progress, new_start, new_end):
    """Snap starts down to the progress grid, ends to phase + size + k·period, so that lifetimes only grow.

    The phases are those of the grids of starts and of ends, below the period. Returns the first row that
    leaves the range of times, or −1.
    """
    for i in range(len(start)):
        s = start[i]
        e = end[i]
        back = since_grid(s, progress, phase % progress)
        if s < 0 and back >= s - MINUS_INFINITY:
            return i
        new_start[i] = s - back
        if e == INFINITY:
            new_end[i] = INFINITY
            continue
        # Up to the next point of the ends' grid, and to where the window of the start's grid point ends. Below
        # zero the second is before the start: that grid point may be out of range, and the first is later.
        since = since_grid(e, period, end_phase)
        to_grid = period - since if since > 0 else 0
        to_window = size - since_grid(s, period, phase)
        if leaves_upwards(e, to_grid) or (to_window > 0 and leaves_upwards(s, to_window)):
            return i
        new_end[i] = e + to_grid
        if to_window > 0 and s + to_window > new_end[i]:
            new_end[i] = s + to_window
    return -1
