"""Small stores in memory that differ in known ways, and a naive comparison of their records to hold the real one to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rmqtool.compare.join import Kind
from rmqtool.compare.log_side import StoreLog, Terms
from rmqtool.compare.manifest import ManifestLog, write_manifest
from rmqtool.compare.metadata import StoreMetadata, read_metadata
from rmqtool.compare.result import Comparison
from rmqtool.compare.run import ComparedStore, CompareOptions, compare
from rmqtool.engine.rules.versions import NEWEST, rules_for
from rmqtool.formats import commitlog
from rmqtool.store.directory import Store
from tests.engine.memory_view import made_store, record, segment_name

FILE_SIZE = 4096


@dataclass(frozen=True)
class Message:
    """A message of a test log."""

    topic: str
    queue_id: int
    queue_offset: int
    key: str | None
    body: bytes = b"body"
    store_timestamp_ms: int = 1_000_000

    @property
    def identity(self) -> tuple[str, object]:
        """What tells it from others."""
        return self.topic, self.key or (self.body, self.store_timestamp_ms)

    def record(self, physical_offset: int) -> bytes:
        properties = {} if self.key is None else {"UNIQ_KEY": self.key}
        return record(
            physical_offset,
            self.topic,
            queue_id=self.queue_id,
            queue_offset=self.queue_offset,
            properties=properties,
            body=self.body,
            store_timestamp_ms=self.store_timestamp_ms,
        )


def laid_out(messages: Sequence[Message], begin: int = 0, file_size: int = FILE_SIZE) -> dict[int, bytes]:
    """The records of a log by physical offset, blanks where a file ends."""
    found: dict[int, bytes] = {}
    at = begin
    for message in messages:
        raw = message.record(at)
        left = file_size - at % file_size
        if len(raw) + commitlog.BLANK_SIZE_MIN > left:
            found[at] = left.to_bytes(4, "big") + commitlog.MAGIC_BYTES[commitlog.MAGIC_BLANK]
            at += left
            raw = message.record(at)
        found[at] = raw
        at += len(raw)
    return found


def store_of(records: dict[int, bytes], file_size: int = FILE_SIZE) -> Store:
    """A store whose log has these records."""
    files: dict[str, bytearray] = {}
    for at, raw in records.items():
        name = "commitlog/" + segment_name(at - at % file_size)
        place = files.setdefault(name, bytearray(file_size))
        place[at % file_size : at % file_size + len(raw)] = raw
    return made_store(
        {"checkpoint": bytes(4096), **{name: bytes(content) for name, content in files.items()}},
        commitlog_file_size=file_size,
    )


def subject(store: Store, *, facts: bool = True) -> ComparedStore:
    """One side of a comparison."""
    return ComparedStore(
        "store", "store", StoreLog(store), read_metadata(store, rules_for(NEWEST)) if facts else StoreMetadata({})
    )


def compared(a: Store, b: Store, terms: Terms | None = None, **options: object) -> Comparison:
    """Two stores compared directly."""
    return compare(subject(a), subject(b), terms or Terms(), CompareOptions(**{"limit": 1000, "threads": 1, **options}))


def through_manifest(
    a: Store, b: Store, path: Path, terms: Terms | None = None, *, has_rows: bool = True
) -> Comparison:
    """The first store compared with a manifest of the second."""
    near = subject(b)
    write_manifest(path, near, "test", terms or Terms(), has_rows=has_rows)
    log = ManifestLog(path)
    said = log.description
    far = ComparedStore(said.label, "store", log, said.facts, said.totals)
    return compare(subject(a), far, said.terms, CompareOptions(limit=1000, threads=1))


@dataclass(frozen=True)
class Expected:
    """What a naive comparison says."""

    first_difference: int | None
    counts: dict[Kind, int]
    topics: dict[str, tuple[int, int]]


def naive(a: dict[int, bytes], b: dict[int, bytes], messages: tuple[Sequence[Message], Sequence[Message]]) -> Expected:
    """Compare record by record; messages are told apart by identity, which is unique in each log.

    Args:
        messages: those of the records, in order.
    """
    begin = max(min(each, default=0) // FILE_SIZE * FILE_SIZE for each in (a, b))
    end = min(max((at + _size(raw) for at, raw in each.items()), default=0) for each in (a, b))
    places = sorted(at for at in a.keys() | b.keys() if a.get(at) != b.get(at) and begin <= at < end)
    left, right = ({message.identity: message for message in each} for each in messages)
    both = left.keys() & right.keys()
    counts: Counter[Kind] = Counter()
    counts[Kind.ONLY_A], counts[Kind.ONLY_B] = len(left.keys() - right.keys()), len(right.keys() - left.keys())
    for identity in both:
        here, there = left[identity], right[identity]
        counts[Kind.CHANGED] += here.body != there.body
        counts[Kind.MOVED] += (here.queue_id, here.queue_offset) != (there.queue_id, there.queue_offset)
    topics: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for side, each in enumerate(messages):
        for message in each:
            topics[message.topic][side] += 1
    return Expected(
        places[0] if places else None,
        {kind: counts[kind] for kind in Kind if kind is not Kind.REORDERED},
        {topic: (one, other) for topic, (one, other) in topics.items()},
    )


def _size(raw: bytes) -> int:
    return int.from_bytes(raw[:4], "big")


def numbered(messages: Sequence[Message]) -> list[Message]:
    """The messages with the queue offsets that a broker would give them in this order."""
    following: Counter[tuple[str, int]] = Counter()
    found = []
    for message in messages:
        queue = message.topic, message.queue_id
        found.append(replace(message, queue_offset=following[queue]))
        following[queue] += 1
    return found
