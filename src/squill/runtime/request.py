"""What a driver was asked for, so that another one can go on with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from squill.plan.node import Node
from squill.plan.nodes import FrameSource
from squill.plan.nodes.tables import TableSource
from squill.plan.rebuild import substitute
from squill.runtime.splits import without_rows
from squill.runtime.store import Wanted

if TYPE_CHECKING:
    from squill.catalog import Lineage

__all__ = ["Request", "bare", "without_password"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to become of the answer.

    ``sort``     of a frame.
    ``wanted``   the dataset that is to be made, whose plan has no rows; ``lineage`` how it is remembered.
    ``catalog``  the URL of the catalog; None when there is none, or when a password is in it, which is not written.
    """

    action: str
    catalog: str | None = None
    sort: bool = False
    wanted: Wanted | None = None
    lineage: Lineage | None = None


def bare(node: Node) -> Node:
    """Return the plan without rows: enough to know what its answer looks like."""

    def without(item: Node) -> Node | None:
        if isinstance(item, TableSource):
            return replace(item, table=None)
        return without_rows(item) if isinstance(item, FrameSource) else None

    return substitute(node, without)


def without_password(url: str) -> str | None:
    """Return the URL, or None when there is a password in it.

    Examples
    --------
    >>> without_password("sqlite:////data/catalog.sqlite")
    'sqlite:////data/catalog.sqlite'
    >>> without_password("postgresql://me:secret@host/x") is None
    True
    """
    return None if urlsplit(url).password else url
