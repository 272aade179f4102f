"""Hosts, offset message ids and client unique keys, both ways."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.message_id import (
    OffsetMessageId,
    host_bytes,
    host_text,
    offset_message_id,
    parse_offset_message_id,
)

V6 = ipaddress.IPv6Address("2001:db8::1").packed
hosts = st.sampled_from([4, 16]).flatmap(lambda size: st.binary(min_size=size + 4, max_size=size + 4))


def test_the_id_of_the_example_record() -> None:
    text = "7F00000100002A9F00000000000003E8"
    assert offset_message_id(bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big"), 1000) == text
    assert parse_offset_message_id(text) == OffsetMessageId("127.0.0.1:10911", 1000)
    assert parse_offset_message_id(text.lower()) == OffsetMessageId("127.0.0.1:10911", 1000)


def test_an_id_with_an_ipv6_host() -> None:
    text = offset_message_id(V6 + (10911).to_bytes(4, "big"), 1000)
    assert text == "20010DB8000000000000000000000001" + "00002A9F" + "00000000000003E8"
    assert parse_offset_message_id(text) == OffsetMessageId("[2001:db8::1]:10911", 1000)


@given(hosts, st.integers(-(2**63), 2**63 - 1))
def test_what_is_made_an_id_is_read_from_it(host: bytes, physical_offset: int) -> None:
    found = parse_offset_message_id(offset_message_id(host, physical_offset))
    assert (host_bytes(found.host), found.physical_offset) == (host, physical_offset)


@given(hosts)
def test_a_host_is_written_as_it_is_read(host: bytes) -> None:
    assert host_bytes(host_text(host)) == host


@pytest.mark.parametrize(
    "text",
    [
        "",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:x",
        "127.0.0.1:2147483648",
        "1.2.3:1",
        "[::1:1",
        "::1:1",
        "[127.0.0.1]:1",
        "localhost:1",
    ],
)
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        host_bytes(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7F00000100002A9F00000000000003E",
        "7F00000100002A9F00000000000003E8,",
        "7F00000100002A9F00000000000003EG",
        "7F 00 00 01 00 00 2A 9F 00 00 0 ",
        "7F00000100002A9F00000000000003E8" + " " * 24,
        "７" * 32,
    ],
)
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(ValueError, match="hex"):
        parse_offset_message_id(text)
