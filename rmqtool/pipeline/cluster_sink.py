"""Sends rows of the table `messages` to a running cluster, as `rmqtool replay` sends those of a store.

Each task has a journal, which knows from where on its queues may hold messages of the batch. A task that is run again
reads the queues from there on, and leaves out the rows that are in one: a row is recognized by its content, so it does
not matter if Spark gives rows to a task in another order.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from rmqtool.dump.waiting import DueTimes
from rmqtool.errors import AnswerError, UsageError, WriteError
from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, UNIQUE_KEY, decode_properties
from rmqtool.pipeline.store_sink import MessageRows, binary, message_rows, property_texts
from rmqtool.replay.cluster import Cluster
from rmqtool.replay.journal import ReplayJournal, TargetQueue, read_state
from rmqtool.replay.outgoing import (
    QUEUE_OFFSET,
    REPLAY,
    SENT_FLAGS,
    Outgoing,
    Selection,
    UnsentReason,
    sent_properties,
    unsent_reason,
)
from rmqtool.replay.sender import PATIENCE_SECONDS, Sender
from rmqtool.store.location import is_url
from rmqtool.store.source import reason

STATE: Final = "replay"
"""Directory of the journals in the checkpoint of a query."""
_SPARK_OPTIONS: Final = frozenset({"checkpointlocation", "queryname"})
_OPTIONS: Final = ("to", "state", "wait", "rate")
_IDENTITIES: Final = ("unique_key", "identity", "message_id")
"""Columns of which the first with a value is the unique key of a message that has none in its properties."""
_SEPARATORS: Final = (NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR)


@dataclass(frozen=True)
class ClusterOptions:
    """Where rows are sent, and how.

    Attributes:
        to: name servers.
        state: directory of the journals; None for none, which batches of a stream always have.
        rate: messages a second of each task at most; None for as fast as the brokers answer.
    """

    to: str
    state: Path | None
    patience_seconds: float = PATIENCE_SECONDS
    rate: float | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str], *, is_stream: bool) -> ClusterOptions:
        """The options out of texts.

        Raises:
            UsageError: one is unknown, missing, or does not parse.
        """
        given = {name.lower(): value for name, value in options.items()}
        unknown = sorted(given.keys() - _SPARK_OPTIONS - {*_OPTIONS})
        if unknown:
            raise UsageError(f"no option {', '.join(unknown)} beside to; there are {', '.join(sorted(_OPTIONS))}")
        if not given.get("to"):
            raise UsageError("option to: a stream is sent to a cluster: name its name server, HOST:PORT")
        Cluster(given["to"])
        state = _directory(given, "state")
        if state is None and is_stream:
            checkpoint = _directory(given, "checkpointlocation")
            if checkpoint is None:
                raise UsageError("option checkpointLocation or state: name a directory that all tasks see")
            state = checkpoint / STATE
        seconds, rate = _number(given, "wait", 0.0), _number(given, "rate", 0.001)
        return cls(given["to"], state, PATIENCE_SECONDS if seconds is None else seconds, rate)


@dataclass(frozen=True)
class TaskOfBatch:
    """A task that sends rows.

    Attributes:
        run: names the query, or the write, of which a batch is a part.
    """

    run: str
    batch: int
    partition: int

    @property
    def replay_id(self) -> str:
        """The id by which messages of the run are recognized in queues."""
        return hashlib.sha256(self.run.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class SentRows:
    """Messages that a task has sent, and those of them that were in the cluster already."""

    sent: int
    found: int


def send_rows(batches: Iterable[pa.RecordBatch], options: ClusterOptions, task: TaskOfBatch) -> SentRows:
    """Send the rows of a task, in their order, but those that an earlier try of the batch has sent.

    Raises:
        UsageError: a row is none that `rmqtool replay` would send.
        AnswerError, ConnectionLostError: no route, or a broker refuses, or is away or busy for too long.
        WriteError: the journal cannot be written.
    """
    request = {"run": task.run, "batch": task.batch, "partition": task.partition}
    with _journal_place(options.state, task) as path, closing(Cluster(options.to)) as cluster:
        ends = _ends_before(path.parent) if path is not None else {}
        with closing(ReplayJournal(path, request, task.replay_id)) as journal:
            sender = Sender(cluster, journal, rate=options.rate, patience_seconds=options.patience_seconds)
            if ends:
                sender.find(ends)
            sent, keys = 0, _RowKeys(task)
            for batch in batches:
                for message, key in list(_outgoing(message_rows(batch, _OTHERS), keys)):
                    _, refusal = sender.send(message, key, sender.queue(message.topic, message.queue_id))
                    if refusal is not None:
                        raise AnswerError(f"a message to topic {message.topic} is refused: {refusal}")
                    sent += 1
    return SentRows(sent, sender.found)


def forget_before(state: Path, run: str, batch: int) -> None:
    """Remove the journals of batches before one that is complete."""
    for folder in (state / run).glob("*"):
        if folder.name.isdecimal() and int(folder.name) < batch:
            shutil.rmtree(folder, ignore_errors=True)


_OTHERS: Final = ("store", "finding", *_IDENTITIES)


def _outgoing(rows: MessageRows, keys: _RowKeys) -> Iterator[tuple[Outgoing, str]]:
    """The messages of rows, each with the key of its row.

    Raises:
        UsageError: a row is none that is sent.
    """
    now_ms = int(time.time() * 1000)
    names = list(rows.values)
    for values in zip(*(rows.column(name, None) for name in names), strict=True):
        row = dict(zip(names, values, strict=True))
        stored = _stored_properties(row)
        topic, body, sys_flag = row["topic"], binary(row["body"]), row["sys_flag"] or 0
        _demand_sent(row, topic, body)
        if stored.get(REPLAY, "").partition(":")[0] == keys.task.replay_id:
            continue  # the stream reads the store of the broker that it sends to
        kept = sent_properties(stored, row["message_id"], row["store_timestamp_ms"])
        if row["queue_id"] is not None and row["queue_offset"] is not None:
            kept.setdefault(QUEUE_OFFSET, f"{row['queue_id']}:{row['queue_offset']}")
        key = keys.key(row, body, kept)
        identity = next((row[name] for name in _IDENTITIES if row[name]), None)
        kept.setdefault(UNIQUE_KEY, identity or keys.unique_key(key))
        queue_id = keys.count if row["queue_id"] is None else row["queue_id"]
        born_ms = now_ms if row["born_timestamp_ms"] is None else row["born_timestamp_ms"]
        times = row["reconsume_times"] or 0
        yield Outgoing(0, 0, topic, queue_id, body, kept, row["flag"] or 0, sys_flag & SENT_FLAGS, born_ms, times), key


def _stored_properties(row: Mapping[str, Any]) -> dict[str, str]:
    if row["properties_raw"] is not None:
        return decode_properties(binary(row["properties_raw"]))
    stored = property_texts(row["properties"] or (), row["tags"], row["keys"])
    for text in (*stored.keys(), *stored.values()):
        if any(separator in text for separator in _SEPARATORS):
            raise UsageError(f"a property of a row of topic {row['topic']} has a character with which properties end")
    return {name: value for name, value in stored.items() if name and value}


def _demand_sent(row: Mapping[str, Any], topic: str, body: bytes) -> None:
    record = {
        "physical_offset": row["physical_offset"] or 0,
        "sys_flag": row["sys_flag"] or 0,
        "prepared_transaction_offset": row["prepared_transaction_offset"] or 0,
        "body_length": len(body),
    }
    why = unsent_reason(record, topic, topic, Selection(), DueTimes())
    if row["finding"] is not None:
        why = UnsentReason.TOMBSTONE
    if why is not None:
        raise UsageError(f"a row of topic {topic} is not sent, as replay sends none of its kind ({why}): leave it out")
    if not topic:
        raise UsageError("a row has no topic")


class _RowKeys:
    """Keys by which the rows of a task are found again in queues: a row that is read again has the same one.

    Attributes:
        count: rows so far.
    """

    def __init__(self, task: TaskOfBatch) -> None:
        self.task, self.count = task, 0
        self._equal: Counter[str] = Counter()

    def key(self, row: Mapping[str, Any], body: bytes, kept: Mapping[str, str]) -> str:
        """The next row's key: its content; of a row without a place in a store also the task, and which of equals."""
        place = (row["store"], row["physical_offset"])
        fields = (row["topic"], row["queue_id"], *(row[name] for name in ("flag", "sys_flag", "born_timestamp_ms")))
        content = repr((place, fields, sorted(kept.items()), hashlib.sha256(body).digest()))
        digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        self.count += 1
        if None in place:
            self._equal[digest] += 1
            digest = f"{digest}:{self.task.partition}:{self._equal[digest]}"
        return f"{self.task.batch}:{digest}"

    def unique_key(self, key: str) -> str:
        """The unique key of a new message: 32 hexadecimal digits, as producers write it."""
        return hashlib.sha256(f"{self.task.run}:{key}".encode()).hexdigest()[:32].upper()


