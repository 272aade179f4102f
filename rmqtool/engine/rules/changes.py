"""Effects on a store when a broker of another version starts on it, as data beside the rules of the versions.

Each field of `BrokerRules` in which two versions differ belongs to a reason here, or says why it has none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from rmqtool.engine.rules.broker_rules import BrokerRules, MultiDispatch

Concerns = Callable[[BrokerRules, BrokerRules], bool]


class Feature(Enum):
    """Part of a store that versions treat in different ways; the value is its name in singular and plural."""

    V2_RECORDS = ("record of version 2", "records of version 2")
    IPV6_RECORDS = ("record with an IPv6 host", "records with an IPv6 host")
    INNER_BATCHES = ("batch in one record", "batches in one record each")
    OTHER_COMPRESSION = ("body compressed with LZ4 or zstd", "bodies compressed with LZ4 or zstd")
    MULTI_DISPATCHED = ("record for several queues", "records for several queues")
    RECORD_CRCS = ("log file with CRCs of whole records", "log files with CRCs of whole records")
    TAGGED_MESSAGES = ("message with a tag", "messages with a tag")
    BATCH_QUEUES = ("batch queue", "batch queues")
    ROCKSDB_QUEUES = ("queue in RocksDB", "queues in RocksDB")
    ROCKSDB_SIDE_STORE = ("rocksdbstore in use", "rocksdbstores in use")
    ROCKSDB_CONFIG = ("configuration database", "configuration databases")
    TIMERS = ("waiting timer message", "waiting timer messages")
    REVIVE_TOPICS = ("revive topic of pop consumers", "revive topics of pop consumers")
    COMPACTED_TOPICS = ("compacted topic", "compacted topics")
    DLEDGER_FILES = ("DLedger file", "DLedger files")
    CHECKPOINT_FIELDS = ("checkpoint field", "checkpoint fields")
    CHECKPOINT_GAPS = ("checkpoint field that is 0", "checkpoint fields that are 0")
    LOG_DIRECTORIES = ("commit log directory", "commit log directories")
    LOG_FILES = ("commit log file", "commit log files")
    LONG_TOPICS = ("topic that takes no new messages", "topics that take no new messages")

    @property
    def noun(self) -> str:
        """Name of one of them."""
        return self.value[0]

    def counted(self, count: int | None) -> str:
        """Their number, as a part of a sentence."""
        one, several = self.value
        return f"an unknown number of {several}" if count is None else f"{count} {one if count == 1 else several}"


class ChangeHarm(Enum):
    """Effect of a feature on messages, besides the losses in the forecast."""

    MEASURED = "none"
    UNDELIVERED = "undelivered"
    NOT_SERVED = "not-served"
    MISREAD = "misread"
    NOT_CONFIGURED = "not-configured"


@dataclass(frozen=True)
class VersionChange:
    """One reason why a start on another version differs.

    Attributes:
        id: the stable name.
        rules: fields of `BrokerRules` that the reason comes from; a start with the other values shows what it costs.
        concerns: whether a broker of the second version treats the feature otherwise than one of the first.
        text: what the second version does, as a sentence; {to} is its number.
        way_around: what to do, as a sentence.
        feature: what the store must hold; None where only a difference between starts shows the reason.
        command: the command that does it, as it is typed after `rmqtool`.
    """

    id: str
    rules: tuple[str, ...]
    concerns: Concerns
    text: str
    way_around: str
    feature: Feature | None = None
    harm: ChangeHarm = ChangeHarm.MEASURED
    command: str | None = None


def _lacks(rule: str) -> Concerns:
    return lambda _before, after: not getattr(after, rule)


def _differ(*rules: str) -> Concerns:
    return lambda before, after: any(getattr(before, rule) != getattr(after, rule) for rule in rules)


_START: Final = (
    "normal_start", "normal_dispatch", "abnormal_start", "dispatched_end", "reput_start", "queue_end_is_record_start",
    "queues_maximum_read_again", "empty_log_destroys_queues_after_clean_stop", "schedule_loaded_after_recovery",
    "index_safe_on_normal_start", "combines_queue_sides", "new_side_is_skipped", "light_queues_in_rocksdb",
)  # fmt: skip
_LOADED_FILES: Final = ("size_mismatch", "skips_directories", "deletes_empty_last_file", "index_failure_stops_load")
_RECORD_CHECK: Final = (
    "checks_remaining_bytes", "refuses_negative_size", "checks_inner_batch_numbers", "property_decoder",
)  # fmt: skip
_QUEUE_ENDS: Final = (
    "min_offset_search", "min_offset_survives_short_last_file", "empty_queue_examined_again", "rocksdb_loads_all_ends",
    "part_of_unit_fails_pulls", "rocksdb_pull_reads_on",
)  # fmt: skip
_STAY: Final = "Stay on a version that knows it, or consume these messages first and wait until their files expire."

VERSION_CHANGES: Final = (
    VersionChange(
        "commitlog.v2-records",
        ("reads_v2",),
        _lacks("reads_v2"),
        "{to} does not know records of version 2 (topics of more than 127 bytes): where its recovery meets one, the "
        "commit log ends and all after it is cut off",
        _STAY,
        Feature.V2_RECORDS,
    ),
    VersionChange(
        "commitlog.ipv6-hosts",
        ("ipv6_hosts",),
        _lacks("ipv6_hosts"),
        "{to} reads 4 bytes where a record has an IPv6 host of 16: where its recovery meets one, the commit log ends",
        _STAY,
        Feature.IPV6_RECORDS,
    ),
    VersionChange(
        "commitlog.inner-batches",
        ("inner_batch",),
        _lacks("inner_batch"),
        "{to} takes a batch that is one record for one message",
        _STAY,
        Feature.INNER_BATCHES,
        ChangeHarm.MISREAD,
    ),
    VersionChange(
        "commitlog.compression-types",
        ("compression_types",),
        _lacks("compression_types"),
        "{to} and its clients take every compressed body for zlib",
        "Consume these messages with newer clients.",
        Feature.OTHER_COMPRESSION,
        ChangeHarm.MISREAD,
    ),
    VersionChange(
        "commitlog.multi-dispatch",
        ("multi_dispatch", "dispatch_keeps_out"),
        lambda _before, after: after.multi_dispatch is MultiDispatch.NONE,
        "{to} enters a record into the queue of its own topic only; light queues get nothing new",
        "Consume the light queues before the change.",
        Feature.MULTI_DISPATCHED,
    ),
    VersionChange(
        "commitlog.record-crcs",
        ("record_crc", "record_crc_zero_valid"),
        _lacks("record_crc"),
        "{to} takes the CRC of a whole record for a property like others and does not check it",
        "Nothing to do; bodies keep their own CRC.",
        Feature.RECORD_CRCS,
    ),
    VersionChange(
        "commitlog.missing-record-crcs",
        ("record_crc", "record_crc_zero_valid"),
        lambda before, after: after.record_crc and not before.record_crc,
        "{to} ends the commit log at a record without a CRC of the whole record, if forceVerifyPropCRC is set",
        "Leave forceVerifyPropCRC off until all older records have expired.",
    ),
    VersionChange(
        "commitlog.several-directories",
        ("multiple_log_paths",),
        _lacks("multiple_log_paths"),
        "{to} takes the list of directories for the name of one, finds no commit log there and begins an empty one",
        "Move all files of the commit log into one directory and name it in storePathCommitLog.",
        Feature.LOG_DIRECTORIES,
    ),
    VersionChange(
        "commitlog.dledger",
        ("dledger",),
        _lacks("dledger"),
        "{to} does not know DLedger and begins an empty commit log beside it",
        "Convert a copy into a store with a plain commit log: rmqtool convert STORE --from-dledger --output DIR.",
        Feature.DLEDGER_FILES,
        ChangeHarm.NOT_SERVED,
    ),
    VersionChange(
        "commitlog.topics-too-long",
        ("topic_length_max", "topic_limit_in_bytes", "long_retry_topics"),
        _differ("topic_length_max"),
        "{to} takes new messages of topics of fewer bytes only; those that are stored are served",
        "Let producers use a shorter topic.",
        Feature.LONG_TOPICS,
    ),
    VersionChange(
        "consumequeue.batch-queues",
        ("batch_queues",),
        _lacks("batch_queues"),
        "{to} does not read batch queues",
        "Consume these topics before the change.",
        Feature.BATCH_QUEUES,
    ),
    VersionChange(
        "consumequeue.in-rocksdb",
        ("rocksdb_queues", "rocksdb_queue_directories"),
        lambda before, after: (
            not set(before.rocksdb_queue_directories) <= set(after.rocksdb_queue_directories)
            or not after.rocksdb_queues
        ),
        "{to} does not read this database; its queues hold only what its start dispatches again from the commit log",
        "Convert the queues into files before the change.",
        Feature.ROCKSDB_QUEUES,
        command="convert --queues file",
    ),
    VersionChange(
        "index.missing-tags",
        ("index_tags",),
        lambda before, after: after.index_tags and not before.index_tags,
        "{to} finds messages by their tag too, but does not enter the tags of messages that are indexed already",
        "Rebuild the index for the new version if old messages must be found by tag.",
        Feature.TAGGED_MESSAGES,
        command="rebuild --index --broker-version {to}",
    ),
    VersionChange(
        "index.unused-tags",
        ("index_tags",),
        lambda before, after: before.index_tags and not after.index_tags,
        "{to} does not find messages by their tag; it skips the entries of tags",
        "Nothing to do, if nobody looks for messages by tag.",
        Feature.TAGGED_MESSAGES,
    ),
    VersionChange(
        "recovery.ten-files",
        ("recover_files_max",),
        lambda before, after: after.recover_files_max is not None and before.recover_files_max is None,
        "{to} reads at most the last ten files of the commit log in its recovery",
        "Set commitLogRecoverMaxNum to the number of files, or rebuild the queues before the change.",
        Feature.LOG_FILES,
        command="rebuild --queues --broker-version {to}",
    ),
    VersionChange(
        "recovery.start",
        _START,
        _differ(*_START),
        "{to} begins its recovery at another record, or dispatches other records again",
        "Start and stop the old version cleanly once before the change, or repair the store first.",
        command="recover --broker-version {to}",
    ),
    VersionChange(
        "recovery.record-check",
        _RECORD_CHECK,
        _differ(*_RECORD_CHECK),
        "{to} checks records in another way, and ends the commit log at others",
        "Repair the damaged records before the change.",
        command="salvage --broker-version {to}",
    ),
    VersionChange(
        "load.odd-files",
        _LOADED_FILES,
        _differ(*_LOADED_FILES),
        "{to} treats directories and files of a wrong length among its files in another way",
        "Repair the store before the change.",
        command="recover --broker-version {to}",
    ),
    VersionChange(
        "consumequeue.ends",
        _QUEUE_ENDS,
        _differ(*_QUEUE_ENDS),
        "{to} finds the first or the last message of a queue in another way",
        "Rebuild the queues before the change.",
        command="rebuild --queues --broker-version {to}",
    ),
    VersionChange(
        "checkpoint.missing-fields",
        ("checkpoint_field_count", "checkpoint_after_queue_flush"),
        lambda before, after: before.checkpoint_field_count < after.checkpoint_field_count,
        "the old version was not stopped cleanly and did not write these fields: {to} recovers by older times instead, "
        "often from the last file only",
        "Start and stop the old version cleanly once before the change.",
        Feature.CHECKPOINT_GAPS,
    ),
    VersionChange(
        "checkpoint.unknown-fields",
        ("checkpoint_field_count", "checkpoint_after_queue_flush"),
        lambda before, after: before.checkpoint_field_count > after.checkpoint_field_count,
        "{to} neither reads nor writes them: after a crash it recovers by times, as it always does",
        "Stop each version cleanly before the next one starts.",
        Feature.CHECKPOINT_FIELDS,
    ),
    VersionChange(
        "rocksdbstore.in-use",
        ("rocksdb_side_store",),
        _lacks("rocksdb_side_store"),
        "{to} does not read rocksdbstore/: keys, timers and transactions that are there only are not known to it",
        "Switch indexRocksDBEnable, timerRocksDBEnable and transRocksDBEnable off on the old version first.",
        Feature.ROCKSDB_SIDE_STORE,
        ChangeHarm.UNDELIVERED,
    ),
    VersionChange(
        "config.in-rocksdb",
        ("rocksdb_config",),
        lambda _before, after: not after.rocksdb_config,
        "{to} does not read configuration in RocksDB: topics, groups and consumer offsets are those of config/*.json",
        "Let the old version write config/*.json again before the change.",
        Feature.ROCKSDB_CONFIG,
        ChangeHarm.NOT_CONFIGURED,
    ),
    VersionChange(
        "timer.waiting-messages",
        ("timer",),
        _lacks("timer"),
        "{to} has no timer: messages that wait for their time stay in rmq_sys_wheel_timer and are not delivered",
        "Wait on the old version until they are delivered; this lists them:",
        Feature.TIMERS,
        ChangeHarm.UNDELIVERED,
        command="dump --pending",
    ),
    VersionChange(
        "pop.revive-topics",
        ("pop",),
        lambda _before, after: not after.pop,
        "{to} does not pop: what was popped and not acknowledged is not given to consumers a second time",
        "Let pop consumers acknowledge what they have before the change.",
        Feature.REVIVE_TOPICS,
    ),
    VersionChange(
        "compaction.topics",
        ("compaction",),
        _lacks("compaction"),
        "{to} does not compact and does not read compaction/: it serves these topics from the commit log, without what "
        "only compaction/ still has",
        "Copy the compacted topics to a topic without cleanup.policy before the change.",
        Feature.COMPACTED_TOPICS,
    ),
)  # fmt: skip

_REQUESTS: Final = (
    "validates_sent_topics", "refuses_system_topics", "invalid_parameter_code", "adds_cluster", "adds_region",
    "adds_unique_key", "drops_pop_checkpoint", "priority", "lite_topics", "dead_letter_above_limit",
    "batch_to_retry_topic", "group_length_max", "send_back_keeps_store_host", "half_transaction_id",
    "delayed_retry_is_no_half", "operation_batches", "commit_drops_real_topic", "immunity_refuses_end",
    "counts_replicas",
)  # fmt: skip
_NEW_MESSAGES: Final = "decides how new messages are stored"
_ANSWERS: Final = "decides how a question is answered, not which messages there are"
_SETTINGS: Final = "decides where a broker looks, which its properties file shows for each version"
_OWN_FILES: Final = "decides what a broker writes for itself"
WITHOUT_REASON: Final = MappingProxyType(
    {
        "demands_topic_names": "verify says of a store which entry lacks its name (config.topic-misnamed)",
        "dledger_skips_headers": "verify says of a store of DLedger what a start drops (dledger.dropped-at-start)",
        "old_status_names": _NEW_MESSAGES,
        "trailing_separator": _NEW_MESSAGES,
        "batch_properties": _NEW_MESSAGES,
        "further_offsets_always_advance": _NEW_MESSAGES,
        "put_keeps_out": _NEW_MESSAGES,
        "properties_limit_in_characters": _NEW_MESSAGES,
        "strips_wait": _NEW_MESSAGES,
        "property_map_capacity": _NEW_MESSAGES,
        **dict.fromkeys(_REQUESTS, _NEW_MESSAGES),
        "time_lookup": _ANSWERS,
        "rocksdb_time_beyond_ends": _ANSWERS,
        "extra_files_per_pull": _ANSWERS,
        "pull_bytes_max": _ANSWERS,
        "trims_settings": _SETTINGS,
        "log_is_below_root": _SETTINGS,
        "overflow_restarts_at_zero": _ANSWERS,
        "limits_before_skipping": _ANSWERS,
        "log_offset_check_option": "an option that is off unless somebody sets it",
        "index_counts_used_slots": _OWN_FILES,
        "index_flushed_at_stop": _OWN_FILES,
        "abort_holds_process_id": _OWN_FILES,
        "loads_transaction_metrics": "only a FIFO at that path shows it",
    }
)
"""Fields of `BrokerRules` that are no reason for a store that is there, and why."""
