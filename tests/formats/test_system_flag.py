"""The bits of a record's sysFlag."""

from __future__ import annotations

import pytest

from rmqtool.formats import system_flag


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
