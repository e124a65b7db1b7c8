from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest

import squill as sq
from squill.engine.promises import PromiseCheck
from squill.errors import InputError
from squill.plan.nodes import Source


def check(frame: pl.DataFrame, pieces: list[int], **promises: object) -> None:
    """Check a frame cut at the given rows."""
    node = sq.from_frame(frame, start="t", **promises).plan  # type: ignore[arg-type]
    assert isinstance(node, Source)
    promise = PromiseCheck(node)
    bounds = [0, *pieces, frame.height]
    for low, high in pairwise(bounds):
        part = frame.slice(low, high - low)
        promise({name: part[name].rechunk() for name in part.columns}, low, "input")


CUTS = [[], [1], [2], [1, 2, 3]]
GOOD = pl.DataFrame({"t": [1, 2, 3, 4], "k": [None, "a", "a", "b"], "n": [4, 3, 3, 9]})


@pytest.mark.parametrize("pieces", CUTS)
def test_kept_promises_pass(pieces: list[int]) -> None:
    check(GOOD, pieces, sorted_by=["k", "t"], packed="k", unique=["t", "k"])


@pytest.mark.parametrize("pieces", CUTS)
@pytest.mark.parametrize(
    ("promise", "row"),
    [({"sorted_by": "n"}, 1), ({"packed": "n"}, 3), ({"unique": "k"}, 2), ({"sorted_by": ["k", "n"]}, 3)],
)
def test_broken_promises_name_the_row(pieces: list[int], promise: dict[str, object], row: int) -> None:
    frame = pl.DataFrame({"t": [1, 2, 3, 4], "k": ["a", "b", "b", "b"], "n": [4, 3, 5, 4]})
    with pytest.raises(InputError, match=rf"input 'input': row {row} "):
        check(frame, pieces, **promise)


def test_trust_checks_nothing() -> None:
    check(GOOD, [], sorted_by="n", unique="k", trust=True)


def test_a_null_end_breaks_a_promised_duration() -> None:
    stream = sq.from_frame({"t": [1, 2], "u": [3, None]}, start="t", end="u", duration=2)
    with pytest.raises(InputError, match="row 1 does not last 2 ticks"):
        stream.collect()
