"""`rmqtool append`: test messages through the full writer. What is written is decided in `engine`."""

from __future__ import annotations

import gc
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rmqtool.answer.exit_codes import ExitCode
from rmqtool.commands.messages import Messages, messages_of
from rmqtool.commands.options import store as shared
from rmqtool.commands.options.completion import topics
from rmqtool.commands.options.help_groups import option
from rmqtool.commands.options.run import pairs
from rmqtool.commands.screen import screen
from rmqtool.commands.writing.append_client import ClientRequest, answers
from rmqtool.commands.writing.append_messages import MessageRequest, host_of, messages_from, messages_wanted
from rmqtool.engine.append.batch_append import WrittenMessages
from rmqtool.engine.append.message import Message, MessageBatch
from rmqtool.engine.append.open_writer import config_of, existing_store, new_store
from rmqtool.engine.append.status import AppendStatus, PutResult, status_name
from rmqtool.engine.append.store_writer import ABORT, CrashStep, StoreWriter
from rmqtool.engine.append.validation import queue_refusal
from rmqtool.engine.append.writer_config import Slave, WriterConfig, config_from
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.settings import read_settings
from rmqtool.engine.rules.versions import NEWEST, rules_for
from rmqtool.errors import NotAStoreError, UsageError, WriteError
from rmqtool.report.rows import RowBlock
from rmqtool.report.writers import OutputFormat, row_writer
from rmqtool.store.config.broker_conf import BrokerConf, broker_conf, read_broker_conf
from rmqtool.store.directory import Store
from rmqtool.store.location import survey_store
from rmqtool.store.log_owner import foreign_directory

FIELDS: Final = ("type", "status", "append_status", "physical_offset", "queue_offset", "size", "message_id", "reason")
GROUP: Final = 4096
GROUP_BYTES: Final = 4 << 20
"""Messages, and bytes of bodies, that are put before their statuses are reported; all are in the files by then."""
COLLECTED_FROM: Final = 100_000
"""Objects that are made before the interpreter looks for dead ones; its own 700 cost a quarter of the time."""

QUEUE_ID_MAX: Final = (1 << 31) - 1

BatchTopicOption = Annotated[list[str] | None, option("--batch-topic T", "Topic with batch queues; repeatable.")]


class CloseMode(StrEnum):
    """State in which the store is left."""

    CLEAN = "clean"
    CRASH = "crash"


class Transaction(StrEnum):
    """Transaction type of a message."""

    NONE = "none"
    PREPARED = "prepared"
    COMMIT = "commit"
    ROLLBACK = "rollback"


@dataclass(frozen=True)
class _Place:
    store: Path
    options: shared.StoreOptions
    conf: BrokerConf | None
    is_client: bool
    after_crash: bool
    batch_topics: frozenset[str]
    slave: Slave
    asked: Message | MessageBatch | None
    """The message that options describe, which is to go into a queue that its topic has."""

    def config(self) -> WriterConfig:
        try:
            config = config_from(self.conf) if self.conf is not None else WriterConfig()
        except ValueError as error:
            raise UsageError(str(error)) from error
        replication = replace(config.replication, slave=self.slave)
        return replace(config, batch_topics=self.batch_topics, replication=replication)

    def look(self) -> Store:
        """Survey the store; RefusedError where a directory that would be written is another store's."""
        store = survey_store(self.store, self.options.commitlog, self.options.index_slots, self.conf)
        directories, is_named = store.settings.commitlog_directories, bool(self.options.commitlog)
        foreign = foreign_directory(self.store, directories, self.conf, is_log_named=is_named)
        if foreign is not None:
            foreign.demand_usable(self.store, "append")
        return store


