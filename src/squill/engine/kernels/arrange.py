"""The order in which changes of ordered multisets are best applied: slot by slot.

The slots of a fold know nothing of each other. So the changes may be put together by slot, over all instants of a
call, and a slot's multiset is changed and read while it is in the cache: what costs is waiting for memory. Only
the order of each slot's changes and cells must stay.
"""

from __future__ import annotations

from typing import Any

from squill.engine.kernels.jit import inlined, kernel
from squill.engine.kernels.memory import prefetch_word

__all__ = ["GROUP_SIZE", "arrange"]

Array = Any

# A group is what is known of one slot: how many changes and cells it has, later where its next ones go.
SLOT, CHANGES, CELLS = 0, 1, 2
GROUP_SIZE = 4
AHEAD = 16


@inlined
def group_for(slot: int, group_of: Array, groups: Array, n_groups: int) -> int:
    """Return the group of a slot; a new one is the last, number `n_groups`."""
    group: int = group_of[slot]
    if group < 0 or group >= n_groups or groups[group, SLOT] != slot:
        group = n_groups
        group_of[slot] = group
        groups[group, SLOT] = slot
        groups[group, CHANGES] = 0
        groups[group, CELLS] = 0
    return group


@kernel
def arrange(
    d_slot: Array, d_sign: Array, d_row: Array, n_deltas: int, i_delta: Array, i_cell: Array, n_instants: int,
    c_slot: Array, c_alive: Array, codes: Array, valid: Array, across_instants: bool, group_of: Array, groups: Array,
    d_group: Array, c_group: Array, slots: Array, signs: Array, changes: Array, ends: Array, order: Array,
) -> int:  # fmt: skip
    """Write the changes of codes, and the cells, in the order in which they are best taken.

    Cell order[j] is to be read once the changes below ends[j] are applied. Without `across_instants` the cells
    stay in order, and changes are put together inside each instant only. `group_of` has room for every slot,
    `groups` for every delta and cell; these, `d_group` and `c_group` may hold anything. Returns how many
    changes there are.
    """
    n = m = d = c = i = 0
    while i <= n_instants:
        until = n_instants + 1 if across_instants else i + 1
        stop = n_deltas if until > n_instants else i_delta[until - 1]
        last = i_cell[min(until, n_instants) - 1] if n_instants > 0 else c
        n_groups = 0
        for k in range(c, last):  # first, so that groups are in the order of cells
            prefetch_word(group_of, c_slot[min(k + AHEAD, last - 1)])
            group = group_for(c_slot[k], group_of, groups, n_groups)
            n_groups = max(n_groups, group + 1)
            groups[group, CELLS] += 1
            c_group[k] = group
        for k in range(d, stop):
            prefetch_word(group_of, d_slot[min(k + AHEAD, stop - 1)])
            group = group_for(d_slot[k], group_of, groups, n_groups)
            n_groups = max(n_groups, group + 1)
            groups[group, CHANGES] += valid[d_row[k]]
            d_group[k] = group
        for group in range(n_groups):
            n_changes, n_cells = groups[group, CHANGES], groups[group, CELLS]
            groups[group, CHANGES] = n
            groups[group, CELLS] = m
            n += n_changes
            m += n_cells
        while i < until:
            stop = i_delta[i] if i < n_instants else n_deltas
            while d < stop:
                row = d_row[d]
                if valid[row]:
                    group = d_group[d]
                    at = groups[group, CHANGES]
                    groups[group, CHANGES] = at + 1
                    slots[at] = d_slot[d]
                    signs[at] = d_sign[d]
                    changes[at] = codes[row]
                d += 1
            last = i_cell[i] if i < n_instants else c
            while c < last:
                group = c_group[c]
                at = groups[group, CELLS]
                groups[group, CELLS] = at + 1
                order[at] = c
                ends[at] = groups[group, CHANGES]
                c += 1
            i += 1
    return n
