"""Where rows have no time, what others wait for is read first."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

import squill as sq
from squill.engine.batch import Batch
from squill.engine.lookup import LookupOperator
from squill.plan.nodes import FrameSource
from squill.plan.reading_order import reading_order, table_port


def table(name: str, rows: int) -> sq.Stream:
    return sq.from_frame(pl.DataFrame({"k": range(rows), name: range(rows)}), start=None)


def names_of(stream: sq.Stream) -> list[str]:
    return [source.frame.columns[-1] for source in reading_order(stream.plan) if isinstance(source, FrameSource)]


def events(name: str) -> sq.Stream:
    return sq.from_frame(pl.DataFrame({"t": [1, 2], "k": [1, 2], name: [1, 2]}), start="t")


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: table("large", 9).join(table("small", 3), on="k"), ["small", "large"]),
        (lambda: table("small", 3).join(table("large", 9), on="k"), ["small", "large"]),
        (lambda: events("stream").join(table("table", 9), on="k"), ["table", "stream"]),
        (lambda: table("table", 9).join(events("stream"), on="k"), ["table", "stream"]),
        (lambda: table("asked", 9).where_exists(table("table", 9), on="k"), ["table", "asked"]),
        (lambda: events("one").select("k").union(events("two").select("k")), ["one", "two"]),
        (
            lambda: table("large", 99).join(table("middle", 20).join(table("small", 3), on="k"), on="k"),
            ["small", "middle", "large"],
        ),
    ],
)
def test_tables_are_read_before_what_streams_past_them(build: Callable[[], sq.Stream], expected: list[str]) -> None:
    assert names_of(build()) == expected


def test_plan_that_uses_a_stream_many_times_over_is_walked_once() -> None:
    stream = events("one")
    for _ in range(60):
        stream = stream.union(stream)
    assert names_of(stream) == ["one"]
    assert table_port(stream.plan) is None


@pytest.mark.parametrize("cores", [None, 1, 2])
@pytest.mark.parametrize("as_files", [False, True])
def test_rows_that_stream_past_a_table_do_not_wait_for_it(
    cores: int | None, as_files: bool, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """They would be held in memory, all of them."""
    waited = 0
    push = LookupOperator.push

    def counted(self: LookupOperator, batch: Batch, port: int = 0) -> None:
        nonlocal waited
        push(self, batch, port)
        waited += sum(map(len, self._waiting))

    monkeypatch.setattr(LookupOperator, "push", counted)
    frames = {
        "asking": pl.DataFrame({"k": [number % 500 for number in range(300_000)], "a": 1}),
        "asked": pl.DataFrame({"k": range(400), "b": 2}),
    }
    folder = tmp_path_factory.mktemp("tables")
    for name, frame in frames.items():
        frame.write_parquet(folder / f"{name}.parquet", row_group_size=20_000)
    if cores is None:
        streams = [
            sq.scan(folder / f"{name}.parquet", start=None) if as_files else sq.from_frame(frame, start=None)
            for name, frame in frames.items()
        ]
        answer = streams[0].join(streams[1], on="k").collect()
    else:
        with sq.local(cores=cores) as cluster:
            asking, asked = (
                cluster.scan(folder / f"{name}.parquet", start=None)
                if as_files
                else cluster.from_frame(frame, start=None)
                for name, frame in frames.items()
            )
            placed = asking.rekey("k").redistribute(), asked.rekey("k").redistribute()
            answer = placed[0].query(placed[1], lambda left, right: left.join(right, on="k")).collect()
    assert answer.height == 240_000
    assert waited == 0
