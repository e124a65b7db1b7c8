from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, func, insert, inspect, select, update

from squill.catalog import catalog as catalog_module
from squill.catalog.catalog import Catalog, Entry, Lineage, RunRecord
from squill.catalog.tables import catalog_version, datasets, files, lineage
from squill.errors import ClusterError, DatasetNotFoundError, PlanError
from squill.plan.dataset import Dataset, ShardFile
from squill.plan.schema import Schema


def entry(name: str, path: str = "/data/x", owner: str = "me", rows: int = 3) -> Entry:
    stored = ShardFile(shard=0, name="part-0.parquet", rows=rows, bytes=2**40, low=-5, high=9)
    dataset = Dataset(
        name=name,
        path=path,
        format="parquet",
        version="v1",
        created="2026-01-01T00:00:00+00:00",
        columns=Schema({}),
        timed=False,
        shards=1,
        files=(stored,),
    )
    return Entry(dataset=dataset, owner=owner)


def a_run(run_id: str, action: str, dataset: str | None = None) -> RunRecord:
    return RunRecord(id=run_id, action=action, dataset=dataset, owner="me", started="2026-01-01", plan="fragment 1")


PLAN = Lineage(explain="fragment 1\n  …", inputs=("raw", "/data/other"), plan=b"\x00\xffbytes")


@pytest.fixture
def catalog(url: str) -> Iterator[Catalog]:
    opened = Catalog(url)
    yield opened
    opened.close()


def test_dataset_is_found_by_name_and_by_path(catalog: Catalog) -> None:
    catalog.put(entry("clicks", "/data/clicks"), PLAN)
    assert catalog.find("clicks") == entry("clicks", "/data/clicks")
    assert catalog.find_path("/data/clicks") == entry("clicks", "/data/clicks")
    assert catalog.find("Clicks") is None
    assert catalog.find_path("/data") is None
    assert catalog.lineage("clicks") == PLAN


def test_other_clients_see_the_same(catalog: Catalog, url: str) -> None:
    catalog.put(entry("b"), PLAN)
    catalog.put(entry("a"), PLAN)
    other = Catalog(url)
    assert other.names() == ["a", "b"]
    assert [item.dataset.name for item in other.entries()] == ["a", "b"]
    other.remove("a")
    other.close()
    assert catalog.names() == ["b"]


def test_names_are_unique_unless_overwritten(catalog: Catalog) -> None:
    catalog.put(entry("clicks"), PLAN)
    with pytest.raises(PlanError, match="there is a dataset 'clicks' already"):
        catalog.put(entry("clicks"), PLAN)
    with pytest.raises(PlanError, match="there is a dataset 'clicks' already"):
        catalog.check_free("clicks", "to_memory", overwrite=False)
    catalog.check_free("clicks", "to_memory", overwrite=True)
    catalog.put(entry("clicks", rows=7), Lineage(explain="new"), overwrite=True)
    assert catalog.require("clicks", "dataset").dataset.rows == 7
    assert catalog.lineage("clicks").explain == "new"


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, 3, None])
def test_names_that_are_none_are_refused(catalog: Catalog, name: object) -> None:
    with pytest.raises(PlanError, match="is no name"):
        catalog.check_free(name, "to_memory", overwrite=False)


def test_unknown_name_lists_near_ones(catalog: Catalog) -> None:
    for name in ("adcounts", "clicks"):
        catalog.put(entry(name), PLAN)
    with pytest.raises(DatasetNotFoundError) as caught:
        catalog.require("adcount", "dataset")
    assert str(caught.value) == (
        "dataset: there is no dataset 'adcount'; the datasets are: adcounts, clicks\nHint: did you mean 'adcounts'?"
    )
    with pytest.raises(DatasetNotFoundError, match="lineage: there is no dataset 'q'"):
        catalog.lineage("q")


def test_removing_leaves_no_rows_behind(catalog: Catalog, url: str) -> None:
    catalog.put(entry("clicks"), PLAN)
    catalog.remove("clicks")
    catalog.remove("clicks")
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        for table in (files, lineage):
            assert connection.scalar(select(func.count()).select_from(table)) == 0
    engine.dispose()


def test_renewed_dataset_keeps_its_lineage(catalog: Catalog) -> None:
    catalog.put(entry("clicks"), PLAN)
    catalog.renew(entry("clicks", "/elsewhere", owner="other", rows=8))
    assert catalog.find("clicks") == entry("clicks", "/elsewhere", owner="other", rows=8)
    assert catalog.lineage("clicks") == PLAN


def test_runs_and_errors_are_recorded(catalog: Catalog) -> None:
    begun = [a_run("a1", "to_storage", "clicks"), a_run("b2", "to_storage", "clicks"), a_run("c3", "collect")]
    for record in begun:
        catalog.begin_run(record)
    assert catalog.runs() == begun
    catalog.end_run("a1", "done", 2**40)
    catalog.end_run("b2", "failed", error=ClusterError("the disk is full", "make room"))
    catalog.end_run("c3", "cancelled", error=KeyboardInterrupt())
    assert [(run.id, run.dataset, run.state, run.rows, run.error) for run in catalog.runs()] == [
        ("a1", "clicks", "done", 2**40, None),
        ("b2", "clicks", "failed", None, "the disk is full\nHint: make room"),
        ("c3", None, "cancelled", None, ""),
    ]
    first, second = catalog.errors()
    assert (first.run_id, first.dataset, first.kind) == ("b2", "clicks", "ClusterError")
    assert first.message == "the disk is full\nHint: make room"
    assert (second.run_id, second.kind) == ("c3", "KeyboardInterrupt")
    assert all(run.ended is not None and run.ended >= run.started for run in catalog.runs())
    assert catalog.find_run("b2") == catalog.runs()[1]
    assert catalog.find_run("nobody") is None


