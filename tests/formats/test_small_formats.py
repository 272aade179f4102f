"""Checkpoint, abort file, index key texts, extension addresses and sysFlag."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats import abort, checkpoint, consumequeue, index, system_flag
from tests.formats.reference import key_texts

int64 = st.integers(-(2**63), 2**63 - 1)


@given(st.builds(checkpoint.Checkpoint, *[int64] * 6))
def test_a_checkpoint_is_read_as_it_was_written(found: checkpoint.Checkpoint) -> None:
    raw = checkpoint.build_checkpoint(found)
    assert len(raw) == 4096
    assert not any(raw[48:])
    assert checkpoint.parse_checkpoint(raw) == found


@pytest.mark.parametrize("length", [0, 7, 8, 12, 24, 47])
def test_a_short_checkpoint_is_filled_with_zeros(length: int) -> None:
    raw = checkpoint.build_checkpoint(checkpoint.Checkpoint(1, 2, 3, 4, 5, 6))
    assert checkpoint.parse_checkpoint(raw[:length]) == checkpoint.parse_checkpoint(raw[:length] + bytes(4096 - length))


def test_no_checkpoint_is_all_zero() -> None:
    assert checkpoint.parse_checkpoint(b"") == checkpoint.Checkpoint()


@pytest.mark.parametrize("process_id", [None, 1, 4194304])
def test_an_abort_file_is_read_as_it_was_written(process_id: int | None) -> None:
    assert abort.parse_abort(abort.build_abort(process_id)) == process_id


@pytest.mark.parametrize(
    ("raw", "expected"), [(b"", None), (b"42\n", 42), (b"x", None), (b"-1", None), (b"9" * 99, None)]
)
def test_abort_files(raw: bytes, expected: int | None) -> None:
    assert abort.parse_abort(raw) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("TopicTest#key1", 1655984460), ("polygenelubricants", 0), ("TagA", 2598919), ("", 0)]
)
def test_key_hash(text: str, expected: int) -> None:
    assert index.key_hash(text) == expected


def test_the_slot_of_a_key_in_a_file_of_default_size() -> None:
    slot = index.key_hash("TopicTest#key1") % index.DEFAULT_SLOT_COUNT
    assert slot == 984460
    assert index.slot_position(slot) == 40 + 4 * 984460
    assert index.entry_position(0, index.DEFAULT_SLOT_COUNT) == 20_000_040
    assert index.file_size(index.DEFAULT_SLOT_COUNT, index.DEFAULT_ENTRY_COUNT) == 420_000_040


def test_key_texts_in_their_order() -> None:
    properties = {"TAGS": "TagA", "KEYS": " k1  k2 ", "UNIQ_KEY": "u"}
    assert list(key_texts("T", properties, with_tags=True)) == ["T#u", "T#k1", "T#k2", "T#T#TagA"]
    assert list(key_texts("T", properties, with_tags=False)) == ["T#u", "T#k1", "T#k2"]
    assert list(key_texts("T", {}, with_tags=True)) == []
    assert list(key_texts("T", {"KEYS": "a\tb", "TAGS": ""}, with_tags=True)) == ["T#a\tb"]


@pytest.mark.parametrize(
    ("tags_code", "expected"),
    [(-(2**63), True), (-2147483649, True), (-2147483648, False), (0, False), (2147483647, False), (2**62, False)],
)
def test_extension_addresses(tags_code: int, expected: bool) -> None:
    assert consumequeue.is_extension_address(tags_code) is expected


def test_the_position_behind_an_extension_address() -> None:
    assert consumequeue.extension_position(-(2**63)) == 0
    assert consumequeue.extension_position(-(2**63) + 28) == 28


@pytest.mark.parametrize(
    ("sys_flag", "transaction", "compression", "takes_entry"),
    [
        (0x000, "none", None, True),
        (0x001, "none", "zlib", True),
        (0x101, "none", "lz4", True),
        (0x201, "none", "zstd", True),
        (0x301, "none", "zlib", True),
        (0x401, "none", "unknown", True),
        (0x701, "none", "unknown", True),
        (0x300, "none", None, True),
        (0x004, "prepared", None, False),
        (0x008, "commit", None, True),
        (0x00C, "rollback", None, False),
        (0x03B, "commit", "zlib", True),
        (-1, "rollback", "unknown", False),
    ],
)
def test_sys_flag(sys_flag: int, transaction: str, compression: str | None, takes_entry: bool) -> None:
    assert system_flag.transaction(sys_flag) == transaction
    assert system_flag.compression(sys_flag) == compression
    assert system_flag.takes_queue_entry(sys_flag) is takes_entry


def test_every_bit_of_sys_flag_is_documented_once() -> None:
    bits = [bit for bit, _, _ in system_flag.BIT_DOCS]
    assert sum(bits) == 0x7FF
    assert all(first & second == 0 for at, first in enumerate(bits) for second in bits[:at])
