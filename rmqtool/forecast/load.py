"""Effects of load on the files of log and queues: sizes and names checked, an empty last file deleted.

Broker: `MappedFileQueue#load`, `#doLoad`, `MultiPathMappedFileQueue#load`, `ConsumeQueueStore#loadConsumeQueues`,
`#queueTypeShouldBe`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Final

from rmqtool.engine.rules.broker_rules import BrokerRules, SizeMismatch
from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.formats.timer import WHEEL_SIZE
from rmqtool.quantities import JAVA_INT_MAX, JAVA_LONG_MAX
from rmqtool.sides.controller import read_epochs
from rmqtool.store.config import config_json
from rmqtool.store.config.config_json import ConfigFile, ConfigState, batch_topics
from rmqtool.store.config.config_kinds import CONFIG_KINDS, TOPICS
from rmqtool.store.config.read_config import StoreConfigs
from rmqtool.store.directory import Segment, Store
from rmqtool.store.dledger_files import dledger_log, reads_dledger, with_dledger_log
from rmqtool.store.file_kinds import FileKind, is_topic_name
from rmqtool.store.overlay import Overlay
from rmqtool.store.sizes import infer_file_size
from rmqtool.store.source import Zeros
from rmqtool.store.view import Entry, EntryKind

CONSUMEQUEUE: Final = "consumequeue"
BATCH_CONSUMEQUEUE: Final = "batchconsumequeue"
EXTENSIONS: Final = "consumequeue_ext"
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)


class LoadFailure(Exception):  # noqa: N818 - what a broker does, and no error of this program
    """The broker gives up loading; the text is the reason as a sentence.

    Attributes:
        record_at: physical offset of the record that it gives up over; None where it is none.
    """

    def __init__(self, text: str, record_at: int | None = None) -> None:
        super().__init__(text)
        self.record_at = record_at


@dataclass(frozen=True)
class LoadedQueue:
    """The files of one queue that load keeps; a queue whose directory is empty has none."""

    topic: str
    queue_id: int
    directory: str
    is_batch: bool
    segments: tuple[Segment, ...]


def load_files(
    overlay: Overlay, directories: Sequence[str], file_size: int, rules: BrokerRules, *, past_obstacles: bool = False
) -> tuple[Segment, ...]:
    """The files of one stream, in the order of their names.

    Args:
        directories: where they lie; the log may have several.
        file_size: bytes that the broker expects in each.
        past_obstacles: leave out what keeps the broker from loading, and fill a short file up with zeros.
    """
    entries = sorted((entry for path in directories for entry in overlay.list(path)), key=attrgetter("name"))
    kept: list[Segment] = []
    for number, entry in enumerate(entries):
        is_directory = entry.kind is EntryKind.DIRECTORY
        if is_directory and rules.skips_directories:
            continue
        is_last = number == len(entries) - 1
        if rules.deletes_empty_last_file and is_last and entry.size == 0 and not entry.is_directory:
            overlay.remove(entry.path)
            continue
        start = int(entry.name) if _NUMBER.fullmatch(entry.name) else None
        if start is not None and not 0 <= start <= JAVA_LONG_MAX:  # `Long.parseLong`; no file has a negative number
            start = None
        if past_obstacles and (is_directory or start is None or entry.size > file_size):
            continue
        if past_obstacles and entry.size < file_size:
            overlay.lay(entry.path, entry.size, Zeros(file_size - entry.size))
            entry = overlay.stat(entry.path) or entry  # noqa: PLW2901 - it has its full length now
        if entry.size != file_size or is_directory:
            if rules.size_mismatch is SizeMismatch.IGNORE_REST:
                break
            raise LoadFailure(_mismatch(entry, file_size))
        if start is None:
            raise LoadFailure(f"{entry.path}: the name is not a number")
        if start > JAVA_LONG_MAX - file_size:
            raise UnsupportedError(f"{entry.path}: what a broker does with offsets beyond the highest is not simulated")
        kept.append(Segment(entry, start))
    return tuple(kept)


def demand_dledger_files(store: Store) -> None:
    """Check what a broker with DLedger demands of its log and the log's index (`MmapFileList#doLoad`, `#checkSelf`)."""
    log = dledger_log(store) if reads_dledger(store) else None
    if log is None:
        return
    size = with_dledger_log(store).commitlog_file_size
    for entry, expected in log.unloadable_files(size):
        raise LoadFailure(_mismatch(entry, expected) if entry.size != expected else f"{entry.path}: not a number")
    for files in (log.data, log.index):
        for before, after in pairwise(files):
            if before.end != after.start:
                raise LoadFailure(f"{after.path}: does not follow {before.path}")


