"""`rmqtool get`: messages the way the broker finds them. What it answers comes from `engine.reading.reader`."""

from __future__ import annotations

import glob
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from rmqtool.answer.exit_codes import ExitCode
from rmqtool.answer.presence import missing_log
from rmqtool.commands.messages import Messages, messages_of
from rmqtool.commands.options import store as shared
from rmqtool.commands.options.completion import topics
from rmqtool.commands.options.decode import body_choice, tell_failures
from rmqtool.commands.options.help_groups import option
from rmqtool.commands.options.topic_names import absent_topics, known_topics
from rmqtool.commands.reading.get_explained import Question, explanation
from rmqtool.commands.screen import screen, write_rows
from rmqtool.engine.queues.unit import Boundary
from rmqtool.engine.reading.reader import DEFAULT_COUNT, QueryResult, Reader, open_reader
from rmqtool.engine.reading.stored_message import StoredMessage, message_finding
from rmqtool.errors import UnreadableError, UsageError
from rmqtool.findings.finding import StoreVerdict
from rmqtool.formats.message_id import message_ids
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.report.bodies import BODY_FIELDS, BODY_LIMIT, DECODED_FIELDS, BodyChoice, BodyForm
from rmqtool.report.names import nearest
from rmqtool.report.rows import MESSAGE_FIELDS, bad_row, blank_row, message_row
from rmqtool.report.screens.get_screen import write_answer
from rmqtool.report.writers import OutputFormat, json_text
from rmqtool.sides.kinds import HOLDS_MESSAGES, unread_files
from rmqtool.store.directory import Store, demand_log_file_size

FOUND: Final = "FOUND"
NOT_FOUND: Final = "QUERY_NOT_FOUND"
"""The broker's answer (`ResponseCode`) where a key or a message id leads to nothing."""


@shared.with_store_options(*shared.FILE_SIZES)
def get(
    context: typer.Context,
    store: shared.ReadStore,
    topic: Annotated[str | None, option("T", "Name of the topic.", autocompletion=topics)] = None,
    queue_id: Annotated[int | None, option("N", "Queue id.")] = None,
    queue_offset: Annotated[int | None, option("M", "Start at this queue offset.")] = None,
    count: Annotated[
        int | None, option("K", "Number of messages (default: 1 by offset or time, 32 by key).", min=1)
    ] = None,
    tag: Annotated[
        str | None, option("EXPR", "'*', or tags separated by '||'; without a queue: one tag, found through the index.")
    ] = None,
    message_id: Annotated[str | None, option("ID", "Message id, as a client, a console or a log prints it.")] = None,
    key: Annotated[str | None, option("K", "Message key, found through the index.")] = None,
    from_time: Annotated[str | None, option("TIME", "With --key: messages stored at or after this time.")] = None,
    to_time: Annotated[str | None, option("TIME", "With --key: messages stored at or before this time.")] = None,
    time: Annotated[
        str | None, option("--time TIME", f"Start at the queue offset of this time: {shared.TIME_FORMS}.")
    ] = None,
    boundary: Annotated[
        Boundary,
        option(
            "",
            "Which offset to use when no message, or several, have that time (default: lower).",
            case_sensitive=False,
            show_default=False,
        ),
    ] = Boundary.LOWER,
    body: shared.BodyOption = BodyForm.NONE,
    body_limit: shared.BodyLimitOption = BODY_LIMIT,
    decode: shared.DecodeOption = None,
    raw: shared.RawOption = False,
    *,
    store_options: shared.StoreOptions,
    output: shared.FormatOption = OutputFormat.TABLE,
) -> None:
    """Find messages as a broker would: by queue offset, message id, key or time.

    Prints the status, next offset and messages that a broker of this version would return, damaged ones included.
    The exit code is 3 if a message is damaged, 6 if none was found, 4 if something could not be read.

    Example: rmqtool get /home/rocketmq/store --topic orders --queue-id 0 --queue-offset 17
    """
    question = Question(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        count=count,
        tag=tag,
        message_id=message_id,
        key=key,
        from_ms=shared.timestamp_ms(from_time, "--from-time"),
        to_ms=shared.timestamp_ms(to_time, "--to-time"),
        at_ms=shared.timestamp_ms(time, "--time"),
        boundary=boundary,
    )
    check_question(question)
    choice = body_choice(body, body_limit, raw, decode)
    messages = messages_of(context)
    opened = shared.open_store(store, store_options)
    shared.tell_opened(opened, messages)
    if (warning := shared.foreign_owner(opened.store)) is not None:
        messages.warn(warning)
    demand_log_file_size(opened.store, "--broker-conf FILE")
    with messages.progress("get"), open_reader(opened.store, opened.rules) as reader:
        answer = answer_to(question, reader, choice, messages)
        answer |= explanation(question, answer, reader, shared.command_line(store, store_options), messages)
    _tell_gaps(opened.store, answer, messages)
    tell_failures(choice, messages)
    _write(answer, output, choice)
    if answer["status"] != FOUND:  # which is claimed only where all was looked at that could hold it
        is_all_read = not (opened.store.unread_places or answer["not_looked_at"])
        raise typer.Exit(ExitCode.NOT_FOUND if is_all_read else ExitCode.FAILED)
    if any(row.get("finding") is not None for row in answer["messages"]):
        raise typer.Exit(ExitCode.FINDINGS)


