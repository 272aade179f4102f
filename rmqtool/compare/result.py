"""Result of a comparison, as data and as JSON."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rmqtool.compare.join import Differences, Kind
from rmqtool.compare.log_merge import RangeList
from rmqtool.compare.metadata import ConfigDifference, QueueDifference
from rmqtool.compare.rows import Array, LogTotals, TopicTotal
from rmqtool.engine.reading.resurrected_tail import ResurrectedTail
from rmqtool.formats.queue_name import QueueKey, topic_text
from rmqtool.sides.unread import UnreadFiles


class Relation(StrEnum):
    """Relation of two logs, from the later of both starts on."""

    EQUAL = "equal"
    A_IS_PREFIX = "a-is-prefix"
    B_IS_PREFIX = "b-is-prefix"
    DIVERGED = "diverged"
    APART = "apart"
    """There is no physical offset that both have."""


class Reason(StrEnum):
    """Why a message may be in one log only, where both are copies of one log."""

    EXPIRED = "expired"
    """The other log begins after it."""
    BEYOND_END = "beyond-end"
    """The other log ends before it."""
    INSIDE = "inside"
    """The other log has something else at its place."""


@dataclass(frozen=True)
class Side:
    """One of both stores.

    Attributes:
        kind: store or manifest.
        tail: old records at the end of its log that came back after a truncation; None where there are none, or the
            logs are equal.
    """

    label: str
    kind: str
    totals: LogTotals
    tail: ResurrectedTail | None = None


@dataclass(frozen=True)
class Divergence:
    """The first place where two logs of the same physical offsets differ, up to `end`: a byte, or the start of the
    record or block that `record_offset` tells in any case.
    """

    physical_offset: int
    record_offset: int
    end: int
    precision: str


@dataclass(frozen=True)
class Comparison:
    """The outcome.

    Attributes:
        differing: ranges of the log in which both sides should be equal and are not.
        messages: what differs by kind; None where one side has digests of blocks only.
        queues: keys by the queue numbers in the rows.
        topics_differ: topics whose messages differ, where no more is known than a digest of all; None elsewhere.
        not_compared: what was left out, as sentences.
        epochs: see `epochs_agree`.
        unequal_files: what differs of files that are not decoded.
    """

    a: Side
    b: Side
    identity: str
    relation: Relation
    divergence: Divergence | None
    differing: RangeList
    unresolved_blocks: int
    messages: Mapping[Kind, Differences] | None
    queues: list[QueueKey]
    topics_differ: frozenset[bytes] | None
    queue_differences: list[QueueDifference]
    config_differences: list[ConfigDifference]
    epochs: dict[str, int | None] | None = None
    not_compared: tuple[str, ...] = ()
    unequal_files: tuple[UnreadFiles, ...] = ()
    problems: tuple[str, ...] = ()
    limit: int = 20
    by_messages: bool = False

    @property
    def is_equal(self) -> bool:
        """True if nothing differs; compared by messages, their offsets do not count, nor do queues and settings."""
        if self.messages is not None and any(differences.count for differences in self.messages.values()):
            return False
        if self.topics_differ:
            return False
        is_same_log = self.a.totals.begin == self.b.totals.begin and self.relation is Relation.EQUAL
        return self.by_messages or (is_same_log and not self.queue_differences and not self.config_differences)

    def as_json(self) -> dict[str, Any]:
        """The object of `diff --format json`."""
        divergence = self.divergence
        counts = None
        if self.messages is not None:
            counts = {"in_both": self.a.totals.messages - self.messages[Kind.ONLY_A].count}
            counts |= {kind.value.replace("-", "_"): differences.count for kind, differences in self.messages.items()}
        return {
            "equal": self.is_equal,
            "compared": "messages" if self.by_messages else "replicas",
            "identity": self.identity,
            "a": _side(self.a),
            "b": _side(self.b),
            "relation": self.relation.value,
            "first_divergence": None if divergence is None else vars(divergence),
            "differing_ranges": {
                "count": self.differing.count,
                "listed": [list(difference) for difference in self.differing.first[: self.limit]],
            },
            "unresolved_blocks": self.unresolved_blocks,
            "messages": counts,
            "topics": list(self._topics()),
            "differences": list(self.message_rows()),
            "queue_difference_count": len(self.queue_differences),
            "queues": list(map(_queue_row, self.queue_differences[: self.limit])),
            "config_difference_count": len(self.config_differences),
            "config": [
                {"file": one.file, "table": one.table, "entry": one.entry}
                | {side: None if text is None else json.loads(text) for side, text in (("a", one.a), ("b", one.b))}
                for one in self.config_differences[: self.limit]
            ],
            "epochs_agree_until": self.epochs,
            "not_compared": [*self.not_compared, *(files.text for files in self.unequal_files)],
            "problems": list(self.problems),
        }

    def message_rows(self) -> Iterable[dict[str, Any]]:
        """The messages that differ, kind after kind, those of a kind in the order of the log."""
        for kind, differences in (self.messages or {}).items():
            for row, other in differences.listed:
                yield self._message(kind, row, other)

    def _message(self, kind: Kind, row: Array, other: Array | None) -> dict[str, Any]:
        topic, queue_id = self.queues[int(row["queue"])]
        message: dict[str, Any] = {
            "type": kind.value,
            "topic": topic_text(topic),
            "queue_id": queue_id,
            "queue_offset": int(row["queue_offset"]),
            "physical_offset": int(row["physical_offset"]),
            "size": None if kind is Kind.REORDERED else int(row["size"]),
            "other_queue_id": None,
            "other_queue_offset": None,
            "other_physical_offset": None,
            "reason": None,
        }
        if other is not None:
            message["other_queue_id"] = self.queues[int(other["queue"])][1]
            message["other_queue_offset"] = int(other["queue_offset"])
            message["other_physical_offset"] = int(other["physical_offset"])
        elif kind is Kind.REORDERED:
            message["other_queue_id"], message["other_queue_offset"] = queue_id, int(row["other_offset"])
        else:
            against = self.b if kind is Kind.ONLY_A else self.a
            message["reason"] = reason(int(row["physical_offset"]), against.totals).value
        return message

    def _topics(self) -> Iterable[dict[str, Any]]:
        none = TopicTotal()
        by_topic: dict[bytes, Counter[Kind]] = defaultdict(Counter)
        for kind, differences in (self.messages or {}).items():
            for queue, count in differences.counts.items():
                by_topic[self.queues[queue][0]][kind] += count
        for topic in sorted(self.a.totals.topics.keys() | self.b.totals.topics.keys()):
            a, b = (side.totals.topics.get(topic, none) for side in (self.a, self.b))
            topic_fields = {
                "topic": topic_text(topic),
                "a": a.messages,
                "b": b.messages,
                "a_bytes": a.bytes,
                "b_bytes": b.bytes,
            }
            counts = {
                kind.value.replace("-", "_"): None if self.messages is None else by_topic[topic][kind] for kind in Kind
            }
            differs: bool | None
            if self.messages is not None:
                differs = any(counts.values())
            elif self.topics_differ is not None:
                differs = topic in self.topics_differ
            else:
                differs = True if a.messages != b.messages else None
            yield {**topic_fields, **counts, "differs": differs}


def reason(physical_offset: int, other: LogTotals) -> Reason:
    """Why the other log may lack the record at a physical offset."""
    if other.begin is None or other.end is None or physical_offset >= other.end:
        return Reason.BEYOND_END
    return Reason.EXPIRED if physical_offset < other.begin else Reason.INSIDE


def _side(side: Side) -> dict[str, Any]:
    totals, tail = side.totals, side.tail
    return {
        "store": side.label,
        "kind": side.kind,
        "min_offset": totals.begin,
        "max_offset": totals.end,
        "messages": totals.messages,
        "bytes": sum(total.bytes for total in totals.topics.values()),
        "bad_ranges": totals.bad_ranges,
        "bad_bytes": totals.bad_bytes,
        "tail_bytes": totals.tail_bytes,
        "unreadable_bytes": totals.unreadable_bytes,
        "resurrected_tail": None if tail is None else {"physical_offset": tail.begin, "messages": tail.record_count},
    }


def _queue_row(difference: QueueDifference) -> dict[str, Any]:
    row: dict[str, Any] = {"topic": difference.topic, "queue_id": difference.queue_id}
    for side, bounds in (("a", difference.a), ("b", difference.b)):
        row[f"{side}_min"], row[f"{side}_max"] = bounds or (None, None)
    return row
