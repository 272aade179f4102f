"""A configuration file is read or replaced by its copy, and absent, empty, broken and unreadable stay apart."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rmqtool.store.config.config_json import (
    SIZE_MAX,
    ConfigFile,
    ConfigState,
    TopicConfig,
    batch_topics,
    config_bytes,
    consumer_offsets,
    misnamed_topics,
    named_topics,
    sound_entries,
    topics,
)
from rmqtool.store.config.config_kinds import CONSUMER_OFFSETS, TOPICS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.view import DirectoryView
from tests.store.relaxed_cases import BACKUP as BACKED_UP
from tests.store.relaxed_cases import CASES, by_version

BACKUP = f"{CONSUMER_OFFSETS}.bak"
GOOD = b'{"offsetTable":{"T@G":{0:12}}}'
OLDER = b'{"offsetTable":{"T@G":{0:11}}}'


def read(root: Path, **files: bytes) -> ConfigFile:
    (root / "config").mkdir(exist_ok=True)
    for name, content in files.items():
        (root / (BACKUP if name == "backup" else CONSUMER_OFFSETS)).write_bytes(content)
    return read_config(DirectoryView(root), CONSUMER_OFFSETS)


def test_the_file_itself_is_read_where_it_is_good(tmp_path: Path) -> None:
    found = read(tmp_path, own=b"\xef\xbb\xbf" + GOOD, backup=OLDER)
    assert (found.state, found.read_path, found.is_backup) == (ConfigState.READ, CONSUMER_OFFSETS, False)
    assert consumer_offsets(found) == {("T", "G"): {0: 12}}


@pytest.mark.parametrize(
    ("own", "state"),
    [
        (b"", ConfigState.EMPTY),
        (b" \n", ConfigState.EMPTY),
        (GOOD[:-3], ConfigState.BROKEN),
        (bytes(100), ConfigState.BROKEN),
        (b"[1]", ConfigState.BROKEN),
        (b"[" * 100_000, ConfigState.BROKEN),
    ],
)
def test_the_copy_is_read_where_the_file_is_no_good(tmp_path: Path, own: bytes, state: ConfigState) -> None:
    found = read(tmp_path, own=own, backup=OLDER)
    assert (found.state, found.read_path, found.is_backup) == (state, BACKUP, True)
    assert found.problems[0].startswith(f"{CONSUMER_OFFSETS}: ")
    assert consumer_offsets(found) == {("T", "G"): {0: 11}}


@pytest.mark.parametrize("name", CASES)
def test_what_brokers_read_is_read(tmp_path: Path, name: str) -> None:
    found = consumer_offsets(read(tmp_path, own=CASES[name][0].encode(), backup=BACKED_UP.encode()))
    assert {f"{topic}@{group}": queues for (topic, group), queues in found.items()} in by_version(name)


def test_the_copy_alone_is_read_too(tmp_path: Path) -> None:
    found = read(tmp_path, backup=OLDER)
    assert (found.state, found.read_path, found.problems) == (ConfigState.ABSENT, BACKUP, ())


def test_neither_is_absent_and_not_unreadable(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert (found.state, found.read_path, found.value, found.problems) == (ConfigState.ABSENT, None, None, ())
    assert consumer_offsets(found) == {}


def test_both_broken_are_both_named(tmp_path: Path) -> None:
    found = read(tmp_path, own=b"{", backup=b"}")
    assert (found.state, found.read_path, found.value) == (ConfigState.BROKEN, None, None)
    assert [problem.partition(": ")[0] for problem in found.problems] == [CONSUMER_OFFSETS, BACKUP]


def test_what_is_no_file_is_unreadable_and_does_not_hang(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    os.mkfifo(tmp_path / CONSUMER_OFFSETS)
    found = read(tmp_path, backup=OLDER)
    assert (found.state, found.read_path) == (ConfigState.UNREADABLE, BACKUP)
    assert found.problems == (f"{CONSUMER_OFFSETS}: not a regular file",)


def test_a_huge_file_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    with (tmp_path / CONSUMER_OFFSETS).open("wb") as file:
        file.truncate(SIZE_MAX + 1)
    assert read(tmp_path).state is ConfigState.BROKEN


def test_entries_of_another_shape_are_left_out() -> None:
    def given(value: dict[Any, Any]) -> ConfigFile:
        return ConfigFile("x", "x", ConfigState.READ, value)

    table = {"T@G": {0: 1, "1": 2, "x": 3, 2: "4", 3: None, 4: True, 5: 1.5}, "no group": {0: 1}, "T@H": [1], 7: {}}
    assert consumer_offsets(given({"offsetTable": table})) == {("T", "G"): {0: 1, 1: 2, 2: 4, 5: 1}}
    found = topics(given({"topicConfigTable": {"a": {"attributes": None}, "b": 1, "c": {"readQueueNums": "8"}}}))
    assert [(topic.name, topic.read_queue_count, topic.queue_type) for topic in found.values()] == [
        ("a", None, "SimpleCQ"),
        ("c", 8, "SimpleCQ"),
    ]
    odd: list[dict[Any, Any]] = [{}, {"offsetTable": []}, {"topicConfigTable": 1}]
    for value in odd:
        assert (topics(given(value)), consumer_offsets(given(value))) == ({}, {})


@pytest.mark.parametrize(
    ("entry", "is_taken"),
    [
        ("{}", True),
        ('{"perm":"6","readQueueNums":4.7,"writeQueueNums":null,"topicSysFlag":"","order":"true"}', True),
        ('{"attributes":{"+queue.type":"BatchCQ"},"color":[1]}', True),
        ("null", False),
        ("5", False),
        ("[]", False),
        ('{"perm":"RW"}', False),
        ('{"readQueueNums":4294967296}', False),
        ('{"order":"yes"}', False),
        ('{"attributes":5}', False),
    ],
)
def test_a_single_odd_entry_makes_a_broker_refuse_all_topics(tmp_path: Path, entry: str, is_taken: bool) -> None:
    """As tests/broker/test_odd_topics.py has asked brokers."""
    (tmp_path / "config").mkdir()
    (tmp_path / TOPICS).write_text(f'{{"topicConfigTable":{{"a":{{"topicName":"a"}},"b":{entry}}}}}')
    found = read_config(DirectoryView(tmp_path), TOPICS)
    assert found.state is (ConfigState.READ if is_taken else ConfigState.BROKEN)
    assert set(topics(found)) == ({"a", "b"} if is_taken else set())
    assert named_topics(found) == {"a", "b"}
    assert set(sound_entries(found)) == (set() if is_taken else {"a"})
    assert misnamed_topics(found) == ({"b": None} if is_taken else {})


@pytest.mark.parametrize("content", ['{"topicConfigTable":null}', '{"topicConfigTable":[]}', '{"dataVersion":5}'])
def test_topics_without_their_table_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / TOPICS).write_text(content)
    assert read_config(DirectoryView(tmp_path), TOPICS).state is ConfigState.BROKEN


def test_half_of_a_surrogate_pair_is_what_java_writes(tmp_path: Path) -> None:
    half = b'"A\\ud800"'
    config = read(tmp_path, own=b'{"topicConfigTable":{' + half + b':{"attributes":{"queue.type":' + half + b"}}}}")
    assert [(name, said.queue_type) for name, said in topics(config).items()] == [("A?", "A?")]


@pytest.mark.parametrize("name", ["orders", "\udcff", "A\ud800", "\udfff\ud83d", "\U0001f600", "ä"])
def test_what_is_written_is_read_again(name: str) -> None:
    content = config_bytes({"offsetTable": {f"{name}@g": {"0": 1}}})
    assert json.loads(content.decode("utf-8", "surrogateescape")) == {"offsetTable": {f"{name}@g": {"0": 1}}}


def test_the_configuration_decides_which_topics_have_batch_queues() -> None:
    known = {
        "Packed": TopicConfig("Packed", 1, 1, "BatchCQ", "DELETE"),
        "Plain": TopicConfig("Plain", 1, 1, "SimpleCQ", "DELETE"),
    }
    assert batch_topics(known, ["Packed", "Plain", "Unknown"]) == {"Packed", "Unknown"}
    assert batch_topics({}, ["Plain"]) == {"Plain"}
