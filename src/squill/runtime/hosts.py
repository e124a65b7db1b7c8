"""Reading near the data: which hosts have a file, and which machines read from which.

Filesystems that keep files on the hosts of a cluster can say where. Of the parts of a source, then, each machine gets
those of one host, as far as this leaves all shards with about the same to read. Most filesystems do not say, as
those of object stores, which are as far from everybody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from squill.plan.layout import Layout
from squill.plan.nodes import FilePart, FileSource, Source

__all__ = ["HostsOf", "Nearby", "dealt_by_host", "hosts_of_splits"]

HostsOf = Callable[[str], Sequence[str]]
"""Return the hosts that have a file, the one that has most of it first; none where nobody knows."""

CHOICES = 3
"""So many hosts are named for a machine; files have as many copies."""


@dataclass(frozen=True, kw_only=True)
class Nearby:
    """How shards are arranged on machines, and who knows where files are."""

    layout: Layout
    hosts_of: HostsOf


def dealt_by_host(sizes: Sequence[int], hosts: Sequence[Sequence[str]], layout: Layout) -> list[list[int]]:
    """Return which items each shard gets: one after the other to the shard that has least, on a machine near it.

    Hosts have machines by the bytes that they have. An item whose nearby shards have their fair share already goes to
    the shard that has least, so none gets more than that and one item.

    Examples
    --------
    >>> dealt_by_host([1, 1, 1, 1], [["a"], ["a"], ["b"], ["b"]], Layout(shards=2))
    [[0, 1], [2, 3]]
    >>> dealt_by_host([1, 1, 1, 1, 1, 1], [["b"], ["a"], ["a"], ["a"], ["a"], ["b"]], Layout(shards=2))
    [[1, 2, 3], [0, 4, 5]]
    """
    near = _shards_by_host(sizes, hosts, layout)
    fair = sum(sizes) / layout.shards
    chosen: list[list[int]] = [[] for _ in range(layout.shards)]
    loads = [0] * layout.shards
    for number, size in enumerate(sizes):
        nearby = [shard for host in hosts[number] for shard in near.get(host, ()) if loads[shard] < fair]
        least = min(nearby or range(layout.shards), key=loads.__getitem__)
        chosen[least].append(number)
        loads[least] += size
    return chosen


def _shards_by_host(sizes: Sequence[int], hosts: Sequence[Sequence[str]], layout: Layout) -> dict[str, list[int]]:
    """Give machines to hosts one by one, each to the host that has most bytes for each machine it would have."""
    held: Counter[str] = Counter()
    for size, names in zip(sizes, hosts, strict=True):
        held.update(dict.fromkeys(names[:1], size))
    machines: Counter[str] = Counter()
    near: dict[str, list[int]] = {}
    for machine in range(layout.machines if held else 0):
        host = min(held, key=lambda name: (-held[name] / (machines[name] + 1), machines[name], name))
        machines[host] += 1
        near.setdefault(host, []).extend(layout.shards_of(machine))
    return near


def hosts_of_splits(splits: Iterable[Source]) -> list[str]:
    """Return the hosts that have most of what the shards of a machine read, the best first."""
    parts: list[FilePart] = [part for split in splits if isinstance(split, FileSource) for part in split.parts or ()]
    held = Counter(host for part in parts for host in part.hosts)
    return sorted(held, key=lambda host: (-held[host], host))[:CHOICES]