def load_queues(
    overlay: Overlay,
    file_size: int,
    batch_file_size: int,
    rules: BrokerRules,
    batch_topics: frozenset[str],
    *,
    past_obstacles: bool = False,
) -> Iterator[LoadedQueue]:
    """All queues that load makes, with and without files, in its order.

    Args:
        file_size, batch_file_size: bytes of a full file of 20-byte and of batch queues.
        batch_topics: topics whose configuration gives them batch queues.
    """
    kinds = [(CONSUMEQUEUE, file_size, False)]
    if rules.batch_queues:
        kinds.append((BATCH_CONSUMEQUEUE, batch_file_size, True))
    for root, size, is_batch in kinds:
        for topic in overlay.list(root):
            if topic.kind is not EntryKind.DIRECTORY:
                continue
            try:
                queues = overlay.list(topic.path)
            except UnreadableError:
                if is_topic_name(topic.name):
                    raise
                continue  # the file system's own
            for queue in queues:
                if queue.kind is not EntryKind.DIRECTORY:
                    continue
                queue_id = int(queue.name) if _NUMBER.fullmatch(queue.name) else None
                if queue_id is None or not -JAVA_INT_MAX - 1 <= queue_id <= JAVA_INT_MAX:  # `Integer.parseInt`
                    continue
                if rules.batch_queues and (topic.name in batch_topics) != is_batch and not past_obstacles:
                    raise LoadFailure(f"{queue.path}: the queue is of another kind than the topic's queue.type")
                segments = load_files(overlay, (queue.path,), size, rules, past_obstacles=past_obstacles)
                yield LoadedQueue(topic.name, queue_id, queue.path, is_batch, segments)


def configured_batch_topics(config: ConfigFile, store: Store) -> frozenset[str]:
    """The topics of which a broker expects batch queues; it does not start on files that it does not expect.

    The files decide if there is no configuration, and nothing shows that it was lost.
    """
    by_files = _is_unknown(config, store)
    return batch_topics(config_json.topics(config), (topic for topic, _ in store.batch_queues) if by_files else ())


def topic_assumptions(config: ConfigFile, store: Store, rules: BrokerRules) -> tuple[str, ...]:
    """Assumptions about topics that no file shows, as sentences."""
    if not (rules.batch_queues and store.batch_queues and _is_unknown(config, store)):
        return ()
    text = "the topics of the batch queues are taken for configured: a broker that does not know them does not start"
    return (f"there is no topics.json: {text}",)


def _is_unknown(config: ConfigFile, store: Store) -> bool:
    is_read = config.state in (ConfigState.ABSENT, ConfigState.READ)
    return is_read and not config_json.topics(config) and not config_json.are_topics_lost(store.files)


def demand_side_stores(store: Store, rules: BrokerRules, configs: StoreConfigs) -> None:
    """Check what a broker demands of its side stores before it starts (`TimerWheel`, `CompactionStore#load`)."""
    demand_openable_files(store, rules, configs)
    for entry in store.files.get(FileKind.TIMER_WHEEL, ()) if rules.timer and store.settings.runs_timer else ():
        if entry.path == "timerwheel" and entry.size not in (0, WHEEL_SIZE):
            raise LoadFailure(_mismatch(entry, WHEEL_SIZE))
    timer_log = store.files.get(FileKind.TIMER_LOG, ()) if rules.timer else ()
    inferred = infer_file_size([Segment(entry, int(entry.name)) for entry in timer_log])
    size = store.settings.timer_log_file_size or inferred
    for entry in timer_log:
        if entry.size != size:
            raise LoadFailure(_mismatch(entry, size))
    for path, config in blocking_configs(store, rules, configs).items():
        why = "neither it nor its .bak can be read" if config.state is ConfigState.BROKEN else ".bak is not JSON"
        raise LoadFailure(f"{path}: {why}")
    for topic in _nameless_topics(rules, configs):
        raise LoadFailure(f"{TOPICS}: the entry of topic {topic} has no topicName")
    for entry in store.files.get(FileKind.COMPACTION_LEFTOVER, ()) if rules.compaction else ():
        raise LoadFailure(f"{entry.path}: the name is not a number")
    why_not = read_epochs(store.view).why_not if rules.timer and store.files.get(FileKind.CONTROLLER) else None
    if why_not is not None:
        raise LoadFailure(why_not)
    logs = {entry.path for entry in store.files.get(FileKind.COMPACTION_LOG, ())}
    for entry in store.files.get(FileKind.COMPACTION_QUEUE, ()) if rules.compaction else ():
        if entry.path.replace("compactionCq", "compactionLog", 1) not in logs:
            raise LoadFailure(f"{entry.path}: the topic's log has no file of this name")


