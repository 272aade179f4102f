"""A broker with DLedger on rebuilt queues and index: it serves every message, and loads nothing during a repair."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from rmqtool.store.file_kinds import FENCE_NAME
from tests import golden_stores
from tests.broker.conftest import JudgeOf
from tests.broker.files import copy_store
from tests.broker.program import JudgeError
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

pytestmark = pytest.mark.broker

GROUP = {"dLegerGroup": "judge", "dLegerSelfId": "n0"}
VERSIONS = ("4.9.7", "5.3.3")
SIZES = ("--queue-file-size", 20000, "--index-slots", 1000, "--index-entries", 2000)
COUNT = 500
"""Messages that a broker serves whose queues are lost: it dispatches the log again once it leads."""


def served(judge_of: JudgeOf, version: str, store: Path) -> set[tuple[str, int, int, int]]:
    """Topic, queue, queue offset and physical offset of each message that a broker serves."""
    manifest = golden_stores.broker_manifest(f"broker-{version}-dledger")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = {**manifest["config"], **GROUP, "dLegerPeers": f"n0-127.0.0.1:{port}"}
    report = judge_of(version).examine(store, config)
    return {
        (queue["topic"], queue["queueId"], row[0], row[2])
        for queue in report["served"]["queues"]
        for row in queue["messages"]
        if row[1] == "FOUND"
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_serves_all_after_rebuild(golden: Unpacked, judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    name = f"broker-{version}-dledger"
    sent = {
        (message["topic"], message["queue"], message["queue_offset"], message["physical_offset"])
        for message in golden_stores.broker_manifest(name)["acknowledged"]
    }
    damaged = copy_store(golden(name), tmp_path / "damaged")
    shutil.rmtree(damaged / "consumequeue")
    shutil.rmtree(damaged / "index")
    repaired = copy_store(damaged, tmp_path / "repaired")
    assert len(served(judge_of, version, damaged)) == COUNT
    ran = rmqtool("rebuild", repaired, "--yes", *SIZES)
    assert rmqtool("verify", repaired).code == 0, ran.err + ran.out
    assert served(judge_of, version, repaired) == sent


@pytest.mark.parametrize("version", VERSIONS)
def test_no_broker_loads_the_store_during_a_repair(
    golden: Unpacked, judge_of: JudgeOf, tmp_path: Path, version: str
) -> None:
    store = copy_store(golden(f"broker-{version}-dledger"), tmp_path / "store")
    (store / "dledger-n0" / "data" / FENCE_NAME).write_text("a repair is running")
    with pytest.raises(JudgeError):
        served(judge_of, version, store)
