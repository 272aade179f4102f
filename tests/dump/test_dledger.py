"""`dump` of a DLedger log: every entry that real brokers wrote, the message in it, and damage as rows."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests import golden_stores
from tests.conftest import Unpacked
from tests.dump.row_schema import dumped

DATA = "dledger-n0/data/00000000000000000000"
JsonRow = dict[str, Any]


@pytest.mark.parametrize("name", ["broker-4.9.7-dledger", "broker-5.3.3-dledger"])
def test_entries_follow_each_other_and_hold_what_was_sent(golden: Unpacked, name: str) -> None:
    code, rows = dumped(golden(name), "--type", "dledger")
    entries = [row for row in rows if row["type"] == "dledger-entry"]
    units = [row for row in rows if row["type"] == "dledger-unit"]
    assert code == 0
    assert [entry["index"] for entry in entries] == list(range(len(entries)))
    shared = ("magic", "size", "index", "term", "position")
    assert [[unit[field] for field in shared] for unit in units] == [
        [row[field] for field in shared] for row in entries
    ]
    messages = [entry for entry in entries if entry["magic"] == 1]
    assert all(entry["body_crc_ok"] and entry["physical_offset"] == entry["position"] + 48 for entry in messages)
    sent = {message["msg_id"] for message in golden_stores.broker_manifest(name)["acknowledged"]}
    assert sent <= {entry["unique_key"] for entry in messages}


def test_damaged_entries_are_rows(golden_copy: Unpacked) -> None:
    path = golden_copy("broker-5.3.3-dledger")
    with (path / DATA).open("r+b") as log:
        log.seek(200)  # in the body of the first message
        log.write(b"x" * 30)
    code, rows = dumped(path / DATA)
    assert (code, rows[0]["finding"], rows[0]["body_crc_ok"]) == (3, "dledger.bad-entry", False)
    assert {row["finding"] for row in rows[1:]} == {None}
    with (path / DATA).open("r+b") as log:
        log.seek(690 + 4)  # the size of the second entry
        log.write(b"\xff" * 4)
    code, rows = dumped(path / DATA)
    assert (code, [row["type"] for row in rows]) == (3, ["dledger-entry", "bad"])
    chance = random.Random(7)
    for _ in range(10):
        (path / DATA).write_bytes(chance.randbytes(3000))
        dumped(path / DATA)
    (path / DATA).write_bytes(b"short")
    assert dumped(path / DATA)[0] == 3
