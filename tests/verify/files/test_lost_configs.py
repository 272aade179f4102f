"""Topics, consumer offsets and groups that the configuration has lost are found where the store shows them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtool.findings.finding import Finding, Severity
from rmqtool.store.directory import Settings
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.golden_stores import broker_names
from tests.verify.stores import above_note, verified

STORES = ("broker-4.9.7-mixed-clean", "broker-5.5.0-mixed-clean")
OFFSETS, GROUPS, TOPICS = "consumerOffset.json", "subscriptionGroup.json", "topics.json"
MISSING = {"config.consumer-offsets-missing": 1}
AUDITED = ("orders", "payments")
EMPTY_TABLE = b'{"offsetTable":{}}'


def version_of(name: str) -> str:
    return name.split("-")[1]


def of_config(path: Path, name: str) -> list[Finding]:
    _, findings = verified(path, version_of(name))
    return [finding for finding in findings if finding.id.startswith("config.")]


def written(config: Path, file: str, *contents: bytes | None) -> None:
    """The file and its copy with these contents; None is no file."""
    for path, content in zip((config / file, config / f"{file}.bak"), contents, strict=True):
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)


def without_topic(config: Path, topic: str, changed_ms: int = 1 << 42) -> bytes:
    """The topics but for one, last changed in 2109, or at another time."""
    value: dict[str, Any] = json.loads((config / TOPICS).read_bytes())
    del value["topicConfigTable"][topic]
    value["dataVersion"]["timestamp"] = changed_ms
    return json.dumps(value).encode()


@pytest.mark.parametrize("name", broker_names())
def test_what_a_broker_leaves_has_lost_nothing(golden: Unpacked, name: str) -> None:
    assert above_note(of_config(golden(name), name)) == {}


@pytest.mark.parametrize(
    "contents",
    [(None, None), (b"", b""), (b"", None), (None, b""), (EMPTY_TABLE, EMPTY_TABLE), (b"{}", None), (b"{", None)],
    ids=["absent", "empty", "empty alone", "empty copy", "empty table", "no table", "broken"],
)
@pytest.mark.parametrize("name", STORES)
def test_lost_consumer_offsets_are_counted(
    golden_copy: Unpacked, name: str, contents: tuple[bytes | None, bytes | None]
) -> None:
    path = golden_copy(name)
    written(path / "config", OFFSETS, *contents)
    findings = of_config(path, name)
    assert above_note(findings) == MISSING
    (lost,) = (finding for finding in findings if finding.id in MISSING)
    assert "job-workers" in lost.message  # whose messages came again, whatever the file says
    assert f"up to {len(consumed_messages(path))} messages" in lost.message


@pytest.mark.parametrize("name", STORES)
def test_a_broker_that_has_not_run_for_ten_seconds_has_written_no_offsets_yet(golden_copy: Unpacked, name: str) -> None:
    config = golden_copy(name) / "config"
    written(config, OFFSETS, None, None)
    written(config, "consumerFilter.json", None, None)
    assert above_note(of_config(config.parent, name)) == MISSING  # messages have come again, so there was progress
    for path in (config.parent / "consumequeue").glob("%*"):
        shutil.rmtree(path)
    assert above_note(of_config(config.parent, name)) == {}


def consumed_messages(path: Path, topic: str = "*") -> list[bytes]:
    """The units in the queues of a topic, or of all that are not a broker's own."""
    own = ("%", "RMQ_SYS_", "SCHEDULE_TOPIC", "rmq_sys_")
    files = [file for file in (path / "consumequeue").glob(f"{topic}/*/*") if not file.parts[-3].startswith(own)]
    units = [file.read_bytes()[at : at + 20] for file in files for at in range(0, file.stat().st_size, 20)]
    return [unit for unit in units if any(unit[:12])]


def test_offsets_of_the_copy_show_that_an_empty_table_is_wrong(golden_copy: Unpacked) -> None:
    path = golden_copy(STORES[1])
    copy = (path / "config" / OFFSETS).read_bytes()
    written(path / "config", OFFSETS, EMPTY_TABLE, copy)
    (lost,) = (finding for finding in of_config(path, STORES[1]) if finding.id in MISSING)
    assert "account-keepers, job-workers" in lost.message


