"""An index entry that points into damage is judged by the entries beside it: brokers enter records in log order."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.conftest import Unpacked
from tests.verify.stores import verified

NAME = "5.5.0-clean-basic"
SLOTS = 100
ENTRY = struct.Struct(">iqii")


def _offset_at(number: int) -> int:
    return 40 + 4 * SLOTS + 20 * number + 4


def _points_to(file: Path, number: int) -> int:
    (offset,) = struct.unpack_from(">q", file.read_bytes(), _offset_at(number))
    return int(offset)


@pytest.mark.parametrize("number", [-1, 1, 2, 7])
def test_an_entry_out_of_order_is_found_where_the_log_is_damaged(golden_copy: Unpacked, number: int) -> None:
    path = golden_copy(NAME)
    log = min((path / "commitlog").iterdir())
    size = log.stat().st_size
    log.write_bytes(bytes(size))
    file = max((path / "index").iterdir())
    last = struct.unpack_from(">i", file.read_bytes(), 36)[0] - 1
    number = number if number > 0 else last
    assert _points_to(file, 1) > size
    before, _ = verified(path, "5.5.0")
    assert before.findings["index.bad-entry"] == 0
    content = bytearray(file.read_bytes())
    struct.pack_into(">q", content, _offset_at(number), 1000)
    file.write_bytes(content)
    summary, rows = verified(path, "5.5.0")
    found = {row.message.partition(":")[0] for row in rows if row.id == "index.bad-entry"}
    # Of the first entry the header tells where it points.
    assert found == ({f"entry {number}"} if number > 1 else set())
    assert summary.findings["index.bad-header"] == (number in (1, last))
