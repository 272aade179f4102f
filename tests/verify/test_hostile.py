"""Things in the place of a store's files that are none, and claims that would cost memory."""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import NEWEST
from rmqtool.formats import commitlog
from rmqtool.verify.survey.context import VerifyOptions
from tests.conftest import Unpacked
from tests.engine.memory_view import made_store
from tests.store_state import assert_store_unchanged
from tests.verify.stores import above_note, verified

BASE = "5.5.0-damage-base"
SEGMENT = "00000000000000065536"


def test_a_fifo_among_the_log_files_is_a_stray(golden_copy: Unpacked) -> None:
    path = golden_copy(BASE)
    os.mkfifo(path / "commitlog" / "00000000000000327680")
    assert above_note(verified(path, "5.5.0")[1]) == {"commitlog.stray-file": 1}


def test_a_link_out_of_the_store_is_followed_to_a_file_only(golden_copy: Unpacked, tmp_path: Path) -> None:
    path = golden_copy(BASE)
    elsewhere = tmp_path / "elsewhere"
    (path / "commitlog" / SEGMENT).rename(elsewhere)
    (path / "commitlog" / SEGMENT).symlink_to(elsewhere)
    (path / "consumequeue" / "Audit" / "loop").symlink_to(path)
    with assert_store_unchanged(path):
        found = verified(path, "5.5.0")[1]
    assert {each.id for each in found} <= {"store.unreadable"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_forbidden_file_is_said(golden_copy: Unpacked) -> None:
    path = golden_copy(BASE)
    (path / "commitlog" / SEGMENT).chmod(0)
    assert "commitlog.unreadable-range" in above_note(verified(path, "5.5.0")[1])


def test_a_queue_in_senseless_order_costs_bounded_memory() -> None:
    units = b"".join(struct.pack(">qiq", 4000 - number % 7 * 500, 100, 0) for number in range(300_000))
    store = made_store(
        {"commitlog/" + "0" * 20: bytes(4096), "consumequeue/T/0/" + "0" * 20: units},
        commitlog_file_size=4096,
        consumequeue_file_size=6_000_000,
    )
    tracemalloc.start()
    try:
        summary, found = verified(store, NEWEST, VerifyOptions(threads=1))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "consumequeue.order" in above_note(found)
    assert len(found) < 2000
    assert summary.unit_count == 300_000
    assert peak < 200 << 20


def test_a_log_of_claims_costs_bounded_memory() -> None:
    frame = struct.pack(">ii", 0x7FFFFFF0, commitlog.MAGIC_V1)
    store = made_store({"commitlog/" + "0" * 20: frame * 131_072}, commitlog_file_size=1 << 20)
    verified(store, NEWEST, VerifyOptions(threads=1))  # loads what is compiled, which takes more
    tracemalloc.start()
    try:
        found = verified(store, NEWEST, VerifyOptions(threads=1))[1]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "commitlog.bad-size" in above_note(found)
    assert peak < 200 << 20
