"""Live queries that begin where a run over stored rows has ended."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import squill as sq
from squill.errors import CheckpointError, LateEventError, PlanError
from squill.plan.dataset import STATE, Dataset
from squill.runtime.live import inputs
from squill.runtime.live.log import last_commit
from squill.sharded import ShardedStream
from squill.testing.live import MEMORY

ROWS, CUT = 240, 150


def _rows() -> pl.DataFrame:
    rng = np.random.default_rng(3)
    return pl.DataFrame({"t": np.sort(rng.integers(0, 600, ROWS)), "k": rng.integers(0, 7, ROWS), "unused": "x"})


@pytest.fixture
def rows() -> pl.DataFrame:
    return _rows()


@pytest.fixture
def cluster(root: Path) -> Iterator[sq.Cluster]:
    with sq.local(cores=2, warehouse=root / "warehouse") as made:
        yield made


@pytest.fixture
def root(rows: pl.DataFrame) -> Iterator[Path]:
    """A folder with the rows up to a moment in "history", and those that follow in "new"; in memory if can be."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        for name, part in (("history", rows[:CUT]), ("new", rows[CUT:])):
            (Path(folder) / name).mkdir()
            for number, piece in enumerate(part.iter_slices(50)):
                piece.write_parquet(Path(folder) / name / f"{number}.parquet")
        yield Path(folder)


def windows(clicks: ShardedStream, size: int = 50) -> ShardedStream:
    many = clicks.rekey("k").redistribute()
    return many.query(lambda s: s.where(sq.col("k") > 0).hopping_window(size, 10).aggregate(n=sq.count()))


def kept(cluster: sq.Cluster, root: Path, name: str | None = None) -> Dataset:
    return windows(cluster.scan(root / "history", start="t")).to_storage(root / "ds", name, keep_state=True)


def run(query: ShardedStream, root: Path, place: str = "live", **options: Any) -> pl.DataFrame:
    """Run a query to the end of what is there; return all of its rows so far."""
    options = {"checkpoint": root / place / "ck", "until_now": True, **options}
    query.start(str(root / place / "out"), **options).wait()
    files = sorted((root / place / "out").glob("*.parquet"))
    return pl.concat([pl.read_parquet(file) for file in files]) if files else pl.DataFrame()


def together(dataset: Dataset, live: pl.DataFrame) -> pl.DataFrame:
    found = pl.concat([*map(pl.read_parquet, dataset.paths), live])
    return found.sort(found.columns)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(item): item.read_bytes() for item in folder.rglob("*") if item.is_file()}


@pytest.mark.parametrize("kind", ["files", "a frame", "a streamed folder"])
def test_stored_and_live_rows_together_are_the_answer(
    kind: str, cluster: sq.Cluster, root: Path, rows: pl.DataFrame
) -> None:
    stored: dict[str, Callable[[], ShardedStream]] = {
        "files": lambda: cluster.scan(root / "history", start="t", sorted_by="t"),
        "a frame": lambda: cluster.from_frame(rows[:CUT], start="t"),
        "a streamed folder": lambda: cluster.stream(root / "history", start="t"),
    }
    dataset = windows(stored[kind]()).to_storage(root / "ds", keep_state=True)
    before = contents(root / "ds")
    assert dataset.keeps_state
    wanted = windows(cluster.from_frame(rows, start="t")).collect(sort=True)
    assert 0 < dataset.rows < wanted.height
    assert pl.read_parquet(root / "ds" / "**" / "*.parquet").height == dataset.rows
    for place in ("one", "another"):  # the dataset stays as it is
        live = windows(cluster.stream(root / "new", start="t", files_per_epoch=1))
        first = run(live, root, place, bootstrap=dataset, complete=False)
        assert first.height
        assert together(dataset, run(live, root, place, bootstrap=dataset)).equals(wanted)
    assert contents(root / "ds") == before


