"""Loops over times: windows and grids."""

from __future__ import annotations

from squill.engine.kernels.jit import inlined, kernel

__all__ = ["bounds", "bounds_and_order", "hopping_lifetimes", "quantized_lifetimes"]

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
def floor_to(x, step, offset):
    """The last grid point offset + k·step that is not after x, computed without leaving 64 bits."""
    phase = offset % step
    return x - (x % step - phase) % step


@kernel
def hopping_lifetimes(sync, size, hop, offset, is_right, start, end):
    """Set start := g(t), end := g(t + size); g(x) the first grid point after x (or not before it: is_right).

    Neighbours mostly share a window, so a grid point is computed only when it changes. Returns the first
    row whose window leaves the range of times, or −1.
    """
    limit = INFINITY - size - 2 * hop
    shift = 1 if is_right else 0
    low = 0
    high = 0
    for i in range(len(sync)):
        t = sync[i]
        if t > limit or t < MINUS_INFINITY + 2 * hop:
            return i
        if not (i > 0 and low <= t - shift < start[i - 1]):
            low = floor_to(t - shift, hop, offset)
        start[i] = low + hop
        if not (i > 0 and high <= t + size - shift < end[i - 1]):
            high = floor_to(t + size - shift, hop, offset)
        end[i] = high + hop
    return -1


@kernel
def quantized_lifetimes(start, end, size, period, offset, progress, new_start, new_end):
    """Snap starts down to the progress grid, ends to offset + size + k·period, so that lifetimes only grow.

    Returns the first row that leaves the range of times, or −1.
    """
    limit = INFINITY - size - 2 * period
    for i in range(len(start)):
        s = start[i]
        e = end[i]
        if s > limit or s < MINUS_INFINITY + 2 * period or (e != INFINITY and e > limit):
            return i
        snapped = floor_to(s, progress, offset)
        new_start[i] = snapped
        if e == INFINITY:
            new_end[i] = INFINITY
        else:
            base = floor_to(s, period, offset)
            new_end[i] = floor_to(max(e + period - 1, base + size), period, offset + size)
    return -1
