"""Rows from the progress on that answers are still wanted from: what was before is there at its beginning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from squill.engine.batch import Batch

__all__ = ["raised"]


def raised(batches: Iterable[Batch], since: int) -> Iterator[Batch]:
    """Yield intervals as they are at `since` and later: those that have ended are gone, earlier ones begin there.

    Examples
    --------
    >>> batch = Batch(np.array([0, 1, 3]), np.array([2, 9, 9]), {})
    >>> [(part.sync.tolist(), part.other.tolist()) for part in raised([batch], 2)]
    [([2, 3], [9, 9])]
    """
    for batch in batches:
        if not len(batch) or batch.sync[0] > since:
            yield batch
            continue
        alive = batch.filter(batch.other > since)
        yield Batch(np.maximum(alive.sync, since), alive.other, alive.columns)
