"""The broker's versions as data: one description per range of versions, and the only place where versions are compared.

A description holds switches, numbers, and the names of the algorithms that differ; the rooms above ask it and never ask
for a version. Each range is written as its difference to the one before, so the list reads as the store's history.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from rmqtool.engine.rules.algorithms import (
    AbnormalStart,
    BatchProperties,
    DispatchedEnd,
    MinOffsetSearch,
    MultiDispatch,
    NormalDispatch,
    NormalStart,
    PropertyDecoder,
    ReputStart,
    SizeMismatch,
    TimeLookup,
)
from rmqtool.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class BrokerRules:
    """How the brokers of one range of versions behave. The defaults are those of 4.4.0, the oldest one."""

    version: str
    """The version asked for; the first of the range where the description itself is meant."""
    first: str
    """The first version of the range."""
    note: str | None = None
    """A sentence for the person where the version is not one that the description was made from."""

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
    """Whether the queues must be truncated is judged after the records were dispatched, not before."""
    empty_log_destroys_queues_after_clean_stop: bool = False
    """Without any commitlog file all queue files are unlinked; 4.4.0 does so after a crash only."""

    # After start
    reput_start: ReputStart = ReputStart.LOG_END

    # Other stores
    pop: bool = False
    """Consumers may pop; what they have not acknowledged waits in revive topics."""
    timer: bool = False
    compaction: bool = False
    """Compacted topics; the left-over `*.delete` file of a compaction is parsed as an offset and fails the load."""


def _since(first: str, **changes: object) -> tuple[str, dict[str, object]]:
    return first, changes


_CHANGES: Final = (
    _since(
        "4.5.0",
        size_mismatch=SizeMismatch.FAIL_LOAD,
        dledger=True,
        queue_end_is_record_start=False,
        empty_log_destroys_queues_after_clean_stop=True,
        reput_start=ReputStart.QUEUES,
    ),
    _since("4.6.0", ipv6_hosts=True, adds_cluster=True),
    _since("4.6.1", validates_sent_topics=True, delayed_retry_is_no_half=True),
    _since("4.7.0", send_back_keeps_store_host=True, batch_to_retry_topic=True, delayed_retry_is_no_half=False),
    _since("4.7.1", index_counts_used_slots=True, refuses_system_topics=True),
    _since("4.8.0", batch_properties=BatchProperties.GLUED),
    _since("4.9.1", property_decoder=PropertyDecoder.FIRST_SEPARATOR, trailing_separator=False, strips_wait=True),
    _since(
        "4.9.2", size_mismatch=SizeMismatch.IGNORE_REST, multiple_log_paths=True, schedule_loaded_after_recovery=True
    ),
    _since(
        "4.9.3",
        size_mismatch=SizeMismatch.FAIL_LOAD,
        batch_properties=BatchProperties.SEPARATED,
        multi_dispatch=MultiDispatch.ANY_QUEUE,
    ),
    _since("4.9.4", compression_types=True, overflow_restarts_at_zero=False),
    _since(
        "5.0.0",
        schedule_loaded_after_recovery=False,
        inner_batch=True,
        old_status_names=False,
        topic_limit_in_bytes=True,
        topic_length_max=127,
        properties_limit_in_characters=False,
        strips_wait=False,
        further_offsets_always_advance=True,
        property_map_capacity=128,
        checks_inner_batch_numbers=True,
        batch_queues=True,
        min_offset_search=MinOffsetSearch.BINARY,
        extra_files_per_pull=True,
        part_of_unit_fails_pulls=False,
        limits_before_skipping=True,
        pull_bytes_max=128 << 20,
        index_flushed_at_stop=True,
        checkpoint_field_count=4,
        abort_holds_process_id=True,
        adds_region=True,
        adds_unique_key=True,
        dead_letter_above_limit=True,
        batch_to_retry_topic=False,
        send_back_keeps_store_host=False,
        delayed_retry_is_no_half=True,
        counts_replicas=True,
        reput_start=ReputStart.CONFIRMED,
        pop=True,
        timer=True,
    ),
    _since(
        "5.1.0",
        skips_directories=True,
        index_failure_stops_load=True,
        reads_v2=True,
        topic_length_max=255,
        compaction=True,
        half_transaction_id=True,
        operation_batches=True,
    ),
    _since("5.1.1", checkpoint_field_count=5, time_lookup=TimeLookup.BOUNDARY, group_length_max=255),
    _since("5.1.3", deletes_empty_last_file=True, immunity_refuses_end=True),
    _since("5.1.4", rocksdb_config=True),
    _since(
        "5.2.0",
        trailing_separator=True,
        record_crc=True,
        drops_pop_checkpoint=True,
        put_keeps_out=("%RETRY%*", "rmq_sys_*", "SCHEDULE_TOPIC_XXXX"),
        dispatch_keeps_out=("%RETRY%*", "rmq_sys_*", "SCHEDULE_TOPIC_XXXX"),
        rocksdb_queues=True,
        rocksdb_queue_directories=("consumequeue",),
    ),
    _since(
        "5.3.2",
        checks_remaining_bytes=True,
        record_crc_zero_valid=True,
        multi_dispatch=MultiDispatch.LMQ_ONLY,
        normal_start=NormalStart.START_BELOW_QUEUES,
        normal_dispatch=NormalDispatch.ABOVE_QUEUES,
        rocksdb_loads_all_ends=True,
        rocksdb_time_beyond_ends=True,
        invalid_parameter_code=True,
    ),
    _since(
        "5.3.4",
        batch_properties=BatchProperties.DROPPED,
        normal_start=NormalStart.FIRST_RECORD_BELOW_DISPATCH,
        normal_dispatch=NormalDispatch.ABOVE_DISPATCH,
        abnormal_start=AbnormalStart.CHECKED_AND_TIME,
        index_safe_on_normal_start=True,
        queues_maximum_read_again=True,
    ),
    _since(
        "5.4.0",
        long_retry_topics=True,
        index_tags=True,
        rocksdb_side_store=True,
        combines_queue_sides=True,
        recover_files_max=10,
        priority=True,
        commit_drops_real_topic=True,
        group_length_max=120,
    ),
    _since(
        "5.5.0",
        put_keeps_out=("%RETRY%*", "%DLQ%*", "rmq_sys_*", "SCHEDULE_TOPIC_XXXX"),
        log_offset_check_option=True,
        min_offset_survives_short_last_file=True,
        checkpoint_field_count=6,
        checkpoint_after_queue_flush=True,
        abnormal_start=AbnormalStart.CHECKED_AND_OFFSET,
        dispatched_end=DispatchedEnd.QUEUES_OR_CHECKPOINT,
        rocksdb_queue_directories=("consumequeue", "consumequeue_rocksdb"),
        rocksdb_pull_reads_on=True,
        new_side_is_skipped=True,
        light_queues_in_rocksdb=True,
        lite_topics=True,
    ),
    _since("5.5.1", refuses_negative_size=True, empty_queue_examined_again=True),
)


def _history() -> tuple[BrokerRules, ...]:
    """The ranges in order, each made from the one before."""
    ranges = [BrokerRules(version="4.4.0", first="4.4.0")]
    for first, changes in _CHANGES:
        ranges.append(replace(ranges[-1], version=first, first=first, **changes))  # type: ignore[arg-type]
    return tuple(ranges)


RANGES: Final = _history()
# fmt: off
SUPPORTED: Final = (
    "4.4.0", "4.5.1", "4.5.2", "4.6.0", "4.6.1", "4.7.0", "4.7.1", "4.8.0",
    "4.9.0", "4.9.1", "4.9.2", "4.9.3", "4.9.4", "4.9.5", "4.9.6", "4.9.7", "4.9.8",
    "5.0.0", "5.1.0", "5.1.1", "5.1.2", "5.1.3", "5.1.4", "5.2.0",
    "5.3.0", "5.3.1", "5.3.2", "5.3.3", "5.3.4", "5.4.0", "5.5.0", "5.5.1",
)
# fmt: on
"""The releases whose behavior the descriptions are made from."""
NEWEST: Final = SUPPORTED[-1]
EXAMINED: Final = ("4.4.0", "4.9.8", "5.1.4", "5.3.3", "5.3.4", "5.4.0", "5.5.1")
"""One release for each way in which a start differs: forecasts compare these."""
PRESUMED: Final = "5.5.1"
"""Whose rules a store gets that fits it and perhaps later ones; adding one must not change how stores are judged."""


def parse_version(text: str) -> tuple[int, int, int]:
    """The numbers of a version "X.Y.Z".

    Raises:
        UsageError: the text is no such version.
    """
    match = re.fullmatch(r"(\d{1,4})\.(\d{1,4})\.(\d{1,4})", text, re.ASCII)
    if match is None:
        raise UsageError(f"not a broker version: {text!r} (expected three numbers like {NEWEST})")
    return int(match[1]), int(match[2]), int(match[3])


def nearest_releases(version: str, releases: tuple[str, ...] = SUPPORTED) -> tuple[str, ...]:
    """The releases, in ascending order, before and after a version that is none of them.

    Raises:
        UsageError: the text is no version.
    """
    numbers = parse_version(version)
    older = [known for known in releases if parse_version(known) < numbers]
    newer = [known for known in releases if parse_version(known) > numbers]
    return (*older[-1:], *newer[:1])


def rules_for(version: str) -> BrokerRules:
    """The description of a version; one that is newer than all known gets the newest one, with a note.

    Raises:
        UsageError: the text is no version, or one before the oldest description.
    """
    asked = parse_version(version)
    if asked < parse_version(RANGES[0].first):
        raise UsageError(f"broker version {version} is older than {RANGES[0].first}, the oldest known version")
    name = ".".join(map(str, asked))
    base_rules = next(rules for rules in reversed(RANGES) if parse_version(rules.first) <= asked)
    note = None
    if asked > parse_version(NEWEST):
        note = f"{name} is newer than {NEWEST}, the newest known version; using its rules"
    elif name not in SUPPORTED:
        note = f"{name} was not examined; using the rules of {base_rules.first}"
    return replace(base_rules, version=name, note=note)


SUPPORTED_RULES: Final = tuple(map(rules_for, SUPPORTED))
"""The descriptions of all of them, oldest first."""
