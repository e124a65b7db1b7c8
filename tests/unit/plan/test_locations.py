"""Files that are not local paths."""

from __future__ import annotations

import datetime as dt
import errno
import importlib
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import squill as sq
from squill.errors import ClusterError, SourceReadError
from squill.plan.build.files import unreadable
from squill.plan.build.locations import matching_files
from squill.runtime import file_splits

FRAME = pl.DataFrame({"t": range(40), "k": ["a", "b"] * 20, "x": [n / 8 for n in range(40)]})


class Stored:
    """A filesystem of the shape that fsspec's have: files in memory."""

    protocol = "stored"

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.opened: list[str] = []

    def info(self, path: str) -> dict[str, Any]:
        if path in self.files:
            return {"name": path, "size": len(self.files[path]), "type": "file"}
        if self.isdir(path):
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def isfile(self, path: str) -> bool:
        return path in self.files

    def isdir(self, path: str) -> bool:
        return any(name.startswith(f"{path}/") for name in self.files)

    def exists(self, path: str) -> bool:
        return self.isfile(path) or self.isdir(path)

    def find(self, path: str, **_options: object) -> dict[str, dict[str, Any]]:
        return {name: self.info(name) for name in self.files if name.startswith(f"{path}/")}

    def open(self, path: str, mode: str = "rb") -> io.BytesIO:
        assert mode == "rb"
        self.opened.append(path)
        return io.BytesIO(self.files[path])


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> Stored:
    """Stands for fsspec, which need not be installed, with one scheme."""
    system = Stored()

    def url_to_fs(address: str) -> tuple[Stored, str]:
        scheme, _, path = address.partition("://")
        if scheme != "stored":
            raise ValueError(f"Protocol not known: {scheme}")
        return system, f"/{path}"

    module = ModuleType("fsspec.core")
    vars(module)["url_to_fs"] = url_to_fs
    monkeypatch.setitem(sys.modules, "fsspec", ModuleType("fsspec"))
    monkeypatch.setitem(sys.modules, "fsspec.core", module)
    return system