def test_offsets_of_a_deleted_topic_are_not_lost(golden_copy: Unpacked) -> None:
    config = golden_copy(STORES[1]) / "config"
    of_one = {"offsetTable": {"payments@auditors": {"0": 3}}}
    for path in (config.parent / "consumequeue").glob("%*"):
        shutil.rmtree(path)
    written(config, OFFSETS, EMPTY_TABLE, json.dumps(of_one).encode())
    assert above_note(of_config(config.parent, STORES[1])) == MISSING
    (config / TOPICS).write_bytes(without_topic(config, "payments"))
    assert above_note(of_config(config.parent, STORES[1])) == {}


@pytest.mark.parametrize("contents", [(b"", b""), (EMPTY_TABLE, None), (b"{", None)], ids=["empty", "table", "broken"])
@pytest.mark.parametrize("name", STORES)
def test_groups_whose_offsets_another_file_has_are_counted(
    golden_copy: Unpacked, name: str, contents: tuple[bytes | None, bytes | None]
) -> None:
    path = golden_copy(name)
    offsets = {"offsetTable": {"jobs@job-workers": {"0": 1}, "orders@strangers": {"0": 1}}}
    written(path / "config", "lmqConsumerOffset.json", json.dumps(offsets).encode(), None)
    written(path / "config", OFFSETS, *contents)
    (lost,) = (finding for finding in of_config(path, name) if finding.id in MISSING)
    count = len(consumed_messages(path, "jobs"))
    assert 0 < count < len(consumed_messages(path))
    assert "lmqConsumerOffset.json has offsets of 1 group;" in lost.message
    assert lost.message.endswith(f"of which other files have offsets: job-workers {count}")


@pytest.mark.parametrize("name", STORES)
def test_the_copy_tells_how_many_messages_each_group_may_get_again(golden_copy: Unpacked, name: str) -> None:
    path = golden_copy(name)
    offsets = {"offsetTable": {"jobs@job-workers": {"0": 1}, "payments@auditors": {"0": 1}, "orders@auditors": {}}}
    written(path / "config", OFFSETS, EMPTY_TABLE, json.dumps(offsets).encode())
    (lost,) = (finding for finding in of_config(path, name) if finding.id in MISSING)
    audited, jobs = (sum(len(consumed_messages(path, topic)) for topic in topics) for topics in (AUDITED, ["jobs"]))
    assert lost.message.endswith(f": auditors {audited}, job-workers {jobs}")


@pytest.mark.parametrize("name", STORES)
def test_a_store_with_light_queues_has_its_offsets_in_another_file(golden_copy: Unpacked, name: str) -> None:
    config = golden_copy(name) / "config"
    (config / OFFSETS).rename(config / "lmqConsumerOffset.json")
    written(config, OFFSETS, None, None)
    assert above_note(of_config(config.parent, name)) == {}
    with_light_queues, without = Settings(has_light_queues=True), Settings(has_light_queues=False)
    assert above_note(verified(config.parent, version_of(name), settings=with_light_queues)[1]) == {}
    for settings in (without, Settings(defaults_hold=True)):  # the broker does not read the file
        findings = verified(config.parent, version_of(name), settings=settings)[1]
        (lost,) = (finding for finding in findings if finding.id in MISSING)
        assert "lmqConsumerOffset.json has offsets of 2 groups" in lost.message


@pytest.mark.parametrize(
    "content",
    [b'{"offsetTable":{},"lmqOffsetTable":{"%LMQ%device@%LMQ%group":7}}', EMPTY_TABLE],
    ids=["light queues", "nothing"],
)
@pytest.mark.parametrize("name", STORES)
def test_a_file_for_light_queues_that_has_no_group_has_lost_those_that_there_were(
    golden_copy: Unpacked, name: str, content: bytes
) -> None:
    config = golden_copy(name) / "config"
    written(config, OFFSETS, None, None)
    written(config, "lmqConsumerOffset.json", content, None)
    (lost,) = (finding for finding in of_config(config.parent, name) if finding.id in MISSING)
    assert "(job-workers)" in lost.message  # whose messages came again: no other group has to have had an offset
    for path in (config.parent / "consumequeue").glob("%*"):
        shutil.rmtree(path)
    assert not [finding for finding in of_config(config.parent, name) if finding.id in MISSING]


