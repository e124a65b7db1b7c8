from __future__ import annotations

from pathlib import Path

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

import squill as sq
from squill.plan.fragments import sources_of
from squill.plan.layout import Layout
from squill.plan.nodes import FileSource
from squill.runtime.hosts import Nearby, dealt_by_host, hosts_of_splits
from squill.runtime.splits import splits_of

FILES = 8


def host_of(path: str) -> tuple[str, ...]:
    """As a filesystem would say: the files of even numbers are on one host, the others on another."""
    return ("even",) if int(Path(path).stem) % 2 == 0 else ("odd",)


def files(folder: Path) -> FileSource:
    for number in range(FILES):
        frame = pl.DataFrame({"t": range(number * 10, number * 10 + 10), "a": [number] * 10})
        frame.write_parquet(folder / f"{number}.parquet")
    (source,) = sources_of(sq.scan(folder, start="t").plan)
    assert isinstance(source, FileSource)
    return source


def read(split: object) -> list[int]:
    assert isinstance(split, FileSource)
    return [int(Path(part.path).stem) for part in split.parts or ()]


def test_a_machine_reads_the_files_of_one_host(tmp_path: Path) -> None:
    layout = Layout(shards=4, cores=2)
    parts = splits_of(files(tmp_path), 4, Nearby(layout=layout, hosts_of=host_of))
    assert [read(part) for part in parts] == [[0, 4], [2, 6], [1, 5], [3, 7]]
    assert [hosts_of_splits(parts[shard] for shard in layout.shards_of(machine)) for machine in (0, 1)] == [
        ["even"],
        ["odd"],
    ]


def test_files_of_unknown_hosts_are_dealt_out_as_ever(tmp_path: Path) -> None:
    source = files(tmp_path)
    assert splits_of(source, 3, Nearby(layout=Layout(shards=3), hosts_of=lambda path: ())) == splits_of(source, 3)


def test_host_without_a_machine_leaves_its_files_to_others(tmp_path: Path) -> None:
    (part,) = splits_of(files(tmp_path), 1, Nearby(layout=Layout(shards=1), hosts_of=host_of))
    assert read(part) == list(range(FILES))
    assert hosts_of_splits([part]) == ["even", "odd"]


def test_rows_without_times_stay_in_order_and_know_their_hosts(tmp_path: Path) -> None:
    files(tmp_path)
    (source,) = sources_of(sq.scan(tmp_path).plan)
    parts = splits_of(source, 2, Nearby(layout=Layout(shards=2), hosts_of=lambda path: (Path(path).stem,)))
    assert [read(part) for part in parts] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert hosts_of_splits(parts[1:]) == ["4", "5", "6"]


HOSTS = st.lists(st.sampled_from("abcd"), max_size=3, unique=True)


@given(st.lists(st.tuples(st.integers(0, 100), HOSTS), max_size=30), st.integers(1, 9), st.integers(1, 3))
def test_every_item_goes_to_one_shard_and_none_gets_too_much(
    items: list[tuple[int, list[str]]], shards: int, cores: int
) -> None:
    sizes = [size for size, _ in items]
    chosen = dealt_by_host(sizes, [hosts for _, hosts in items], Layout(shards=shards, cores=cores))
    assert sorted(number for numbers in chosen for number in numbers) == list(range(len(items)))
    most = sum(sizes) / shards + max(sizes, default=0)
    assert all(sum(sizes[number] for number in numbers) <= most for numbers in chosen)
