"""Message records of both versions and all host families: parsed as built, with sizes as declared."""

from __future__ import annotations

from typing import Any

import construct
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.layout import fields_of
from tests.formats.examples import MESSAGE_V1
from tests.formats.reference import parse_message
from tests.formats.test_catalog import plain

HOST_BITS = (0, 0x10, 0x20, 0x30)
VARIANTS = [(magic, hosts) for magic in (commitlog.MAGIC_V1, commitlog.MAGIC_V2) for hosts in HOST_BITS]
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)


def host(v6: bool) -> st.SearchStrategy[dict[str, Any]]:
    size = 16 if v6 else 4
    return st.fixed_dictionaries({"address": st.binary(min_size=size, max_size=size), "port": int32})


@st.composite
def messages(draw: st.DrawFn, magic: int, hosts: int) -> dict[str, Any]:
    body, properties = draw(st.binary(max_size=300)), draw(st.binary(max_size=200))
    topic = draw(st.binary(max_size=127 if magic == commitlog.MAGIC_V1 else 300))
    born_host, store_host = draw(host(bool(hosts & 0x10))), draw(host(bool(hosts & 0x20)))
    extra = 12 * bool(hosts & 0x10) + 12 * bool(hosts & 0x20) + (magic == commitlog.MAGIC_V2)
    return {
        "size": 91 + extra + len(body) + len(topic) + len(properties),
        "magic": magic,
        "body_crc": draw(int32),
        "queue_id": draw(int32),
        "flag": draw(int32),
        "queue_offset": draw(int64),
        "physical_offset": draw(int64),
        "sys_flag": draw(int32) & ~0x30 | hosts,
        "born_timestamp_ms": draw(int64),
        "born_host": born_host,
        "store_timestamp_ms": draw(int64),
        "store_host": store_host,
        "reconsume_times": draw(int32),
        "prepared_transaction_offset": draw(int64),
        "body_length": len(body),
        "body": body,
        "topic_length": len(topic),
        "topic": topic,
        "properties_length": len(properties),
        "properties": properties,
    }


def by_hand(fields: dict[str, Any]) -> bytes:
    """The record, put together field by field without any declaration."""

    def number(name: str, size: int) -> bytes:
        return int(fields[name]).to_bytes(size, "big", signed=True)

    def of_host(name: str) -> bytes:
        return bytes(fields[name]["address"]) + int(fields[name]["port"]).to_bytes(4, "big", signed=True)

    return b"".join(
        (
            number("size", 4),
            number("magic", 4),
            number("body_crc", 4),
            number("queue_id", 4),
            number("flag", 4),
            number("queue_offset", 8),
            number("physical_offset", 8),
            number("sys_flag", 4),
            number("born_timestamp_ms", 8),
            of_host("born_host"),
            number("store_timestamp_ms", 8),
            of_host("store_host"),
            number("reconsume_times", 4),
            number("prepared_transaction_offset", 8),
            number("body_length", 4),
            fields["body"],
            number("topic_length", 1 if fields["magic"] == commitlog.MAGIC_V1 else 2),
            fields["topic"],
            number("properties_length", 2),
            fields["properties"],
        )
    )


@pytest.mark.parametrize(("magic", "hosts"), VARIANTS)
@settings(max_examples=40)
@given(data=st.data())
def test_a_message_is_read_as_it_was_written(magic: int, hosts: int, data: st.DataObject) -> None:
    fields = data.draw(messages(magic, hosts))
    raw = by_hand(fields)
    assert len(raw) == fields["size"]
    assert commitlog.message_variant(magic, fields["sys_flag"]).build(fields) == raw
    assert plain(parse_message(raw)) == fields
    assert raw[commitlog.head_size(fields["sys_flag"]) :].startswith(fields["body"])


