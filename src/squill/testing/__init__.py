"""Tools for tests of queries: the reference, builders of streams, one assertion, live queries step by step.

>>> from squill.testing import assert_same_events, random_stream, reference
>>> query = random_stream(seed=1, rows=20).hopping_window(10, 5).aggregate(n=sq.count())
>>> assert_same_events(reference.run(query), reference.frame(query))
"""

from squill.testing import reference
from squill.testing.assertions import assert_same_events
from squill.testing.live import LiveTest, Scripted, ScriptedFailure, scripted
from squill.testing.reference import Row
from squill.testing.streams import from_rows, random_stream

__all__ = [
    "LiveTest",
    "Row",
    "Scripted",
    "ScriptedFailure",
    "assert_same_events",
    "from_rows",
    "random_stream",
    "reference",
    "scripted",
]