def test_run_that_goes_on_keeps_its_beginning(catalog: Catalog) -> None:
    catalog.begin_run(a_run("a1", "collect"))
    catalog.end_run("a1", "failed", error=ClusterError("no"))
    later = RunRecord(id="a1", action="collect", owner="another", started="2030-01-01", plan="p", folder="/f")
    catalog.begin_run(later)
    (again,) = catalog.runs()
    assert (again.state, again.owner, again.started, again.ended) == ("running", "another", "2026-01-01", None)


def test_old_runs_are_forgotten_but_for_those_that_have_not_ended(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_module, "KEPT_RUNS", 3)
    monkeypatch.setattr(catalog_module, "FORGET_EVERY", 10)
    for number in range(10):
        catalog.begin_run(a_run(f"r{number}", "collect"))
        if number != 2:
            catalog.end_run(f"r{number}", "failed", error=ClusterError("no"))
    assert [run.id for run in catalog.runs()] == ["r2", "r7", "r8", "r9"]
    assert [error.run_id for error in catalog.errors()] == ["r7", "r8", "r9"]


def test_many_clients_write_at_once(catalog: Catalog, url: str) -> None:
    failures: list[Exception] = []

    def client(number: int) -> None:
        own = Catalog(url)
        try:
            for item in range(5):
                own.begin_run(a_run(f"{number}-{item}", "to_memory"))
                own.put(entry(f"{number}-{item}"), PLAN)
                own.end_run(f"{number}-{item}", "done")
        except Exception as error:  # noqa: BLE001
            failures.append(error)
        finally:
            own.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(catalog.names()) == len(catalog.runs()) == 20


def test_many_clients_give_one_name_at_once(catalog: Catalog, url: str) -> None:
    start = threading.Barrier(4)

    def client(number: int) -> None:
        own = Catalog(url)
        start.wait()
        try:
            for _ in range(5):
                own.put(entry("clicks", rows=number), PLAN, overwrite=True)
        finally:
            own.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(client, range(4)))
    assert catalog.names() == ["clicks"]
    catalog.put(entry("clicks", rows=9), PLAN, overwrite=True, is_current=lambda: False)
    assert catalog.require("clicks", "dataset").dataset.rows in range(4)


def test_many_clients_make_the_tables_at_once(url: str) -> None:
    start = threading.Barrier(4)
    opened: list[Catalog] = []

    def client() -> None:
        start.wait()
        opened.append(Catalog(url))

    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [catalog.names() for catalog in opened] == [[]] * 4
    for catalog in opened:
        catalog.close()


def test_catalog_of_another_version_is_refused(catalog: Catalog, url: str) -> None:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(update(catalog_version).values(version=9))
    engine.dispose()
    with pytest.raises(ClusterError, match="has version 9, and this version of Squill reads version 2"):
        Catalog(url)


def test_wrong_urls_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="'somewhere' is no URL of a database"):
        Catalog("somewhere")
    with pytest.raises(ClusterError, match="there is no driver for nosuchthing"):
        Catalog("nosuchthing://host/x")
    (tmp_path / "file").write_text("")
    with pytest.raises(ClusterError, match="cannot be made: Not a directory"):
        Catalog(f"sqlite:///{tmp_path / 'file' / 'below' / 'catalog.sqlite'}")
    (tmp_path / "no.sqlite").write_text("this is not a database, however long it may be " * 50)
    with pytest.raises(ClusterError, match=r"does not answer: file is not a database\nHint: may you write to the file"):
        Catalog(f"sqlite:///{tmp_path / 'no.sqlite'}")


def test_a_catalog_of_another_version_stays_as_it_was(url: str) -> None:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    if engine.dialect.name == "sqlite":
        Path(str(engine.url.database)).parent.mkdir()
    catalog_version.create(engine)
    with engine.begin() as connection:
        connection.execute(insert(catalog_version).values(version=9))
    with pytest.raises(ClusterError, match="has version 9"):
        Catalog(url)
    assert inspect(engine).get_table_names() == ["squill_catalog"]
    engine.dispose()


def test_a_dataset_that_cannot_be_read_is_named_and_can_be_forgotten(catalog: Catalog, url: str) -> None:
    catalog.put(entry("clicks"), PLAN)
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(update(datasets).values(manifest="{cut sho"))
    engine.dispose()
    for asked in (catalog.entries, lambda: catalog.find("clicks"), lambda: catalog.find_path("/data/x")):
        with pytest.raises(ClusterError, match=r"of the dataset 'clicks' cannot be read(.|\n)*remove\('clicks'\)"):
            asked()
    assert catalog.is_damaged("clicks")
    assert not catalog.is_damaged("other")
    catalog.remove("clicks")
    assert catalog.entries() == []


def test_what_a_cluster_has_in_its_memory_is_forgotten_at_once(catalog: Catalog) -> None:
    for name, owner, place in (("a", "me", "memory"), ("b", "me", "storage"), ("c", "you", "memory")):
        made = entry(name, owner=owner)
        catalog.put(replace(made, dataset=replace(made.dataset, place=place)), PLAN)
    catalog.forget("me", "memory")
    assert catalog.names() == ["b", "c"]


def test_server_that_is_not_there_is_named_without_the_password() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(
        ClusterError, match=r"postgresql\+psycopg://me:\*\*\*@127\.0\.0\.1:1/x does not answer"
    ) as caught:
        Catalog("postgresql://me:secret@127.0.0.1:1/x")
    assert "secret" not in str(caught.value)


def test_existence_is_told_without_making_a_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    assert not Catalog.exists(url)
    assert list(tmp_path.iterdir()) == []
    Catalog(url).close()
    assert Catalog.exists(url)
    assert Catalog.exists("postgresql://host/x")
