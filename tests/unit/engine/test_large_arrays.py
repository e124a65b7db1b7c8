from __future__ import annotations

import errno
import gc
import mmap
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import polars as pl
import pytest

from squill.engine import large_arrays
from squill.engine.buffers import trimmed
from squill.engine.columns import series_from
from squill.engine.large_arrays import LEAST_BYTES, Pool, large_array
from squill.polars_memory import KEEP_ENVIRONMENT_VARIABLE

MEGABYTE = 1 << 20


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    pool = Pool(9 * MEGABYTE)
    monkeypatch.setattr(large_arrays, "_pool", pool)
    return pool


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float64, np.int32])
def test_arrays_have_the_size_and_type_asked_for_and_can_be_written(pool: Pool, dtype: type) -> None:
    array = large_array(LEAST_BYTES, dtype)
    array[:] = 7
    assert array.dtype == dtype
    assert array.shape == (LEAST_BYTES,)
    assert array.flags.c_contiguous
    assert (array == 7).all()


def test_memory_is_used_again(pool: Pool) -> None:
    first = large_array(2 * MEGABYTE, np.uint8)
    place = address(first)
    del first
    assert pool.free_bytes == 2 * MEGABYTE
    assert address(large_array(MEGABYTE // 8 + 1, np.int64)) == place


def test_memory_is_not_used_again_while_a_view_of_it_lives(pool: Pool) -> None:
    first = large_array(MEGABYTE // 8, np.int64)
    first[:] = 1
    view = first[5:10].view(np.uint64)[1:]
    del first
    second = large_array(MEGABYTE // 8, np.int64)
    second[:] = 2
    assert view.tolist() == [1, 1, 1, 1]
    assert pool.free_bytes == 0


@pytest.mark.parametrize("dtype", [pl.Int64(), pl.Datetime("us", "UTC"), pl.Duration("ms")])
def test_memory_is_not_used_again_while_a_series_of_it_lives(pool: Pool, dtype: pl.DataType) -> None:
    values = large_array(MEGABYTE // 8, np.int64)
    values[:] = np.arange(len(values))
    frame = series_from("x", values, None, dtype).to_frame().slice(10, 3)
    del values
    others = [large_array(MEGABYTE // 8, np.int64) for _ in range(3)]
    for other in others:
        other[:] = -1
    assert frame["x"].cast(pl.Int64).to_list() == [10, 11, 12]
    del frame
    gc.collect()
    assert pool.free_bytes == MEGABYTE


def test_what_is_kept_is_bounded(pool: Pool) -> None:
    arrays = [large_array(4 * MEGABYTE, np.uint8) for _ in range(5)]
    arrays.clear()
    assert pool.free_bytes == 8 * MEGABYTE


def test_a_block_that_would_drive_out_the_others_is_not_kept(pool: Pool) -> None:
    arrays = [large_array(size * MEGABYTE, np.uint8) for size in (1, 2, 5)]
    arrays.clear()
    assert pool.free_bytes == 3 * MEGABYTE


def test_what_little_an_array_holds_is_copied_into_memory_that_is_kept(pool: Pool) -> None:
    ends = large_arrays.large_array(1 << 20, np.int64)
    ends[:] = np.arange(1 << 20)
    few = trimmed(ends, 1 << 18)
    assert not np.shares_memory(few, ends)
    assert np.array_equal(few, np.arange(1 << 18))
    del few
    assert pool.free_bytes == 2 * MEGABYTE


def test_less_is_kept_where_processes_share_a_machine(pool: Pool) -> None:
    large_arrays.keep_at_most(2 * MEGABYTE)
    large_arrays.keep_at_most(20 * MEGABYTE)
    arrays = [large_array(MEGABYTE, np.uint8) for _ in range(5)]
    arrays.clear()
    assert pool.free_bytes == 2 * MEGABYTE


LAZILY_FREED = """
import numpy as np
from squill.engine.large_arrays import Pool

def offered():
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("LazyFree:")) >> 10

pool = Pool(8 << 20, 64 << 20)
blocks = [pool.take(8 << 20) for _ in range(20)]
for block in blocks:
    block[:] = 1
del block, blocks
print(pool.free_bytes >> 20, offered())
blocks = [pool.take(8 << 20) for _ in range(9)]
for block in blocks:
    block[:] = 2
print(pool.free_bytes >> 20, offered(), all((block == 2).all() for block in blocks))
"""


@pytest.mark.skipif(not hasattr(mmap, "MADV_FREE"), reason="this system takes memory only when it is given back")
def test_memory_beyond_what_is_kept_is_offered_to_the_system_and_used_again() -> None:
    done = subprocess.run([sys.executable, "-c", LAZILY_FREED], capture_output=True, text=True, check=True)
    held, used = done.stdout.splitlines()
    assert held == "72 64"
    assert used == "0 0 True"


def test_what_is_kept_is_used_before_what_is_offered(pool: Pool) -> None:
    pool.kept_bytes, pool.offered_bytes = 2 * MEGABYTE, 4 * MEGABYTE
    arrays = [large_array(MEGABYTE, np.uint8) for _ in range(9)]
    places = [address(array) for array in arrays]
    while arrays:
        del arrays[0]
    assert pool.free_bytes == 6 * MEGABYTE
    again = [address(large_array(MEGABYTE, np.uint8)) for _ in range(2)]
    assert set(again) <= set(places[-2:])


def test_who_collects_garbage_while_asking_does_not_wait_for_itself(pool: Pool) -> None:
    with pool._lock:
        assert len(large_array(MEGABYTE, np.uint8)) == MEGABYTE
    assert pool.free_bytes == MEGABYTE


# In a process of its own, which has no other threads; the child's answer is its exit code.
FORKED = """
import os
import numpy as np
from squill.engine import large_arrays
large_arrays.large_array(1 << 20, np.uint8)
assert large_arrays._pool.free_bytes == 1 << 20
large_arrays._pool._lock.acquire()
child = os.fork()
if not child:
    os._exit(large_arrays._pool.free_bytes + len(large_arrays.large_array(1 << 20, np.uint8)) - (1 << 20))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_process_that_is_forked_while_the_pool_is_busy_begins_with_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "0"


def test_the_pool_may_be_emptied_while_somebody_looks_into_it(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_fitting", lambda needed: pool.forget())
    assert len(large_array(MEGABYTE, np.uint8)) == MEGABYTE


def test_memory_that_is_held_is_given_up_where_there_is_no_more(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = large_array(4 * MEGABYTE, np.uint8)
    del kept
    real, failures = mmap.mmap, [OSError(errno.ENOMEM, "no more memory")]

    def scarce(*args: Any, **options: Any) -> object:
        if failures:
            raise failures.pop()
        return real(*args, **options)

    monkeypatch.setattr(mmap, "mmap", scarce)
    assert len(large_array(MEGABYTE, np.uint8)) == MEGABYTE
    assert not failures
    assert pool.free_bytes <= MEGABYTE


RESIDENT = """
import os

import numpy as np
from squill.engine.large_arrays import keep_at_most, large_array

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

keep_at_most(64 << 20)
np.empty(16 << 20, np.uint8)  # an allocator that has been given such an array back makes the next ones of its heap
before = resident()
large, small = [], []
for _ in range(50):
    large.append(large_array(8 << 20, np.uint8))
    large[-1][:] = 1
    small.append(np.ones(40_000))  # lies between them, where they are of one heap
held = resident()
del large
print((held - before) >> 20, (resident() - before) >> 20)
"""


def test_memory_beyond_what_is_kept_goes_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", RESIDENT], capture_output=True, text=True, check=True)
    held, left = map(int, done.stdout.split())
    assert held >= 390
    assert left <= 80


def test_blocks_may_be_given_up_by_one_thread_while_another_one_drops_some(pool: Pool) -> None:
    """To unmap memory lets other threads run."""
    stop = threading.Event()

    def give_up() -> None:
        while not stop.wait(0):
            pool.forget()

    thread = threading.Thread(target=give_up)
    thread.start()
    try:
        for _ in range(300):
            pool.kept_bytes = 64 * MEGABYTE
            blocks = [pool.take(2 * MEGABYTE) for _ in range(8)]
            del blocks
            pool.kept_bytes = MEGABYTE
            assert len(pool.take(MEGABYTE)) == MEGABYTE
    finally:
        stop.set()
        thread.join()


def test_a_block_that_is_much_too_large_is_left_for_others(pool: Pool) -> None:
    large = large_array(4 * MEGABYTE, np.uint8)
    place = address(large)
    del large
    small = large_array(MEGABYTE, np.uint8)
    assert address(small) != place
    assert pool.free_bytes == 4 * MEGABYTE


def test_small_arrays_are_the_allocators(pool: Pool) -> None:
    small = large_array(LEAST_BYTES - 1, np.uint8)
    del small
    assert pool.free_bytes == 0


def test_nothing_is_kept_where_somebody_wants_it_so(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEEP_ENVIRONMENT_VARIABLE, "0")
    array = large_array(MEGABYTE, np.uint8)
    del array
    assert pool.free_bytes == 0


def test_threads_never_have_one_block_at_once(pool: Pool) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(200):
            array = large_array(MEGABYTE // 8, np.int64)
            array[:] = number
            if (array != number).any():
                wrong.append(number)
            del array

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert 0 < pool.free_bytes <= 4 * MEGABYTE
