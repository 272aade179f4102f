"""Versions beside the routine ones run too: adding one is a line in versions.py."""

from pathlib import Path
from typing import Any

import pytest

from tests.broker.versions import VERSIONS

OTHERS = [version.name for version in VERSIONS if not version.routine]


@pytest.mark.slow
@pytest.mark.parametrize("version", OTHERS)
def test_other_version_writes_crashes_and_reads(judge_of: Any, tmp_path: Path, version: str) -> None:
    judge = judge_of(version)
    store = judge.open(tmp_path, {"mappedFileSizeCommitLog": 65536})
    answers = store.put(
        *({"topic": "T", "body": bytes(number), "properties": {"KEYS": f"k{number}"}} for number in range(20))
    )
    store.wait_dispatched()
    store.halt()
    report = judge.examine(tmp_path, {"mappedFileSizeCommitLog": 65536})
    assert report["lastExit"] == "abnormal"
    [queue] = [queue for queue in report["served"]["queues"] if queue["topic"] == "T"]
    assert [row[2] for row in queue["messages"]] == [answer["physicalOffset"] for answer in answers]
    places = {row[1]: row[2] for row in report["served"]["keys"]}
    assert places["k19"] == [answers[19]["physicalOffset"]]
