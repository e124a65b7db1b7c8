"""Plans, runs and commits epochs.

An epoch: see what is new, write that down, run the plan wave by wave, commit, hand the answer over. A process that
dies at any moment of it is followed by one that finds the commit, and hands the answer over, or does not find it, and
begins the epoch anew from the states before.
"""

from __future__ import annotations

import time as wall
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from squill.engine.batch import Batch
from squill.engine.state.belonging import Belonging
from squill.engine.state.versions import Version
from squill.errors import CheckpointError, ShardError
from squill.plan.fragments import Fragment, ShardedPlan, sources_of
from squill.plan.node import Node
from squill.plan.nodes import Source
from squill.plan.nodes.live import LiveSource, RefreshedSource
from squill.plan.nodes.movement import ShardInput
from squill.plan.relayout import shards_in
from squill.runtime.live.delivery import Delivery
from squill.runtime.live.early import EarlyAnswers
from squill.runtime.live.host import LivePlan, answer_frame, write_answer
from squill.runtime.live.inputs import LiveInput, News, live_sources
from squill.runtime.live.log import Commit, EpochRecord, MemoryLog
from squill.runtime.live.orders import LiveRead, Moved, Origin, RefreshRead, ShardOrder, ShardReport
from squill.runtime.live.outside import Outside, World
from squill.runtime.live.refreshed import Reading, RefreshedInput, refreshed_sources
from squill.runtime.live.runner import Runner
from squill.runtime.live.shards import Growth, LayoutOf, Shards
from squill.runtime.live.sinks import Sink
from squill.runtime.live.times import InputTimes
from squill.runtime.splits import splits_of
from squill.time import INFINITY, MINUS_INFINITY

__all__ = ["Done", "LiveDriver", "plan_as_json"]

Place = tuple[int, int]


def plan_as_json(plan: ShardedPlan, root: Node, emit: str) -> Any:
    """Return what must be the same for a checkpoint to be gone on with."""
    belongings = [Belonging.of(fragment.root, emit).to_json() for fragment in plan.fragments]
    return {
        "fragments": [item["nodes"] for item in belongings],
        "shards": shards_in(root),
        "emit": emit,
        "state": belongings[0]["state"],
        "hash": belongings[0]["hash"],
    }


@dataclass(frozen=True, kw_only=True)
class Done:
    """What an epoch has done."""

    epoch: int
    rows_read: int
    rows_out: int
    seconds: float
    clock: int
    late: Mapping[int, pl.DataFrame]
    state_bytes: Mapping[Place, int]
    state_rows: int
    loads: int


@dataclass
class _Position:
    """Where the query stands: what was committed last."""

    epoch: int = 0
    states: dict[Place, Version] = field(default_factory=dict)
    clocks: dict[int, int] = field(default_factory=dict)
    late: dict[int, int] = field(default_factory=dict)
    peaks: dict[int, dict[int, int]] = field(default_factory=dict)
    readings: dict[int, Any] = field(default_factory=dict)
    is_final: bool = False


@dataclass(frozen=True)
class _Answer:
    """What an epoch has for the sink: rows in memory, or files with their number of rows."""

    rows: Sequence[Batch]
    files: Sequence[tuple[str, int]]


