"""A process of `threads`: ``thread_worker.py query cores folder``, then a line "run" or "write path" at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import polars as pl

import squill as sq
from benchmarks.cluster import big_data, hopping

__all__ = ["main"]


JOINED = (("visits", ["sourceIP", "destURL", "visitDate", "adRevenue"]), ("rankings", ["pageURL", "pageRank"]))
"""What the join reads of each table."""


def _summed(clicks: sq.ShardedStream) -> sq.ShardedStream:
    placed = clicks.rekey("user").redistribute()
    return placed.query(lambda user: user.hopping_window("1h", "10m").aggregate(s=sq.sum("x")))


def _summed_by_halves(clicks: pl.DataFrame) -> Callable[[], pl.DataFrame]:
    """Return a function that sums each half of the time on a thread of its own: they have nothing to tell each other.

    Windows of an hour end an hour after the last event in them, so both halves are given that much of the other one.
    """
    times, cluster, reach = clicks["ts"], sq.local(cores=1), timedelta(hours=1)
    cut = times[len(times) // 2].replace(minute=0, second=0, microsecond=0)
    before, after = (int(times.search_sorted(cut + by)) for by in (reach, -reach))
    halves = clicks[:before], clicks[after:]
    queries = [_summed(cluster.from_frame(half, start="ts")) for half in halves]
    threads = ThreadPoolExecutor(2)

    def run() -> pl.DataFrame:
        early, late = threads.map(lambda query: query.collect(), queries)
        return pl.concat([early[: early["start"].search_sorted(cut)], late[late["start"].search_sorted(cut) :]])

    return run


def _followed(clicks: sq.ShardedStream) -> sq.ShardedStream:
    """Sets A and B are a quarter of the clicks each, as those of the Trill paper are of its terms."""

    def pairs(user: sq.Stream) -> sq.Stream:
        first = user.where(sq.col("x") < 0.25).with_duration("1h").select("user")
        return first.join(user.where((sq.col("x") >= 0.25) & (sq.col("x") < 0.5)).select("user"))

    return clicks.rekey("user").redistribute().query(pairs)


def _within_sessions(clicks: sq.ShardedStream, sessions: sq.ShardedStream) -> sq.ShardedStream:
    placed, others = (stream.rekey("user").redistribute() for stream in (clicks, sessions))
    return placed.query(others, lambda click, session: click.join(session))


def _query(name: str, cluster: sq.Cluster, folder: Path) -> Callable[[], pl.DataFrame]:
    if name in ("sum", "sum by halves"):
        frame = pl.read_parquet(folder / "*.parquet", columns=["ts", "user", "x"]).rechunk()
        if name == "sum by halves":
            return _summed_by_halves(frame)
        return lambda: _summed(cluster.from_frame(frame, start="ts")).collect()
    if name == "sum of files":
        return lambda: _summed(*hopping.opened(cluster, folder)).collect()
    if name == "followed":
        frame = pl.read_parquet(folder / "clicks.parquet").rechunk()
        return lambda: _followed(cluster.from_frame(frame, start="ts")).collect()
    if name == "join of intervals":
        clicks, sessions = (pl.read_parquet(folder / f"{table}.parquet").rechunk() for table in ("clicks", "sessions"))
        return lambda: _within_sessions(
            cluster.from_frame(clicks, start="ts"), cluster.from_frame(sessions, start="ts", end="end")
        ).collect()
    if name == "join":
        return lambda: big_data.joined(*big_data.opened(cluster, folder)).collect()
    visits, rankings = (
        pl.read_parquet(folder / table / "*.parquet", columns=columns).rechunk() for table, columns in JOINED
    )
    return lambda: big_data.joined(cluster.from_frame(visits), cluster.from_frame(rankings)).collect()


def main() -> None:
    name, cores, folder = sys.argv[1:]
    run = _query(name, sq.local(cores=int(cores)), Path(folder))
    answer = pl.DataFrame()
    for line in sys.stdin:
        command, _, path = line.strip().partition(" ")
        if command == "run":
            del answer
            answer = run()
        else:
            answer.write_ipc(path)
        print("done", flush=True)


if __name__ == "__main__":
    main()