@pytest.mark.parametrize("contents", [(None, None), (b"", b""), (b"{", None)], ids=["absent", "empty", "broken"])
@pytest.mark.parametrize("name", STORES)
def test_lost_groups_are_named(golden_copy: Unpacked, name: str, contents: tuple[bytes | None, bytes | None]) -> None:
    path = golden_copy(name)
    written(path / "config", GROUPS, *contents)
    findings = of_config(path, name)
    assert above_note(findings) == {"config.groups-missing": 1}
    (lost,) = (finding for finding in findings if finding.id == "config.groups-missing")
    assert "account-keepers, job-workers" in lost.message


@pytest.mark.parametrize("name", STORES)
def test_a_file_that_keeps_a_broker_from_starting_is_one_for_recover(golden_copy: Unpacked, name: str) -> None:
    for file in (GROUPS, OFFSETS):
        for contents in ((b"{", b"{"), (b"", b"{"), (None, b"{")):
            path = golden_copy(name)
            config = path / "config"
            before = {copy: copy.read_bytes() for copy in (config / file, config / f"{file}.bak")}
            written(config, file, *contents)
            findings = of_config(path, name)
            assert above_note(findings) == {"config.unreadable": 1}, (file, contents)
            (lost,) = (finding for finding in findings if finding.id == "config.unreadable")
            assert lost.repair == "recover"
            for copy, content in before.items():
                copy.write_bytes(content)


@pytest.mark.parametrize(
    ("has_copy", "says"),
    [(True, "may be newer than the backup"), (False, "it was deleted, or"), (None, f"{TOPICS}.bak contains it")],
    ids=["file empty", "whole", "whole, copy has it"],
)
@pytest.mark.parametrize("name", STORES)
def test_a_topic_with_queues_and_no_entry_is_counted(
    golden_copy: Unpacked, name: str, says: str, *, has_copy: bool | None
) -> None:
    path = golden_copy(name)
    config = path / "config"
    whole, older = (config / TOPICS).read_bytes(), without_topic(config, "reminders")
    contents = {True: (b"", older), False: (older, None), None: (older, whole)}[has_copy]
    written(config, TOPICS, *contents)
    (lost,) = (finding for finding in of_config(path, name) if finding.id == "config.queue-without-topic")
    count = len(consumed_messages(path, "reminders"))
    # Somebody may have deleted it where the file is whole: nothing that repairs brings it back unasked.
    severity, repair = (Severity.WARNING, "rebuild --topics") if has_copy else (Severity.NOTE, None)
    assert (lost.topic, lost.count, lost.severity, lost.repair) == ("reminders", count, severity, repair)
    assert says in lost.message


@pytest.mark.parametrize("lag_ms", [59_000, 61_000])
@pytest.mark.parametrize("name", STORES)
def test_a_whole_file_that_is_older_than_a_topic_has_lost_it(golden_copy: Unpacked, name: str, lag_ms: int) -> None:
    path = golden_copy(name)
    rows = rmqtool("dump", path, "--topic", "reminders", "--format", "jsonl").out.splitlines()
    newest_ms = max(json.loads(row)["store_timestamp_ms"] for row in rows)
    written(path / "config", TOPICS, without_topic(path / "config", "reminders", newest_ms - lag_ms), None)
    (lost,) = (finding for finding in of_config(path, name) if finding.id == "config.queue-without-topic")
    is_older = lag_ms > 60_000
    assert (lost.severity, lost.repair) == (Severity.WARNING if is_older else Severity.NOTE, None)
    for command in ("verify", "forecast", "recover"):
        ran = rmqtool(command, path, *(("--yes",) if command == "recover" else ()), "--format", "json")
        said = json.loads(ran.out)
        said = said.get("summary", said)
        assert said["needs_decision"] is is_older, (command, said)
        assert (ran.code == 0) is not is_older, (command, ran)


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "%RETRY%job-workers"])
def test_topics_that_nobody_has_to_create_are_not_lost(golden_copy: Unpacked, topic: str) -> None:
    path = golden_copy(STORES[1])
    written(path / "config", TOPICS, without_topic(path / "config", topic), None)
    assert above_note(of_config(path, STORES[1])) == {}
