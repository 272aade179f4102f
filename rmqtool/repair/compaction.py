"""Plans log and queues of compacted topics again, from their files and the commit log.

A broker compacts them again: without its checkpoint it begins with the first message.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Final

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnknownSizeError, UnsupportedError
from rmqtool.findings.account import Account
from rmqtool.findings.finding import REBUILD_COMPACTION
from rmqtool.formats.consumequeue import BATCH_UNIT_SIZE
from rmqtool.formats.queue_name import QueueName
from rmqtool.repair.machine.plan import PlannedRepair
from rmqtool.repair.machine.steps import Step, create_file, remove_file, replace_file
from rmqtool.sides import compaction
from rmqtool.store.config.config_json import compacted_topics, topics
from rmqtool.store.config.config_kinds import TOPICS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Segment, Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.sizes import infer_file_size
from rmqtool.store.source import FilePart
from rmqtool.store.view import Entry

_WHY: Final = "rebuilt from the commit log and what the compacted topic still has"
_KINDS: Final = (FileKind.COMPACTION_LOG, FileKind.COMPACTION_QUEUE, FileKind.COMPACTION_LEFTOVER)


def plan_compaction(store: Store, rules: BrokerRules, staging: Path) -> PlannedRepair:
    """Check compacted topics, write the queues that are wrong into the staging directory, and find the steps.

    Raises:
        UnsupportedError: the version has no compacted topics.
        UnknownSizeError: nothing shows how large the files are.
    """
    if not rules.compaction:
        raise UnsupportedError(f"{store.view.label}: brokers of version {rules.version} have no compacted topics")
    findings = tuple(compaction.compaction_findings(store, rules, Account()))
    names: set[QueueName] = set()
    for finding in findings:
        if finding.repair == REBUILD_COMPACTION:
            _, _, topic, queue_id, *_ = finding.file.split("/")
            names.add((topic, int(queue_id)))
    if not names:
        return PlannedRepair(findings=findings, notes=("compacted topics match the commit log",))
    wrong = sorted(names)
    notes = [f"{name[0]}/{name[1]}: {text}" for name, text in _write(store, wrong, staging)]
    return PlannedRepair(tuple(_steps(store, wrong, staging)), tuple(notes), findings)


def compaction_sizes(store: Store) -> compaction.FileSizes:
    """Bytes of the files of compacted topics.

    Raises:
        UnknownSizeError: nothing shows them.
    """
    configured = compaction.configured_sizes(store.settings)
    if configured is not None:
        return configured
    log, queue = (
        infer_file_size([Segment(entry, int(entry.name)) for entry in store.files.get(kind, ())]) for kind in _KINDS[:2]
    )
    if queue and queue % BATCH_UNIT_SIZE == 0 and log % queue == 0 and log >= compaction.FILES_MIN * queue:
        return compaction.FileSizes(log, queue)
    if store.uses_default_sizes:
        return compaction.broker_sizes()
    raise UnknownSizeError(
        f"{store.view.label}: nothing in the store shows the sizes of the files of compacted topics "
        "(compactionMappedFileSize, compactionCqMappedFileSize); give them with --broker-conf FILE",
        "compaction_log_file_size",
        100 << 20,
    )


def _write(store: Store, names: list[QueueName], folder: Path) -> Iterator[tuple[QueueName, str]]:
    """Write the queues; yield each with its messages, as sentences."""
    compacted = compacted_topics(topics(read_config(store.view, TOPICS))) & {topic for topic, _ in names}
    with ExitStack() as stack:
        queues = {name: _MergedQueue(store, name, folder) for name in names}
        for queue in queues.values():
            stack.callback(queue.close)
        for name, message in compaction.keyed_messages(store, compacted, with_raw=True) if compacted else ():
            if name in queues:
                queues[name].append(message)
        for name, queue in queues.items():
            queue.append(None)
            yield name, f"{queue.count} messages are written, {queue.from_log} of them from the commit log"


class _MergedQueue:
    """Merges the messages of a compacted queue with those of the commit log, which have priority."""

    def __init__(self, store: Store, name: QueueName, folder: Path) -> None:
        self.count = self.from_log = self._end = 0
        self._old = _old_messages(store, name)
        self._next = next(self._old, None)
        self._store, self._name, self._folder = store, name, folder
        self._writer: compaction.CompactionWriter | None = None

    def append(self, message: compaction.CompactedMessage | None) -> None:
        """Append a message of the commit log, after older ones; None: those that are left."""
        while self._next is not None and (message is None or self._next.queue_offset < message.queue_offset):
            self._append(self._next)
            self._next = next(self._old, None)
        if message is not None:
            self.from_log += self._append(message)

    def _append(self, message: compaction.CompactedMessage) -> bool:
        if message.queue_offset < self._end:
            return False
        if self._writer is None:  # where nothing is written the sizes need not be known
            self._writer = compaction.CompactionWriter(self._folder, self._name, compaction_sizes(self._store))
        if not self._writer.append(message):
            return False
        self._end = message.queue_offset + 1
        self.count += 1
        return True

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _old_messages(store: Store, name: QueueName) -> Iterator[compaction.CompactedMessage]:
    """Readable messages of a compacted queue's log, by queue offset: each file has a range of its own."""

    def messages(segment: Segment, *, with_raw: bool) -> Iterator[compaction.CompactedMessage]:
        of_topic = compaction.keyed_messages(store, {name[0]}, with_raw=with_raw, compacted=segment)
        return (message for owner, message in of_topic if owner == name)

    firsts = []
    for entry in _entries(store, name):
        if entry.path.startswith(compaction.LOG_DIRECTORY) and entry in store.files.get(FileKind.COMPACTION_LOG, ()):
            segment = Segment(entry, int(entry.name))
            firsts += [(first.queue_offset, segment) for first in islice(messages(segment, with_raw=False), 1)]
    for _, segment in sorted(firsts, key=itemgetter(0)):
        yield from messages(segment, with_raw=True)


def _entries(store: Store, name: QueueName) -> Iterator[Entry]:
    """All files of a compacted queue, also those left by a compaction."""
    folders = tuple(f"{root}/{name[0]}/{name[1]}/" for root in (compaction.LOG_DIRECTORY, compaction.QUEUE_DIRECTORY))
    for kind in _KINDS:
        yield from (entry for entry in store.files.get(kind, ()) if entry.path.startswith(folders))


def _steps(store: Store, names: list[QueueName], folder: Path) -> Iterator[Step]:
    view = store.view
    paths = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    for path in paths:
        make = create_file if view.stat(path) is None else replace_file
        yield make(view, path, FilePart.whole(folder / path), _WHY)
    for name in names:
        for entry in _entries(store, name):
            if entry.path not in paths and entry.is_file:
                yield remove_file(view, entry.path, "replaced by the rebuilt files of the compacted topic")
    for entry in store.files.get(FileKind.COMPACTION_CHECKPOINT, ()):
        yield remove_file(view, entry.path, "a broker compacts again from the first message")
