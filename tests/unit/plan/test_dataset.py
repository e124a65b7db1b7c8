from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from squill.errors import SourceReadError
from squill.plan.build.sources import stored_source
from squill.plan.dataset import Dataset, ShardFile, find_dataset
from squill.plan.layout import Layout
from squill.plan.nodes import Select
from squill.plan.nodes.movement import Split
from squill.plan.placement import Placement, placement_of
from squill.plan.schema import Schema
from squill.time import INFINITY


def dataset(**changes: object) -> Dataset:
    values = {
        "name": "clicks",
        "path": "/data/clicks",
        "format": "parquet",
        "version": "abc",
        "created": "2026-01-01T00:00:00+00:00",
        "columns": Schema(
            {"start": pl.Datetime("us", "UTC"), "end": pl.Datetime("us", "UTC"), "k": pl.Enum(["x", "y"])}
        ),
        "timed": True,
        "keys": ("k",),
        "placed_by": ("k",),
        "shards": 2,
        "files": (
            ShardFile(shard=0, name="a", rows=3, bytes=10, low=0, high=1_000_000),
            ShardFile(shard=1, name="b", rows=0, bytes=5),
        ),
        "lineage": "a\nb",
        **changes,
    }
    return Dataset(**values)  # type: ignore[arg-type]


def test_manifest_comes_back_as_it_was() -> None:
    assert Dataset.from_json(dataset().to_json(), "/data/clicks") == dataset()


def test_manifest_reads_well() -> None:
    shown = json.loads(dataset().to_json())
    assert shown["time_range"] == ["1970-01-01 00:00:00", "1970-01-01 00:00:01"]
    assert shown["rows"] == 3
    assert shown["lineage"] == ["a", "b"]


def test_endless_rows_have_an_endless_range() -> None:
    endless = dataset(files=(ShardFile(shard=0, name="a", rows=1, bytes=1, low=0, high=INFINITY),))
    assert endless.time_range == ("1970-01-01 00:00:00", "infinity")


def test_hash_of_another_version_says_nothing_of_placement() -> None:
    text = dataset().to_json().replace('"hash_version": 1', '"hash_version": 2')
    assert Dataset.from_json(text, "/data/clicks").placed_by is None


def test_other_folders_are_no_datasets(tmp_path: Path) -> None:
    assert find_dataset(tmp_path) is None
    assert find_dataset([tmp_path]) is None


def test_manifest_without_a_field_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_squill").mkdir()
    (tmp_path / "_squill" / "manifest.json").write_text('{"squill_dataset": 1}')
    with pytest.raises(SourceReadError, match="cannot be read: KeyError"):
        find_dataset(tmp_path)


@pytest.mark.parametrize("cores", [1, 2])
def test_placement_is_known_where_as_many_shards_read(cores: int) -> None:
    source = stored_source(dataset(), None)
    layout = Layout(shards=2, cores=cores)
    assert placement_of(Split(parent=source, layout=layout)) == Placement.hashed(("k",), layout)
    assert placement_of(Split(parent=source, layout=Layout(shards=3))) is None
    assert placement_of(Split(parent=stored_source(dataset(placed_by=None), None), layout=layout)) is None


def test_placement_is_forgotten_with_its_column() -> None:
    source = Split(parent=stored_source(dataset(), None), layout=Layout(shards=2))
    assert placement_of(Select(parent=source, columns=())) is None
