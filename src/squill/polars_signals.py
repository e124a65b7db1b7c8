"""That Ctrl-C wakes up who waits.

Polars handles SIGINT beside Python, from when it is imported on, and asks the system to go on with what the signal
interrupts. Python is then told of Ctrl-C, but whoever waits for a thread, as all do who run shards, goes on waiting,
and raises `KeyboardInterrupt` no sooner than the thread has ended by itself.
"""

from __future__ import annotations

import signal

__all__ = ["wake_by_interrupts"]


def wake_by_interrupts() -> None:
    """Let SIGINT interrupt what waits, whoever handles it; to be called once Polars is loaded."""
    if hasattr(signal, "siginterrupt"):  # Windows has neither it nor the trouble
        signal.siginterrupt(signal.SIGINT, True)
