"""Behavior of a range of broker versions: the fields in which versions differ; their values are in `versions`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from rmqtool.formats.properties import decode_properties, decode_properties_strict_pairs


class SizeMismatch(Enum):
    """Reaction of load to a file of another length than configured (`MappedFileQueue#load`)."""

    FAIL_LOAD = "the whole store does not load"
    IGNORE_REST = "this file and all later ones of the directory are silently ignored"


class PropertyDecoder(Enum):
    """Parser of a property block (`MessageDecoder#string2messageProperties`)."""

    STRICT_PAIRS = "a segment counts if 0x01 splits it into exactly two parts"
    FIRST_SEPARATOR = "the first 0x01 of a segment splits it, empty names and values do not count"

    @property
    def decode(self) -> Callable[[bytes], dict[str, str]]:
        """The function that parses a block."""
        return decode_properties_strict_pairs if self is PropertyDecoder.STRICT_PAIRS else decode_properties


class BatchProperties(Enum):
    """Properties of a whole batch when its parts are written (`CommitLog#asyncPutMessages`)."""

    DROPPED = "the parts keep their own properties only"
    GLUED = "appended to each part without a separator"
    SEPARATED = "appended to each part, a missing separator is put in between"


class MultiDispatch(Enum):
    """Further queues that a record can name in `INNER_MULTI_DISPATCH`."""

    NONE = "none"
    ANY_QUEUE = "any queue, with offsets filled in for all"
    LMQ_ONLY = "only names that start with %LMQ% get an offset"


class MinOffsetSearch(Enum):
    """Search for a queue's minimum in its first file (`ConsumeQueue#correctMinOffset`)."""

    LINEAR = "the first unit of the file that is not before the start of the log"
    BINARY = "last unit first, then a binary search after the previous minimum"


class TimeLookup(Enum):
    """Lookup of a queue offset by time (`ConsumeQueue#getOffsetInQueueByTime`)."""

    NEAREST = "file by modification time, then the unit whose record is nearest"
    BOUNDARY = "file by the store times of its first and last record, then the lower or upper boundary"


class NormalStart(Enum):
    """The file in which recovery begins after a clean stop (`CommitLog#recoverNormally`)."""

    THIRD_FROM_END = "third file from the end"
    START_BELOW_QUEUES = "last file that begins at or below the queues' maximum"
    FIRST_RECORD_BELOW_DISPATCH = "last file whose first record passes the check and is at or below the dispatched end"


class NormalDispatch(Enum):
    """Records that a recovery after a clean stop dispatches."""

    NONE = "none"
    ABOVE_QUEUES = "those strictly above the queues' maximum"
    ABOVE_DISPATCH = "those strictly above the dispatched end"


class AbnormalStart(Enum):
    """The file in which recovery begins after a crash (`CommitLog#isMappedFileMatchedRecover`)."""

    MAGIC_AND_TIME = "magic and store time of its first record, against the checkpoint's least time less 3 s"
    CHECKED_AND_TIME = "first record passes the whole check, store time as before"
    CHECKED_AND_OFFSET = "first record passes the whole check, its place against the checkpoint's, else time"


class DispatchedEnd(Enum):
    """Up to where a start takes the log as dispatched (before side stores lower it)."""

    QUEUES = "the queues' maximum"
    QUEUES_OR_CHECKPOINT = "the queues' maximum after a clean stop, the checkpoint's queue offset after a crash"


class ReputStart(Enum):
    """Where dispatch continues after start (`DefaultMessageStore#start`)."""

    LOG_END = "recovered end of the log"
    QUEUES = "the queues' maximum, waiting until it has caught up"
    CONFIRMED = "the confirm offset, normally the recovered end of the log"


