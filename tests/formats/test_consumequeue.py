"""Consume queues: addresses of extensions, and which units a queue has."""

from __future__ import annotations

import pytest

from rmqtool.formats import consumequeue


@pytest.mark.parametrize(
    ("tags_code", "expected"),
    [(-(2**63), True), (-2147483649, True), (-2147483648, False), (0, False), (2147483647, False), (2**62, False)],
)
def test_extension_addresses(tags_code: int, expected: bool) -> None:
    assert consumequeue.is_extension_address(tags_code) is expected


def test_the_position_behind_an_extension_address() -> None:
    assert consumequeue.extension_position(-(2**63)) == 0
    assert consumequeue.extension_position(-(2**63) + 28) == 28


@pytest.mark.parametrize("bitmap", [b"", b"\x01", bytes(200)])
def test_an_extension_unit_says_its_own_length(bitmap: bytes) -> None:
    struct = consumequeue.EXTENSION_UNIT.struct
    raw = struct.build({"tags_code": 7, "store_timestamp_ms": 8, "filter_bitmap": bitmap})
    assert len(raw) == consumequeue.EXTENSION_HEAD_SIZE + len(bitmap)
    assert struct.parse(raw).size == len(raw)
    assert struct.parse(raw).filter_bitmap == bitmap


@pytest.mark.parametrize(("is_batch", "size"), [(False, 20), (True, 46)])
def test_units_of_a_queue(is_batch: bool, size: int) -> None:
    assert consumequeue.unit_format(is_batch=is_batch).size == size