def written(kind: str, frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    match kind:
        case "parquet":
            frame.write_parquet(buffer, row_group_size=5)
        case "ipc":
            frame.write_ipc(buffer, record_batch_size=5)
        case "csv":
            frame.write_csv(buffer)
        case _:
            frame.write_ndjson(buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["parquet", "ipc", "csv", "ndjson"])
def test_files_elsewhere_are_read_whole_and_in_parts(
    stored: Stored, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_splits, "LEAST_BYTES", 64)
    stored.files = {f"/data/{n}.{kind}": written(kind, FRAME[20 * n : 20 * n + 20]) for n in range(2)}
    expected = sq.from_frame(FRAME, start="t").where(sq.col("x") < 4).collect()
    for address in ("stored://data", f"stored://data/*.{kind}", f"stored://data/[01].{kind}"):
        stream = sq.scan(address, start="t", format=kind)
        assert stream.where(sq.col("x") < 4).collect().equals(expected)
    with sq.local(3) as cluster:
        sharded = cluster.scan("stored://data", start="t", format=kind)
        assert sharded.query(lambda s: s.where(sq.col("x") < 4)).collect().equals(expected)


def test_globs_stay_inside_a_name_but_for_two_stars(stored: Stored) -> None:
    stored.files = {"/d/a.csv": b"", "/d/e/b.csv": b"", "/d/e/f/c.csv": b"", "/d/e/c.txt": b""}
    assert matching_files("stored://d/*.csv", [".csv"]) == ["stored://d/a.csv"]
    assert matching_files("stored://d/*/*.csv", [".csv"]) == ["stored://d/e/b.csv"]
    assert matching_files("stored://d/**/*.csv", [".csv"]) == [
        "stored://d/a.csv", "stored://d/e/b.csv", "stored://d/e/f/c.csv",
    ]  # fmt: skip
    assert matching_files("stored://d/e", [".csv"]) == ["stored://d/e/b.csv", "stored://d/e/f/c.csv"]
    assert matching_files("stored://d/?.csv", [".csv"]) == ["stored://d/a.csv"]
    assert matching_files("stored://nowhere/*.csv", [".csv"]) == []


HIDDEN = ["_temporary/0/task/a.csv", ".a.csv", "_a.csv", "x/_delta_log/a.csv", "x/.staging/a.csv"]
SHOWN = ["_year=2024/a.csv", "a.csv", "x/a_.csv"]


def test_folders_do_not_show_what_others_hide_in_them(stored: Stored, tmp_path: Path) -> None:
    stored.files = {f"/d/_e/{name}": b"" for name in [*HIDDEN, *SHOWN]}
    assert matching_files("stored://d/_e", [".csv"]) == [f"stored://d/_e/{name}" for name in SHOWN]
    for name in [*HIDDEN, *SHOWN]:
        (tmp_path / "_e" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "_e" / name).touch()
    assert matching_files(str(tmp_path / "_e"), [".csv"]) == [str(tmp_path / "_e" / name) for name in SHOWN]
    # Who names such a file means it.
    assert len(matching_files(str(tmp_path / "_e/_temporary/0/task/*.csv"), [".csv"])) == 1


def test_addresses_of_local_files_are_their_paths(tmp_path: Path) -> None:
    FRAME.write_parquet(tmp_path / "a b.parquet")
    for address in (f"file://{tmp_path}", f"file://{tmp_path}/*.parquet", f"file://{tmp_path}/a%20b.parquet"):
        assert matching_files(address, [".parquet"]) == [str(tmp_path / "a b.parquet")]
        assert sq.scan(address, start="t").collect().height == 40


@pytest.mark.parametrize("name", ["a?b", "a[1]", "a#b", "a%20b", "a b"])
def test_names_elsewhere_may_hold_what_means_something_in_addresses(stored: Stored, name: str) -> None:
    stored.files = {f"/{name}/year=2024/{name}.csv": written("csv", FRAME)}
    assert sq.scan(f"stored://{name}/year=2024/{name}.csv").collect().equals(FRAME)
    for address in (f"stored://{name}", f"STORED://{name}", "stored://a*/*/*.csv", "stored://a*/year=*"):
        assert sq.scan(address).collect().equals(FRAME.with_columns(year=pl.lit(2024, pl.Int64)))


def test_unknown_schemes_are_named(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stored.files == {}
    with pytest.raises(SourceReadError, match=r"neither pyarrow nor fsspec .* 'nope://a' \(nope://\): Protocol"):
        sq.scan("nope://a")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(SourceReadError, match=r"'nope://a' \(nope://\), and fsspec is not installed"):
        sq.scan("nope://a")


def test_nothing_found_elsewhere_is_said_as_for_local_files(stored: Stored) -> None:
    stored.files = {"/d/a.csv": b"t\n1\n"}
    with pytest.raises(SourceReadError, match=r"'stored://d/\*.parquet' matches no file"):
        sq.scan("stored://d/*.parquet")


def test_a_file_elsewhere_that_is_not_whole_is_named(stored: Stored) -> None:
    stored.files = {"/d/a.parquet": written("parquet", FRAME)[:-9]}
    with pytest.raises(SourceReadError, match=r"'stored://d/a.parquet' cannot be read as parquet"):
        sq.scan("stored://d/a.parquet", start="t")


def test_fsspec_itself() -> None:
    fsspec = importlib.import_module("fsspec")

    with fsspec.open("memory://squill/a.parquet", "wb") as file:
        file.write(written("parquet", FRAME))
    assert sq.scan("memory://squill/*.parquet", start="t").collect().height == 40
    assert matching_files("memory://", [".parquet"]) == ["memory://squill/a.parquet"]


class Web(Stored):
    """A filesystem like that of http: paths are whole addresses, nothing is listed, lengths may be unknown."""

    size_is_known = True

    def info(self, path: str) -> dict[str, Any]:
        found = super().info(path)
        return found if self.size_is_known else {**found, "size": None}

    def isdir(self, path: str) -> bool:
        assert path
        return False

    def open(self, path: str, mode: str = "rb") -> io.BytesIO:
        file = super().open(path, mode)
        return file if self.size_is_known else Flowing(file.getvalue())


class Flowing(io.BytesIO):
    """What comes over a connection, once."""

    size = None

    def seek(self, _offset: int, _whence: int = 0) -> int:
        raise ValueError("cannot seek")


@pytest.fixture
def web(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> Web:
    assert not stored.files
    system = Web()
    monkeypatch.setattr(sys.modules["fsspec.core"], "url_to_fs", lambda address: (system, address))
    return system


@pytest.mark.parametrize("size_is_known", [True, False])
@pytest.mark.parametrize("name", ["a", "a.{kind}", "a b%20c.{kind}?token=1&x=[2]"])
@pytest.mark.parametrize("kind", ["parquet", "ipc", "csv", "ndjson"])
def test_files_of_filesystems_that_list_nothing_are_read(
    web: Web, kind: str, name: str, *, size_is_known: bool
) -> None:
    web.size_is_known = size_is_known
    address = f"web://host/{name.format(kind=kind)}"
    web.files = {address: written(kind, FRAME)}
    expected = sq.from_frame(FRAME, start="t").where(sq.col("x") < 4).collect()
    stream = sq.scan(address, start="t", format=kind).where(sq.col("x") < 4)
    assert stream.collect().equals(expected)
    with sq.local(2) as cluster:
        assert stream.collect(on=cluster).equals(expected)
    with pytest.raises(SourceReadError, match=r"matches no file\nHint: .* where folders are not listed"):
        sq.scan("web://host/*.csv")


@pytest.mark.parametrize("step", ["info", "isfile", "open"])
@pytest.mark.parametrize("error", [RuntimeError("no answer"), PermissionError("no answer"), KeyError("no answer")])
def test_what_goes_wrong_with_a_filesystem_is_an_error_of_the_file(
    web: Web, monkeypatch: pytest.MonkeyPatch, step: str, error: Exception
) -> None:
    web.files = {"web://host/a.csv": b"t\n1\n"}
    monkeypatch.setattr(web, step, refusing(getattr(web, step), "a.csv", error=error))
    with pytest.raises(SourceReadError, match=r"scan: 'web://host/a.csv' cannot be .*no answer"):
        sq.scan("web://host/a.csv").collect()


GLOBS = [
    "*", "*.csv", "**", "**/*", "**/*.csv", "**/", "*/", "*/*", "d*/**/*.csv", "?.csv", "[[]1].csv", ".*.csv", "d/.x/*",
    "_*", "_*/", "*year=*", "d?a.csv", "d[!x]a.csv", "*/*/*", "**/d/**", "**/**/a.csv", "e.csv", "d/_t",
]  # fmt: skip


@pytest.mark.parametrize("pattern", GLOBS)
def test_globs_mean_elsewhere_what_they_mean_here(stored: Stored, tmp_path: Path, pattern: str) -> None:
    names = [
        "a.csv", ".h.csv", "_u.csv", "d/a.csv", "d/.x/b.csv", "d/_t/c.csv", "d/e/f/g.csv", "d/n.txt", "year=1/a.csv",
        "_year=2/b.csv", "[1].csv", "e.csv/in.csv",
    ]  # fmt: skip
    stored.files = {f"/d/{name}": b"" for name in names}
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    here = [os.path.relpath(path, tmp_path) for path in matching_files(f"{tmp_path}/{pattern}", [".csv"])]
    there = [path.removeprefix("stored://d/") for path in matching_files(f"stored://d/{pattern}", [".csv"])]
    assert there == here
    assert len(set(here)) == len(here)


@pytest.mark.parametrize("kind", ["parquet", "ipc"])
@pytest.mark.parametrize(
    "column",
    [
        pl.Series("", [1] * 40),
        pl.Series("wide", [2**100] * 40, pl.Int128()),
        pl.Series("listed", [["a"]] * 40, pl.List(pl.Enum(["a"]))),
    ],
    ids=lambda column: column.name,
)
def test_columns_that_arrow_renames_or_cannot_hold_are_read_elsewhere_too(
    stored: Stored, tmp_path: Path, kind: str, column: pl.Series
) -> None:
    frame = FRAME.with_columns(column)
    stored.files = {f"/d/a.{kind}": written(kind, frame)}
    (tmp_path / f"a.{kind}").write_bytes(stored.files[f"/d/a.{kind}"])
    expected = sq.from_frame(frame, start="t").collect()
    with sq.local(2) as cluster:
        for place in ("stored://d", tmp_path):
            for start in ("t", None):
                for on in (None, cluster):
                    found = sq.scan(place, start=start).collect(on=on)
                    assert found.select(column.name).equals(expected.select(column.name))


def test_types_that_arrow_reads_otherwise_are_those_of_local_files(stored: Stored, tmp_path: Path) -> None:
    days = pa.array([dt.date(2024, 1, 1)] * 40, pa.date64())
    pq.write_table(pa.table({"t": range(40), "day": days}), tmp_path / "a.parquet", row_group_size=5)
    stored.files = {"/d/a.parquet": (tmp_path / "a.parquet").read_bytes()}
    expected = sq.scan(tmp_path, start="t").collect()
    with sq.local(2) as cluster:
        for on in (None, cluster):
            assert sq.scan("stored://d", start="t").collect(on=on).equals(expected)


def refusing(step: Callable[..., Any], *names: str, error: Exception | None = None) -> Callable[..., Any]:
    """Return a function of a path that may not look at some, as where one has no right to; root has it everywhere."""

    def refuse(path: Any, *given: Any, **named: Any) -> Any:
        if Path(path).name in names:
            raise error or PermissionError(errno.EACCES, "Permission denied", str(path))
        return step(path, *given, **named)

    return refuse


def test_a_folder_that_cannot_be_read_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("open", "closed", "_hidden"):
        (tmp_path / name).mkdir()
        FRAME.write_parquet(tmp_path / name / "a.parquet")
    monkeypatch.setattr(os, "scandir", refusing(os.scandir, "_hidden"))
    assert sq.scan(tmp_path).collect().height == 80
    monkeypatch.setattr(os, "scandir", refusing(os.scandir, "closed"))
    with pytest.raises(SourceReadError, match=r"scan: the folder '.*/closed' cannot be read: Permission.*\nHint: let"):
        sq.scan(tmp_path)
    assert sq.scan(tmp_path / "open").collect().height == 40


def test_a_folder_that_cannot_be_looked_into_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "is_file", refusing(Path.is_file, "manifest.json"))
    with pytest.raises(
        SourceReadError, match=r"scan: what is in '.*' cannot be looked at: Permission denied\nHint: may"
    ):
        sq.scan(tmp_path)
    with sq.local(1) as cluster, pytest.raises(ClusterError, match=r"to_storage: '.*' cannot be written: Permission"):
        cluster.from_frame(FRAME).to_storage(tmp_path)


def test_a_file_that_one_may_not_read_is_no_broken_one() -> None:
    error = unreadable(__file__, "parquet", PermissionError(errno.EACCES, "Permission denied"))
    assert str(error).endswith("Permission denied\nHint: may you read the file?")
