"""The declared formats read out of real stores what the brokers read: records, units, index entries, checkpoints."""

from __future__ import annotations

import dataclasses
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtool.formats import abort, batch, checkpoint, commitlog, consumequeue, index, system_flag
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.layout import Format
from rmqtool.formats.message_id import host_bytes, offset_message_id, parse_offset_message_id
from rmqtool.formats.properties import decode_properties
from rmqtool.formats.record_crc import masked_crc, record_crc_matches
from rmqtool.formats.tags import DEFAULT_DELAY_LEVELS, parse_delay_levels, tags_code
from tests.conftest import Unpacked
from tests.formats.reference import key_texts, parse_message, split_batch
from tests.golden_stores import Record, crashed_names, healthy_names, manifest, settings

UNDAMAGED = [*healthy_names(), *crashed_names()]
TAGS_INDEXED = {"4.9.7": False, "5.5.0": True}


def log_bytes(store: Path, record_start: int, length: int, file_size: int) -> bytes:
    """Bytes of the commitlog, in whichever of its folders they lie."""
    name = f"{record_start - record_start % file_size:020d}"
    (path,) = store.glob(f"commitlog*/{name}")
    with path.open("rb") as source:
        return os.pread(source.fileno(), length, record_start % file_size)


def as_manifest(raw: bytes, delays_ms: tuple[int, ...]) -> dict[str, Any]:
    """A record in the terms of a manifest, read by the formats alone."""
    found = parse_message(raw)
    properties = decode_properties(found.properties)
    born_host, store_host = (
        host.address + host.port.to_bytes(4, "big", signed=True) for host in (found.born_host, found.store_host)
    )
    topic = decode_java_utf8(found.topic)
    return {
        "size": found.size,
        "magic": found.magic,
        "physical_offset": found.physical_offset,
        "topic": topic,
        "queue_id": found.queue_id,
        "queue_offset": found.queue_offset,
        "msg_id": offset_message_id(store_host, found.physical_offset),
        "flag": found.flag,
        "sys_flag": found.sys_flag,
        "born_timestamp_ms": found.born_timestamp_ms,
        "store_timestamp_ms": found.store_timestamp_ms,
        "born_host": born_host,
        "store_host": store_host,
        "reconsume_times": found.reconsume_times,
        "prepared_transaction_offset": found.prepared_transaction_offset,
        "properties": properties,
        "body_length": found.body_length,
        "body_crc32": zlib.crc32(found.body),
        "body_crc_field": found.body_crc,
        "body_crc_bad": bool(found.body) and found.body_crc != masked_crc(found.body),
        "record_crc32": zlib.crc32(raw),
        "tags_code": tags_code(topic, properties, found.store_timestamp_ms, delays_ms),
    }


def expected(record: Record) -> dict[str, Any]:
    found = dataclasses.asdict(record)
    del found["at"]
    return {**found, "born_host": host_bytes(record.born_host), "store_host": host_bytes(record.store_host)}


def units(declared: Format, raw: bytes) -> Iterator[Any]:
    size = declared.size
    assert size is not None
    for at in range(0, len(raw) - size + 1, size):
        yield declared.struct.parse(raw[at : at + size])


@pytest.mark.parametrize("name", UNDAMAGED)
def test_every_record_is_what_the_brokers_read(name: str, golden: Unpacked) -> None:
    found, store = manifest(name), golden(name)
    delays_ms = parse_delay_levels(found.config.get("messageDelayLevel", DEFAULT_DELAY_LEVELS))
    file_size = settings(name).commitlog_file_size
    for record in found.records:
        raw = log_bytes(store, record.at, record.size, file_size)
        assert as_manifest(raw, delays_ms) == expected(record)
        assert parse_offset_message_id(record.msg_id).physical_offset == record.physical_offset


@pytest.mark.parametrize("name", ["4.9.7-clean-basic", "5.5.0-many-files", "5.5.0-multi-path"])
def test_every_blank_is_what_the_brokers_read(name: str, golden: Unpacked) -> None:
    served = manifest(name).reads[manifest(name).writer].served
    assert served is not None
    blanks = [row for row in served.commitlog if row[2:] == ["blank"]]
    assert blanks
    for at, length, _ in blanks:
        found = commitlog.BLANK.struct.parse(log_bytes(golden(name), at, 8, settings(name).commitlog_file_size))
        assert (found.size, found.magic) == (length, commitlog.MAGIC_BLANK)


def test_whole_record_checksums(golden: Unpacked) -> None:
    name = "5.5.0-record-crc"
    for record in manifest(name).records:
        raw = log_bytes(golden(name), record.at, record.size, settings(name).commitlog_file_size)
        assert record_crc_matches(raw) is True
        assert "__CRC32#" in record.properties
    for record in manifest("5.5.0-clean-basic").records:
        raw = log_bytes(golden("5.5.0-clean-basic"), record.at, record.size, 65536)
        assert record_crc_matches(raw) is None


@pytest.mark.parametrize("name", ["4.9.7-clean-basic", "5.5.0-clean-basic", "4.9.7-delay", "5.5.0-lmq", "5.5.0-cq-ext"])
def test_units_are_what_the_brokers_read(name: str, golden: Unpacked) -> None:
    served = manifest(name).reads[manifest(name).writer].served
    assert served is not None
    compared = 0
    for queue in served.queues:
        folder = golden(name) / "consumequeue" / queue.topic / str(queue.queue_id)
        raw = b"".join(path.read_bytes() for path in sorted(folder.glob("*")))
        found = list(units(consumequeue.UNIT, raw))
        for queue_offset, _, _, unit, *more in queue.messages:
            parsed = found[queue_offset]
            assert [parsed.physical_offset, parsed.record_size, parsed.tags_code] == unit
            assert consumequeue.is_extension_address(parsed.tags_code) == bool(more)
            compared += 1
    assert compared > 30


