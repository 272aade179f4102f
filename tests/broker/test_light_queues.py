"""Light queues that an earlier version filled: 4.9 enters records of retry topics, which later ones keep out."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.broker import Judge, served_places
from tests.broker.files import copy_store
from tests.commands.transcripts import rmqtool

JudgeOf = Callable[[str], Judge]
CONFIG = {
    "mappedFileSizeCommitLog": 65_536, "mappedFileSizeConsumeQueue": 1_000, "maxHashSlotNum": 100, "maxIndexNum": 400,
    "enableLmq": True, "enableMultiDispatch": True,
}  # fmt: skip
LIGHT = "%LMQ%a"
LAYOUTS = ("served", "a queue is lost")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("later", ["5.3.1", "5.5.0"])
def test_what_an_earlier_version_entered_stays(judge_of: JudgeOf, tmp_path: Path, later: str, layout: str) -> None:
    written = tmp_path / "written"
    store = judge_of("4.9.8").open(written, CONFIG)
    topics = ("%RETRY%shop", "Orders", "%RETRY%shop", "%RETRY%shop", "Orders")
    named = {"INNER_MULTI_DISPATCH": LIGHT}
    answers = store.put(
        *(
            {"topic": topic, "queueId": 0, "body": b"x" * 90, "properties": {**named, "KEYS": f"k{number}"}}
            for number, topic in enumerate(topics)
        )
    )
    assert {answer["status"] for answer in answers} == {"PUT_OK"}
    store.wait_dispatched()
    store.shutdown()
    upgraded = judge_of(later).open(copy_store(written, tmp_path / "upgraded"), CONFIG)
    served = served_places(upgraded.read())
    assert {place for place in served if place[0] == LIGHT} == {(LIGHT, 0, number) for number in range(len(topics))}
    upgraded.shutdown()
    path = copy_store(tmp_path / "upgraded", tmp_path / "store")
    if layout == LAYOUTS[1]:
        shutil.rmtree(path / "consumequeue/Orders")
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={str(value).lower()}\n" for key, value in CONFIG.items()))
    options = ("--broker-version", later, "--broker-conf", conf)
    if layout == LAYOUTS[0]:
        assert rmqtool("verify", path, *options).code == 0
    for command in (["recover"], ["recover", "--full"], ["rebuild", "--queues"], ["salvage"]):
        ran = rmqtool(*command, path, "--yes", *options)
        assert ran.code == 0, ran
    repaired = judge_of(later).open(copy_store(path, tmp_path / "repaired"), CONFIG)
    assert served_places(repaired.read()) == served
    repaired.abandon()
