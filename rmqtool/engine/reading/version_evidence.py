"""Broker version that last used a store, from its files; only a handful of records is read.

No file names the version. What only newer versions write rules the older ones out. What a version always leaves and is
not there rules that version out too, but only while another remains: a store may have been upgraded or tidied up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from rmqtool.engine.reading.record import Record, read_record
from rmqtool.engine.rules.broker_rules import BrokerRules, MultiDispatch
from rmqtool.engine.rules.settings import read_settings
from rmqtool.engine.rules.versions import EXAMINED, NEWEST, PRESUMED, SUPPORTED, SUPPORTED_RULES, rules_for
from rmqtool.engine.segments.log import Log
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import UnreadableError
from rmqtool.formats import index, properties, system_flag
from rmqtool.formats.abort import parse_abort
from rmqtool.formats.checkpoint import FIELDS_SIZE, parse_checkpoint
from rmqtool.formats.commitlog import MAGIC_V2
from rmqtool.formats.record_crc import record_crc_matches
from rmqtool.store.config.broker_conf import ANY_VERSION, BrokerConf, setting_of_size
from rmqtool.store.directory import Settings, Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.index_file import IndexFile
from rmqtool.store.sizes import DEFAULT_LOG_FILE_SIZE, DEFAULT_QUEUE_FILE_SIZE

# File sizes by the broker's settings and by the files themselves: a version may not read the name that gives a size.
# A broker that expects another size than the files have does not start, or leaves them and starts from nothing.

_DEFAULTS: Final = {"commitlog_file_size": DEFAULT_LOG_FILE_SIZE, "consumequeue_file_size": DEFAULT_QUEUE_FILE_SIZE}
SIZES: Final = tuple(_DEFAULTS)
"""Fields of `Settings` whose settings have other names in other versions."""


def shown_sizes(store: Store) -> dict[str, int]:
    """The sizes that the files of a store have, whatever its settings say."""
    shown = replace(store, settings=Settings(store.settings.commitlog_directories))
    sizes = {
        "commitlog_file_size": shown.commitlog_file_size if shown.log_file_size.is_shown else 0,
        "consumequeue_file_size": shown.consumequeue_file_size,
    }
    return {name: size for name, size in sizes.items() if size}


def are_sizes_of(sizes: dict[str, int], conf: BrokerConf, rules: BrokerRules) -> bool:
    """True if a broker with these settings makes files of these sizes."""
    settings = conf.read_as(read_settings(rules)).settings()
    return all((getattr(settings, name) or _DEFAULTS[name]) == size for name, size in sizes.items())


class UnreadSizes(NamedTuple):
    """Sizes whose settings a version does not read."""

    why: str
    way_around: str

    def __str__(self) -> str:
        """Both as a sentence."""
        return f"{self.why}; {self.way_around}"


def unread_sizes(store: Store, conf: BrokerConf | None, rules: BrokerRules) -> UnreadSizes | None:
    """The settings that give the files of a store their size, and that a version does not read.

    A size that a person gives beside the settings goes before them.
    """
    if conf is None:
        return None
    of_any, own = conf.read_as(ANY_VERSION).settings(), conf.settings()
    fields = []
    for name, size in shown_sizes(store).items():
        given = getattr(store.settings, name)
        if getattr(of_any, name) == size and given == getattr(own, name) and (given or _DEFAULTS[name]) != size:
            fields.append(name)
    return renamed_sizes(fields, conf, rules) if fields else None


def renamed_sizes(fields: Sequence[str], conf: BrokerConf, rules: BrokerRules) -> UnreadSizes:
    """Sizes, fields of `Settings`, that are set by names which a version does not read, and how to correct them."""
    unread = [setting_of_size(field, conf.properties) for field in fields]
    known = [setting_of_size(field, read_settings(rules).names or ()) for field in fields]
    expected = [str(getattr(conf.settings(), field) or _DEFAULTS[field]) for field in fields]
    right = [f"{name}={conf.properties[old]}" for name, old in zip(known, unread, strict=True)]
    return UnreadSizes(
        f"{rules.version} does not read {' and '.join(unread)}, which {conf.path} has for the sizes of the files, and "
        f"expects {' and '.join(expected)} bytes",
        f"write {' and '.join(right)} into {conf.path}",
    )


RECORDS_MAX: Final = 64
ENTRIES_MAX: Final = 64
SEGMENTS_MAX: Final = 3
ABORT_SIZE_MAX: Final = 64
CHECKED_SIZE_MAX: Final = 1 << 20
OWN_ROCKSDB_DIRECTORY: Final = "consumequeue_rocksdb"

Fits = Callable[[BrokerRules], bool]


class Evidence(NamedTuple):
    """One observation: a sentence, which versions it fits, and whether a store cannot have it otherwise."""

    sentence: str
    fits: Fits
    is_certain: bool


class VersionRange(NamedTuple):
    """The releases that fit a store's files."""

    first: str
    last: str
    rules: str
    """Version whose rules apply; a release that is added later does not change it."""
    evidence: tuple[str, ...]

    @property
    def examined(self) -> tuple[str, ...]:
        """Releases of the range whose starts may differ, the oldest first: its first one, and those examined."""
        releases = SUPPORTED[SUPPORTED.index(self.first) : SUPPORTED.index(self.last) + 1]
        return tuple(name for name in releases if name in {self.first, self.rules, *EXAMINED})

    def __str__(self) -> str:
        return self.first if self.first == self.last else f"{self.first} to {self.last}"


