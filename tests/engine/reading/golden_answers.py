"""Compares a reader's answers with what a broker answered over a golden store; a difference is a sentence."""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rmqtool.engine.queues.file_queue import FileQueue
from rmqtool.engine.queues.unit import Boundary
from rmqtool.engine.reading.reader import GetMessageResult, Reader, open_reader
from rmqtool.engine.reading.stored_message import StoredMessage
from rmqtool.engine.rules.broker_rules import TimeLookup
from rmqtool.engine.rules.versions import rules_for
from rmqtool.store.directory import Settings, survey
from rmqtool.store.view import open_directory
from tests.golden_stores import Queue, Row, Served, manifest

SECOND_NS = 1_000_000_000
BOUNDARIES = {"offset": Boundary.LOWER, "LOWER": Boundary.LOWER, "UPPER": Boundary.UPPER}


def open_golden(path: Path, name: str, version: str) -> Reader:
    """A reader of a version over an unpacked store, told no more than the log's directories."""
    directories = manifest(name).config.get("storePathCommitLog")
    settings = Settings(commitlog_directories=tuple(directories.split(",")) if directories else ())
    return open_reader(survey(open_directory(path), settings), rules_for(version))


def pull_row(queue_offset: int, found: GetMessageResult) -> Row:
    """An answer to a pull as the manifests write it: a batch counts with all its messages."""
    count = sum(message.unit.message_count for message in found.messages if message.unit is not None)
    places = [message.physical_offset for message in found.messages]
    return [queue_offset, found.status.value, found.next_begin_offset, count, places]


def differences(reader: Reader, served: Served, compared: Counter[str], *, keys: bool) -> Iterator[str]:
    """Every answer that is not the broker's; `compared` counts what was looked at, `keys` asks for queries too."""
    for queue in served.queues:
        name = f"{queue.topic}/{queue.queue_id}"
        loaded = reader.queue(queue.topic, queue.queue_id)
        compared["queues"] += 1
        if (loaded.min_queue_offset, loaded.max_queue_offset) != (queue.min, queue.max):
            yield f"{name}: {loaded.min_queue_offset}..{loaded.max_queue_offset}, not {queue.min}..{queue.max}"
        for difference in (*_pulls(reader, queue, compared), *_units(reader, queue, compared)):
            yield f"{name}: {difference}"
        for difference in _times(reader, queue, compared):
            yield f"{name}: {difference}"
    for row in served.keys if keys else ():
        compared["keys"] += 1
        yield from _key(reader, row)


def _pulls(reader: Reader, queue: Queue, compared: Counter[str]) -> Iterator[str]:
    for rows, wanted in ((queue.edges.values(), 1), (queue.pulls, 32)):
        for row in rows:
            compared["edges" if wanted == 1 else "pulls"] += 1
            answer = pull_row(row[0], reader.get_message(queue.topic, queue.queue_id, row[0], wanted))
            if answer != row[:5]:
                yield f"pull {answer}, not {row[:5]}"


def _units(reader: Reader, queue: Queue, compared: Counter[str]) -> Iterator[str]:
    for queue_offset, status, place, unit, *further in queue.messages:
        compared["messages"] += 1
        found = reader.get_message(queue.topic, queue.queue_id, queue_offset, 1)
        answer = (found.status.value, found.messages[0].physical_offset if found.messages else None)
        if answer != (status, place):
            yield f"message {queue_offset}: {answer}, not {(status, place)}"
        extra = further[0] if further else {}
        read = next(reader.queue(queue.topic, queue.queue_id).units_from(queue_offset) or iter(()), None)
        # Later brokers put the extension's code into the unit, earlier ones leave the address.
        codes = () if read is None else (read.stored_tags_code, read.tags_code)
        if unit is not None and (
            read is None or [read.physical_offset, read.record_size] != unit[:2] or unit[2] not in codes
        ):
            yield f"unit {queue_offset}: {read}, not {unit}"
        if read is not None and "ext" in extra:
            compared["extensions"] += 1
            if read.extension is None or list(read.extension) != [
                *(extra["ext"][key] for key in ("size", "tagsCode", "msgStoreTime")),
                len(b64decode(extra["ext"]["bitMap"] or "")),
            ]:
                yield f"extension {queue_offset}: {read.extension}, not {extra['ext']}"
        if read is not None and "batchNum" in extra:
            compared["batches"] += 1
            if (read.queue_offset, read.message_count) != (extra["queueOffset"], extra["batchNum"]):
                yield f"batch {queue_offset}: {read}, not {extra}"


def _times(reader: Reader, queue: Queue, compared: Counter[str]) -> Iterator[str]:
    for row in queue.by_time:
        for column, boundary in BOUNDARIES.items():
            if column not in row:
                continue
            compared["times"] += 1
            answers = _possible_times(reader, queue, row["time"], boundary)
            compared["times without doubt"] += len(answers) == 1
            if row[column] not in answers:
                yield f"{column} of {row['time']}: {sorted(answers)}, not {row[column]}"


def _possible_times(reader: Reader, queue: Queue, timestamp_ms: int, boundary: Boundary) -> set[int]:
    """The answers that the files' modification times allow: the archive keeps seconds, the broker saw milliseconds.

    Time grows from file to file, so some first files were changed before the time asked for, the others after it.
    """
    loaded = reader.queue(queue.topic, queue.queue_id)

    def answer() -> int:
        return reader.offset_in_queue_by_time(queue.topic, queue.queue_id, timestamp_ms, boundary)

    if reader.rules.time_lookup is not TimeLookup.NEAREST or not isinstance(loaded, FileQueue):
        return {answer()}
    original = loaded.loaded.segments
    answers = set()
    for first_late in range(len(original) + 1):
        loaded.loaded.segments = tuple(
            replace(segment, entry=replace(segment.entry, mtime_ns=segment.entry.mtime_ns + SECOND_NS - 1))
            if number >= first_late
            else segment
            for number, segment in enumerate(original)
        )
        answers.add(answer())
    loaded.loaded.segments = original
    return answers


def _key(reader: Reader, row: Row) -> Iterator[str]:
    topic, key, places = row[:3]
    further: dict[str, Any] = row[3] if len(row) > 3 else {}
    by_tag = further.get("type") == "T"
    found = reader.query_message(topic, key, 64, by_tag=by_tag)
    name = f"{'tag' if by_tag else 'key'} {topic} {key}"
    if "IndexOutOfBounds" in further.get("error", ""):
        # The one who asked the broker could not take apart what it served: no record, but bytes of length 0.
        if all(message.record for message in found.messages):
            yield f"{name}: served {found.messages} without trouble"
    elif "error" in further:
        if not found.never_ends:
            yield f"{name}: ends with {found.indexed_physical_offsets}"
    elif by_tag:
        # Lookups by tag were written down as the index answers, newest first.
        if list(found.indexed_physical_offsets) != sorted(places):
            yield f"{name}: {found.indexed_physical_offsets}, not {places}"
    else:
        if list(found.indexed_physical_offsets) != sorted(further.get("indexed", _places(found.messages))):
            yield f"{name}: index has {found.indexed_physical_offsets}, not {further.get('indexed')}"
        if [_own_offset(message) for message in found.messages] != places:
            yield f"{name}: {_places(found.messages)}, not {places}"


def _places(messages: tuple[StoredMessage, ...]) -> list[int]:
    return [message.physical_offset for message in messages]


def _own_offset(message: StoredMessage) -> int:
    """What the record says of itself, by which the manifests name the answers to a query."""
    return message.record.physical_offset if message.record is not None else message.physical_offset