class LiveDriver:
    """One live query. `inputs` are by the number of their source, in the order of `live_sources`.

    Where `shards` are divided the next epoch begins with parts of the states before, and with its commit there are
    as many. `layout_of` arranges them when a state has outgrown the memory and is divided further.
    """

    def __init__(
        self,
        shards: Shards,
        live_plan: LivePlan,
        runner: Runner,
        sink: Sink,
        log: MemoryLog,
        inputs: Mapping[int, LiveInput],
        outside: Outside | None = None,
        *,
        speculate: bool = False,
        layout_of: LayoutOf | None = None,
    ) -> None:
        plan = shards.plan
        self._live_plan = live_plan
        self._growth = None if layout_of is None else Growth(live_plan, layout_of)
        self._outside: Outside = outside or World()
        self._early = EarlyAnswers(plan.answer.root) if speculate else None
        self._emit = live_plan.emit
        self._runner = runner
        self._sink = sink
        self._log = log
        self.inputs = dict(inputs)
        self.sources = dict(enumerate(live_sources(plan.fragments).values()))
        self._number_of = {source.live_id: number for number, source in self.sources.items()}
        tables = list(enumerate(refreshed_sources(plan.fragments).items()))
        self._tables = {number: RefreshedInput(source, number, log.folder) for number, (_, source) in tables}
        self._table_of = {live_id: number for number, (live_id, _) in tables}
        self._told = MINUS_INFINITY
        """How far the tables' time has come in all shards."""
        self._behind = False
        self._take(shards)
        self._times = InputTimes(self.sources, self._outside)
        self._delivery = Delivery(sink, plan.answer.root, live_plan.emit, self._outside)
        self.position = _Position()
        self.state_bytes: dict[Place, int] = {}
        self._largest = 0
        """How much the largest state is."""

    def _take(self, shards: Shards) -> None:
        """Go on with the plan on these shards."""
        self._shards, self._plan, self._divided = shards, shards.plan, dict(shards.divided)
        self._leaves = {fragment.number: sources_of(fragment.root) for fragment in shards.plan.fragments}
        self._waves = _waves(shards.plan)
        self._sent: dict[tuple[int, int, int], int] = {}

    # -- beginning and going on -----------------------------------------------------------------------------

    def open(self) -> None:
        """Take over what the checkpoint holds; rows of its last epoch that the sink may lack are given to it."""
        base, epochs, begun = self._log.open()
        if begun is not None:
            # Nobody has seen anything of it; what it was to read may have been repaired since.
            self._log.drop(begun)
        last: Commit | None = base
        if base is not None and base.offsets is not None:
            for number, offset in base.offsets.items():
                self.inputs[number].restore(offset)
        for record, commit in epochs:
            self._take_note(record, commit)
            last = commit
        if last is not None:
            self.position = _Position(
                last.number,
                dict(last.states),
                dict(last.clocks),
                dict(last.late),
                {number: dict(peaks) for number, peaks in last.peaks.items()},
                dict(last.readings),
                last.is_final,
            )
            for number, reading in last.readings.items():
                self._tables[number].restore(Reading.from_json(reading))
            self._behind = True
            if self._early is not None:
                self._early.restore(last.early)
        # Of what came before its first epoch, number 1, the sink has nothing.
        given = None if last is None or last.number == 0 else last
        self._sink.prepare(None if given is None else given.files)
        if given is not None:
            self._delivery.hand_over(given, again=True)

    @property
    def shards(self) -> int:
        """How many shards there are; of fragments on different numbers of them, the most."""
        return max(fragment.layout.shards for fragment in self._plan.fragments)

    def _take_note(self, record: EpochRecord, commit: Commit) -> None:
        for number, news in record.news.items():
            self.inputs[number].taken(news, commit.reached.get(number, {}))
        for number, reading in record.readings.items():
            self._tables[number].taken(Reading.from_json(reading))

    @property
    def last_frame(self) -> pl.DataFrame | None:
        """The rows of the last epoch that had any, where the sink takes frames."""
        return self._delivery.last_frame

    @property
    def offsets(self) -> dict[str, Any]:
        """What was committed of each input, by its label."""
        return {self.sources[number].label: item.offset for number, item in self.inputs.items()}

    @property
    def clock(self) -> int:
        """How far the query has come: the least time of its inputs."""
        return min(self._clocks().values(), default=INFINITY)

    def _clocks(self) -> dict[int, int]:
        return {number: self.position.clocks.get(number, MINUS_INFINITY) for number in self.inputs}

    def is_completed(self) -> bool:
        """Whether all inputs have come to their end."""
        return self.position.is_final

    def refuse_more(self) -> None:
        """Raise when there is something new for a query that was completed."""
        for number, item in self.inputs.items():
            if not item.tells_offsets and item.news() is not None:
                label = self.sources[number].label
                raise CheckpointError(
                    f"start: the query of this checkpoint was completed, and {label!r} has more rows",
                    "use complete=False when there is more to come; for these rows give a fresh checkpoint.",
                )

    # -- one epoch ------------------------------------------------------------------------------------------

    def step(self, *, is_final: bool = False, ended: Collection[str] = ()) -> Done | None:
        """Run an epoch over what is new; None when there is nothing, or when nothing came of it.

        With `is_final` all inputs end with it, else those whose labels are `ended`.
        """
        if self.position.is_final:
            return None
        ending = [number for number, item in self.sources.items() if is_final or item.label in ended]
        record = self._next(ending)
        if record is None:
            return None
        self._divide_if_too_large()
        self._log.begin(record)
        begin = wall.perf_counter()
        try:
            self._outside.about_to("begin")
            reports = self._tried(record)
            answer = self._answered(record, reports)
        except BaseException:
            self._runner.forget()
            raise
        finally:
            self._runner.epoch_over(record.number)
        if self._was_empty(record, reports):
            self._log.drop(record)
            self._behind = False
            return None
        self._outside.about_to("commit")
        commit = self._committed(record, reports, answer)
        self._outside.about_to("deliver")
        self._delivery.hand_over(commit, answer.rows)
        return self._done(record, commit, reports, answer, wall.perf_counter() - begin)

    def _divide_if_too_large(self) -> None:
        """Divide the shards when a state does not fit into memory by itself."""
        if self._growth is None or self._log.folder is None or self._divided:
            return
        found = self._growth.divided(self._shards, self._largest)
        if found is not None:
            self._take(found)
            self.state_bytes = {}
            fragments = {fragment.number: fragment for fragment in found.plan.fragments}
            self._live_plan = replace(self._live_plan, fragments=fragments, divisions=found.divisions)
            self._runner.take_plan(self._live_plan)
            self._log.divide(shards_in(found.root))

    def _was_empty(self, record: EpochRecord, reports: Sequence[ShardReport]) -> bool:
        """Whether nothing came of an epoch; files without rows are something: they are not to be read again."""
        if any(report.has_news or any(report.offsets.values()) for report in reports):
            return False
        return all(self.inputs[number].tells_offsets for number in record.news) and not record.last

    def _next(self, ending: Sequence[int]) -> EpochRecord | None:
        """Return what the next epoch, the last of inputs that end, reads; None when there is nothing to be done."""
        found: dict[int, News] = {}
        for number, item in self.inputs.items():
            news = item.news()
            if news is not None:
                found[number] = news
                if not item.tells_offsets:
                    self._times.had_news(number)
        clocks = self._times.carried(self._clocks())
        moved = clocks != self._clocks()
        readings: dict[int, Any] = {}
        for number, table in self._tables.items():
            # The first reading is of the first epoch, which begins when there is something to read beside it.
            if table.last is not None or found or ending:
                reading = table.due(self._outside.now(), min(clocks.values()))
                if reading is not None:
                    readings[number] = reading.to_json()
        if not (found or ending or self._behind or moved or readings):
            return None
        last = tuple(sorted({*ending, *(number for number, news in found.items() if news.is_last)}))
        return EpochRecord(
            number=self.position.epoch + 1,
            news={number: news.record for number, news in found.items()},
            clocks=clocks,
            reaches={number: news.reaches for number, news in found.items() if news.reaches > MINUS_INFINITY},
            last=last,
            readings=readings,
        )

    def _ends_all(self, record: EpochRecord) -> bool:
        """Whether no input goes on after the epoch: it is the last of those that had not ended before."""
        return all(number in record.last or clock == INFINITY for number, clock in self._clocks().items())

    def _tried(self, record: EpochRecord) -> list[ShardReport]:
        """Run the epoch; again where a worker died, whose shards come from the checkpoint then."""
        for left in range(self._runner.tries - 1, 0, -1):
            try:
                return self._run(record)
            except ShardError as error:
                self._runner.forget()
                self._runner.epoch_over(record.number)
                warnings.warn(f"epoch {record.number} is tried again, {left} more times at most: {error}", stacklevel=2)
        return self._run(record)

    def _run(self, record: EpochRecord) -> list[ShardReport]:
        reports: list[ShardReport] = []
        runs: dict[tuple[int, int], list[tuple[int, Any]]] = {}
        portions = self._portions(record)
        self._outside.about_to("read")
        known = self._read(record, portions)
        self._told = min((record.clocks if known is None else known).values(), default=INFINITY)
        for wave in self._waves:
            orders = [
                self._order(record, fragment, shard, portions, runs)
                for fragment in wave
                for shard in range(fragment.layout.shards)
            ]
            self._outside.about_to("work")
            until = [{} if known is None else self._until(order, known) for order in orders]
            for report in self._runner.work(orders, until):
                reports.append(report)
                for (channel, receiver), run in report.runs.items():
                    runs.setdefault((channel, receiver), []).append((report.shard, run))
                for (channel, receiver), clock in report.told.items():
                    self._sent[channel, report.shard, receiver] = clock
        return reports

    def _read(self, record: EpochRecord, portions: Mapping[tuple[int, int], Sequence[Any]]) -> dict[int, int] | None:
        """Let all shards take what is new of live inputs; return how far these have come, where reading tells."""
        orders = [
            self._order(record, fragment, shard, portions, {})
            for fragment in self._plan.fragments
            if any(isinstance(source, LiveSource) for source in self._leaves[fragment.number])
            for shard in range(fragment.layout.shards)
        ]
        seen = self._runner.read(orders)
        if seen is None:
            return None
        found = [
            (self._input_of(order.fragment, leaf), item)
            for order, each in zip(orders, seen, strict=True)
            for leaf, item in each.items()
        ]
        return self._times.come_to(record.clocks, self.position.peaks, found)[0]

    def _answered(self, record: EpochRecord, reports: Sequence[ShardReport]) -> _Answer:
        """Return what the sink is to be given: the shards' own rows and files, or with early answers the difference."""
        rows = [report.rows for report in reports if report.rows is not None]
        files = [report.file for report in reports if report.file is not None]
        if self._early is None:
            return _Answer(rows, files)
        changes = self._early.difference(rows, [] if self._ends_all(record) else self._looked_ahead(record, reports))
        order = self._sink.order(record.number, self._answers)
        if changes is None or order is None:
            return _Answer([] if changes is None else [changes], [])
        frame = answer_frame(changes, self._plan.answer.root, self._emit)
        return _Answer([], [(write_answer(frame, order, 0), frame.height)])

    def _looked_ahead(self, record: EpochRecord, reports: Sequence[ShardReport]) -> list[Batch]:
        """Return the changes that would follow if all inputs ended here."""
        versions = {(report.fragment, report.shard): report.version for report in reports}
        runs: dict[tuple[int, int], list[Any]] = {}
        rows: list[Batch] = []
        for wave in self._waves:
            orders = [
                ShardOrder(
                    fragment=fragment.number,
                    shard=shard,
                    epoch=record.number,
                    before=versions[fragment.number, shard],
                    inputs={
                        leaf: _to_the_end(source, runs, shard)
                        for leaf, source in enumerate(self._leaves[fragment.number])
                        if isinstance(source, (ShardInput, LiveSource, RefreshedSource))
                    },
                    ahead=True,
                )
                for fragment in wave
                for shard in range(fragment.layout.shards)
            ]
            for report in self._runner.look_ahead(orders):
                rows += [report.rows] if report.rows is not None else []
                for place, run in report.runs.items():
                    runs.setdefault(place, []).append(run)
        return rows

    @property
    def _answers(self) -> Path | None:
        return None if self._log.folder is None else self._log.folder / "answers"

    def _portions(self, record: EpochRecord) -> dict[tuple[int, int], Sequence[Any]]:
        """Return what each shard reads of each live leaf, by fragment and leaf."""
        found: dict[tuple[int, int], Sequence[Any]] = {}
        for fragment in self._plan.fragments:
            for leaf, source in enumerate(self._leaves[fragment.number]):
                if isinstance(source, LiveSource):
                    number = self._number_of[source.live_id]
                    if number in record.news:
                        shards = fragment.layout.shards
                        found[fragment.number, leaf] = self.inputs[number].portions(record.news[number], source, shards)
        return found

    def _order(
        self,
        record: EpochRecord,
        fragment: Fragment,
        shard: int,
        portions: Mapping[tuple[int, int], Sequence[Any]],
        runs: Mapping[tuple[int, int], Sequence[tuple[int, Any]]],
    ) -> ShardOrder:
        before, origin = self._before(fragment.number, shard)
        inputs: dict[int, Any] = {}
        for leaf, source in enumerate(self._leaves[fragment.number]):
            if isinstance(source, ShardInput):
                sent = sorted(runs.get((source.channel, shard), ()), key=lambda item: item[0])
                clock = self._clock_for(source.channel, shard)
                inputs[leaf] = Moved(runs=[run for _, run in sent], clock=clock)
            elif isinstance(source, LiveSource):
                number = self._number_of[source.live_id]
                share = portions.get((fragment.number, leaf))
                inputs[leaf] = LiveRead(
                    clock=record.clocks.get(number, MINUS_INFINITY),
                    portion=None if share is None else share[shard],
                    reaches=record.reaches.get(number, MINUS_INFINITY),
                    is_last=number in record.last,
                )
            elif isinstance(source, RefreshedSource):
                inputs[leaf] = self._refresh(record, source, shard, fragment.layout.shards)
            elif before is None and origin is None:
                inputs[leaf] = splits_of(source, fragment.layout.shards)[shard]
        is_answer = not fragment.outputs and self._early is None
        output = self._sink.order(record.number, self._answers) if is_answer else None
        return ShardOrder(
            fragment=fragment.number, shard=shard, epoch=record.number, before=before, inputs=inputs, output=output,
            origin=origin,
        )  # fmt: skip

    def _before(self, fragment: int, shard: int) -> tuple[Version | None, Origin | None]:
        """Return the version that a shard has come to; of one that is divided off, the shard that it was part of."""
        if fragment not in self._divided:
            return self.position.states.get((fragment, shard)), None
        whole = shard % self._divided[fragment]
        version = self.position.states.get((fragment, whole))
        origin = None if version is None else Origin(shard=whole, version=version)
        return version if shard == whole else None, origin

    def _refresh(self, record: EpochRecord, source: RefreshedSource, shard: int, shards: int) -> RefreshRead:
        number = self._table_of[source.live_id]
        reading, portion = record.readings.get(number), None
        if reading is not None:
            portion = self._tables[number].portion(Reading.from_json(reading), shard, shards)
        clock = min(record.clocks.values(), default=INFINITY)
        return RefreshRead(clock=clock, portion=portion, is_last=self._ends_all(record))

    def _clock_for(self, number: int, receiver: int) -> int:
        """Return the least clock of those who send to a shard."""
        channel = self._plan.channels[number]
        sender = next(fragment for fragment in self._plan.fragments if fragment.number == channel.sender)
        producers = [shard for shard in range(sender.layout.shards) if receiver in channel.routing.targets(shard)]
        return min((self._sent.get((number, shard, receiver), MINUS_INFINITY) for shard in producers), default=INFINITY)

    def _until(self, order: ShardOrder, clocks: Mapping[int, int]) -> dict[int, int]:
        """Return how far the live leaves of a shard have come; a table that is read again goes with the slowest."""
        found: dict[int, int] = {}
        for leaf, item in order.inputs.items():
            if isinstance(item, LiveRead):
                found[leaf] = clocks[self._input_of(order.fragment, leaf)]
            elif isinstance(item, RefreshRead):
                found[leaf] = min(clocks.values())
        return found

    def _input_of(self, fragment: int, leaf: int) -> int:
        source = self._leaves[fragment][leaf]
        assert isinstance(source, LiveSource)
        return self._number_of[source.live_id]

    # -- what comes of it -----------------------------------------------------------------------------------

    def _committed(self, record: EpochRecord, reports: Sequence[ShardReport], answer: _Answer) -> Commit:
        states = {place: item for place, item in self.position.states.items() if place[0] not in self._divided}
        late = dict(self.position.late)
        seen = [
            (self._input_of(report.fragment, leaf), item) for report in reports for leaf, item in report.seen.items()
        ]
        clocks, peaks = self._times.come_to(record.clocks, self.position.peaks, seen)
        reached: dict[int, dict[int, Any]] = {}
        least: dict[int, int] = {}
        for number, item in seen:
            least[number] = min(least.get(number, INFINITY), item.clock)
        for report in reports:
            if report.version is not None:
                states[report.fragment, report.shard] = report.version
            for leaf, offsets in report.offsets.items():
                number = self._input_of(report.fragment, leaf)
                reached.setdefault(number, {}).update(offsets)
                if offsets:
                    self._times.had_news(number)
            for leaf, found in report.late.items():
                number = self._input_of(report.fragment, leaf)
                late[number] = late.get(number, 0) + found.count
        behind = any(least[number] < clocks[number] for number in least)
        behind = behind or (bool(self._tables) and self._told < min(clocks.values()))
        readings = {**self.position.readings, **record.readings}
        early = None
        if self._early is not None and self._answers is not None:
            early = self._early.keep(self._answers / f"{record.number:08}.early")
        offsets = None
        is_final = self._ends_all(record)
        if is_final or self._log.wants_offsets(record.number):
            # Before this epoch, whose own record says the rest: an input forgets nothing before the commit is there.
            offsets = {number: item.offset for number, item in self.inputs.items()}
        commit = Commit(
            number=record.number, states=states, clocks=clocks, reached=reached, files=tuple(answer.files),
            offsets=offsets, early=early, late=late, peaks=peaks, readings=readings,
            rows=sum(report.rows_read for report in reports), is_final=is_final,
        )  # fmt: skip
        self._log.commit(commit)
        self._take_note(record, commit)
        if self._answers is not None and early is not None:
            for older in self._answers.glob("*.early"):
                if str(older) != early:
                    older.unlink(missing_ok=True)
        self.position = _Position(record.number, states, clocks, late, peaks, readings, is_final)
        self._divided = {}
        self._behind = behind and not is_final
        for report in reports:
            self.state_bytes[report.fragment, report.shard] = report.state_bytes
        self._largest = max(report.live_bytes for report in reports)
        return commit

    def _done(
        self, record: EpochRecord, commit: Commit, reports: Sequence[ShardReport], answer: _Answer, seconds: float
    ) -> Done:
        late: dict[int, pl.DataFrame] = {}
        for report in reports:
            for leaf, found in report.late.items():
                number = self._input_of(report.fragment, leaf)
                late[number] = found.rows if number not in late else pl.concat([late[number], found.rows])
        handed = sum(map(len, answer.rows))
        return Done(
            epoch=record.number,
            rows_read=commit.rows,
            rows_out=handed + sum(rows for _, rows in commit.files),
            seconds=seconds,
            clock=self.clock,
            late=late,
            state_bytes=dict(self.state_bytes),
            state_rows=sum(report.state_rows for report in reports),
            loads=sum(report.was_loaded for report in reports),
        )


def _to_the_end(source: Source, runs: Mapping[tuple[int, int], Sequence[Any]], shard: int) -> Any:
    """Return what a copy of a shard reads if all inputs end here."""
    if isinstance(source, ShardInput):
        return Moved(runs=runs.get((source.channel, shard), []), clock=INFINITY)
    if isinstance(source, RefreshedSource):
        return RefreshRead(clock=MINUS_INFINITY, is_last=True)
    return LiveRead(clock=MINUS_INFINITY, is_last=True)


def _waves(plan: ShardedPlan) -> list[list[Fragment]]:
    """Return the fragments in waves: those of a wave wait for earlier ones only."""
    channels = plan.channels
    depth: dict[int, int] = {}
    for fragment in plan.fragments:
        senders = [channels[number].sender for number in fragment.inputs if number is not None]
        depth[fragment.number] = 1 + max((depth[sender] for sender in senders), default=0)
    deepest = max(depth.values())
    return [[f for f in plan.fragments if depth[f.number] == level] for level in range(1, deepest + 1)]
