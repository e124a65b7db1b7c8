"""Errors that travel in the text of other errors: of what a task raises, Spark gives the driver nothing else."""

from __future__ import annotations

import base64
import pickle
import re

__all__ = ["carried_error", "carrying"]

CARRIED = re.compile(r"squill-error:([A-Za-z0-9+/=]+):")


def carried_error(text: str) -> Exception | None:
    """Return the error that a task's own text carries, or None."""
    found = CARRIED.search(text)
    if found is None:
        return None
    error = pickle.loads(base64.b64decode(found.group(1)))  # noqa: S301  (written by our own task)
    return error if isinstance(error, Exception) else None


def carrying(error: Exception) -> Exception:
    """Return an error with that text, and this one in it."""
    try:
        content = base64.b64encode(pickle.dumps(error)).decode()
    except Exception:  # noqa: BLE001  (an error of the user's that cannot be pickled)
        return error
    return RuntimeError(f"{error}\nsquill-error:{content}:")
