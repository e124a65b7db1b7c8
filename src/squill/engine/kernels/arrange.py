"""The order in which changes of ordered multisets are best applied: slot by slot.

The slots of a fold know nothing of each other. So the changes may be put together by slot, over all instants of a
call, and a slot's multiset is changed and read while it is in the cache: what costs is waiting for memory. Only
the order of each slot's changes and cells must stay.
"""

from __future__ import annotations

from typing import Any

from numpy import uint64 as u  # numba wraps signed indices, which takes as long as the load

from squill.engine.kernels.jit import inlined, kernel
from squill.engine.kernels.memory import prefetch_word

__all__ = ["CELL", "CELL_SIZE", "CHANGE_SIZE", "END", "GROUP_SIZE", "OF_SLOT", "arrange"]

Array = Any

# A change is two words: slot << 1 | whether it is an insert, and the code. A cell is four half words: which it is, the
# number of changes that it comes after, and its slot. Each is written to a place of its own, so it lies together.
CHANGE_SIZE = 2
CELL_SIZE = 4
CELL, END, OF_SLOT = 0, 1, 2

# A group is what is known of one slot: how many changes and cells it has, later where its next ones go.
SLOT, CHANGES, CELLS = 0, 1, 2
GROUP_SIZE = 4
AHEAD = 16


@inlined
def group_for(slot: int, group_of: Array, groups: Array, n_groups: int) -> int:
    """Return the group of a slot; a new one is the last, number `n_groups`."""
    group: int = group_of[u(slot)]
    if group < 0 or group >= n_groups or groups[u(GROUP_SIZE * group + SLOT)] != slot:
        group = n_groups
        group_of[u(slot)] = group
        groups[u(GROUP_SIZE * group + SLOT)] = slot
        groups[u(GROUP_SIZE * group + CHANGES)] = 0
        groups[u(GROUP_SIZE * group + CELLS)] = 0
    return group


@kernel
def arrange(
    d_slot: Array, d_sign: Array, d_row: Array, n_deltas: int, i_delta: Array, i_cell: Array, n_instants: int,
    c_slot: Array, c_alive: Array, codes: Array, valid: Array, across_instants: bool, group_of: Array, groups: Array,
    d_group: Array, c_group: Array, changes: Array, cells: Array,
) -> int:  # fmt: skip
    """Write the changes of codes, and the cells, in the order in which they are best taken.

    A cell is to be read once the changes before its end are applied. Without `across_instants` the cells
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
            prefetch_word(group_of, c_slot[u(min(k + AHEAD, last - 1))])
            group = group_for(c_slot[u(k)], group_of, groups, n_groups)
            n_groups = max(n_groups, group + 1)
            groups[u(GROUP_SIZE * group + CELLS)] += 1
            c_group[u(k)] = group
        for k in range(d, stop):
            prefetch_word(group_of, d_slot[u(min(k + AHEAD, stop - 1))])
            group = group_for(d_slot[u(k)], group_of, groups, n_groups)
            n_groups = max(n_groups, group + 1)
            groups[u(GROUP_SIZE * group + CHANGES)] += valid[u(d_row[u(k)])]
            d_group[u(k)] = group
        for group in range(n_groups):
            n_changes, n_cells = groups[u(GROUP_SIZE * group + CHANGES)], groups[u(GROUP_SIZE * group + CELLS)]
            groups[u(GROUP_SIZE * group + CHANGES)] = n
            groups[u(GROUP_SIZE * group + CELLS)] = m
            n += n_changes
            m += n_cells
        while i < until:
            stop = i_delta[i] if i < n_instants else n_deltas
            while d < stop:
                row = d_row[u(d)]
                if valid[u(row)]:
                    at = GROUP_SIZE * d_group[u(d)] + CHANGES
                    change = CHANGE_SIZE * groups[u(at)]
                    groups[u(at)] += 1
                    changes[u(change)] = d_slot[u(d)] << 1 | (d_sign[u(d)] > 0)
                    changes[u(change + 1)] = codes[u(row)]
                d += 1
            last = i_cell[i] if i < n_instants else c
            while c < last:
                at = GROUP_SIZE * c_group[u(c)]
                cell = CELL_SIZE * groups[u(at + CELLS)]
                groups[u(at + CELLS)] += 1
                cells[u(cell + CELL)] = c
                cells[u(cell + END)] = groups[u(at + CHANGES)]
                cells[u(cell + OF_SLOT)] = c_slot[u(c)]
                c += 1
            i += 1
    return n
