"""The loop of `detect`: instances of an automaton, moved by every event of their key.

Problem: a key has any number of matches in the making, and every event moves each of them along any number of
arcs. Idea: an *instance* is an entry of an arena: the position it is at (the element that took the last event),
the start of its first event, its registers. The instances of a key hang in a chain from its slot. An event takes
the chain apart and builds the next one from what its instances become; entries come from and go to a stack of free
ones. Entry 0 ends every chain and is itself the instance that has seen nothing: it stands at position 0 with the
first values of the registers.

What one step reads is a *unit*: an event, or all events of a key at an instant, chained by ``following``.

Registers that no function touches are *codes*: (place of the row that set it) · columns + (column), -1 before any.
The others are arrays in the tuple ``computed``, which only the three hooks `holds`, `update` and `write` look into;
a pattern with functions has hooks of its own, and the same loop is compiled around them.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

from squill.engine.kernels.fold_user import compile_beside, put
from squill.engine.kernels.jit import inlined, kernel

__all__ = ["detect", "expire", "link_simultaneous", "loop_with", "plain_loop_with"]

NONE = -1
ONE, ANY, NONE_OF = 0, 1, 2

# What is known of a slot: the first entry of its chain, how many there are, the last row of the instant + 1.
HEAD, COUNT, LAST_ROW = 0, 1, 2
SLOT_SIZE = 3

NEXT_ROW, FREE, STARTED, NEEDED = 0, 1, 2, 3
STATE_SIZE = 4
DONE, ARENA_FULL, OUTPUT_FULL = 0, 1, 2


@kernel
def link_simultaneous(sync, slot, slots, following, is_later):
    """Chain the rows that share instant and slot; all but the first of them are marked."""
    n = len(sync)
    low = 0
    while low < n:
        high = low + 1
        while high < n and sync[high] == sync[low]:
            high += 1
        if high == low + 1:
            following[low] = NONE
            is_later[low] = 0
        else:
            for i in range(low, high):
                last = slots[slot[i], LAST_ROW] - 1
                following[i] = NONE
                is_later[i] = 0
                if last != NONE:
                    following[last] = i
                    is_later[i] = 1
                slots[slot[i], LAST_ROW] = i + 1
            for i in range(low, high):
                slots[slot[i], LAST_ROW] = 0
        low = high


@kernel
def expire(expired, bound, within, slots, first, after, free, state, out):
    """Free the instances of these slots whose time is over at `bound`; write the slots that lose their last one."""
    n = 0
    for k in range(len(expired)):
        s = expired[k]
        entry = slots[s, HEAD]
        if entry == 0:
            continue
        head = 0
        count = 0
        while entry != 0:
            next_entry = after[entry]
            if first[entry] + within <= bound:
                free[state[FREE]] = entry
                state[FREE] += 1
            else:
                after[entry] = head
                head = entry
                count += 1
            entry = next_entry
        slots[s, HEAD] = head
        slots[s, COUNT] = count
        if head == 0:
            out[n] = s
            n += 1
    return n


# -- hooks: these are for patterns without functions --------------------------------------------------------


@inlined
def holds(p, row, a, t, computed):
    return True


@inlined
def update(p, row, a, b, t, computed):
    pass


@inlined
def write(b, out, computed):
    pass


# -- the loop -----------------------------------------------------------------------------------------------


@inlined
def accepts(p, i, a, t, following, flags, scope, condition, computed):
    """Whether element p takes the unit that begins with row i, for instance a."""
    if scope == ONE and following[i] != NONE:
        return False
    row = i
    while row != NONE:
        if (condition == NONE or flags[condition, row] != 0) and holds(p, row, a, t, computed):
            return scope != NONE_OF
        row = following[row]
    return scope == NONE_OF


@inlined
def take(p, i, a, b, spare, t, following, base, columns, first_update, end_update, registers, sources, codes, computed):
    """Make the registers of a, changed by the rows of the unit, those of b or of `spare`; return which."""
    source = a
    target = b
    row = i
    while True:
        for r in range(codes.shape[1]):
            codes[target, r] = codes[source, r]
        for u in range(first_update, end_update):
            codes[target, registers[u]] = (base + row) * columns + sources[u]
        update(p, row, source, target, t, computed)
        row = following[row]
        if row == NONE:
            return target
        source = target
        target = spare if target == b else b


@kernel
def detect(
    sync, slot, following, is_later, flags, base, columns, within, overlap, tables, state, slots, position, first,
    after, codes, free, out_time, out_first, out_slot, out_codes, start_time, start_slot, computed,
):  # fmt: skip
    """Move the instances of every row's slot; write a row for each that is then complete.

    ``flags[c, row]`` tells whether condition c is true of a row; times plus `within` do not overflow. Stops before
    a unit for which entries or output rows could run out (state[NEEDED] of them) and goes on when called again.
    Returns (code, rows written).
    """
    offsets, targets, is_accepting, scopes, conditions, update_offsets, registers, sources = tables
    widest = 0
    for p in range(len(offsets) - 1):
        widest = max(widest, offsets[p + 1] - offsets[p])
    n_out = 0
    code = DONE
    n = len(sync)
    i = state[NEXT_ROW]
    while i < n:
        if is_later[i] != 0:
            i += 1
            continue
        s = slot[i]
        needed = (slots[s, COUNT] + 1) * widest + 1
        if state[FREE] < needed or len(out_time) - n_out < needed:
            state[NEEDED] = needed
            code = ARENA_FULL if state[FREE] < needed else OUTPUT_FULL
            break
        t = sync[i]
        head = 0
        count = 0
        was_taken = False
        has_begun = False
        a = slots[s, HEAD]
        while True:
            is_fresh = a == 0
            if is_fresh and was_taken and not overlap:
                break
            if is_fresh or within == 0 or t < first[a] + within:
                begun = t if is_fresh else first[a]
                for k in range(offsets[position[a]], offsets[position[a] + 1]):
                    p = targets[k]
                    if not accepts(p, i, a, t, following, flags, scopes[p], conditions[p], computed):
                        continue
                    top = state[FREE] - 1
                    b = free[top]
                    spare = free[top - 1]
                    made = take(
                        p, i, a, b, spare, t, following, base, columns, update_offsets[p], update_offsets[p + 1],
                        registers, sources, codes, computed,
                    )  # fmt: skip
                    if made != b:
                        free[top - 1] = b
                    was_taken = True
                    if is_accepting[p] != 0:
                        out_time[n_out] = t
                        out_first[n_out] = begun
                        out_slot[n_out] = s
                        for r in range(codes.shape[1]):
                            out_codes[n_out, r] = codes[made, r]
                        write(made, n_out, computed)
                        n_out += 1
                    if offsets[p] == offsets[p + 1]:
                        free[top] = made
                    else:
                        state[FREE] = top
                        position[made] = p
                        first[made] = begun
                        after[made] = head
                        head = made
                        count += 1
                        has_begun = has_begun or is_fresh
            if is_fresh:
                break
            next_entry = after[a]
            free[state[FREE]] = a
            state[FREE] += 1
            a = next_entry
        slots[s, HEAD] = head
        slots[s, COUNT] = count
        if has_begun and within > 0:
            start_time[state[STARTED]] = t
            start_slot[state[STARTED]] = s
            state[STARTED] += 1
        i += 1
    state[NEXT_ROW] = i
    return code, n_out


# -- the loop with other hooks ------------------------------------------------------------------------------

Function = Callable[..., Any]
_PARTS = {"accepts": accepts, "take": take}


def _moved(function: Any, namespace: dict[str, Any]) -> Function:
    """Return the Python function with other globals."""
    plain = getattr(function, "py_func", function)
    # The file's name is what compiled code is kept under.
    code = plain.__code__.replace(co_filename=f"{namespace.get('__name__', 'squill_pattern')}.py")
    return types.FunctionType(code, namespace, plain.__name__)


def _around(namespace: dict[str, Any], compiled: Callable[[Function], Function]) -> Function:
    """Return the loop over the hooks that the namespace holds."""
    namespace.update({name: value for name, value in globals().items() if name.isupper() and type(value) is int})
    for name, part in _PARTS.items():
        namespace[name] = compiled(_moved(part, namespace))
    return _moved(detect, namespace)


def loop_with(hooks: str, functions: Mapping[str, Function]) -> Function:
    """Return the loop compiled around the hooks in the text, which call these functions by name."""
    return compile_beside(functions, hooks, lambda namespace: _around(namespace, inlined))


def plain_loop_with(hooks: str, functions: Mapping[str, Function]) -> Function:
    """Return the same loop as plain Python, which takes any values."""
    namespace: dict[str, Any] = {"put": put, "inlined": lambda function: function, **functions}
    exec(compile(hooks, "squill_pattern.py", "exec"), namespace)  # noqa: S102 (our own text)
    return _around(namespace, lambda function: function)
