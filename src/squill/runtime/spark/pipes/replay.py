"""Rows from the progress on that answers are still wanted from: what was before is there at its beginning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from squill.engine.batch import Batch
from squill.time import INFINITY

__all__ = ["raised"]


def raised(batches: Iterable[Batch], since: int, *, brief: bool) -> Iterator[Batch]:
    """Yield intervals as they are at `since` and later: those that have ended are gone, earlier ones begin there.

    Where rows are `brief`, alive at their own step only (`plan/past_steps.py`), what becomes of them lasts: none is
    gone, all of earlier steps are of the step `since`.

    Examples
    --------
    >>> batch = Batch(np.array([0, 1, 3]), np.array([2, 9, 9]), {})
    >>> [(part.sync.tolist(), part.other.tolist()) for part in raised([batch], 2, brief=False)]
    [([2, 3], [9, 9])]
    >>> batch = Batch(np.array([0, 1, 3]), np.array([1, 2, 4]), {})
    >>> [(part.sync.tolist(), part.other.tolist()) for part in raised([batch], 2, brief=True)]
    [([2, 2, 3], [3, 3, 4])]
    """
    for batch in batches:
        if not len(batch) or batch.sync[0] > since:
            yield batch
        elif brief:
            moves = (batch.sync < since) & (batch.other != INFINITY)
            yield Batch(np.maximum(batch.sync, since), np.where(moves, since + 1, batch.other), batch.columns)
        else:
            alive = batch.filter(batch.other > since)
            yield Batch(np.maximum(alive.sync, since), alive.other, alive.columns)
