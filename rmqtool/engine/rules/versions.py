"""The broker's versions as data: one description per range of versions, and the only place where versions are compared.

A description holds switches, numbers, and the names of the algorithms that differ; the rooms above ask it and never ask
for a version. Each range is written as its difference to the one before, so the list reads as the store's history.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from rmqtool.engine.rules.broker_rules import (
    AbnormalStart,
    BatchProperties,
    BrokerRules,
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
    _since("4.9.4", compression_types=True, overflow_restarts_at_zero=False, log_is_below_root=True),
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
        demands_topic_names=True,
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
        loads_transaction_metrics=True,
        trims_settings=True,
        dledger_skips_headers=True,
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
    """The ranges in order, each derived from the one before."""
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
"""Version whose rules apply to a store that fits it and perhaps later ones; adding one must not change verdicts."""


def parse_version(text: str) -> tuple[int, int, int]:
    """The numbers of a version "X.Y.Z".

    Raises:
        UsageError: the text is no such version.
    """
    match = re.fullmatch(r"(\d{1,4})\.(\d{1,4})\.(\d{1,4})", text, re.ASCII)
    if match is None:
        raise UsageError(f"not a broker version: {text!r} (expected three numbers like {NEWEST})")
    return int(match[1]), int(match[2]), int(match[3])


def is_between(version: str, first: str, last: str | None) -> bool:
    """True if a version is in a range of releases; None for one without an end.

    One that lies between the last release of the range and the next one is like the last.
    """
    numbers = parse_version(version)
    if last is not None:
        later = [release for release in SUPPORTED if parse_version(release) > parse_version(last)]
        return parse_version(first) <= numbers and (not later or numbers < parse_version(later[0]))
    return parse_version(first) <= numbers


def nearest_releases(version: str, releases: tuple[str, ...] = SUPPORTED) -> tuple[str, ...]:
    """The releases, in ascending order, before and after a version that is none of them.

    Raises:
        UsageError: the text is no version.
    """
    numbers = parse_version(version)
    older = [known for known in releases if parse_version(known) < numbers]
    newer = [known for known in releases if parse_version(known) > numbers]
    return (*older[-1:], *newer[:1])


def first_with(switch: str) -> str:
    """The first version whose rules have a switch on."""
    return next(rules.first for rules in RANGES if getattr(rules, switch))


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