def infer_version(store: Store, conf: BrokerConf | None = None) -> VersionRange | None:
    """The broker releases that fit a store's files; None where nothing shows a version.

    What cannot be read shows nothing.

    Args:
        conf: the broker's settings, of which each version reads those that it has.
    """
    all_evidence: list[Evidence] = []
    with OpenFiles(store.view) as files:
        log = Log(store, rules_for(NEWEST), files)
        for look in (_directories, _abort, _checkpoint, _records, _index):
            try:
                all_evidence += look(store, log, files)
            except UnreadableError:
                continue
    if conf is not None and conf.is_whole:
        fits = partial(are_sizes_of, shown_sizes(store), conf)
        all_evidence.append(Evidence(f"the files have the sizes that {conf.path} gives them", fits, is_certain=False))
    fitting = list(SUPPORTED_RULES)
    sentences: list[str] = []
    for evidence in sorted(all_evidence, key=lambda one: not one.is_certain):
        left = [rules for rules in fitting if evidence.fits(rules)]
        if left and len(left) < len(fitting):
            sentences.append(evidence.sentence)
            fitting = left
    if not sentences:
        return None
    releases = [rules.version for rules in fitting]
    whose_rules = PRESUMED if PRESUMED in releases else releases[-1]
    return VersionRange(releases[0], releases[-1], whose_rules, tuple(sentences))


def _directories(store: Store, _log: Log, _files: OpenFiles) -> Iterator[Evidence]:
    kinds = {kind for kind, entries in store.files.items() if entries}
    certain = partial(Evidence, is_certain=True)
    if len({segment.path.rpartition("/")[0] for segment in store.commitlog}) > 1:
        yield certain("the commit log is in several directories", lambda rules: rules.multiple_log_paths)
    if FileKind.BATCH_CONSUMEQUEUE in kinds:
        yield certain("there are batch consume queues", lambda rules: rules.batch_queues)
    if FileKind.TIMER_WHEEL in kinds:
        yield certain("there is a timer wheel", lambda rules: rules.timer)
    if FileKind.CONSUMEQUEUE_ROCKSDB in kinds:
        yield certain("consume queues are in RocksDB", lambda rules: rules.rocksdb_queues)
    if FileKind.ROCKSDB in kinds:
        yield certain("there is a rocksdbstore/", lambda rules: rules.rocksdb_side_store)
    if FileKind.COMPACTION_LOG in kinds:
        yield certain("there are compacted topics", lambda rules: rules.compaction)
    if FileKind.DLEDGER in kinds:
        yield certain("the commit log belongs to DLedger", lambda rules: rules.dledger)
    if FileKind.ABORT_BACKUP in kinds:
        yield certain("there is an abort.bak", lambda rules: rules.abort_holds_process_id)
    if "compaction" in store.directories:
        yield certain("there is a directory compaction", lambda rules: rules.compaction)
    if OWN_ROCKSDB_DIRECTORY in store.directories:
        yield certain(
            "RocksDB consume queues have a directory of their own",
            lambda rules: OWN_ROCKSDB_DIRECTORY in rules.rocksdb_queue_directories,
        )
    # Only a store that was used can lack what use leaves behind.
    if store.commitlog or store.files.get(FileKind.DLEDGER):
        if "rocksdbstore" not in store.directories:
            yield Evidence("there is no rocksdbstore/", lambda rules: not rules.rocksdb_side_store, is_certain=False)
        if not store.has_abort and not store.files.get(FileKind.ABORT_BACKUP):
            sentence = "it was stopped without leaving abort.bak"
            yield Evidence(sentence, lambda rules: not rules.abort_holds_process_id, is_certain=False)


def _abort(store: Store, _log: Log, files: OpenFiles) -> Iterator[Evidence]:
    entry = store.first(FileKind.ABORT)
    if entry is None or not entry.is_file:
        return
    if parse_abort(files.read(entry.path, 0, ABORT_SIZE_MAX)) is not None:
        yield Evidence("abort holds a process id", lambda rules: rules.abort_holds_process_id, is_certain=True)
    elif entry.size == 0:
        yield Evidence("abort is empty", lambda rules: not rules.abort_holds_process_id, is_certain=False)