@dataclass(frozen=True, kw_only=True)
class BrokerRules:
    """Behavior of the brokers of one range of versions; the defaults are those of 4.4.0, the oldest one."""

    version: str
    """The version asked for; the first of the range where the description itself is meant."""
    first: str
    """The first version of the range."""
    note: str | None = None
    """A sentence for the person where the version is not one that the description was made from."""

    # Settings; which names a version reads is in `settings`
    trims_settings: bool = False
    """Blanks around a text are none of it."""
    log_is_below_root: bool = False
    """A commit log without a path of its own lies in `storePathRootDir`; else in `store/` in the home of its user."""

    # Loading files
    size_mismatch: SizeMismatch = SizeMismatch.IGNORE_REST
    skips_directories: bool = False
    """A directory among the files of a log or queue is skipped; else it counts as a file of the wrong size."""
    deletes_empty_last_file: bool = False
    """A last file of length 0 is deleted at load and does not count as one of the wrong size."""
    multiple_log_paths: bool = False
    schedule_loaded_after_recovery: bool = False
    """Delay levels are unknown during recovery, so delayed records get their tag's hash as tags code."""
    dledger: bool = False
    dledger_skips_headers: bool = False
    """A start after a crash counts the messages of a DLedger file without the headers of their entries."""

    # Records
    ipv6_hosts: bool = False
    """sysFlag bits 4 and 5 widen the hosts; before, they are ignored and the fields stay 8 bytes."""
    compression_types: bool = False
    inner_batch: bool = False
    reads_v2: bool = False
    """Records with a topic length of two bytes are known; to others they are the end of the log."""
    topic_length_max: int | None = None
    """Bytes of a topic that a put takes; None for any number, as far as its characters are few enough."""
    record_crc: bool = False
    record_crc_zero_valid: bool = False
    """A checksum of 0 over the whole record counts where `forceVerifyPropCRC` asks for one."""
    property_decoder: PropertyDecoder = PropertyDecoder.STRICT_PAIRS
    trailing_separator: bool = True
    """The last property is written with a 0x02 after it."""
    batch_properties: BatchProperties = BatchProperties.DROPPED
    multi_dispatch: MultiDispatch = MultiDispatch.NONE
    further_offsets_always_advance: bool = False
    """Offsets in further queues advance with PREPARED and ROLLBACK records too, which take no entry there."""
    put_keeps_out: tuple[str, ...] = ()
    """Topics whose messages get no offsets in further queues (`MixAll#topicAllowsLMQ`); `*` is any text."""
    dispatch_keeps_out: tuple[str, ...] = ()
    """Topics whose records enter no further queues (`MultiDispatchUtils#isNeedHandleMultiDispatch`)."""

    # Putting messages
    old_status_names: bool = True
    """Put statuses in the spelling of 4.x."""
    topic_limit_in_bytes: bool = False
    """The limit of 127 counts bytes, and spares retry topics; before, it counts characters of any topic."""
    properties_limit_in_characters: bool = True
    long_retry_topics: bool = False
    strips_wait: bool = False
    """The property `WAIT` is taken out of the text that a client sent before it is stored."""
    property_map_capacity: int = 16
    """Table size of the map that properties are read into; it decides the order in which they are written again."""

    # Requests of clients (`SendMessageProcessor`, `EndTransactionProcessor`); docs/put-path.md has them in order
    validates_sent_topics: bool = False  # characters and length of a topic; before, only `TBW102` is refused
    refuses_system_topics: bool = False
    invalid_parameter_code: bool = False  # for an invalid topic or queue id; else SYSTEM_ERROR
    adds_cluster: bool = False
    adds_region: bool = False  # `MSG_REGION` and `TRACE_ON`; before, only where a hook is set
    adds_unique_key: bool = False
    drops_pop_checkpoint: bool = False
    priority: bool = False
    lite_topics: bool = False
    dead_letter_above_limit: bool = False  # a message sent to a retry topic; before, at the limit
    batch_to_retry_topic: bool = False
    group_length_max: int | None = None  # characters of a group that is made; None: its name is not checked
    send_back_keeps_store_host: bool = False
    half_transaction_id: bool = False
    delayed_retry_is_no_half: bool = False  # a retry with `TRAN_MSG` and a delay level
    commit_drops_real_topic: bool = False  # and `REAL_QID`
    operation_batches: bool = False  # one operation record ends several half messages
    immunity_refuses_end: bool = False  # an end after `CHECK_IMMUNITY_TIME_IN_SECONDS`
    counts_replicas: bool = False  # `inSyncReplicas`; before, a master waits for one slave

    # The check of a record (`CommitLog#checkMessageAndReturnSize`)
    checks_remaining_bytes: bool = False
    """A size that leads out of the file ends the check; else a huge one can end the broker for lack of memory."""
    refuses_negative_size: bool = False
    checks_inner_batch_numbers: bool = False
    log_offset_check_option: bool = False
    """`checkCommitLogOffsetOnRecover` exists."""

    # Queues and reading
    queue_end_is_record_start: bool = True
    """A queue's maxPhysicOffset is the start of its last record, not the end."""
    min_offset_search: MinOffsetSearch = MinOffsetSearch.LINEAR
    min_offset_survives_short_last_file: bool = False
    """A last file without one whole unit skips the test of the last unit, which else fails."""
    empty_queue_examined_again: bool = False
    """The minimum of a queue with min == max is looked for again, and a queue without files is set back to 0."""
    time_lookup: TimeLookup = TimeLookup.NEAREST
    batch_queues: bool = False
    extra_files_per_pull: bool = False
    """A pull that found nothing in one file may continue in the next (`travelCqFileNumWhenGetMessage`, default 1)."""
    pull_bytes_max: int | None = None
    """Bytes of records a caller may get at once, beside the limits by count (`maxTotalMsgSize`)."""
    overflow_restarts_at_zero: bool = True
    """A pull beyond the end of a queue that begins at 0 is told to continue at 0; else at the end."""
    part_of_unit_fails_pulls: bool = True
    """A pull throws that reaches a part of a unit, with which a queue file of an odd name ends."""
    limits_before_skipping: bool = False
    """A pull is ended by a full batch even at a unit that it would skip."""
    rocksdb_queues: bool = False
    rocksdb_queue_directories: tuple[str, ...] = ()
    rocksdb_loads_all_ends: bool = False
    """All ends in RocksDB are read at load, and corrected where the log is cut; else those of configured topics."""
    rocksdb_pull_reads_on: bool = False
    """A pull from a queue in RocksDB throws where it comes to a missing unit; else it ends before it."""
    rocksdb_config: bool = False
    """Topics, groups and consumer offsets may be kept in RocksDB instead of `config/*.json`."""
    combines_queue_sides: bool = False
    """Of queues in files and in RocksDB, settings say which are read, and which assign queue offsets.

    A start goes back up to three more files for the side that does not assign them."""
    new_side_is_skipped: bool = False
    """It does not go back for a side that has no unit yet."""
    light_queues_in_rocksdb: bool = False
    """Of queues in files and in RocksDB, a setting keeps light queues in RocksDB alone."""
    rocksdb_time_beyond_ends: bool = False
    """A time after the last unit in RocksDB, or before the first one, leads next to it; else to none."""
    rocksdb_side_store: bool = False
    """`rocksdbstore/` with index, timer and transactions is opened before load."""

    # Index
    index_counts_used_slots: bool = False
    """The header's slot count is that of the slots in use; else every entry is counted."""
    index_tags: bool = False
    """Tags are entered beside keys, and can be looked up."""
    index_flushed_at_stop: bool = False
    index_failure_stops_load: bool = False
    """An index file that cannot be opened (a directory is none) fails the load; else it ends the list of files."""

    # Checkpoint, abort
    checkpoint_field_count: int = 3
    checkpoint_after_queue_flush: bool = False
    """The queues' time (and offset) are published only once the queues are on the disk."""
    abort_holds_process_id: bool = False
    loads_transaction_metrics: bool = False
    """`config/transactionMetrics` is read before the start; unreadable entries are left out."""

    # Recovery
    normal_start: NormalStart = NormalStart.THIRD_FROM_END
    normal_dispatch: NormalDispatch = NormalDispatch.NONE
    abnormal_start: AbnormalStart = AbnormalStart.MAGIC_AND_TIME
    dispatched_end: DispatchedEnd = DispatchedEnd.QUEUES
    recover_files_max: int | None = None
    """At the latest this file from the end is where recovery begins, tested or not (`commitLogRecoverMaxNum`)."""
    index_safe_on_normal_start: bool = False
    """`messageIndexSafe` counts after a clean stop too, and its time is the index's alone."""
    queues_maximum_read_again: bool = False
    """True if the need to truncate the queues is judged after the records were dispatched, not before."""
    empty_log_destroys_queues_after_clean_stop: bool = False
    """Without any commitlog file all queue files are unlinked; 4.4.0 does so after a crash only."""

    # After start
    reput_start: ReputStart = ReputStart.LOG_END

    # Other stores
    demands_topic_names: bool = False
    """An entry of `topics.json` without a `topicName` keeps it from starting."""
    pop: bool = False
    """Consumers may pop; messages that they have not acknowledged wait in revive topics."""
    timer: bool = False
    compaction: bool = False
    """Compacted topics; the left-over `*.delete` file of a compaction is parsed as an offset and fails the load."""
