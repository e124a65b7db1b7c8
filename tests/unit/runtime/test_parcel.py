"""How rows are cut into parcels for Spark's shuffle."""

from __future__ import annotations

from itertools import chain

import numpy as np
import polars as pl
import pytest

from squill.engine.batch import Batch
from squill.exchange.codec import decode
from squill.plan.schema import Schema
from squill.runtime.spark import parcel
from squill.runtime.spark.shuffle_task import _encoded_pieces

LIMIT = 4_000


@pytest.fixture(autouse=True)
def small_parcels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcel, "PARCEL_BYTES", LIMIT)


def pieces_of(texts: list[str]) -> list[list[str]]:
    """Return the texts by parcel, after a look at sizes and first rows."""
    times = np.arange(len(texts))
    batch = Batch(times, times + 1, {"x": pl.Series(texts, dtype=pl.String())})
    found: list[list[str]] = []
    for first, data in _encoded_pieces(batch, None):
        piece = decode(data, Schema({"x": pl.String()}))
        assert data.size <= LIMIT or len(piece) == 1
        assert piece.sync[0] == first == sum(map(len, found))
        found.append(piece.columns["x"].to_list())
    return found


def test_short_rows_are_one_parcel() -> None:
    assert len(pieces_of(["a"] * 20)) == 1


def test_long_texts_are_cut() -> None:
    texts = [f"{number}" * 1_500 for number in range(10)]
    pieces = pieces_of(texts)
    assert list(chain.from_iterable(pieces)) == texts
    assert max(map(len, pieces)) == 2


def test_one_long_text_among_short_ones_is_alone_in_the_end() -> None:
    texts = ["a", "b" * 20_000, *"cdefghij"]
    pieces = pieces_of(texts)
    assert list(chain.from_iterable(pieces)) == texts
    assert ["b" * 20_000] in pieces