def _checkpoint(store: Store, _log: Log, files: OpenFiles) -> Iterator[Evidence]:
    entry = store.first(FileKind.CHECKPOINT)
    if entry is None or not entry.is_file:
        return
    fields = vars(parse_checkpoint(files.read(entry.path, 0, FIELDS_SIZE)))
    for number, (name, value) in enumerate(fields.items(), 1):
        # A negative value is damage, not a field of a newer version.
        if value > 0:
            has_field = partial(lambda count, rules: rules.checkpoint_field_count >= count, number)
            yield Evidence(f"the checkpoint has a {name}", has_field, is_certain=True)


def _records(_store: Store, log: Log, _files: OpenFiles) -> Iterator[Evidence]:
    records = list(_sample(log))
    certain = partial(Evidence, is_certain=True)
    if any(record.magic == MAGIC_V2 for record in records):
        yield certain("a record has version 2", lambda rules: rules.reads_v2)
    if any(record.sys_flag & system_flag.HOSTS_V6 for record in records):
        yield certain("a record has an IPv6 host", lambda rules: rules.ipv6_hosts)
    if any(record.sys_flag & system_flag.INNER_BATCH for record in records):
        yield certain("a record is an inner batch", lambda rules: rules.inner_batch)
    # A client may send a property of that name, but hardly one that is right.
    if any(
        record_crc_matches(log.read(record.place, 0, record.size)) is True
        for record in records
        if _has_property(record, properties.RECORD_CRC) and record.size <= CHECKED_SIZE_MAX
    ):
        yield certain("a record has a CRC of the whole record", lambda rules: rules.record_crc)
    if any(_has_property(record, properties.MULTI_QUEUE_OFFSET) for record in records):
        sentence = "a record was dispatched to several queues"
        yield certain(sentence, lambda rules: rules.multi_dispatch is not MultiDispatch.NONE)
    # A whole-record CRC always ends with the separator, and a batch keeps what its client wrote, so the most decide.
    voting = [
        record for record in records if record.properties_raw and not _has_property(record, properties.RECORD_CRC)
    ]
    trailing = sum(record.properties_raw.endswith(b"\x02") for record in voting)
    if 2 * trailing > len(voting):
        yield Evidence("properties end with a separator", lambda rules: rules.trailing_separator, is_certain=False)
    elif voting:
        sentence = "properties end without a separator"
        yield Evidence(sentence, lambda rules: not rules.trailing_separator, is_certain=False)


def _has_property(record: Record, name: str) -> bool:
    return name.encode() in record.properties_raw and name in record.properties


def _sample(log: Log) -> Iterator[Record]:
    """First records of the newest file that begins with one; the newest files may be empty yet."""
    for segment in log.segments[: -SEGMENTS_MAX - 1 : -1]:
        physical_offset = segment.start
        count = 0
        while count < RECORDS_MAX and physical_offset < segment.end:
            record = read_record(log, physical_offset)
            if record is None:
                break
            yield record
            count += 1
            physical_offset += record.size
        if count:
            return


def has_indexed_tags(store: Store) -> bool:
    """True if a version that enters tags wrote the oldest or the newest entries of the index."""
    try:
        with OpenFiles(store.view) as files:
            log = Log(store, rules_for(NEWEST), files)
            return any(tagged for tagged, _ in _samples_of_index(store, log, files))
    except UnreadableError:
        return False


def _index(store: Store, log: Log, files: OpenFiles) -> Iterator[Evidence]:
    """Evidence of entries for tags. An index that has both kinds outlived an upgrade, or a downgrade."""
    samples = list(_samples_of_index(store, log, files))
    if any(tagged for tagged, _ in samples):
        yield Evidence("tags are indexed", lambda rules: rules.index_tags, is_certain=True)
    elif any(untagged for _, untagged in samples):
        yield Evidence("keys are indexed, tags are not", lambda rules: not rules.index_tags, is_certain=False)


def _samples_of_index(store: Store, log: Log, files: OpenFiles) -> Iterator[tuple[bool, bool]]:
    """For the newest and the oldest entries, as far as there are any, True if they include the tags of a record."""
    if not store.index_files or not store.index_slot_count:
        return
    newest_first = store.index_files[: -SEGMENTS_MAX - 1 : -1]
    for entries, is_oldest in ((newest_first, False), (store.index_files[:SEGMENTS_MAX], True)):
        hashes: dict[int, set[int]] = {}
        for entry in entries:
            file = IndexFile(partial(files.read, entry.path), store.index_slot_count)
            last = file.header.next_entry_number - 1
            for index_entry in file.entries_before(min(last, ENTRIES_MAX) if is_oldest else last, ENTRIES_MAX):
                hashes.setdefault(index_entry.physical_offset, set()).add(index_entry.key_hash)
            if hashes:
                break
        has_tags = lacks_tags = False
        # The entries of the oldest record in sight may lie only partly in it.
        for physical_offset in list(hashes)[:-1][:RECORDS_MAX]:
            record = read_record(log, physical_offset)
            if record is None or not record.tags:
                continue
            if index.key_hash(index.tag_text(record.topic, record.tags)) in hashes[physical_offset]:
                has_tags = True
                break
            lacks_tags = True
        yield has_tags, lacks_tags
