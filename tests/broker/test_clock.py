"""A clock that was wrong is no damage, also when the messages from before have expired."""

from pathlib import Path

from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.judge.tool import rmqtool

CONFIG = {"mappedFileSizeCommitLog": 16384, "maxHashSlotNum": 100, "maxIndexNum": 400}
LEFT_BY_A_KILL = {"store.abort-present", "index.would-be-dropped"}


def test_a_store_whose_clock_was_set_back_has_notes_only(judge: Judge, tmp_path: Path) -> None:
    messages = [
        {"topic": "T", "queueId": number % 2, "body": b"x" * 400, "properties": {"KEYS": f"key-{number}"}}
        for number in range(50)
    ]
    with judge.open(tmp_path / "store", CONFIG) as store:
        store.put(*messages)
    store = judge.open(tmp_path / "store", CONFIG, clock_offset_ms=-25_000)
    store.put(*messages)
    store.wait_dispatched()
    assert store.expire(2)["deleted"] == 2
    path = copy_store(tmp_path / "store", tmp_path / "killed")
    store.shutdown()
    answer = rmqtool("verify", path, "--broker-version", judge.version, "--format", "json")
    seen = {row["id"]: row["message"] for row in answer.json["findings"] if row["severity"] != "note"}
    assert seen.keys() <= LEFT_BY_A_KILL, seen
    notes = {row["id"]: row["message"] for row in answer.json["findings"] if row["severity"] == "note"}
    assert "clock was set back" in notes["checkpoint.ahead-of-log"]


def test_a_checkpoint_of_zeros_after_two_short_runs_days_apart_is_a_note(judge: Judge, tmp_path: Path) -> None:
    path = tmp_path / "store"
    for days in (0, 3):
        store = judge.open(path, CONFIG, clock_offset_ms=days * 86_400_000)
        store.put({"topic": "T", "queueId": 0, "body": b"x", "properties": {"KEYS": "key"}})
        store.wait_dispatched()
        path = copy_store(path, tmp_path / f"killed-{days}")
        store.shutdown()
    answer = rmqtool("verify", path, "--broker-version", judge.version, "--format", "json")
    severities = {row["id"]: row["severity"] for row in answer.json["findings"]}
    assert severities["checkpoint.zero-time"] == "note"
    assert {name for name, severity in severities.items() if severity != "note"} == {"store.abort-present"}
