"""The tables of the catalog; the same on every database."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Integer, LargeBinary, MetaData, String, Table, Text, UniqueConstraint
from sqlalchemy.types import BigInteger

__all__ = ["METADATA", "VERSION", "catalog_version", "datasets", "errors", "files", "lineage", "runs"]

VERSION = 2
METADATA = MetaData()

catalog_version = Table("squill_catalog", METADATA, Column("version", Integer, primary_key=True))

lineage = Table(
    "squill_lineage",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("explain", Text, nullable=False),
    Column("inputs", Text, nullable=False),
    # Without the bytes nobody can run it again; then `reason` says why they are not there.
    Column("plan", LargeBinary),
    Column("reason", Text),
)

datasets = Table(
    "squill_datasets",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", String(200), nullable=False),
    Column("place", String(20), nullable=False),
    Column("path", Text, nullable=False),
    Column("owner", String(200), nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("created", String(40), nullable=False),
    Column("manifest", Text, nullable=False),
    Column("lineage_id", ForeignKey(lineage.c.id), nullable=False),
    UniqueConstraint("name"),
)

files = Table(
    "squill_files",
    METADATA,
    Column("dataset_id", ForeignKey(datasets.c.id), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("shard", Integer, nullable=False),
    Column("path", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
)

runs = Table(
    "squill_runs",
    METADATA,
    # The order in which runs began; people know them by their ids.
    Column("number", Integer, primary_key=True),
    Column("id", String(40), nullable=False),
    Column("action", String(40), nullable=False),
    Column("dataset", Text),
    Column("owner", String(200), nullable=False),
    Column("state", String(20), nullable=False),
    Column("started", String(40), nullable=False),
    Column("ended", String(40)),
    Column("rows", BigInteger),
    Column("plan", Text, nullable=False),
    Column("folder", Text),
    UniqueConstraint("id"),
)

errors = Table(
    "squill_errors",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("run_number", ForeignKey(runs.c.number), nullable=False),
    Column("kind", String(100), nullable=False),
    Column("message", Text, nullable=False),
    Column("at", String(40), nullable=False),
)
