"""`dump` of every golden store gives the records that real brokers read, field by field, and says what is damaged."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.commands.transcripts import rmqtool
from tests.golden_stores import Manifest, Record, broker_manifest, broker_names, damaged_names, manifest, names, unpack
from tests.store_state import assert_store_unchanged

MAGICS = {-626843481: "v1", -626843477: "v2"}
INNER_BATCH = 0x80
JsonRow = dict[str, Any]


def dumped(store: Path, *options: str) -> tuple[int, list[JsonRow]]:
    """Exit code and rows of a dump that must leave the store as it is."""
    with assert_store_unchanged(store):
        ran = rmqtool("dump", store, "--format", "jsonl", *options)
    return ran.code, [json.loads(line) for line in ran.out.splitlines()]


def java_host(host: str) -> str:
    """A host as Java writes it: an IPv6 address in full."""
    address, _, port = host.rpartition(":")
    if not address.startswith("["):
        return host
    groups = ipaddress.IPv6Address(address.strip("[]")).exploded.split(":")
    return f"[{':'.join(f'{int(group, 16):x}' for group in groups)}]:{port}"


def expected(record: Record) -> JsonRow:
    """What the manifest says of a row."""
    return {
        "type": "message",
        "physical_offset": record.at,
        "size": record.size,
        "magic": MAGICS[record.magic],
        "body_crc": record.body_crc_field,
        "body_crc_ok": True,
        "queue_id": record.queue_id,
        "flag": record.flag,
        "queue_offset": record.queue_offset,
        "sys_flag": record.sys_flag,
        "born_timestamp_ms": record.born_timestamp_ms,
        "born_host": record.born_host,
        "store_timestamp_ms": record.store_timestamp_ms,
        "store_host": record.store_host,
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "body_length": record.body_length,
        "topic": record.topic,
        "properties": dict(record.properties),
        "tags": record.properties.get("TAGS"),
        "keys": [key for key in record.properties.get("KEYS", "").split(" ") if key],
        "unique_key": record.properties.get("UNIQ_KEY"),
        "message_id": record.msg_id,
        "finding": None,
    }


def compared(row: JsonRow, record: Record) -> tuple[JsonRow, JsonRow]:
    """The row and the manifest's words for it, in one notation."""
    wanted = expected(record)
    row = {name: row[name] for name in wanted}
    return {**row, "born_host": java_host(row["born_host"]), "store_host": java_host(row["store_host"])}, wanted


def touched_ranges(found: Manifest) -> list[tuple[int, int]]:
    """Physical ranges of the log that a store's edits reach."""
    size = found.config.get("mappedFileSizeCommitLog", 1 << 30)
    return [part for edit in found.damage for part in _touched(edit, size)]


def _touched(edit: Mapping[str, Any], size: int) -> list[tuple[int, int]]:
    ranges = []
    for path in (edit.get("file"), edit.get("from"), edit.get("to")):
        if not isinstance(path, str):  # a truncated file has lengths there
            continue
        folder, _, name = path.partition("/")
        if folder != "commitlog":
            continue
        start = int(name) if name.isdigit() else 0
        whole = start + size if name.isdigit() else 1 << 62  # the folder itself, or a name that is none
        if edit["edit"] in ("patch", "zero"):
            start += edit["position"]
            whole = start + edit["length"]
        elif edit["edit"] == "truncate":
            start += edit["to"]
        ranges.append((start, whole))
    return ranges


def overlaps(start: int, end: int, ranges: list[tuple[int, int]]) -> bool:
    return any(begin < end and start < stop for begin, stop in ranges)


@pytest.mark.parametrize("name", [name for name in names() if not manifest(name).damage])
def test_an_undamaged_store_is_dumped_as_the_broker_read_it(name: str, tmp_path: Path) -> None:
    found = manifest(name)
    code, rows = dumped(unpack(name, tmp_path))
    assert code == 0
    assert {row["type"] for row in rows} <= {"message", "blank"}
    messages = [row for row in rows if row["type"] == "message"]
    assert [row["physical_offset"] for row in messages] == [record.at for record in found.records]
    for row, record in zip(messages, found.records, strict=True):
        actual, wanted = compared(row, record)
        assert actual == wanted


@pytest.mark.parametrize("name", damaged_names())
def test_a_damaged_store_loses_no_record_that_the_damage_does_not_touch(name: str, tmp_path: Path) -> None:
    found = manifest(name)
    code, rows = dumped(unpack(name, tmp_path))
    touched = touched_ranges(found)
    messages = {row["physical_offset"]: row for row in rows if row["type"] == "message"}
    bad = [(row["physical_offset"], row["physical_offset"] + row["size"]) for row in rows if row["type"] == "bad"]
    assert code == (3 if bad else 0)
    records = {record.at: record for record in found.records}
    assert messages.keys() <= records.keys()
    for record in found.records:
        if record.at in messages:
            actual, wanted = compared(messages[record.at], record)
            assert actual == wanted
        else:
            assert overlaps(record.at, record.at + record.size, touched), f"{record.at} is lost, and nothing touched it"
            assert overlaps(record.at, record.at + record.size, bad) or _is_behind(record.at, rows)
    for start, end in bad:  # what is left of a torn record ends where the damage begins
        whole = start + records[start].size if start in records else start + 1
        assert overlaps(start, max(end, whole), touched), f"{start} is called bad, and nothing touched it"


def _is_behind(physical_offset: int, rows: list[JsonRow]) -> bool:
    """Whether a place lies behind all that was dumped, so that nothing of it is left, or in front of it."""
    places = [row["physical_offset"] for row in rows]
    return not places or not min(places) <= physical_offset <= max(places)


@pytest.mark.parametrize("name", broker_names())
def test_a_whole_brokers_messages_are_all_dumped(name: str, tmp_path: Path) -> None:
    found = broker_manifest(name)
    store = unpack(name, tmp_path)
    if "dledger" in name:
        ran = rmqtool("dump", store)
        assert ran.code == 4
        assert "DLedger" in ran.err
        return
    code, rows = dumped(store)
    messages = {row["physical_offset"]: row for row in rows if row["type"] == "message"}
    assert messages
    assert code == (3 if any(row["type"] == "bad" for row in rows) else 0)
    log_end = max(row["physical_offset"] + row["size"] for row in messages.values())
    assert all(row["physical_offset"] >= log_end for row in rows if row["type"] == "bad")
    for sent in found["acknowledged"]:
        if "physical_offset" not in sent:
            continue
        if sent["physical_offset"] >= log_end:
            assert "slave" in found["end"] or "slave" in name  # acknowledged by the master, not yet replicated
            continue
        row = messages[sent["physical_offset"]]
        assert row["message_id"] == sent["offset_msg_id"]
        if not row["sys_flag"] & INNER_BATCH:  # its parts have tags and bodies of their own
            assert row["tags"] == sent.get("tags")
            assert row["compression"] or row["body_length"] == sent["body_length"]