def check_question(question: Question) -> None:
    """Refuse, as UsageError, what is not exactly one question, and complete."""
    ways = {
        "--queue-offset": question.queue_offset,
        "--message-id": question.message_id,
        "--key": question.key,
        "--time": question.at_ms,
    }
    asked = [name for name, value in ways.items() if value is not None]
    if len(asked) > 1:
        raise UsageError(f"{asked[0]} and {asked[1]} exclude each other; use one of them")
    by_tag = not asked and question.tag is not None and question.queue_id is None
    if not asked and not by_tag:
        raise UsageError(f"nothing to look for: use one of {', '.join(ways)}, or --topic with --tag")
    way = asked[0] if asked else "--tag"
    if way != "--message-id" and question.topic is None:
        raise UsageError(f"{way} needs --topic")
    pulls = way in {"--queue-offset", "--time"}
    if pulls and question.queue_id is None:
        raise UsageError(f"{way} needs --queue-id")
    if not pulls and question.queue_id is not None:
        raise UsageError(f"--queue-id has no effect with {way}, which looks into all queues")
    if question.tag is not None and not (pulls or by_tag):
        raise UsageError(f"--tag has no effect with {way}")
    if (question.from_ms is not None or question.to_ms is not None) and way not in {"--key", "--tag"}:
        raise UsageError(f"--from-time and --to-time work with --key, not with {way}")


def answer_to(question: Question, reader: Reader, body: BodyChoice, messages: Messages) -> dict[str, Any]:
    """The answer as `--format json` writes it; UsageError for a message id or tag expression that is none,
    UnsupportedError for what is kept in a way that is not read, UnreadableError for a queue or index file.
    """
    if question.topic is None:
        return _by_id(question.message_id or "", reader, body, messages)
    if question.queue_id is None:
        return _by_index(question, question.topic, reader, body, messages)
    return _by_pull(question, question.topic, question.queue_id, reader, body, messages)


def _by_id(text: str, reader: Reader, body: BodyChoice, messages: Messages) -> dict[str, Any]:
    """Messages for any printed form of an id: the broker's by its offset, the client's by the index, topic by topic."""
    for message_id in message_ids(text):
        message = reader.message_by_id(message_id)
        if message is not None and message_finding(message) is None:
            return _looked_up([message], body, "log")
        if (result := reader.message_by_unique_key(message_id)) is not None:
            topic, query_result = result
            messages.note(f"{message_id} is a client's id, found by the index in topic {topic}")
            return _with_key(query_result, body)
        if message is not None:
            return _looked_up([message], body, "log")
    return _looked_up([], body, "index")


