"""All plan nodes, by family."""

from squill.plan.nodes.aggregation import Aggregate, Distinct
from squill.plan.nodes.combine import Union
from squill.plan.nodes.lifetime import (
    AlterLifetime,
    CastTime,
    Chop,
    ClipDuration,
    Extend,
    PointAtEnd,
    Quantize,
    Shift,
    Stitch,
    WaitForEnds,
    WithDuration,
)
from squill.plan.nodes.patterns import ConsecutivePairs, Detect, Sessionize
from squill.plan.nodes.payload import MapBatches, Select, SelectMany, Where
from squill.plan.nodes.sources import (
    Disorder,
    EventsSource,
    FilePart,
    FileSource,
    FrameSource,
    Lifetime,
    Promises,
    PushSource,
    Source,
    Stored,
)
from squill.plan.nodes.two_inputs import AsofJoin, ClipByStream, Exists, Join, TwoInputs
from squill.plan.nodes.user import SnapshotApply, UserOperator
from squill.plan.nodes.windows import CountWindow, HoppingWindow, PerWindow, SessionWindow

__all__ = [
    "Aggregate", "AlterLifetime", "AsofJoin", "CastTime", "Chop", "ClipByStream", "ClipDuration",
    "ConsecutivePairs", "CountWindow", "Detect", "Disorder", "Distinct", "EventsSource", "Exists", "Extend",
    "FilePart", "FileSource", "FrameSource", "HoppingWindow", "Join", "Lifetime", "MapBatches", "PerWindow",
    "PointAtEnd", "Promises", "PushSource", "Quantize", "Select", "SelectMany", "SessionWindow", "Sessionize", "Shift",
    "SnapshotApply", "Source", "Stitch", "Stored", "TwoInputs", "Union", "UserOperator", "WaitForEnds", "Where",
    "WithDuration",
]  # fmt: skip
