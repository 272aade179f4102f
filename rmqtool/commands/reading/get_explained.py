"""Requests of `get`, and disagreements of log, queue and index with the broker's answer."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from rmqtool.answer.opened_store import CommandLine
from rmqtool.commands.messages import Messages
from rmqtool.engine.queues.unit import Boundary
from rmqtool.engine.reading.message_places import SEARCHED_MAX, MessagePlaces, log_bytes, places_of, search_log
from rmqtool.engine.reading.reader import DEFAULT_COUNT, Reader
from rmqtool.engine.reading.stored_message import StoredMessage
from rmqtool.formats.message_id import message_ids
from rmqtool.formats.properties import MULTI_DISPATCH
from rmqtool.report.text import size_text
from rmqtool.scan.row_filter import RowFilter
from rmqtool.store.config.config_json import compacted_topics, topics
from rmqtool.store.config.config_kinds import TOPICS
from rmqtool.store.config.read_config import read_config

_BY_TAG: Final = frozenset({"NO_MATCHED_MESSAGE"})
"""Statuses of an answer for which the messages that are there have other tags."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """Search of a person; times in ms."""

    topic: str | None
    queue_id: int | None
    queue_offset: int | None
    count: int | None
    tag: str | None
    message_id: str | None
    key: str | None
    from_ms: int | None
    to_ms: int | None
    at_ms: int | None
    boundary: Boundary


def explanation(
    question: Question, answer: dict[str, Any], reader: Reader, line: CommandLine, messages: Messages
) -> dict[str, Any]:
    """Where log, queue and index disagree about the answer, and whether the log was searched for what is not found."""
    stored_messages: Iterator[StoredMessage | None]
    searched = None
    if answer["messages"]:
        rows = (row for row in answer["messages"] if row["type"] == "message" and row["finding"] is None)
        stored_messages = (reader.message_at(row["physical_offset"]) for row in rows)
    elif (filters := tuple(_filters(question, answer))) and reader.store.commitlog:
        searched = log_bytes(reader) <= SEARCHED_MAX
        if not searched:
            size = size_text(log_bytes(reader))
            messages.warn(f"the commit log itself was not searched ({size}); rmqtool dump with the same options does")
            filters = ()
        stored_messages = (
            message for row_filter in filters for message in search_log(reader, row_filter, question.queue_offset)
        )
    else:
        stored_messages = iter(())
    compacted = compacted_topics(topics(read_config(reader.store.view, TOPICS)))
    places = (
        places_of(reader, message, compacted)
        for message in islice(stored_messages, DEFAULT_COUNT)
        if message is not None
    )
    found_in_log = [place for place in places if place is not None]
    disagreements = [_disagreement(place, reader, line) for place in found_in_log if not place.agree]
    for row in answer["messages"]:
        if question.queue_id is None or row["type"] != "message" or MULTI_DISPATCH in row["properties"]:
            continue
        if (row["topic"], row["queue_id"]) != (question.topic, question.queue_id):
            disagreements.append(_misled(question, row, line))
    return {"log_searched": searched, "disagreements": disagreements}


def _filters(question: Question, answer: dict[str, Any]) -> Iterator[RowFilter]:
    """Filters for the search of the log, where the broker does not find the message."""
    topics = None if question.topic is None else (glob.escape(question.topic),)
    if question.message_id is not None:
        for message_id in message_ids(question.message_id):
            yield RowFilter(topics, message_id=message_id, strict=True, stale=False)
    elif question.key is not None:
        to_ms = None if question.to_ms is None else question.to_ms + 1
        yield RowFilter(topics, None, None, None, question.from_ms, to_ms, question.key, strict=True, stale=False)
    elif question.queue_offset is not None and question.queue_id is not None and answer["status"] not in _BY_TAG:
        yield RowFilter(topics, frozenset({question.queue_id}), strict=True, stale=False)


def _misled(question: Question, row: dict[str, Any], line: CommandLine) -> dict[str, Any]:
    """A row for a pull that got a message of another queue, which does not name the pulled one as a further queue."""
    own = f"{row['topic']}/{row['queue_id']} at queue offset {row['queue_offset']}"
    text = (
        f"queue {question.topic}/{question.queue_id} leads to the message at {row['physical_offset']} in the log, "
        f"which is of {own}: consumers get a message of another queue"
    )
    place = {name: row[name] for name in ("physical_offset", "topic", "queue_id", "queue_offset")}
    command = line("rebuild --queues") if line.is_local else None
    return {**place, "in_queue": None, "in_index": None, "message": text, "command": command}


def _disagreement(place: MessagePlaces, reader: Reader, line: CommandLine) -> dict[str, Any]:
    """A row: where the message is and is not, the consequence, and the command that repairs it."""
    queue = f"{place.topic}/{place.queue_id}"
    there, missing, meaning = [f"in the commit log at {place.physical_offset}"], [], []
    if place.in_queue is True:
        there.append(f"in queue {queue} at queue offset {place.queue_offset}")
        meaning.append("consumers get it")
    elif place.in_queue is False:
        leads = f" (the unit at queue offset {place.queue_offset} points to {place.leads_to})"
        missing.append(f"not in queue {queue}{leads if place.leads_to is not None else ''}")
        meaning.append("consumers do not get it")
    if place.in_index is True:
        there.append("in the index")
        meaning.append("queries by key find it")
    elif place.in_index is False:
        missing.append(f"not in the index under key {place.missing_key}")
        meaning.append("queries by that key do not find it")
    parts = [option for option, is_in in (("--queues", place.in_queue), ("--index", place.in_index)) if is_in is False]
    command = "recover" if reader.store.has_abort else " ".join(["rebuild", *parts])
    return {
        "physical_offset": place.physical_offset,
        "topic": place.topic,
        "queue_id": place.queue_id,
        "queue_offset": place.queue_offset,
        "in_queue": place.in_queue,
        "in_index": place.in_index,
        "message": f"{', '.join((*there, *missing))}: {', '.join(meaning)}",
        "command": line(command) if line.is_local else None,
    }