def test_a_start_that_goes_on_needs_the_dataset_no_more(cluster: sq.Cluster, root: Path, rows: pl.DataFrame) -> None:
    dataset = kept(cluster, root)
    final = pl.concat([pl.read_parquet(path) for path in dataset.paths])
    live = windows(cluster.stream(root / "new", start="t"))
    run(live, root, bootstrap=dataset, complete=False)
    shutil.rmtree(root / "ds")
    found = pl.concat([final, run(live, root, bootstrap=dataset)])
    assert found.sort(found.columns).equals(windows(cluster.from_frame(rows, start="t")).collect(sort=True))


def test_paths_and_names_name_a_dataset(cluster: sq.Cluster, root: Path) -> None:
    dataset = kept(cluster, root, "hourly")
    live = windows(cluster.stream(root / "new", start="t"))
    found = [run(live, root, f"{number}", bootstrap=by) for number, by in enumerate([root / "ds", "hourly", dataset])]
    assert found[0].height
    assert found[0].equals(found[1])
    assert found[0].equals(found[2])


def test_a_lost_dataset_is_made_again_with_its_state(cluster: sq.Cluster, root: Path) -> None:
    dataset = kept(cluster, root, "hourly")
    live = windows(cluster.stream(root / "new", start="t"))
    wanted = run(live, root, "one", bootstrap=dataset)
    shutil.rmtree(root / "ds")
    assert run(live, root, "two", bootstrap="hourly").equals(wanted)
    assert cluster.datasets()[0].keeps_state


@pytest.mark.parametrize(("stored", "live"), [(3, 1), (2, 4)])
def test_on_another_number_of_shards_states_stay_or_are_divided(
    stored: int, live: int, root: Path, rows: pl.DataFrame
) -> None:
    with sq.local(cores=stored) as cluster:
        dataset = kept(cluster, root)
        wanted = windows(cluster.from_frame(rows, start="t")).collect(sort=True)
    with sq.local(cores=live) as cluster:
        query = windows(cluster.stream(root / "new", start="t"))
        run(query, root, bootstrap=dataset, complete=False)
        found = run(query, root, bootstrap=dataset)
    assert together(dataset, found).equals(wanted)
    assert len(list((root / "live" / "ck" / "state").glob("2-*"))) == max(stored, live)


