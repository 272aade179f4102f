"""Single records: every field as a broker decoded it, at its place and by its id, and nothing where there is none."""

from __future__ import annotations

import ipaddress

import pytest

from rmqtool.engine.reading.reader import Reader, open_reader
from rmqtool.engine.reading.record import Record
from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import UsageError
from rmqtool.formats import commitlog, system_flag
from tests.conftest import Unpacked
from tests.engine.memory_view import log_file, made_store, record, segment_name
from tests.engine.reading.golden_answers import open_golden
from tests.golden_stores import Record as Expected
from tests.golden_stores import healthy_names, manifest

NEWEST = rules_for("5.5.1")


def host(text: str) -> str:
    """A host with its IPv6 address in the short form."""
    address, _, port = text.rpartition(":")
    return f"[{ipaddress.ip_address(address[1:-1])}]:{port}" if address.startswith("[") else text


def expected_fields(found: Expected) -> dict[str, object]:
    return {
        "size": found.size,
        "magic": found.magic,
        "physical_offset": found.physical_offset,
        "topic": found.topic,
        "queue_id": found.queue_id,
        "queue_offset": found.queue_offset,
        "message_id": found.msg_id,
        "flag": found.flag,
        "sys_flag": found.sys_flag,
        "born_timestamp_ms": found.born_timestamp_ms,
        "store_timestamp_ms": found.store_timestamp_ms,
        "born_host": host(found.born_host),
        "store_host": host(found.store_host),
        "reconsume_times": found.reconsume_times,
        "prepared_transaction_offset": found.prepared_transaction_offset,
        "properties": dict(found.properties),
        "body_length": found.body_length,
        "body_crc": found.body_crc_field,
    }


@pytest.mark.parametrize("name", healthy_names())
def test_every_record_is_read_as_the_broker_read_it(golden: Unpacked, name: str) -> None:
    records = manifest(name).records
    with open_golden(golden(name), name, "5.5.0") as reader:
        for expected in records:
            message = reader.message_at(expected.at)
            assert message is not None
            assert message.record is not None
            fields = expected_fields(expected)
            assert {key: getattr(message.record, key) for key in fields} == fields
            assert message.record.body_crc_ok is not expected.body_crc_bad
            by_id = reader.message_by_id(expected.msg_id)
            assert by_id is not None
            assert by_id.place == message.place


def reader_over(*records: bytes, file_size: int = 2000, start: int = 0, version: str = "5.5.1") -> Reader:
    files = {f"commitlog/{segment_name(start)}": log_file(records, file_size)}
    return open_reader(made_store(files, commitlog_file_size=file_size), rules_for(version))


def the_record(reader: Reader, physical_offset: int = 0) -> Record:
    message = reader.message_at(physical_offset)
    assert message is not None
    assert message.record is not None
    return message.record


def test_the_body_is_read_up_to_a_limit() -> None:
    found = the_record(reader_over(record(0, body=b"0123456789")))
    assert (found.body(4), found.body(100)) == (b"0123", b"0123456789")


def test_a_changed_body_is_told_by_its_crc() -> None:
    raw = record(0, body=b"0123456789")
    assert the_record(reader_over(raw)).body_crc_ok
    assert not the_record(reader_over(raw.replace(b"345", b"3x5"))).body_crc_ok


@pytest.mark.parametrize("flags", [0, system_flag.BORN_HOST_V6, system_flag.STORE_HOST_V6, 0x30])
def test_hosts_of_both_families(flags: int) -> None:
    v4, v6 = {"address": bytes((10, 0, 0, 1)), "port": 5}, {"address": bytes(15) + b"\x01", "port": 6}
    fields = {
        **dict.fromkeys(("body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "born_timestamp_ms"), 0),
        **dict.fromkeys(("store_timestamp_ms", "reconsume_times", "prepared_transaction_offset"), 0),
        "magic": commitlog.MAGIC_V1,
        "sys_flag": flags,
        "born_host": v6 if flags & system_flag.BORN_HOST_V6 else v4,
        "store_host": v6 if flags & system_flag.STORE_HOST_V6 else v4,
        "body": b"",
        "topic": b"T",
        "properties": b"",
    }
    form = commitlog.message_variant(commitlog.MAGIC_V1, flags)
    size = len(form.build({**fields, "size": 0}))
    found = the_record(reader_over(form.build({**fields, "size": size})))
    assert found.born_host == ("[::1]:6" if flags & system_flag.BORN_HOST_V6 else "10.0.0.1:5")
    assert found.store_host == ("[::1]:6" if flags & system_flag.STORE_HOST_V6 else "10.0.0.1:5")
    assert len(found.message_id) == (56 if flags & system_flag.STORE_HOST_V6 else 32)


def test_old_brokers_drop_a_value_with_a_separator_inside() -> None:
    raw = record(0, properties={"TAGS": "a\x01b", "KEYS": "k"})
    assert the_record(reader_over(raw, version="4.9.0")).properties == {"KEYS": "k"}
    assert the_record(reader_over(raw, version="4.9.1")).properties == {"TAGS": "a\x01b", "KEYS": "k"}


def test_physical_offset_0_is_looked_up_in_the_first_file_there_is() -> None:
    reader = reader_over(record(4000), start=4000)
    message = reader.message_at(0)
    assert message is not None
    assert message.physical_offset == 4000
    assert reader.message_at(1) is None


@pytest.mark.parametrize("physical_offset", [-(2**63), -1, 1997, 1999, 2000, 2**62])
def test_nothing_is_read_where_no_record_can_begin(physical_offset: int) -> None:
    assert reader_over(record(0)).message_at(physical_offset) is None


def test_every_cut_and_every_changed_byte_is_a_record_or_none() -> None:
    raw = record(0, properties={"TAGS": "a"})
    for length in range(len(raw)):
        message = reader_over(raw[:length]).message_at(0)
        if message is not None and message.record is not None:
            # Zeros behind a cut inside the properties pass for properties: only the body has a CRC.
            assert length > len(raw) - 2 - len(b"TAGS\x01a\x02")
    for at in range(len(raw)):
        for value in (0x00, 0x7F, 0x80, 0xFF):
            changed = raw[:at] + bytes((value,)) + raw[at + 1 :]
            message = reader_over(changed).message_at(0)
            if message is not None and message.record is not None:
                assert message.record.size == len(raw)


def test_a_length_of_gigabytes_reads_nothing_of_that_size() -> None:
    raw = bytearray(record(0))
    raw[84:88] = (0x7FFFFFF0).to_bytes(4, "big")
    message = reader_over(bytes(raw)).message_at(0)
    assert message is not None
    assert message.record is None


@pytest.mark.parametrize("text", ["", "xyz", "0" * 31, "g" * 32])
def test_what_is_no_message_id_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        reader_over(record(0)).message_by_id(text)