@pytest.mark.parametrize(("magic", "hosts"), VARIANTS)
def test_lengths_are_filled_in(magic: int, hosts: int) -> None:
    fields = {**MESSAGE_V1.fields, "magic": magic, "sys_flag": hosts}
    for name, bit in (("born_host", 0x10), ("store_host", 0x20)):
        fields[name] = {"address": bytes(16 if hosts & bit else 4), "port": 1}
    for name in ("body_length", "topic_length", "properties_length"):
        del fields[name]
    found = parse_message(commitlog.message_variant(magic, hosts).build(fields))
    assert (found.body_length, found.topic_length, found.properties_length) == (5, 9, 20)


@pytest.mark.parametrize(("sys_flag", "size"), [(0, 88), (0x10, 100), (0x20, 100), (0x30, 112), (0x7CF, 88), (-1, 112)])
def test_head_size(sys_flag: int, size: int) -> None:
    assert commitlog.head_size(sys_flag) == size


@pytest.mark.parametrize(("magic", "hosts"), VARIANTS)
def test_the_position_of_the_body_is_that_of_the_layout(magic: int, hosts: int) -> None:
    (body,) = (field for field in fields_of(commitlog.message_variant(magic, hosts)) if field.name == "body")
    assert body.position == commitlog.head_size(hosts)


def test_positions_that_brokers_read_without_decoding() -> None:
    positions = {"magic": 4, "flag": 16, "queue_offset": 20, "physical_offset": 28, "sys_flag": 36}
    for found in (commitlog.MESSAGE_V1, commitlog.MESSAGE_V2):
        assert {name: found.position(name) for name in positions} == positions
        assert found.position("store_timestamp_ms") == 56
    (field,) = (
        field
        for field in fields_of(commitlog.message_variant(commitlog.MAGIC_V1, system_flag.BORN_HOST_V6))
        if field.name == "store_timestamp_ms"
    )
    assert field.position == 68


def test_smallest_record() -> None:
    assert commitlog.RECORD_SIZE_MIN == 91


def test_magic_codes() -> None:
    assert {magic: raw.hex() for magic, raw in commitlog.MAGIC_BYTES.items()} == {
        commitlog.MAGIC_V1: "daa320a7",
        commitlog.MAGIC_V2: "daa320ab",
        commitlog.MAGIC_BLANK: "cbd43194",
    }


@pytest.mark.parametrize("name", ["body_length", "properties_length"])
def test_a_negative_length_counts_as_none(name: str) -> None:
    part = name.removesuffix("_length")
    bare = {**MESSAGE_V1.fields, part: b"", name: 0}
    raw = by_hand({**bare, name: -1})
    found = parse_message(raw)
    assert found[name] == -1
    assert found[part] == b""
    assert found.topic == b"TopicTest"


@pytest.mark.parametrize(
    "change",
    [{"topic_length": -1}, {"body_length": 2**31 - 1}, {"properties_length": 32767}, {"topic_length": 127}],
    ids=lambda change: " ".join(f"{name} {value}" for name, value in change.items()),
)
def test_a_length_that_leads_outside_is_an_error(change: dict[str, int]) -> None:
    with pytest.raises(construct.ConstructError):
        parse_message(by_hand({**MESSAGE_V1.fields, **change}))


@pytest.mark.parametrize("magic", ["00000000", "cbd43194", "daa320a8", "5824dcf3"])
def test_another_magic_is_an_error(magic: str) -> None:
    raw = MESSAGE_V1.raw
    with pytest.raises(construct.ConstructError, match=magic):
        parse_message(raw[:4] + bytes.fromhex(magic) + raw[8:])


@given(st.binary(max_size=200))
def test_random_bytes_are_a_message_or_an_error(raw: bytes) -> None:
    for magic in (commitlog.MAGIC_V1, commitlog.MAGIC_V2):
        record = raw[:4] + commitlog.MAGIC_BYTES[magic] + raw[8:]
        try:
            found = parse_message(record)
        except construct.ConstructError:
            continue
        assert found.magic == magic


def test_a_topic_too_long_for_version_1_is_an_error() -> None:
    fields = {**MESSAGE_V1.fields, "topic": b"t" * 128}
    del fields["topic_length"]
    with pytest.raises(construct.ConstructError):
        commitlog.message_variant(commitlog.MAGIC_V1, 0).build(fields)
