"""The walk over files of DLedger: the records of a plain log, and every byte in a row, whatever the file holds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rmqtool.scan.log import ScanOptions, open_log
from rmqtool.scan.row_columns import message_rows
from rmqtool.scan.rules import Verdict
from rmqtool.store.directory import Store, survey
from rmqtool.store.dledger_files import with_dledger_log
from rmqtool.store.view import open_directory
from tests.conftest import Unpacked
from tests.repair.dledger_stores import as_dledger

SAME = ("size", "queue_offset", "queue_id", "store_timestamp_ms", "tags_code", "body_crc", "verdict", "topic_length")


def rows_of(store: Store, block_size: int = 4096) -> Iterator[tuple[int, np.ndarray]]:
    """Start of the file and rows of each batch."""
    with open_log(store.view.open, store.commitlog, ScanOptions(block_size=block_size)) as table:
        for batch in table.batches():
            yield batch.split.physical_offset, batch.as_array().copy()


def surveyed(path: Path) -> Store:
    return with_dledger_log(survey(open_directory(path)))


@pytest.mark.parametrize("name", ["4.9.7-clean-basic", "5.5.0-many-files", "5.5.0-transaction"])
def test_the_records_are_those_of_the_plain_log(golden_copy: Unpacked, name: str) -> None:
    path = golden_copy(name)
    plain = [row for _, rows in rows_of(surveyed(path)) for row in message_rows(rows)[list(SAME)].tolist()]
    moved = surveyed(as_dledger(path))
    entries = [message_rows(rows) for _, rows in rows_of(moved)]
    assert [row for rows in entries for row in rows[list(SAME)].tolist()] == plain
    for rows in entries:
        assert (rows["own_offset"] == rows["physical_offset"]).all()


def test_every_byte_is_in_a_row_however_the_file_is_damaged(golden_copy: Unpacked) -> None:
    path = golden_copy("broker-5.3.3-dledger")
    file = path / "dledger-n0" / "data" / "00000000000000262144"
    whole, chance, verdicts = file.read_bytes(), random.Random(5), set()
    used = len(whole.rstrip(b"\0"))
    for _ in range(8):
        content = bytearray(whole)
        for _ in range(3):
            content[chance.randrange(used)] ^= 1 << chance.randrange(8)
        file.write_bytes(content)
        at = {0: 0, 262144: 262144}
        for start, rows in rows_of(surveyed(path), chance.choice([200, 4096, 1 << 20])):
            assert at[start] == rows[0]["physical_offset"]
            ends = rows["physical_offset"] + rows["size"]
            assert (ends[:-1] == rows["physical_offset"][1:]).all()
            at[start] = int(ends[-1])
            verdicts |= set(rows["verdict"].tolist())
        assert at[0] == 262144
        assert at[262144] == 262144 + len(bytes(content).rstrip(b"\0"))
    assert {Verdict.GOOD, Verdict.BODY_CRC_MISMATCH} <= verdicts