@pytest.mark.parametrize("name", ["4.9.7-cq-ext", "5.5.0-cq-ext"])
def test_extension_units_are_what_the_brokers_read(name: str, golden: Unpacked) -> None:
    served = manifest(name).reads[manifest(name).writer].served
    assert served is not None
    compared = 0
    for queue in served.queues:
        folder = golden(name) / "consumequeue_ext" / queue.topic / str(queue.queue_id)
        raw = b"".join(path.read_bytes() for path in sorted(folder.glob("*")))
        for row in (row for row in queue.messages if len(row) > 4):
            at = consumequeue.extension_position(row[3][2])
            found = consumequeue.EXTENSION_UNIT.struct.parse(raw[at:])
            told = row[4]["ext"]
            assert (found.size, found.tags_code, found.store_timestamp_ms) == (
                told["size"],
                told["tagsCode"],
                told["msgStoreTime"],
            )
            assert found.bitmap_length == len(found.filter_bitmap) == found.size - consumequeue.EXTENSION_HEAD_SIZE
            compared += 1
    assert compared > 50


def test_batch_units_and_batch_bodies(golden: Unpacked) -> None:
    name = "5.5.0-inner-batch"
    records = [record for record in manifest(name).records if record.sys_flag & system_flag.INNER_BATCH]
    assert records
    entries: dict[int, Any] = {}
    for path in (golden(name) / "batchconsumequeue").glob("*/*/*"):
        for unit in units(consumequeue.BATCH_UNIT, path.read_bytes()):
            if unit.record_size > 0:
                entries[unit.physical_offset] = unit
    for record in records:
        unit = entries[record.at]
        count = int(record.properties["INNER_NUM"])
        assert (unit.record_size, unit.tags_code, unit.store_timestamp_ms) == (
            record.size,
            record.tags_code,
            record.store_timestamp_ms,
        )
        assert (unit.base_queue_offset, unit.batch_size) == (int(record.properties["INNER_BASE"]), count)
        assert (unit.compacted_offset, unit.reserved) == (-1, 0)
        found = parse_message(log_bytes(golden(name), record.at, record.size, 65536))
        parts = split_batch(found.body)
        assert len(parts) == count
        assert batch.join_batch(parts) == found.body


@pytest.mark.parametrize("writer", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize(
    "store", ["clean-basic", "keys-index", "properties", "transaction", "ipv6", "batch", "lmq", "delay"]
)
def test_the_index_holds_every_key_text_of_every_record(writer: str, store: str, golden: Unpacked) -> None:
    name = f"{writer}-{store}"
    slots = settings(name).index_slot_count
    entries: list[tuple[int, int]] = []
    for path in sorted((golden(name) / "index").iterdir()):
        raw = path.read_bytes()
        assert len(raw) == index.file_size(slots, settings(name).index_entry_count)
        header = index.HEADER.struct.parse(raw)
        numbers = range(1, header.next_entry_number)
        found = {
            number: index.ENTRY.struct.parse(raw[index.entry_position(number, slots) :][: index.ENTRY_SIZE])
            for number in numbers
        }
        newest: dict[int, int] = {}
        for number, entry in found.items():
            slot = entry.key_hash % slots
            assert entry.previous_entry == newest.get(slot, 0)
            newest[slot] = number
            entries.append((entry.key_hash, entry.physical_offset))
        for slot in range(slots):
            first = index.SLOT.struct.parse(raw[index.slot_position(slot) :][: index.SLOT_SIZE])
            assert first.newest_entry == newest.get(slot, 0)
        assert header.used_slot_count == len(newest)
        assert header.end_physical_offset == found[numbers[-1]].physical_offset
    assert entries == [
        (index.key_hash(text), record.at)
        for record in manifest(name).records
        if system_flag.transaction(record.sys_flag) != "rollback"
        for text in key_texts(record.topic, dict(record.properties), with_tags=TAGS_INDEXED[writer])
    ]


@pytest.mark.parametrize("name", ["4.9.7-clean-basic", "5.5.0-clean-basic", "5.5.0-crashed", "5.5.0-default-size"])
def test_the_checkpoint_is_what_the_broker_read(name: str, golden: Unpacked) -> None:
    told = manifest(name).reads[manifest(name).writer].raw["checkpointBefore"]
    found = checkpoint.parse_checkpoint((golden(name) / "checkpoint").read_bytes())
    assert dataclasses.astuple(found) == (
        told["physicMsgTimestamp"],
        told["logicsMsgTimestamp"],
        told["indexMsgTimestamp"],
        told["masterFlushedOffset"],
        told["confirmPhyOffset"],
        told["logicsPhysicalOffset"],
    )
    assert checkpoint.build_checkpoint(found) == (golden(name) / "checkpoint").read_bytes()


def test_abort_files_of_both_generations(golden: Unpacked) -> None:
    assert (golden("4.9.7-crashed") / "abort").read_bytes() == b""
    raw = (golden("5.5.0-crashed") / "abort").read_bytes()
    process_id = abort.parse_abort(raw)
    assert process_id is not None
    assert abort.build_abort(process_id) == raw