def _by_pull(
    question: Question, topic: str, queue_id: int, reader: Reader, body: BodyChoice, messages: Messages
) -> dict[str, Any]:
    if (topic, queue_id) not in reader.queues() and reader.store.are_queues_known:
        queue_ids = ", ".join(str(queue_id) for name, queue_id in reader.queues() if name == topic)
        hint = (
            f"; the topic has {queue_ids}" if topic in reader.topics() else nearest(topic, known_topics(reader.store))
        )
        messages.warn(f"there is no queue {topic}/{queue_id} in the store{hint}")
    by_time: dict[str, Any] = {}
    start = question.queue_offset
    if start is None:
        start = reader.offset_in_queue_by_time(topic, queue_id, question.at_ms or 0, question.boundary)
        by_time = {"queue_offset": start}
    result = reader.get_message(topic, queue_id, start, question.count or 1, question.tag)
    return {
        "status": result.status.value,
        "source": "queue",
        **by_time,
        "next_begin_offset": result.next_begin_offset,
        "min_offset": result.min_offset,
        "max_offset": result.max_offset,
        "messages": [_row(message, body) for message in result.messages],
    }


def _by_index(question: Question, topic: str, reader: Reader, body: BodyChoice, messages: Messages) -> dict[str, Any]:
    by_tag = question.key is None and question.message_id is None
    texts = (question.key or question.tag,) if question.message_id is None else message_ids(question.message_id)
    for text in texts:
        result = reader.query_message(
            topic,
            text or "",
            question.count or DEFAULT_COUNT,
            question.from_ms if question.from_ms is not None else 0,
            question.to_ms if question.to_ms is not None else JAVA_LONG_MAX,
            by_tag=by_tag,
        )
        if result.messages:
            break
    if result.never_ends:
        messages.warn("a chain of the index is a loop: a broker would search it forever")
    if not reader.store.index_files:
        messages.warn("the store has no index files, so nothing can be found by key")
    if not result.messages:
        for text in absent_topics([reader.store], [glob.escape(topic)]):
            messages.warn(text)
    return _with_key(result, body)


def _with_key(result: QueryResult, body: BodyChoice) -> dict[str, Any]:
    answer = _looked_up(result.messages, body, "index")
    for row, carries_key in zip(answer["messages"], result.carries_key, strict=True):
        row["carries_key"] = carries_key
    return answer


def _looked_up(stored_messages: Sequence[StoredMessage], body: BodyChoice, source: str) -> dict[str, Any]:
    """An answer without queue offsets; `source` is where it comes from: log, queue or index."""
    return {
        "status": FOUND if stored_messages else NOT_FOUND,
        "source": source,
        "next_begin_offset": None,
        "min_offset": None,
        "max_offset": None,
        "messages": [_row(message, body) for message in stored_messages],
    }


def _row(message: StoredMessage, body: BodyChoice) -> dict[str, Any]:
    """A message as a row; the broker also returns bytes that are not a record."""
    finding = message_finding(message)
    try:
        record = message.record
    except UnreadableError:
        record = None
    if record is not None and finding != "commitlog.unreadable-range":
        return message_row(record, body, finding=finding, physical_offset=message.physical_offset)
    if finding is None:
        return blank_row(message.physical_offset, message.size)
    return bad_row(message.physical_offset, message.size, finding)


def _tell_gaps(store: Store, answer: dict[str, Any], messages: Messages) -> None:
    """Report files that could hold the message and were not read."""
    answer["not_looked_at"] = []
    if answer["status"] == FOUND:
        return
    if (missing := missing_log(store)) is not None:
        messages.warn(f"{StoreVerdict.LOG_MISSING.words}: {missing.text}")
    for place in store.unread_places:
        messages.error(str(place))
    unread = [files for files in unread_files(store) if files.kind in HOLDS_MESSAGES]
    for files in unread:
        messages.warn(f"{files.path}: not checked, {files.reason}")
    answer["not_looked_at"] = [files.as_json() for files in unread]


def _write(answer: dict[str, Any], output: OutputFormat, choice: BodyChoice) -> None:
    if output is OutputFormat.TABLE:
        terminal = screen()
        write_answer(answer, sys.stdout, terminal.table_width, color=terminal.color)
        return
    if output is OutputFormat.JSON:
        sys.stdout.write(json_text(answer, indent=2) + "\n")
        return
    decoded = DECODED_FIELDS if choice.decoder is not None else ()
    fields = (*MESSAGE_FIELDS, "carries_key", *BODY_FIELDS, *decoded, "properties_raw")
    rows = list(answer["messages"])
    if output is OutputFormat.JSONL:
        rows.append({"type": "answer", **{name: value for name, value in answer.items() if name != "messages"}})
    write_rows(rows, output, fields)
