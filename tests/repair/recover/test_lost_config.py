"""`recover` takes the copy of a state that loses or repeats least, and removes what keeps a broker from starting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.repair.recover.plan import offsets_before_cut
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

STORES = ("broker-4.9.7-mixed-clean", "broker-5.5.0-mixed-clean")
OFFSETS, GROUPS, TOPICS, DELAYS = "consumerOffset.json", "subscriptionGroup.json", "topics.json", "delayOffset.json"


def recovered(path: Path, name: str) -> tuple[int, dict[str, Any]]:
    ran = rmqtool("recover", path, "--yes", "--broker-version", name.split("-")[1], "--format", "json")
    return ran.code, json.loads(ran.out)


def verdict(path: Path, name: str) -> int:
    return rmqtool("verify", path, "--broker-version", name.split("-")[1]).code


@pytest.mark.parametrize("name", STORES)
def test_a_topic_that_is_newer_than_the_backup_is_added(golden_copy: Unpacked, name: str) -> None:
    path = golden_copy(name)
    config = path / "config"
    older: dict[str, Any] = json.loads((config / TOPICS).read_bytes())
    entry = older["topicConfigTable"].pop("reminders")
    (config / TOPICS).write_bytes(b"")
    (config / f"{TOPICS}.bak").write_text(json.dumps(older))
    code, plan = recovered(path, name)
    assert (code, plan["remaining"]) == (0, [])
    assert any("topic reminders: guessed 4 queues" in note for note in plan["notes"])
    table = json.loads((config / TOPICS).read_bytes())["topicConfigTable"]
    assert set(table) == {*older["topicConfigTable"], "reminders"}
    assert (table["reminders"]["readQueueNums"], table["reminders"]["perm"]) == (entry["readQueueNums"], entry["perm"])
    assert verdict(path, name) == 0


@pytest.mark.parametrize("name", STORES)
def test_a_topic_that_a_whole_file_lacks_comes_back_for_a_person_who_names_it(golden_copy: Unpacked, name: str) -> None:
    path = golden_copy(name)
    older = json.loads((path / "config" / TOPICS).read_bytes())
    del older["topicConfigTable"]["reminders"]
    (path / "config" / TOPICS).write_text(json.dumps(older))
    code, plan = recovered(path, name)
    assert (code, plan["steps"], plan["remaining"]) == (0, [], [])
    assert verdict(path, name) == 0
    said = rmqtool("rebuild", path, "--topics", "--yes")
    assert said.code == 0
    assert "topic reminders: not added" in said.out
    assert json.loads((path / "config" / TOPICS).read_text()) == older
    assert rmqtool("rebuild", path, "--topic", "reminders", "--yes").code == 0
    table = json.loads((path / "config" / TOPICS).read_text())["topicConfigTable"]
    assert set(table) == {*older["topicConfigTable"], "reminders"}


@pytest.mark.parametrize("file", [GROUPS, OFFSETS])
@pytest.mark.parametrize("name", STORES)
def test_what_only_keeps_a_broker_from_starting_is_removed(golden_copy: Unpacked, name: str, file: str) -> None:
    path = golden_copy(name)
    copies = [path / "config" / file, path / "config" / f"{file}.bak"]
    before = [copy.read_bytes()[:100] for copy in copies]
    for copy, content in zip(copies, before, strict=True):
        copy.write_bytes(content)
    forecast = rmqtool("forecast", path, "--format", "json", "--broker-version", name.split("-")[1])
    assert json.loads(forecast.out)["next_step"]["command"].startswith("rmqtool recover ")
    code, plan = recovered(path, name)
    left = "config.groups-missing" if file == GROUPS else "config.consumer-offsets-missing"
    assert (code, [finding["id"] for finding in plan["remaining"]]) == (3, [left])
    assert not any(copy.exists() for copy in copies)
    again = json.loads(rmqtool("forecast", path, "--format", "json").out)
    assert again["verdict"] == "inconsistent"
    assert rmqtool("undo", path, "--yes").code == 0
    assert [copy.read_bytes() for copy in copies] == before


@pytest.mark.parametrize("name", STORES)
def test_the_newer_offsets_of_a_cut_file_are_kept(golden_copy: Unpacked, name: str) -> None:
    path = golden_copy(name)
    config = path / "config"
    newer = (config / OFFSETS).read_bytes()
    expected = {group: queues for group, queues in offsets_before_cut(newer).items() if not group.startswith("%")}
    assert max(max(queues.values()) for queues in expected.values()) > 2
    at = newer.index(b"%RETRY%job-workers@job-workers")
    (config / OFFSETS).write_bytes(newer[:at])
    older = json.dumps({"offsetTable": {group: dict.fromkeys(queues, 1) for group, queues in expected.items()}})
    (config / f"{OFFSETS}.bak").write_text(older)
    code, plan = recovered(path, name)
    assert (code, plan["remaining"]) == (0, [])
    (step,) = plan["steps"]
    kept = {group for group in expected if newer.index(f'"{group}"'.encode()) < at}
    fewer = sum(queue_offset - 1 for group in kept for queue_offset in expected[group].values() if queue_offset)
    assert f"{fewer} messages fewer again" in step["why"]
    assert offsets_before_cut((config / OFFSETS).read_bytes()) == {
        group: queues if group in kept else dict.fromkeys(queues, 1) for group, queues in expected.items()
    }


def test_only_whole_entries_of_a_cut_file_count() -> None:
    cut = b'{"offsetTable":{"a@g":{0:5,1:6},"b@g":{0:7},"c@g":{0:12'
    assert offsets_before_cut(cut) == {"a@g": {0: 5, 1: 6}, "b@g": {0: 7}}
    assert offsets_before_cut(cut.replace(b"6}", b"6}\x00garbage")) == {}
    assert offsets_before_cut(cut.replace(b"offsetTable", b"pullOffsetTable")) == {}
    pulled = b'{"offsetTable":{"a@g":{"0":5}},"pullOffsetTable":{"a@g":{"0":9}'
    assert offsets_before_cut(pulled) == {"a@g": {0: 5}}
    assert offsets_before_cut(b"") == {}


@pytest.mark.parametrize("name", STORES)
def test_delay_levels_that_repeat_messages_have_their_step(golden_copy: Unpacked, name: str) -> None:
    path = golden_copy(name)
    config = path / "config"
    (config / DELAYS).write_text(json.dumps({"offsetTable": {"1": 0}}))
    (config / f"{DELAYS}.bak").unlink()
    assert verdict(path, name) == 3
    code, plan = recovered(path, name)
    assert (code, plan["remaining"]) == (0, [])
    assert [step["file"] for step in plan["steps"]] == [f"config/{DELAYS}"]
    assert any("delay level 1: continues at 24" in note for note in plan["notes"])
    assert verdict(path, name) == 0


@pytest.mark.parametrize("name", ["broker-4.9.7-delay-killed", "broker-5.5.0-delay-killed"])
def test_a_crash_repeats_no_delayed_message_after_recover(golden_copy: Unpacked, name: str) -> None:
    path = golden_copy(name)
    code, plan = recovered(path, name)
    assert code == 0
    assert any("not delivered a second time: 24" in note for note in plan["notes"])
    findings = json.loads(rmqtool("verify", path, "--format", "json").out)["findings"]
    assert not [finding for finding in findings if finding["id"].startswith("config.delay")]