@contextmanager
def _journal_place(state: Path | None, task: TaskOfBatch) -> Iterator[Path | None]:
    """A name for the journal of this try; another one of the same task, which a broken network left, ends first."""
    if state is None:
        yield None
        return
    folder = state / task.run / str(task.batch)
    try:
        for path in (folder.parent, folder):
            path.mkdir(exist_ok=True)
        lock = (folder / f".{task.partition:05}.lock").open("ab")
    except OSError as error:
        raise WriteError(f"{folder}: {reason(error)}; all tasks and this program must see {state}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder / f"{task.partition:05}-{uuid.uuid4().hex}"


def _ends_before(folder: Path) -> dict[TargetQueue, int]:
    """From where on queues may hold messages of a batch, as the journals of all earlier tries say."""
    ends: dict[TargetQueue, int] = {}
    for path in folder.glob("[0-9]*"):
        for queue, queue_offset in read_state(path).ends.items():
            ends[queue] = min(queue_offset, ends.get(queue, queue_offset))
    return ends


def _directory(given: Mapping[str, str], name: str) -> Path | None:
    text = given.get(name, "")
    if is_url(text) and not text.startswith("file:"):
        raise UsageError(f"option state: name a directory of a file system that all tasks see, for {name} is a URL")
    return Path(text.removeprefix("file://").removeprefix("file:")).absolute() if text else None


def _number(given: Mapping[str, str], name: str, least: float) -> float | None:
    if name not in given:
        return None
    try:
        number = float(given[name])
    except ValueError:
        number = -1.0
    if not least <= number < float("inf"):
        raise UsageError(f"option {name}: {given[name]!r} is not a number from {least:g} on")
    return number
