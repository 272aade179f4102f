"""Configuration in RocksDB: read as the JSON that it replaces, which counts where it was changed more often."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqtool.store.config.config_json import ConfigState, consumer_offsets, topics
from rmqtool.store.config.config_kinds import CONSUMER_OFFSETS, GROUPS, TOPICS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.databases import rocksdb
from rmqtool.store.view import open_directory
from tests.rocksdb_cases import numbers, write_rows
from tests.store_state import assert_store_unchanged


def json_row(value: object) -> bytes:
    return json.dumps(value).encode()


ORDERS = json_row({"topicName": "Orders", "readQueueNums": 4, "writeQueueNums": 2})
OFFSETS = json_row({"offsetTable": {"0": 7, "1": 3}})
VERSION = {b"kvDataVersionKey": json_row({"counter": 5, "stateVersion": 0, "timestamp": 1})}
SEPARATE = {
    "topics": {"default": {b"Orders": ORDERS}, "kvDataVersion": VERSION},
    "consumerOffsets": {"default": {b"Orders@G1": OFFSETS}},
    "subscriptionGroups": {"default": {b"G1": b'{"groupName":"G1"}'}},
}
IN_ONE = {
    "metadata": {
        "topic": {b"Orders": ORDERS},
        "topicVersion": VERSION,
        "consumerOffset": {b"Orders@G1": OFFSETS},
        "subscriptionGroup": {b"G1": b'{"groupName":"G1"}'},
    }
}
OFFSET_KEY = b"\x01\x00\x01\x02\x00\x02G1\x01\x00\x06Orders\x01\x00\x00\x00"
VERSION_2 = {
    "rdb": {
        "default": {
            b"\x01\x00\x01\x01data_version": numbers(0, 1, 3),
            OFFSET_KEY + b"\x00": numbers(7),
            OFFSET_KEY + b"\x01": numbers(3),
            b"\x01\x00\x03\x01data_version": numbers(0, 1, 5),
            b"\x01\x00\x03\x02\x00\x06Orders": b"\x01" + ORDERS,
            b"\x01\x00\x04\x02\x00\x02G1": b'\x01{"groupName":"G1"}',
        }
    }
}
FORMS = {"separate": SEPARATE, "in one": IN_ONE, "version 2": VERSION_2}


def written(path: Path, form: str) -> Path:
    for name, families in FORMS[form].items():
        write_rows(path / "config" / name, families)
    return path


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_read_as_the_files_that_it_replaces(tmp_path: Path, form: str) -> None:
    view = open_directory(written(tmp_path, form))
    with assert_store_unchanged(tmp_path):
        configs = {path: read_config(view, path) for path in (TOPICS, CONSUMER_OFFSETS, GROUPS)}
    assert {config.state for config in configs.values()} == {ConfigState.READ}
    assert all(config.is_database and not config.is_backup for config in configs.values())
    assert [(topic.name, topic.read_queue_count) for topic in topics(configs[TOPICS]).values()] == [("Orders", 4)]
    assert consumer_offsets(configs[CONSUMER_OFFSETS]) == {("Orders", "G1"): {0: 7, 1: 3}}
    assert (configs[GROUPS].value or {})["subscriptionGroupTable"] == {"G1": {"groupName": "G1"}}


@pytest.mark.parametrize(("counter", "name"), [(5, "Orders"), (6, "Old")])
def test_a_file_counts_where_it_was_changed_more_often(tmp_path: Path, counter: int, name: str) -> None:
    view = open_directory(written(tmp_path, "separate"))
    file = {"topicConfigTable": {"Old": {"topicName": "Old"}}, "dataVersion": {"counter": counter}}
    (tmp_path / TOPICS).write_text(json.dumps(file), "utf-8")
    assert list(topics(read_config(view, TOPICS))) == [name]


def test_offsets_of_a_thousand_queues_are_read_whole(tmp_path: Path) -> None:
    table = {str(queue_id): 10**12 + queue_id for queue_id in range(1024)}
    write_rows(tmp_path / "config" / "consumerOffsets", {"default": {b"T@G": json_row({"offsetTable": table})}})
    offsets = consumer_offsets(read_config(open_directory(tmp_path), CONSUMER_OFFSETS))
    assert offsets == {("T", "G"): {int(queue_id): offset for queue_id, offset in table.items()}}


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_are_no_configuration_are_named(tmp_path: Path, form: str) -> None:
    path = written(tmp_path, form)
    key, family = {"separate": (b"x", "default"), "in one": (b"x", "topic")}.get(
        form, (b"\x01\x00\x03\x02\x09", "default")
    )
    folder = {"separate": "topics", "in one": "metadata"}.get(form, "rdb")
    write_rows(path / "config" / folder, {family: {key: b"[1"}})
    config = read_config(open_directory(path), TOPICS)
    assert (config.state, list(topics(config)), len(config.problems)) == (ConfigState.BROKEN, ["Orders"], 1)


def test_a_database_that_does_not_open_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "in one")
    with monkeypatch.context() as without:
        without.setattr(rocksdb, "LIBRARY", "no_such_library")
        config = read_config(open_directory(path), TOPICS)
        assert (config.state, config.problems) == (
            ConfigState.UNREADABLE,
            ("config/metadata: install rmqtool[rocksdb] to read it",),
        )
    (path / "config" / "metadata" / "CURRENT").write_bytes(b"")
    config = read_config(open_directory(path), TOPICS)
    assert (config.state, topics(config)) == (ConfigState.BROKEN, {})