def demand_openable_files(store: Store, rules: BrokerRules, configs: StoreConfigs) -> None:
    """Check for a FIFO, a directory and the like where a broker opens a file (`tests/broker/test_nodes.py`)."""
    nodes = {node.path: node for node in store.nodes if node.kind is not EntryKind.DANGLING}
    if not nodes:
        return
    mapped = {"lock", "checkpoint"}
    if rules.timer and store.settings.runs_timer:
        mapped |= {"timerwheel", "config/timercheck"}
    written = {"abort", "abort.bak"} if rules.abort_holds_process_id else set()
    read = {"compaction/position-checkpoint"} if rules.compaction else set()
    if rules.rocksdb_side_store:
        read.add("rocksdbstore/CURRENT")
    copies = set[str]()
    for is_required in (True, False):
        for path, config in _loaded_configs(store, rules, configs, is_required=is_required).items():
            if not config.is_database:
                read.add(path)
                if config.state is not ConfigState.READ:
                    (copies if is_required else read).add(f"{path}.bak")
    for path, node in sorted(nodes.items()):
        if node.kind is EntryKind.FIFO and path in written | read | copies:
            raise LoadFailure(f"{node.not_a_file}: a broker that opens it waits without end")
        writes_in_vain = path in written and node.kind is not EntryKind.DEVICE
        reads_in_vain = path in copies and node.kind in (EntryKind.DIRECTORY, EntryKind.SOCKET)
        if path in mapped or writes_in_vain or reads_in_vain:
            raise LoadFailure(f"{node.not_a_file}: a broker cannot open it")


def blocking_configs(store: Store, rules: BrokerRules, configs: StoreConfigs) -> dict[str, ConfigFile]:
    """The configuration files with which a broker does not start: it needs the copy, and that is not JSON."""
    # A broker does not ask for the copy of a file that it reads, and nobody knows what that of an unreadable one does.
    readable = (ConfigState.READ, ConfigState.UNREADABLE)
    return {
        path: config
        for path, config in _loaded_configs(store, rules, configs, is_required=True).items()
        if config.state not in readable and config.is_backup_broken and not config.is_database
    }


def _loaded_configs(
    store: Store, rules: BrokerRules, configs: StoreConfigs, *, is_required: bool
) -> dict[str, ConfigFile]:
    """The configuration files that a broker loads: those with which it may not start, or the others."""

    def is_on(rule: str | None) -> bool:
        return rule is None or bool(getattr(rules, rule) and (rule != "timer" or store.settings.runs_timer))

    loadings = {kind.path: kind.loading for kind in CONFIG_KINDS if kind.loading is not None}
    return configs.of(*(path for path, one in loadings.items() if one.is_required is is_required and is_on(one.rule)))


def do_topics_prevent_start(store: Store, rules: BrokerRules) -> bool:
    """True if a broker does not start because of the file of its topics, or of the backup."""
    configs = StoreConfigs(store.view)
    return TOPICS in blocking_configs(store, rules, configs) or bool(_nameless_topics(rules, configs))


def _nameless_topics(rules: BrokerRules, configs: StoreConfigs) -> list[str]:
    config = configs.of(TOPICS)[TOPICS] if rules.demands_topic_names else None
    if config is None or config.is_database:
        return []
    return [topic for topic, name in config_json.misnamed_topics(config).items() if name is None]


def demand_queue_database(store: Store, rules: BrokerRules) -> None:
    """A broker with its queues in RocksDB opens the database first (`ConsumeQueueRocksDBStorage#postLoad`)."""
    roles = store.settings.queue_roles
    second = store.second_database if roles is not None else None
    database = (store.queue_database or second) if rules.rocksdb_queues else None
    if database is not None and database.why_not_opened is not None:
        raise LoadFailure(f"{database.directory}: RocksDB does not open: {database.why_not_opened}")
    if database is not None and database.has_unreadable_end and rules.rocksdb_loads_all_ends:
        raise LoadFailure(f"{database.directory}: a key of the offset family names a topic longer than the key")
    if roles is None or not rules.combines_queue_sides:
        return
    if not {roles.reads, roles.assigns} <= {"file", "rocksdb"}:
        raise LoadFailure("combineCQPreferCQType and combineAssignOffsetCQType are neither default nor defaultRocksDB")
    if rules.light_queues_in_rocksdb and roles.light_in_rocksdb and roles.assigns == "rocksdb":
        raise LoadFailure("combineCQUseRocksdbForLmq demands combineAssignOffsetCQType=default")


def _mismatch(entry: Entry, file_size: int) -> str:
    if entry.is_directory:
        return f"{entry.path}: a directory among the files"
    return f"{entry.path}: {entry.size} bytes long; the broker expects {file_size}"
