"""How shards are arranged: machines that hold some shards each."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Layout"]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """`shards` shards, numbered machine by machine; a machine holds `cores` of them, the last perhaps fewer.

    Examples
    --------
    >>> layout = Layout(shards=6, cores=2)
    >>> layout.machines, layout.machine_of(3), list(layout.shards_of(1))
    (3, 1, [2, 3])
    """

    shards: int
    cores: int = 1

    @property
    def machines(self) -> int:
        return -(-self.shards // self.cores)

    @property
    def is_grid(self) -> bool:
        """True when every machine holds as many shards, so that a shard has its like on every machine."""
        return self.shards % self.cores == 0

    def machine_of(self, shard: int) -> int:
        return shard // self.cores

    def shards_of(self, machine: int) -> range:
        return range(machine * self.cores, min((machine + 1) * self.cores, self.shards))

    def __str__(self) -> str:
        if self.cores == 1 or self.machines == 1 or not self.is_grid:
            return f"{self.shards} shards" if self.shards > 1 else "1 shard"
        return f"{self.machines} machines of {self.cores} shards"