def test_history_in_many_epochs_whose_files_overlap(
    cluster: sq.Cluster, root: Path, rows: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(root / "history")
    (root / "history").mkdir()
    parts = {"z": rows[:40], "y": rows[40:80:2], "x": rows[41:80:2], "w": rows[80:CUT]}
    for name, part in parts.items():
        part.write_parquet(root / "history" / f"{name}.parquet")
    monkeypatch.setattr(inputs, "EPOCH_BYTES", 1)
    dataset = kept(cluster, root)
    assert last_commit(root / "ds" / STATE).number == 3  # y and x belong together
    live = run(windows(cluster.stream(root / "new", start="t")), root, bootstrap=dataset)
    assert together(dataset, live).equals(windows(cluster.from_frame(rows, start="t")).collect(sort=True))


def test_ipc_files_and_a_shard_without_rows(cluster: sq.Cluster, root: Path) -> None:
    stored = cluster.from_frame({"t": [1, 75], "k": [1, 1]}, start="t")
    dataset = windows(stored).to_storage(root / "ds", format="ipc", keep_state=True)
    assert sorted(file.rows for file in dataset.files) == [0, 1]
    assert sorted({(file.low, file.high) for file in dataset.files}, key=str) == [(10, 60), (None, None)]
    assert cluster.scan(root / "ds").collect().rows() == [(10, 60, 1, 1)]


def test_without_a_checkpoint(cluster: sq.Cluster, root: Path, rows: pl.DataFrame) -> None:
    dataset = kept(cluster, root)
    live = run(windows(cluster.stream(root / "new", start="t")), root, bootstrap=dataset, checkpoint=None)
    assert together(dataset, live).equals(windows(cluster.from_frame(rows, start="t")).collect(sort=True))


def joined(clicks: ShardedStream, names: ShardedStream, ads: ShardedStream) -> ShardedStream:
    named = clicks.query(names.broadcast(), lambda left, right: left.with_duration(30).join(right, on="k"))
    return named.rekey("k").redistribute().query(ads.rekey("k").redistribute(), lambda left, right: left.join(right))


def test_stored_inputs_beside_those_that_go_on(cluster: sq.Cluster, root: Path, rows: pl.DataFrame) -> None:
    pl.DataFrame({"k": [1, 2, 3], "name": ["a", "b", "c"]}).write_parquet(root / "names.parquet")
    pl.DataFrame({"t": [0, 300], "e": [500, 900], "k": [1, 2], "ad": [7, 8]}).write_parquet(root / "ads.parquet")
    names, ads = cluster.scan(root / "names.parquet"), cluster.scan(root / "ads.parquet", start="t", end="e")
    wanted = joined(cluster.from_frame(rows, start="t"), names, ads).collect(sort=True)
    # What is streamed goes on, what is scanned beside it is all there is.
    stored = joined(cluster.stream(root / "history", start="t"), names, ads)
    dataset = stored.to_storage(root / "ds", keep_state=True)
    live = run(joined(cluster.stream(root / "new", start="t"), names, ads), root, bootstrap=dataset)
    assert 0 < dataset.rows < wanted.height
    assert together(dataset, live).equals(wanted)


def test_two_inputs_go_on_from_where_each_was(cluster: sq.Cluster, root: Path, rows: pl.DataFrame) -> None:
    def both(clicks: ShardedStream, views: ShardedStream) -> ShardedStream:
        placed = [item.rekey("k").redistribute() for item in (clicks, views)]
        return placed[0].query(placed[1], lambda left, right: left.with_duration(9).join(right.with_duration(9)))

    views = rows.with_columns(pl.col("t") + 3)
    wanted = both(cluster.from_frame(rows, start="t"), cluster.from_frame(views, start="t")).collect(sort=True)
    stored = both(cluster.scan(root / "history", start="t"), cluster.from_frame(views[:100], start="t"))
    dataset = stored.to_storage(root / "ds", keep_state=True)
    (root / "views").mkdir()
    views[100:].write_parquet(root / "views" / "a.parquet")
    live = both(cluster.stream(root / "new", start="t"), cluster.stream(root / "views", start="t"))
    assert together(dataset, run(live, root, bootstrap=dataset)).equals(wanted)


def test_live_rows_before_the_stored_ones_are_late(cluster: sq.Cluster, root: Path, rows: pl.DataFrame) -> None:
    dataset = kept(cluster, root)
    early = rows[:1].with_columns(t=pl.lit(rows["t"][CUT - 1] - 1, pl.Int64))
    early.write_parquet(root / "new" / "early.parquet")
    with pytest.raises(LateEventError, match="before the current time"):
        run(windows(cluster.stream(root / "new", start="t")), root, "one", bootstrap=dataset)
    live = windows(cluster.stream(root / "new", start="t", disorder=sq.drop(wait=500)))
    assert together(dataset, run(live, root, "two", bootstrap=dataset)).equals(
        windows(cluster.from_frame(rows, start="t")).collect(sort=True)
    )


def test_a_start_that_dies_while_it_takes_over_begins_anew(
    cluster: sq.Cluster, root: Path, rows: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = kept(cluster, root)
    live = windows(cluster.stream(root / "new", start="t"))
    link, left = os.link, 3

    def dying(source: Any, target: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt
        link(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", dying)
        with pytest.raises(KeyboardInterrupt):
            run(live, root, bootstrap=dataset)
    assert not (root / "live" / "ck" / "QUERY").exists()
    with monkeypatch.context() as patched:  # where there are no links
        patched.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("no links")))
        found = run(live, root, bootstrap=dataset)
    assert together(dataset, found).equals(windows(cluster.from_frame(rows, start="t")).collect(sort=True))


# -- what is refused --------------------------------------------------------------------------------------------


def refused(text: str, kind: type[Exception] = CheckpointError) -> Any:
    return pytest.raises(kind, match=text)


def test_other_plans_and_forms_are_refused(cluster: sq.Cluster, root: Path) -> None:
    dataset = kept(cluster, root)
    stream = cluster.stream(root / "new", start="t")
    with refused(r"the dataset .*ds' is of another query:\n  there: .*50.*\n  here:  .*51"):
        run(windows(stream, 51), root, bootstrap=dataset)
    with refused(r"is of another query:\n  there: where.*int: 0.*\n  here:  where.*int: 1"):
        run(
            stream.rekey("k")
            .redistribute()
            .query(lambda s: s.where(sq.col("k") > 1).hopping_window(50, 10).aggregate(n=sq.count())),
            root,
            bootstrap=dataset,
        )
    with refused(r'is of a query with emit="closed", this one has emit="changes"'):
        run(windows(stream), root, bootstrap=dataset, emit="changes")
    assert not (root / "live" / "ck").exists()
    (root / "live" / "out").mkdir(parents=True)
    (root / "live" / "out" / "old.parquet").touch()
    with refused("holds an answer already, such as old.parquet", PlanError):
        run(windows(stream), root, bootstrap=dataset)


def test_another_version_is_refused(cluster: sq.Cluster, root: Path) -> None:
    dataset = kept(cluster, root)
    path = root / "ds" / STATE / "PLAN"
    stored = json.loads(path.read_text())
    stored["plan"]["state"] = -1
    path.write_text(json.dumps(stored))
    with refused("the dataset .*ds' holds state version -1, this version of Squill has"):
        run(windows(cluster.stream(root / "new", start="t")), root, bootstrap=dataset)


def test_what_holds_no_state_is_refused(cluster: sq.Cluster, root: Path) -> None:
    live = windows(cluster.stream(root / "new", start="t"))
    plain = windows(cluster.scan(root / "history", start="t")).to_storage(root / "plain")
    with refused(r"holds rows only, no state to go on from\n.*keep_state=True"):
        run(live, root, bootstrap=plain)
    dataset = kept(cluster, root, "hourly")
    with refused("start: bootstrap: there is no dataset 'hourli'.*\n.*did you mean 'hourly'", PlanError):
        run(live, root, bootstrap="hourli")
    with refused(r"start: bootstrap is 5\n.*keep_state=True", PlanError):
        run(live, root, bootstrap=5)
    for item in (root / "ds" / STATE / "state").rglob("*.state"):
        item.unlink()
    with refused("the state of the dataset 'hourly' cannot be taken over: .*\n.*make the dataset again"):
        run(live, root, bootstrap=dataset)
    shutil.rmtree(root / "ds" / STATE)
    with refused("the state of the dataset .* is not there any more"):
        run(live, root, bootstrap=dataset)


def test_inputs_that_nothing_can_follow_are_refused(cluster: sq.Cluster, root: Path) -> None:
    with refused(r"to_storage: keep_state=True: no input of this plan has times.*\n.*start=", PlanError):
        cluster.from_frame({"k": [1]}).to_storage(root / "ds", keep_state=True)
    pushed = cluster.stream(sq.source({"t": pl.Int64}, start="t", name="pushed"))
    with refused(r"keep_state=True: the rows of 'pushed' are not there to be read up to now", PlanError):
        pushed.to_storage(root / "ds", keep_state=True)
    with refused(r"the source 'history' is live: it has no end to collect up to", PlanError):
        windows(cluster.stream(root / "history", start="t")).to_storage(root / "ds")
    with refused(r"to_storage: keep_state is 'yes'", PlanError):
        windows(cluster.scan(root / "history", start="t")).to_storage(root / "ds", keep_state="yes")  # type: ignore[arg-type]
    assert not (root / "ds").exists()
