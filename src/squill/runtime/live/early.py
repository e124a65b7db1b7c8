"""Early answers: after an epoch the plan runs on copies of all states, as if the inputs ended there.

What a sink has been given is always final changes + early changes; so each epoch gives it the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from squill.engine.batch import Batch
from squill.engine.speculation import difference
from squill.errors import CheckpointError
from squill.exchange.codec import decode, encode
from squill.plan.node import Node
from squill.runtime.stored_answer import sync_to_disk

__all__ = ["EarlyAnswers"]


class EarlyAnswers:
    """Remembers the early changes that were given; with a checkpoint in a file that the commit names."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._given: Batch | None = None

    def difference(self, final: Sequence[Batch], early: Sequence[Batch]) -> Batch | None:
        """Return what makes of the answer given before the new one; the early part is remembered."""
        rows = difference([*final, *early], self._given)
        self._given = Batch.concat(list(early)).sorted_by_sync() if early else None
        return rows

    def keep(self, path: Path) -> str | None:
        """Write what is remembered to a file; None when there is nothing."""
        if self._given is None:
            return None
        path.write_bytes(encode(self._given, None))
        sync_to_disk(path)
        return str(path)

    def restore(self, path: str | None) -> None:
        """Take over what was remembered."""
        try:
            self._given = None if path is None else decode(pa.py_buffer(Path(path).read_bytes()), self._node.schema)
        except (OSError, pa.ArrowException) as error:
            raise CheckpointError(
                f"start: {path!r} is damaged: {type(error).__name__}: {error}",
                "restore the checkpoint folder from a copy.",
            ) from error
