"""Batches so small that queues fill up, mailboxes block and instants are cut, in this process."""

from __future__ import annotations

import pytest

from squill.exchange import merge, scatter
from squill.runtime import machine, shard

__all__ = ["TINY", "read_in_batches_of", "tiny_batches"]

TINY = 3


def read_in_batches_of(patch: pytest.MonkeyPatch, rows: int, *, sent: int) -> None:
    """Let shards read so many rows at a time, whatever becomes of them, and send some on once there are `sent`."""
    patch.setattr(shard, "DEFAULT_BATCH_ROWS", rows)
    patch.setattr(shard, "PASSING_BATCHES", 1)
    patch.setattr(shard, "STEP_BATCHES", 1)
    patch.setattr(scatter, "ENOUGH_ROWS", sent)


def tiny_batches(patch: pytest.MonkeyPatch) -> None:
    """Let every queue fill up, every mailbox block and every instant be cut."""
    read_in_batches_of(patch, TINY, sent=2)
    patch.setattr(merge, "SMALL_ROWS", 0)
    patch.setattr(machine, "MAILBOX_ROWS", 2)
    patch.setattr(machine, "EARLY_ROWS", 2)
    patch.setattr(machine, "LEAST_ROWS", 1)
