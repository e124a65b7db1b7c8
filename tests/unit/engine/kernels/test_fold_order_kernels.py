from __future__ import annotations

import numpy as np

from squill.engine.kernels import fold_order as kernels
from tests.unit.engine.kernels.helpers import called_from_python

position = called_from_python(kernels.position)


def test_positions_of_percentiles() -> None:
    assert [position(kernels.DISCRETE, p, 4) for p in (0.0, 0.25, 0.26, 0.5, 1.0)] == [0, 0, 1, 1, 3]
    assert [position(kernels.BELOW, p, 4) for p in (0.0, 0.5, 1.0)] == [0, 1, 3]
    assert [position(kernels.ABOVE, p, 4) for p in (0.0, 0.5, 1.0)] == [0, 2, 3]


def test_ids_that_nobody_holds_are_found_once() -> None:
    references = np.array([0, 2, 0, 1])
    out = np.empty(5, np.int64)
    count = kernels.unreferenced(np.array([2, 1, 2, 0, 3]), references, out)
    assert out[:count].tolist() == [2, 0]
    assert references.tolist() == [-1, 2, -1, 1]


def test_new_ids_get_the_next_places() -> None:
    places, rows = np.array([0, 4, 0]), np.empty(4, np.int64)
    count = kernels.new_ids(np.array([2, 1, 2, 0]), places, 7, rows)
    assert rows[:count].tolist() == [0, 3]
    assert places.tolist() == [8, 4, 7]


def test_interpolation_between_neighbours() -> None:
    out = np.empty(3)
    kernels.interpolate(np.array([1.0, 5.0, 0.0]), np.array([2.0, 5.0, 0.0]), np.array([2, 1, 0]), 0.25, out)
    assert out.tolist() == [1.25, 5.0, 0.0]
