"""The folder of a run: who holds it, what is read on, and when it goes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from squill.errors import ClusterError, SourceReadError
from squill.exchange.segments import MANIFEST
from squill.plan.fragments import ShardedPlan
from squill.runtime.run_folder import (
    KEPT_DAYS,
    About,
    Committed,
    Order,
    RunFolder,
    driver_lives,
    explained,
    left_runs,
    remove_old_runs,
    stamp_of,
)
from squill.runtime.ticket import RunTicket

TICKET = RunTicket(id="a1", action="collect", owner="host:1:x", started="2026-01-01", plan="fragment 1")
NOTHING = Committed(manifest=MANIFEST.empty_table(), receipts=(), works=())


def order(**sources: tuple[int, int]) -> Order:
    return Order(plan=ShardedPlan(fragments=()), splits={}, sources=sources, settings={}, request=None)


def dead(base: Path, run_id: str, *, with_order: bool = True) -> Path:
    """A folder that a driver has left."""
    folder = RunFolder.make(base, RunTicket(id=run_id, action="collect", owner="host:1:x", started="2026-01-01"))
    if with_order:
        folder.keep(order())
    folder._lock.release()
    return folder.path


def test_folder_goes_with_its_run(tmp_path: Path) -> None:
    with RunFolder.make(tmp_path / "base", TICKET) as folder:
        assert left_runs(tmp_path / "base") == {"a1": folder.path}
        assert folder.files.is_dir()
        assert folder.path.stat().st_mode & 0o077 == 0, "others are not to read it"
    assert list((tmp_path / "base").iterdir()) == []


def test_folder_is_its_drivers_while_that_lives(tmp_path: Path) -> None:
    with RunFolder.make(tmp_path, TICKET) as folder:
        assert driver_lives(folder.path)
        assert RunFolder.take(folder.path, "me") is None
    path = dead(tmp_path, "b2")
    assert driver_lives(path) is False
    taken = RunFolder.take(path, "another:2:y")
    assert taken is not None
    assert taken.about.owner == "another:2:y"
    assert About.read(path) == taken.about
    assert taken.files.name == "files-1"
    assert RunFolder.take(path, "me") is None
    taken.release()
    assert [item.name for item in path.glob("files-*")] == ["files-0"]
    assert driver_lives(tmp_path / "nothing") is None


def test_lock_goes_with_the_process(tmp_path: Path) -> None:
    program = f"""
import os
from pathlib import Path
from squill.runtime.driver_lock import DriverLock
assert DriverLock.take(Path({str(tmp_path / "driver.lock")!r})) is not None
print("held", flush=True)
input()
"""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdout=pipe, stdin=pipe, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "held\n"
        assert driver_lives(tmp_path)
        driver.kill()
        driver.wait()
        assert driver_lives(tmp_path) is False


def test_what_is_written_is_read(tmp_path: Path) -> None:
    with RunFolder.make(tmp_path, TICKET) as folder:
        assert folder.order() is None
        assert folder.committed() == {}
        folder.keep(order())
        folder.commit(1, NOTHING)
        folder.commit(2, NOTHING)
        assert folder.order() == order()
        assert sorted(folder.committed()) == [1, 2]
        (folder.path / "done-1").write_bytes(b"")
        assert folder.committed() == {}, "what cannot be read is not done, nor what came of it"


def test_changed_sources_are_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("x\n1\n")
    stamp = stamp_of(str(path))
    assert stamp is not None
    made = Order(plan=ShardedPlan(fragments=()), splits={}, sources={str(path): stamp}, settings={}, request=None)
    assert made.changed_sources() == []
    path.write_text("x\n1\n2\n")
    assert made.changed_sources() == [str(path)]
    path.unlink()
    assert made.changed_sources() == [str(path)]
    assert stamp_of("s3://bucket/rows.parquet") is None


def test_old_folders_go_and_others_stay(tmp_path: Path) -> None:
    paths = {name: dead(tmp_path, name) for name in ("old", "new")}
    paths["vain"] = dead(tmp_path, "vain", with_order=False)
    paths["of an older version"] = tmp_path / "squill-run-older"
    paths["of an older version"].mkdir()
    (tmp_path / "squill-run-fresh").mkdir()
    long_ago = time.time() - KEPT_DAYS * 86_400 - 60
    with RunFolder.make(tmp_path, TICKET) as living:
        for path in (paths["old"], paths["of an older version"], living.path):
            os.utime(path, (long_ago, long_ago))
        remove_old_runs(tmp_path)
        assert set(left_runs(tmp_path)) == {"new", "fresh", "a1"}


def test_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ClusterError) as caught:
        RunFolder.make(tmp_path / "file" / "below", TICKET)
    assert str(caught.value) == (
        f"the folder of the run, '{tmp_path}/file/below', cannot be written: Not a directory\n"
        "Hint: make room there, or give another one: sq.spark(…, folder=…)."
    )


def test_committed_manifest_keeps_its_types(tmp_path: Path) -> None:
    line = dict.fromkeys(MANIFEST.names, 1) | {"path": "x", "segments": b"12"}
    manifest = pa.Table.from_pylist([line], schema=MANIFEST)
    with RunFolder.make(tmp_path, TICKET) as folder:
        folder.commit(1, Committed(manifest=manifest, receipts=(), works=()))
        assert folder.committed()[1].manifest.equals(manifest)


def test_an_input_that_cannot_be_read_is_not_taken_for_the_folder(tmp_path: Path) -> None:
    with pytest.raises(SourceReadError, match="parquet' is gone"), explained(tmp_path):
        raise SourceReadError("scan: 'a.parquet' is gone", "put it back.")
    with pytest.raises(ClusterError, match="cannot be written: it is full"), explained(tmp_path):
        raise OSError("it is full")
