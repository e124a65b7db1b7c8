from __future__ import annotations

import pickle

import numpy as np
import pytest

import squill as sq
from squill.engine.batch import Batch
from squill.engine.operator import Operator
from squill.errors import ColumnNotFoundError, InputError, ShardError
from squill.plan.fragments import Fragment, fragments_of
from squill.runtime.failure import failed_operator, located


@pytest.fixture
def fragment() -> Fragment:
    with sq.local(cores=2) as cluster:
        (only,) = fragments_of(cluster.from_frame({"t": [1]}, start="t").plan).fragments
    return only


class Failing(Operator):
    """Stands for any operator."""

    def push(self, batch: Batch, port: int = 0) -> None:
        raise ZeroDivisionError("by zero")


def failure_of(fragment: Fragment) -> ZeroDivisionError:
    with pytest.raises(ZeroDivisionError) as caught:
        Failing(fragment.root).push(Batch(np.empty(0, np.int64), np.empty(0, np.int64)))
    return caught.value


def test_innermost_operator_is_read_off_the_traceback(fragment: Fragment) -> None:
    assert failed_operator(failure_of(fragment)) == "frame_source"
    assert failed_operator(ValueError("never raised")) is None


def test_own_errors_keep_their_type_and_gain_the_place(fragment: Fragment) -> None:
    error = InputError("the row is bad", "mend it.")
    found = located(error, fragment, 1)
    assert found is error
    assert str(found) == "fragment 1, shard 1 of 2: the row is bad\nHint: mend it."


def test_other_errors_are_wrapped(fragment: Fragment) -> None:
    error = failure_of(fragment)
    found = located(error, fragment, 0)
    assert isinstance(found, ShardError)
    assert found.__cause__ is error
    assert str(found).startswith("fragment 1, shard 0 of 2, frame_source: ZeroDivisionError: by zero")


@pytest.mark.parametrize("error", [InputError("bad", "hint"), ColumnNotFoundError("where", "x", ["y"]), OSError("io")])
def test_place_survives_pickling(fragment: Fragment, error: Exception) -> None:
    found = located(error, fragment, 1)
    copy = pickle.loads(pickle.dumps(found))
    assert type(copy) is type(found)
    assert str(copy) == str(found)
