"""Who receives a row when rows move: what each movement of the API means, as plain data.

A row's receivers depend on its values, or on its number in its split, never on arrival or chance: a task that
is tried again sends every row where it went before.

A *scope* bounds who a shard may send to: every shard (``flat``), those of its own machine (``local``), or those
of equal local index on the other machines (``global``). The hash of a key names a shard; within a machine its
local index decides, between machines its machine does. So one local and one global movement by the same key
leave rows where a flat one would have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from squill.plan.expressions import Expression
from squill.plan.layout import Layout

__all__ = [
    "CHANNELS", "FLAT", "GLOBAL", "KEY_HASH_VERSION", "LOCAL", "SCOPES", "BroadcastRouting", "HashRouting",
    "MulticastRouting", "RoundRobinRouting", "Routing",
]  # fmt: skip

FLAT, LOCAL, GLOBAL = "flat", "local", "global"
SCOPES = (FLAT, LOCAL, GLOBAL)

CHANNELS = ("files", "shuffle")
"""What carries rows on Spark: Arrow files in a folder that all machines see, or Spark's own shuffle."""

KEY_HASH_VERSION = 1
"""The version of the engine's key hash, which every hash placement is stamped with; a test holds them together."""


@dataclass(frozen=True, kw_only=True)
class Routing:
    """Base: rows go to shards of `layout` that are in `scope` of their own.

    ``channel``  what carries them on Spark: "files" or "shuffle"; None is the cluster's own choice.
    """

    verb: ClassVar[str]

    layout: Layout
    scope: str = FLAT
    channel: str | None = None

    def targets(self, shard: int) -> range:
        """Return the shards that this one may send to."""
        if self.scope == LOCAL:
            return self.layout.shards_of(self.layout.machine_of(shard))
        if self.scope == GLOBAL:
            return range(shard % self.layout.cores, self.layout.shards, self.layout.cores)
        return range(self.layout.shards)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decide who receives a row."""
        return ()

    def __str__(self) -> str:
        how = "" if self.scope == FLAT else f", {self.scope}"
        by = f" by {', '.join(self.columns)}" if self.columns else ""
        over = "" if self.channel is None else f", by {self.channel}"
        return f"{self.verb}{by} to {self.layout}{how}{over}"


@dataclass(frozen=True, kw_only=True)
class HashRouting(Routing):
    """Each row to the shard that its key's hash names; without keys all rows to the first one."""

    verb: ClassVar[str] = "redistribute"

    keys: tuple[str, ...]
    hash_version: int = KEY_HASH_VERSION

    @property
    def columns(self) -> tuple[str, ...]:
        return self.keys


@dataclass(frozen=True, kw_only=True)
class RoundRobinRouting(Routing):
    """Blocks of rows in turn; where rows of equal `packed` columns stand together, they stay together."""

    verb: ClassVar[str] = "reshard"

    packed: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return self.packed


@dataclass(frozen=True, kw_only=True)
class BroadcastRouting(Routing):
    """Each row to every shard."""

    verb: ClassVar[str] = "broadcast"


@dataclass(frozen=True, kw_only=True)
class MulticastRouting(Routing):
    """Each row to the shards that `chosen` names: a number or a list of numbers, null for none.

    ``chosen``    an expression over the row; or
    ``function``  the user's function of a payload row (a dict), which returns a number or numbers.
    """

    verb: ClassVar[str] = "multicast"

    chosen: Expression | None = None
    function: Callable[[dict[str, Any]], Any] | None = field(default=None, compare=False)
    function_id: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self.chosen is None else self.chosen.roots