@shared.with_store_options(*shared.FILE_SIZES)
def append(
    context: typer.Context,
    store: shared.StorePath,
    topic: Annotated[str | None, option("T", "Name of the topic.", autocompletion=topics)] = None,
    queue_id: Annotated[int, option("N", "Queue id.", min=-1, max=QUEUE_ID_MAX)] = 0,
    body: Annotated[str | None, option("TEXT", "Message body, as UTF-8 text.")] = None,
    body_file: Annotated[Path | None, option("F", "Message body, from this file.")] = None,
    tags: Annotated[str | None, option("--tags TAG", "Tag of the message.")] = None,
    keys: Annotated[str | None, option("--keys KEYS", "Keys, separated by spaces.")] = None,
    properties: Annotated[list[str] | None, option("--property K=V", "Another property; repeatable.")] = None,
    delay_level: Annotated[int | None, option("N", "Delay level.", min=-1)] = None,
    transaction: Annotated[Transaction, option("", "Transaction type of the record.")] = Transaction.NONE,
    born_host: Annotated[str | None, option("IP:PORT", "The sender's address.")] = None,
    store_host: Annotated[str | None, option("IP:PORT", "The broker's address.")] = None,
    batch: Annotated[bool, option("--batch", "Store all --count messages as one batch.")] = False,
    count: Annotated[int, option("N", "Number of messages.", min=1)] = 1,
    source: Annotated[
        Path | None, option("--from FILE.jsonl", "Read messages from this file, one per line; `-` is standard input.")
    ] = None,
    end: Annotated[
        CloseMode, option("", "Leave the store as after a clean stop, or as after a crash.")
    ] = CloseMode.CLEAN,
    crash_step: Annotated[
        CrashStep | None, option("--at", "How far the broker came before the crash: see docs/append.md.")
    ] = None,
    create: Annotated[bool, option("--create", "Create the store; it must not exist.")] = False,
    after_crash: Annotated[
        bool, option("--after-crash", "Append although the last stop was not clean; `abort` stays.")
    ] = False,
    settings: Annotated[list[str] | None, option("--set NAME=VALUE", "A broker setting; repeatable.")] = None,
    batch_topics: BatchTopicOption = None,
    as_client: Annotated[
        bool, option("--as-client", "Check and complete messages as a broker does when a client sends them.")
    ] = False,
    seed: Annotated[int, option("N", "Of the queues that the broker chooses.")] = 0,
    producer_group: Annotated[str, option("G", "Producer group of a prepared transaction.")] = "rmqtool",
    half_offsets: Annotated[
        list[int] | None, option("--half-offset N", "End the half message at this physical offset; repeatable.", min=0)
    ] = None,
    reconsume: Annotated[
        list[int] | None, option("N", "Send the message at this physical offset back; repeatable.", min=0)
    ] = None,
    group: Annotated[str | None, option("G", "Consumer group of --reconsume.")] = None,
    max_reconsume: Annotated[
        int | None, option("N", "Retries after which a message is dead.  [default: the group's]")
    ] = None,
    slave: Annotated[
        Slave, option("", "What the slave of a synchronous master (brokerRole=SYNC_MASTER) does.")
    ] = Slave.NONE,
    *,
    store_options: shared.StoreOptions,
    output: shared.FormatOption = OutputFormat.TABLE,
) -> None:
    """Append test messages to a store that no broker is using.

    append holds the broker's lock. Each row has the status that a broker would return; the exit code is 3 if a
    message was refused. Rows of `dump --raw --body base64 --format jsonl` are stored as they were.

    Example: rmqtool append /tmp/store --create --topic Orders --body hello --keys order-1 --count 10
    """
    request = ClientRequest(
        is_client=as_client, seed=seed, transaction=transaction.value, producer_group=producer_group,
        half_offsets=tuple(half_offsets or ()), reconsumed=tuple(reconsume or ()), group=group,
        level=delay_level or 0, retries_max=max_reconsume, store_host=host_of(store_host, "--store-host"),
    )  # fmt: skip
    if crash_step is not None and end is not CloseMode.CRASH:
        raise UsageError("--at: says how far a crash let the broker come; use it with --end crash")
    request.check((source is not None) + (topic is not None), queue_id)
    new_messages: Iterable[Message | MessageBatch] = ()
    if source is not None:
        new_messages = messages_from(source)
    elif topic is not None:
        described = messages_wanted(
            MessageRequest(
                topic=topic, queue_id=queue_id, body=body, body_file=body_file, tags=tags, keys=keys,
                properties=tuple(properties or ()), delay_level=delay_level, transaction=transaction,
                born_host=born_host, store_host=store_host, count=count, is_batch=batch,
            )
        )  # fmt: skip
        new_messages = request.as_sent(described)
    messages = messages_of(context)
    rest = iter(new_messages)
    first = next(rest, None)
    new_messages = chain(() if first is None else (first,), rest)
    place = _Place(
        store, store_options, _conf(store_options, settings or []), request.asks_broker, after_crash,
        frozenset(batch_topics or ()), slave, None if source is not None or request.asks_broker else first,
    )  # fmt: skip
    with (
        _rare_collections(),
        _left_as_after_a_crash(store, messages),
        _create(place, first) if create else _open(place, messages) as writer,
    ):
        messages.interrupted = "the messages that were reported before are in the store"
        if source is None:
            writer.expect(len(first.body) * count if isinstance(first, Message) else 0)
        else:
            with suppress(OSError):
                writer.expect(source.stat().st_size // 2)
        if crash_step is not None:
            writer.crash_after(crash_step)
        results = answers(request, writer, _groups(new_messages), store, place.look, place.conf)
        only_refused = messages.quiet and output is OutputFormat.TABLE
        fields = (*FIELDS, "response_code") if request.asks_broker else FIELDS
        refused = _report(writer, results, output, fields, only_refused=only_refused)
        writer.close(crash=end is CloseMode.CRASH)
    if refused:
        messages.warn(f"messages refused: {refused}")
        raise typer.Exit(ExitCode.FINDINGS)


@contextmanager
def _left_as_after_a_crash(store: Path, messages: Messages) -> Iterator[None]:
    """Report the state that a failed write has left, and the command that completes it."""
    try:
        yield
    except WriteError as error:
        if not (store / ABORT).exists():
            raise
        reported = f"; {messages.interrupted}, and others may be" if messages.interrupted else ""
        raise WriteError(f"{error}{reported}: rmqtool recover {shlex.quote(str(store))} completes it") from error


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for cycles of dead objects less often: messages are many, are in none, and each look takes them in."""
    before = gc.get_threshold()
    gc.set_threshold(COLLECTED_FROM, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _report(
    writer: StoreWriter,
    results: Iterable[Sequence[PutResult]],
    output: OutputFormat,
    fields: tuple[str, ...],
    *,
    only_refused: bool,
) -> int:
    """Report the results of puts, or of those that are refused only; the number of messages that were not written."""
    terminal = screen()
    rows = row_writer(output, sys.stdout, fields, width=terminal.table_width, color=terminal.color)
    refused = 0
    try:
        for group in results:
            # Reported is only what the files hold: killing this process takes nothing of it back.
            writer.write_out()
            writer.sync_if_due()
            not_written = () if isinstance(group, WrittenMessages) else [one for one in group if not one.is_written]
            refused += len(not_written)
            if shown := not_written if only_refused else group:
                rows.write_block(_block(shown, writer.rules, fields))
    finally:
        rows.close()
    return refused


def _groups(new_messages: Iterable[Message | MessageBatch]) -> Iterator[list[Message | MessageBatch]]:
    group: list[Message | MessageBatch] = []
    room = GROUP_BYTES
    for message in new_messages:
        group.append(message)
        room -= len(message.body) if isinstance(message, Message) else GROUP_BYTES
        if room <= 0 or len(group) >= GROUP:
            yield group
            group, room = [], GROUP_BYTES
    if group:
        yield group


def _block(results: Sequence[PutResult], rules: BrokerRules, fields: tuple[str, ...]) -> RowBlock:
    columns: Mapping[str, Sequence[Any]]
    if isinstance(results, WrittenMessages):
        columns = {name: results.column(name) for name in PutResult._fields}
    else:
        columns = dict(zip(PutResult._fields, zip(*results, strict=True), strict=True))
    names = {status: status_name(status, rules) for status in set(columns["status"])}
    append_names = {status: None if status is None else status.value for status in set(columns["append_status"])}
    is_written = [status is AppendStatus.PUT_OK for status in columns["append_status"]]
    is_placed = [status is not None for status in columns["append_status"]]

    def column(name: str) -> Sequence[Any]:
        values = columns.get(name, ())
        if name == "type":
            return ["put"] * len(results)
        if name == "status":
            return [names[value] for value in values]
        if name == "append_status":
            return [append_names[value] for value in values]
        if name == "response_code":
            return [None if response is None else response.value for response in columns["response"]]
        if name in ("message_id", "reason"):
            return values
        is_known = is_placed if name == "physical_offset" else is_written
        if all(is_known):
            return values
        return [value if known else None for value, known in zip(values, is_known, strict=True)]

    return RowBlock(len(results), fields, column)


def _conf(options: shared.StoreOptions, settings: list[str]) -> BrokerConf | None:
    """The broker's settings: those of its file, overridden by the named ones."""
    path, version = options.broker_conf, options.broker_version
    if path is None and not settings:
        return None
    named = dict(pairs(settings, "--set"))
    shared.refuse_unknown_settings(settings)
    rules = rules_for(version) if version is not None else None
    reads = read_settings(rules)
    properties = dict(read_broker_conf(path, reads).properties) if path is not None else {}
    conf = broker_conf(properties | named, str(path) if path is not None else "--set", reads)
    shared.refuse_bad_settings(conf, rules)
    return conf


def _create(place: _Place, first: Message | MessageBatch | None) -> AbstractContextManager[StoreWriter]:
    if place.options.commitlog:
        raise UsageError("--commitlog is for an existing commit log; for a new store use --set storePathCommitLog=DIR")
    config = place.config()
    begin = first.dumped_at[0] if isinstance(first, Message) and first.dumped_at is not None else None
    if begin is not None and begin % config.commitlog_file_size:
        begin = None  # the first row of a part of a log, which makes a log of its own
    return new_store(place.store, rules_for(place.options.broker_version or NEWEST), config, dumped_from=begin)


def _open(place: _Place, messages: Messages) -> AbstractContextManager[StoreWriter]:
    try:
        opened = shared.open_store(place.store, replace(place.options, broker_conf=None))
    except NotAStoreError as error:
        raise NotAStoreError(f"{error}; use --create for a new store") from error
    shared.tell_opened(opened, messages)
    if (warning := shared.foreign_owner(opened.store)) is not None:
        messages.warn(warning)
    config = config_of(opened.store, place.config())
    if place.is_client:
        config = replace(config, queue_counts={})  # the request processor knows the topics
    asked = place.asked.shared if isinstance(place.asked, MessageBatch) else place.asked
    if asked is not None and (reason := queue_refusal(asked, config)):
        raise UsageError(f"--queue-id: {reason}")
    return existing_store(place.store, place.look, opened.rules, config, after_crash=place.after_crash)
