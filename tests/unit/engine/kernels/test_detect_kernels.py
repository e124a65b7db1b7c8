from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

import squill as sq
from squill.engine.kernels.detect import FREE, HEAD, LAST_ROW, SLOT_SIZE, STATE_SIZE, expire, link_simultaneous
from squill.engine.kernels.pairs import idle_slots


def test_rows_of_one_instant_and_slot_are_chained() -> None:
    sync, slot = np.array([1, 2, 2, 2, 3]), np.array([0, 0, 1, 0, 0], np.int32)
    slots = np.zeros((2, SLOT_SIZE), np.int64)
    following, is_later = np.empty(5, np.int64), np.empty(5, np.uint8)
    link_simultaneous(sync, slot, slots, following, is_later)
    assert following.tolist() == [-1, 3, -1, -1, -1]
    assert is_later.tolist() == [0, 0, 0, 1, 0]
    assert not slots[:, LAST_ROW].any()


def test_idle_slots_come_once() -> None:
    slots = np.zeros((3, SLOT_SIZE), np.int64)
    slots[1, HEAD] = 7
    out = np.empty(4, np.int32)
    assert out[: idle_slots(np.array([2, 1, 2, 0], np.int32), slots, out)].tolist() == [2, 0]


def test_instances_that_are_over_leave_their_chain() -> None:
    slots = np.zeros((1, SLOT_SIZE), np.int64)
    slots[0] = [1, 2, 0]
    first, after = np.array([0, 5, 9]), np.array([0, 2, 0])
    free, state, out = np.zeros(3, np.int64), np.zeros(STATE_SIZE, np.int64), np.empty(1, np.int32)
    assert expire(np.array([0]), 15, 10, slots, first, after, free, state, out) == 0
    assert (slots[0, HEAD], state[FREE], free[0]) == (2, 1, 1)
    assert expire(np.array([0]), 19, 10, slots, first, after, free, state, out) == 1
    assert (slots[0, HEAD], state[FREE], free[1]) == (0, 2, 2)


PROGRAM = """
import squill as sq
import numba.core.dispatcher as d
compiled = []
real = d._FunctionCompiler.compile
def compile(self, args, return_type):
    compiled.append(self.py_func.__name__)
    return real(self, args, return_type)
d._FunctionCompiler.compile = compile
p = sq.pattern
K = 3
def add(total, x): return total + x * K
stream = sq.from_frame({"t": [1, 2], "x": [1, 2]}, start="t")
found = stream.detect(p.plus(p.any(total=add)).with_registers(total=0))
other = stream.detect(p.any(total=lambda total: total).with_registers(total=0))
print(sorted(found.collect()["total"].to_list()), other.collect()["total"].to_list(), "detect" in compiled)
"""


def test_another_process_finds_the_compiled_loop(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    said: list[str] = []
    for constant in ("3", "3", "4"):
        program.write_text("\n" * len(said) + PROGRAM.replace("K = 3", f"K = {constant}"))
        environment = {
            "SQUILL_KERNEL_CACHE": str(tmp_path / "cache"),
            "PATH": "",
            "PYTHONPATH": str(Path(sq.__file__).parents[1]),
        }
        run = subprocess.run(
            [sys.executable, str(program)], capture_output=True, text=True, env=environment, check=True
        )
        said.append(run.stdout.strip())
    assert said == ["[3, 6, 9] [0, 0] True", "[3, 6, 9] [0, 0] False", "[4, 8, 12] [0, 0] True"]
