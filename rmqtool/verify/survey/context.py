"""Scope and rules of a run: options, and the context that every split is checked in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.versions import NEWEST, rules_for
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import finding
from rmqtool.formats.queue_name import QueueKey, TypedQueueKey, queue_key
from rmqtool.scan.row_cache import RowCache
from rmqtool.store.directory import Segment, Store
from rmqtool.store.source import ByteSource

if TYPE_CHECKING:
    from rmqtool.engine.dispatch.queue_entries import DispatchSettings
    from rmqtool.verify.survey.index_map import IndexMap
    from rmqtool.verify.survey.log_order import LogOrder
    from rmqtool.verify.survey.queue_map import QueueMap

QueueEnd = Callable[[QueueKey], int | None]

REGRESS_MARGIN_MS: Final = 1000
"""A record older than the one before it by more than this is worth a word; clocks are set back by less every day."""


class Depth(Enum):
    """Extent of the checks; each level includes the one before."""

    STRUCTURE = "structure"
    """Names, sizes, queues and index by themselves, checkpoint and configuration: the log is not read."""
    RECORDS = "records"
    """Every record too, with its CRC."""
    FULL = "full"
    """And whether log, queues and index agree."""


@dataclass(frozen=True)
class VerifyOptions:
    """Options of a person.

    Attributes:
        slice_number, slice_count: check every `slice_count`-th split, from the `slice_number`-th on (from 1).
        sample: the part of the splits to check, above 0 and up to 1, spread evenly.
        duration_max_s: no split is begun after this long.
        state_file: remembers the splits that are done; never in the store.
        broker_runs: a broker holds the lock.
        compiled: which reader scans; None leaves it to the size of the log.
        cache: is told what is seen of the log.
        parts: in how many parts threads check each file of the log; None leaves it to its size.
        timer: compare timer and delay levels with the log too, of which the store must hold all.
    """

    depth: Depth = Depth.FULL
    threads: int = 2
    slice_number: int = 1
    slice_count: int = 1
    sample: float = 1.0
    duration_max_s: float | None = None
    state_file: Path | None = None
    broker_runs: bool = False
    compiled: bool | None = None
    cache: RowCache | None = field(default=None, compare=False, repr=False)
    parts: int | None = None
    timer: bool = True


@dataclass(frozen=True)
class VerifyContext:
    """Facts known before the first split of the log is scanned, the same for all splits.

    Attributes:
        order: the units of `queues`, where these are in a database.
        second: the same with the queues of the database, where a store has its queues in files too.
        newest_unit: physical offset of the newest record that any queue has a unit for; -1 without one.
        dispatched_end: after the start of the last record that was dispatched, as far as queues and index show it.
        live_end: after the last record that is judged while a broker is running; None without one.
        live_ms: store time from which on a running broker's records, up to the end of a split, are not judged, for they
            may not be on the disk yet; None without one.
        unchecked_topics: topics whose messages need not be in a queue of their own.
        whole_topics: all topics that are configured; None where no whole configuration tells.
        shown_topics: those that are sure to be there, where others may have been deleted; None: no topic is in doubt.
        is_index_known: whether every index file with an entry can be read; not where nobody knows the slot count.
        has_indexed_tags: whether the index has entries of tags, whatever the version enters.
    """

    store: Store
    rules: BrokerRules
    options: VerifyOptions
    dispatch: DispatchSettings
    queues: Mapping[QueueKey, QueueMap] = field(default_factory=dict)
    batch_queues: Mapping[QueueKey, QueueMap] = field(default_factory=dict)
    order: LogOrder | None = None
    second: VerifyContext | None = None
    index: tuple[IndexMap, ...] = ()
    newest_unit: int = -1
    dispatched_end: int = 0
    live_end: int | None = None
    live_ms: int | None = None
    unchecked_topics: frozenset[bytes] = frozenset()
    whole_topics: frozenset[bytes] | None = None
    shown_topics: frozenset[str] | None = None
    is_index_known: bool = True
    has_indexed_tags: bool = False

    @property
    def index_rules(self) -> BrokerRules:
        """By which rules the index may have been written: those that enter most of all that wrote a part of it."""
        return rules_for(NEWEST) if self.has_indexed_tags and not self.rules.index_tags else self.rules

    @property
    def open_file(self) -> Callable[[str], ByteSource]:
        return self.store.view.open

    def queue(self, key: TypedQueueKey) -> QueueMap | None:
        """The map of a queue; None where the store has none of it."""
        return (self.batch_queues if key[2] else self.queues).get(key[:2])

    def queues_into(self, begin: int, end: int) -> Iterator[tuple[QueueKey, QueueMap]]:
        """Queues, of plain units and of batches, of which some have units that point into [begin, end) of the log."""

        def maps_into(maps: Mapping[QueueKey, QueueMap]) -> Iterator[tuple[QueueKey, QueueMap]]:
            return maps.into(begin, end) if isinstance(maps, RangedMaps) else iter(maps.items())

        if self.order is None:
            plain = maps_into(self.queues)
        else:
            keys = (queue_key(*name) for name in self.order.queues_into(begin, end))
            plain = ((key, self.queues[key]) for key in keys)
        return chain(plain, maps_into(self.batch_queues)) if self.batch_queues else plain

    def log_segment(self, physical_offset: int) -> Segment:
        """The commitlog file that holds a physical offset."""
        return next(segment for segment in reversed(self.store.commitlog) if segment.start <= physical_offset)

    def log_finding(self, kind: str, physical_offset: int, message: str, **details: Any) -> Finding:
        """A finding about what lies in the log at a physical offset."""
        segment = self.log_segment(physical_offset)
        place = {"file_position": physical_offset - segment.start, "physical_offset": physical_offset}
        return finding(kind, segment.path, message, **place, **details)

    @property
    def crosses(self) -> bool:
        """True if log, queues and index are compared."""
        return self.options.depth is Depth.FULL

    @property
    def has_all_queues(self) -> bool:
        """True if every message should be in one of the queues that were read."""
        is_second_read = self.second is not None or self.order is not None
        return self.store.are_queues_known and (self.store.queue_kind != "mixed" or is_second_read)

    @property
    def has_file_queues(self) -> bool:
        """True if every message should be in a queue that is made of files."""
        return self.store.queue_kind == "file"


@runtime_checkable
class RangedMaps(Protocol):
    """Maps of queues that can tell which ones have units into a range of the log."""

    def into(self, begin: int, end: int) -> Iterator[tuple[QueueKey, QueueMap]]:
        """Those of which some may have units that point into [begin, end) of the log."""
