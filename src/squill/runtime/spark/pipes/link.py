"""What goes from one task to another: batches, clocks, and how many rows were taken.

A link never makes who sends wait for the network: it is a queue and a thread. What may stand in the queue is bounded by
who sends, who knows how many of his rows the receiver has not taken (see `lanes.py`). Of clocks and of what was taken
only the last word counts, so they take no room at all.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from squill.runtime.spark.pipes.wire import message

__all__ = ["CLOCK", "TAKEN", "Link", "Mark", "read_header", "read_marks"]

CLOCK, TAKEN = range(2)


class Mark(NamedTuple):
    """What a number is about: the clock of a sender for a receiver, or how many of its rows a reader has taken."""

    kind: int
    channel: int
    sender: int
    receiver: int
    reader: int = 0


class Link:
    """The way to one other task.

    ``put``      how many batches and marks were given to it so far; the other task learns up to which it has them.
    ``on_lost``  called with the error when the other task cannot be reached any more.
    """

    def __init__(self, open_writer: Callable[[], Any], on_lost: Callable[[Exception], object]) -> None:
        self.put = 0
        self._open_writer = open_writer
        self._on_lost = on_lost
        self._batches: deque[tuple[bytes, pa.Buffer]] = deque()
        self._marks: dict[Mark, int] = {}
        self._changed = threading.Condition()
        self._is_closing = False
        self._thread = threading.Thread(target=self._work, name="pipe-out", daemon=True)
        self._thread.start()

    def send(self, channel: int, sender: int, receivers: Iterable[int], data: pa.Buffer) -> None:
        """Queue a batch for receivers there."""
        header = np.array([channel, sender, *receivers], np.int64).tobytes()
        with self._changed:
            self._batches.append((header, data))
            self.put += 1
            self._changed.notify()

    def mark(self, marks: Iterable[tuple[Mark, int]]) -> None:
        """Queue numbers, which only grow; they come after the batches that were queued before."""
        with self._changed:
            for mark, value in marks:
                self._marks[mark] = max(value, self._marks.get(mark, value))
                self.put += 1
            self._changed.notify()

    def close(self) -> None:
        """Send what is queued, if the other is still there, and end."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        try:
            writer = self._open_writer()
            with writer:
                while self._send_next(writer):
                    pass
        except Exception as error:  # noqa: BLE001  (whatever it is, the way is closed)
            with self._changed:
                self._batches.clear()
            self._on_lost(error)

    def _send_next(self, writer: Any) -> bool:
        with self._changed:
            while not (self._batches or self._marks or self._is_closing):
                self._changed.wait()
            batches, self._batches = self._batches, deque()
            marks, self._marks = self._marks, {}
            put, is_last = self.put, self._is_closing
        for header, data in batches:
            writer.write_with_metadata(message(data), header)
        # Last, and with every round: how far all that was put has been sent.
        rows = [put, *(number for mark, value in marks.items() for number in (*mark, value))]
        writer.write_metadata(np.array(rows, np.int64).tobytes())
        return not is_last


def read_header(header: pa.Buffer) -> tuple[int, int, list[int]]:
    """Return channel, sender and receivers of a batch."""
    channel, sender, *receivers = np.frombuffer(header, np.int64).tolist()
    return channel, sender, receivers


def read_marks(header: pa.Buffer) -> tuple[int, list[tuple[Mark, int]]]:
    """Return up to which put everything has come, and the marks."""
    put, *numbers = np.frombuffer(header, np.int64).tolist()
    width = len(Mark._fields) + 1
    rows = (numbers[low : low + width] for low in range(0, len(numbers), width))
    return put, [(Mark(*row[:-1]), row[-1]) for row in rows]
