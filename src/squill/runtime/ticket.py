"""What a runtime is told of the run itself, beside its plan."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from squill.runtime.run_folder import Order, RunFolder

__all__ = ["RunTicket", "new_id"]


@dataclass(frozen=True, kw_only=True)
class RunTicket:
    """Which run it is, whose, and what another driver needs to go on with it.

    ``dataset``  what it makes, if it does: a name, or a path where it has none.
    ``plan``     as text.
    ``request``  picklable; None for a run that nobody goes on with.
    ``left``     what a driver that died has left of this run, to go on from there.
    ``scope``    what is closed when all is done, the answer being where it belongs.
    """

    id: str
    action: str
    owner: str
    started: str
    dataset: str | None = None
    plan: str = ""
    request: object = None
    left: tuple[RunFolder, Order] | None = None
    scope: ExitStack = field(default_factory=ExitStack, compare=False)


def new_id() -> str:
    """Return a name that no other run has."""
    return uuid.uuid4().hex[:12]
