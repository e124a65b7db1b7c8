"""Pattern → automaton, after Glushkov: a position per element, and one, 0, before any event.

An arc leads from position to position and is taken with an event that the element of its target accepts. So there
are no empty moves, and elements are all that distinguishes two matches over the same events.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from squill.plan.nodes.patterns import PatternTree

__all__ = ["Automaton"]

Positions = tuple[int, ...]


@dataclass(frozen=True)
class _Part:
    """A piece of the pattern: whether no event is enough, and the positions it may begin and end with."""

    is_nullable: bool
    first: Positions
    last: Positions


_NOTHING = _Part(True, (), ())


@dataclass
class Automaton:
    """``follow[p]`` are the positions after p in order, ``accepting`` those at which a match is complete.

    Examples
    --------
    >>> tree = PatternTree("seq", (PatternTree("element", element=0), PatternTree("star", (
    ...     PatternTree("element", element=1),))))
    >>> automaton = Automaton(tree, 2)
    >>> automaton.follow, sorted(automaton.accepting)
    ([(1,), (2,), (2,)], [1, 2])
    """

    tree: PatternTree
    elements: int
    follow: list[Positions] = field(init=False)
    accepting: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.follow = [() for _ in range(self.elements + 1)]
        whole = self._part(self.tree)
        self.follow[0] = whole.first
        self.accepting = frozenset(whole.last)

    def _part(self, tree: PatternTree) -> _Part:
        if tree.kind == "element":
            return _Part(False, (tree.element + 1,), (tree.element + 1,))
        parts = [self._part(part) for part in tree.parts]
        if tree.kind == "alt":
            first = tuple(p for part in parts for p in part.first)
            return _Part(any(part.is_nullable for part in parts), first, tuple(p for part in parts for p in part.last))
        whole = _NOTHING
        for part in parts:
            whole = self._sequence(whole, part)
        if tree.kind in ("star", "plus"):
            self._lead(whole.last, whole.first)
        return _Part(whole.is_nullable or tree.kind in ("star", "opt"), whole.first, whole.last)

    def _sequence(self, left: _Part, right: _Part) -> _Part:
        self._lead(left.last, right.first)
        first = left.first + right.first if left.is_nullable else left.first
        last = left.last + right.last if right.is_nullable else right.last
        return _Part(left.is_nullable and right.is_nullable, first, last)

    def _lead(self, sources: Positions, targets: Positions) -> None:
        for source in sources:
            self.follow[source] = tuple(sorted({*self.follow[source], *targets}))
