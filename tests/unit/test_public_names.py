"""What users may rely on: a name that comes or goes is a decision, and shows here."""

from __future__ import annotations

import squill as sq
from squill.engine.compile import load_operators
from squill.engine.operator import _FACTORIES
from squill.plan import nodes
from squill.plan.node import Node
from squill.plan.nodes.sources import Source

PUBLIC = """
Cluster ShardedStream Stream adjust aggregate_fn ci codec col collect_list count count_distinct count_not_null drop end
end_edge errors first folder from_events from_frame from_json interval last local max mean min partitions pattern
percentile point product progress punctuation resume scan source spark start start_edge std sum table throw top_k var
warm
"""
METHODS = """
aggregate alter_lifetime as_arrow_function asof_join cast_time chop clip collect collect_events consecutive_pairs count
count_window detect distinct drop explain extend first followed_by group_aggregate group_apply hopping_window join last
map_batches max mean min operator per_window plan point_at_end product progressive quantize rename schema select
select_many session_window sessionize share shift sliding_window snapshot_apply std stitch subscribe sum time to_ipc
to_json to_parquet tumbling_window union var wait_for_ends where where_exists where_not_exists with_columns
with_duration
"""


def test_public_names_are_exactly_these() -> None:
    assert sq.__all__ == PUBLIC.split()


def test_every_public_name_is_there() -> None:
    assert all(hasattr(sq, name) for name in sq.__all__)


def test_stream_methods_are_exactly_these() -> None:
    assert [name for name in dir(sq.Stream) if not name.startswith("_")] == METHODS.split()


def test_every_plan_node_has_an_operator_or_is_a_source() -> None:
    load_operators()
    kinds = [getattr(nodes, name) for name in nodes.__all__]
    # A base that others are made from is no node by itself.
    plan_nodes = [
        kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Node) and not kind.__subclasses__()
    ]
    assert [kind.__name__ for kind in plan_nodes if kind not in _FACTORIES and not issubclass(kind, Source)] == []
