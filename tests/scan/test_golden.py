"""Every record that real brokers wrote comes out with every field; of damaged stores all that the damage left."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqtool.formats.commitlog import MAGIC_BLANK
from rmqtool.formats.properties import decode_properties
from rmqtool.formats.record_crc import CRC_MASK
from rmqtool.formats.tags import DEFAULT_DELAY_LEVELS, parse_delay_levels
from rmqtool.scan.columns import Row
from rmqtool.scan.compiled import CompiledReader
from rmqtool.scan.log import LogFile, RecordTable, ScanOptions
from rmqtool.scan.rules import Verdict
from rmqtool.scan.walk import Batch
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests import golden_stores
from tests.conftest import Unpacked
from tests.golden_stores import Manifest, Record
from tests.scan.logs import MakeReader

FINDINGS = {
    "blank-in-middle": Verdict.BAD_SIZE,
    "cq-ahead": Verdict.HOLE,
    "flip-body": Verdict.BODY_CRC_MISMATCH,
    "flip-second-file": Verdict.BODY_CRC_MISMATCH,
    "flip-physical-offset": Verdict.SELF_OFFSET_MISMATCH,
    "missing-final-blank": Verdict.MISSING_END_BLANK,
    "size-huge": Verdict.BAD_SIZE,
    "size-negative": Verdict.BAD_SIZE,
    "size-plausible": Verdict.BAD_LENGTHS,
    "size-small": Verdict.BAD_LENGTHS,
    "size-zero": Verdict.BAD_SIZE,
    "torn-last-record": Verdict.TORN_RECORD,
    "wrong-magic": Verdict.BAD_MAGIC,
    "zero-hole": Verdict.HOLE,
}
"""What the edits of the log imply, by the begin of the damage's name."""
UNNOTICED = ("flip-queue-offset", "flip-store-timestamp", "flip-topic-byte")
"""Edits of the log that leave a good record with another content."""
COMPACTED_TOPIC = "settings"


def _log(store: Path, config: Mapping[str, Any], *, compiled: bool) -> Iterator[Batch]:
    found = survey(open_directory(store))
    files = [LogFile(lambda path=each.path: found.view.open(path), each.start) for each in found.commitlog]
    delays = parse_delay_levels(config.get("messageDelayLevel", DEFAULT_DELAY_LEVELS))
    with RecordTable.of(files, ScanOptions(delays, compiled=compiled), finds_crc=True) as table:
        yield from table.batches()


def _is_message(row: Row) -> bool:
    return row.verdict == Verdict.GOOD and row.magic != MAGIC_BLANK


def _assert_is(row: Row, record: Record, batch: Batch) -> None:
    raw = batch.read(row, 0, row.size)
    start = row.size - row.properties_length
    properties = decode_properties(raw[start:])
    topic_at = start - 2 - row.topic_length
    assert zlib.crc32(raw) == record.record_crc32
    assert properties == record.properties
    assert raw[topic_at : topic_at + row.topic_length] == batch.topics[row.topic_number]
    assert batch.topics[row.topic_number].decode() == record.topic
    for name, at, length in (
        ("TAGS", row.tags_position, row.tags_length),
        ("KEYS", row.keys_position, row.keys_length),
        ("UNIQ_KEY", row.unique_key_position, row.unique_key_length),
    ):
        assert (raw[at : at + length].decode() if length >= 0 else None) == properties.get(name)
    assert {
        "physical_offset": record.at,
        "size": record.size,
        "queue_offset": record.queue_offset,
        "own_offset": record.physical_offset,
        "born_timestamp_ms": record.born_timestamp_ms,
        "store_timestamp_ms": record.store_timestamp_ms,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "tags_code": record.tags_code,
        "magic": record.magic,
        "body_crc": record.body_crc_field,
        "computed_crc": record.body_crc32 & CRC_MASK if record.body_length else 0,
        "queue_id": record.queue_id,
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "reconsume_times": record.reconsume_times,
        "body_length": record.body_length,
    }.items() <= row._asdict().items()


def _touched(found: Manifest) -> list[tuple[int, int]]:
    """Ranges of the log, in physical offsets, that the damage edits or takes away."""
    ranges = []
    for edit in found.damage:
        folder, _, name = edit["file"].partition("/")
        if folder != "commitlog" or edit["edit"] == "create":
            continue
        if not name:
            ranges.append((0, 1 << 62))
        elif edit["edit"] == "remove":
            ranges.append((int(name), int(name) + found.config["mappedFileSizeCommitLog"]))
        elif edit["edit"] == "truncate":
            ranges.append((int(name) + edit["to"], int(name) + edit["from"]))
        else:
            ranges.append((int(name) + edit["position"], int(name) + edit["position"] + edit["length"]))
    return ranges


def _finding(name: str) -> Verdict | None:
    _, _, what = name.split("-", 2)
    return next((verdict for begin, verdict in FINDINGS.items() if what.startswith(begin)), None)


@pytest.mark.parametrize("name", golden_stores.names())
def test_every_record_of_a_golden_store_is_found(name: str, reader: MakeReader, golden: Unpacked) -> None:
    found = golden_stores.manifest(name)
    finding = _finding(name) if found.damage else None
    touched = _touched(found) if not any(part in name for part in UNNOTICED) else []
    expected = {
        record.at: record
        for record in found.records
        if not any(start < record.at + record.size and end > record.at for start, end in touched)
    }
    bad: list[Row] = []
    for batch in _log(golden(name), found.config, compiled=reader is CompiledReader):
        for row in batch.as_rows():
            if row.verdict != Verdict.GOOD:
                bad.append(row)
            elif _is_message(row):
                _assert_is(row, expected.pop(row.physical_offset), batch)
    assert expected == {}
    assert [Verdict(row.verdict) for row in bad] == ([finding] if finding is not None else [])
    for row in bad:
        # A torn record's row ends where the zeros begin that the damage wrote.
        assert any(row.physical_offset < end and row.physical_offset + row.size >= start for start, end in touched)


@pytest.mark.parametrize("name", golden_stores.broker_names())
def test_every_message_that_a_whole_broker_served_is_found(name: str, reader: MakeReader, golden: Unpacked) -> None:
    found = golden_stores.broker_manifest(name)
    rows: dict[int, tuple[Row, bytes]] = {}
    for batch in _log(golden(name), found["config"], compiled=reader is CompiledReader):
        for row in batch.as_rows():
            # A slave that was killed holds what had arrived, and that may end inside a record.
            assert row.verdict == Verdict.GOOD or (row.verdict == Verdict.TORN_RECORD and "slave" in name)
            if _is_message(row):
                rows[row.physical_offset] = row, batch.topics[row.topic_number]
    log_end = max((row.physical_offset + row.size for row, _ in rows.values()), default=0)
    for queue in found["served"].get("queues", []):
        if "compaction" in name and queue["topic"] == COMPACTED_TOPIC:
            continue  # its positions are those of another log
        for served in queue["messages"]:
            if served["record_size"] == 0 or served["physical_offset"] >= log_end:
                continue  # part of a packed batch; written by the broker that was asked
            row, topic = rows[served["physical_offset"]]
            assert topic.decode() == served.get("topic", queue["topic"])
            if "topic" not in served:  # it has a queue of its own name, not only further ones
                assert (row.queue_id, row.queue_offset) == (queue["queue"], served["queue_offset"])
            assert row.size == served["record_size"]
            assert row.body_crc == served["stored_body_crc"]
            assert row.store_timestamp_ms == served["store_timestamp_ms"]
