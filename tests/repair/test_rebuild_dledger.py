"""`rebuild` on a store of DLedger: the queues that its broker wrote, byte for byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtool.formats.commitlog import QUEUE_OFFSET_AT
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.store_state import store_state

GOLDEN = ("broker-4.9.7-dledger", "broker-5.3.3-dledger")
SIZES = ("--queue-file-size", 20000, "--index-slots", 1000, "--index-entries", 2000)


def files_below(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize("name", GOLDEN)
def test_lost_queues_are_those_that_the_broker_wrote(golden_copy: Unpacked, name: str) -> None:
    path = golden_copy(name)
    queues, (entries,) = files_below(path / "consumequeue"), files_below(path / "index").values()
    shutil.rmtree(path / "consumequeue")
    shutil.rmtree(path / "index")
    before = store_state(path)
    ran = rmqtool("rebuild", path, "--yes", *SIZES)
    assert files_below(path / "consumequeue") == queues, ran.err
    assert list(files_below(path / "index").values()) == [entries]
    assert (rmqtool("verify", path).code, (path / "abort").exists()) == (0, False)
    assert rmqtool("undo", path, "--yes").code == 0
    assert store_state(path) == before


def test_a_log_that_is_damaged_or_lacks_its_end_is_refused(golden_copy: Unpacked) -> None:
    path = golden_copy(GOLDEN[1])
    data = path / "dledger-n0" / "data"
    with (data / "00000000000000000000").open("r+b") as log:
        log.seek(200)
        log.write(b"x" * 30)
    before = store_state(path)
    ran = rmqtool("rebuild", path, "--yes")
    assert (ran.code, "dledger.bad-entry" in ran.err, store_state(path) == before) == (4, True, True)


def test_directories_in_the_store_that_are_named_without_its_root_can_be_undone(
    golden_copy: Unpacked, tmp_path: Path
) -> None:
    path, conf = golden_copy(GOLDEN[1]), tmp_path / "broker.conf"
    (path / "dledger-n0/data").rename(path / "d0")
    conf.write_text(f"enableDLegerCommitLog=true\ndLegerSelfId=n0\nstorePathDLedgerCommitLog={path}/d0\n")
    before = store_state(path)
    ran = rmqtool("rebuild", path, "--yes", "--broker-conf", conf)
    assert (ran.code, (path / "abort").exists()) == (0, False), ran.err
    undone = rmqtool("undo", path, "--yes")
    assert (undone.code, store_state(path) == before) == (0, True), undone.err


def test_parts_of_a_store_can_be_rebuilt(golden_copy: Unpacked) -> None:
    path = golden_copy(GOLDEN[0])
    queue = path / "consumequeue" / "orders" / "1" / "00000000000000000000"
    content = queue.read_bytes()
    queue.write_bytes(content[:60] + bytes(40) + content[100:])
    ran = rmqtool("rebuild", path, "--queues", "--topic", "orders", "--yes")
    assert (queue.read_bytes(), (path / "abort").exists()) == (content, True), ran.err


def test_no_message_is_moved_for_one_whose_queue_offset_is_wrong(golden_copy: Unpacked) -> None:
    path = golden_copy(GOLDEN[1])
    queue = (path / "consumequeue/orders/1/00000000000000000000").read_bytes()
    place = int.from_bytes(queue[11 * 20 : 11 * 20 + 8], "big")
    with (path / "dledger-n0/data/00000000000000000000").open("r+b") as log:
        log.seek(place + QUEUE_OFFSET_AT)
        log.write(b"\xff" * 8)
    before = store_state(path)
    assert (rmqtool("rebuild", path, "--yes").code, store_state(path) == before) == (5, True)
