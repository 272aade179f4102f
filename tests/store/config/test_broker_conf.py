"""A broker's properties are read as Java reads them, and become settings in the words of this package."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqtool.errors import UnreadableError
from rmqtool.store.config.broker_conf import SIZE_MAX, broker_conf, parse_properties, read_broker_conf
from rmqtool.store.directory import Settings, survey
from rmqtool.store.view import open_directory
from tests import golden_stores
from tests.conftest import Unpacked


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", {}),
        (b"# no\n! nor this\n\n   # nor this\n", {}),
        (b"a=1\nb:2\nc 3\nd\t=\t4\n e = 5 \n", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5 "}),
        (b"a==1\nb= = 2\nc : = 3", {"a": "=1", "b": "= 2", "c": "= 3"}),
        (b"a=1\na=2", {"a": "2"}),
        (b"empty\nalso=", {"empty": "", "also": ""}),
        (b"a=1,\\\n   2,\\\r\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
        (b"a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        (b"a=x\\\n# no comment\nb=y", {"a": "x# no comment", "b": "y"}),
        (b"# a comment is not continued \\\nb=y", {"b": "y"}),
        (b"a=x\\", {"a": "x"}),
        (b"a\\ b\\=c\\:d = v", {"a b=c:d": "v"}),
        (rb"a=\t\n\r\f\q\"C:\\dir", {"a": '\t\n\r\fq"C:\\dir'}),
        (rb"a=\u4e3b\ud83d\ude00", {"a": "主\U0001f600"}),
        (b"a=caf\xe9\xa0x", {"a": "café\xa0x"}),
        (b"a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        (b"=value", {"": "value"}),
    ],
)
def test_properties_are_read_by_the_rules_of_java(text: bytes, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_what_shapes_a_store_is_taken_over() -> None:
    conf = broker_conf(
        {
            "storePathRootDir": "/data/store/",
            "storePathCommitLog": "/data/store/log-a,/disk2/log-b, /data/store/./log-c",
            "readOnlyCommitLogStorePaths": "/old/log",
            "mappedFileSizeCommitLog": "65536",
            "mappedFileSizeConsumeQueue": "601",
            "mappedFileSizeConsumeQueueExt": "400",
            "mapperFileSizeBatchConsumeQueue": "460",
            "maxHashSlotNum": "100",
            "maxIndexNum": "200",
            "messageDelayLevel": "1s 2s",
            "storeType": "defaultRocksDB",
            "enableConsumeQueueExt": "TRUE",
            "messageIndexEnable": "false",
            "messageIndexSafe": "true ",  # Java takes no blank for part of the word
        }
    )
    assert conf.settings() == Settings(
        commitlog_directories=("log-a", "/disk2/log-b", "log-c", "/old/log"),
        commitlog_file_size=65536,
        consumequeue_file_size=620,
        extension_file_size=400,
        batch_file_size=460,
        index_slot_count=100,
        index_entry_count=200,
        queue_kind="rocksdb",
        makes_index=False,
        defaults_hold=True,
    )
    assert (conf.delay_levels, conf.store_type) == ("1s 2s", "defaultRocksDB")
    assert (conf.has_queue_extension, conf.has_index, conf.is_index_safe) == (True, False, False)
    assert conf.has_record_crc is None
    assert conf.problems == ()


def test_what_is_not_said_stays_open() -> None:
    conf = broker_conf({"brokerName": "broker-a"})
    assert conf.settings() == Settings(defaults_hold=True, queue_kind="file")
    assert conf.has_queue_extension is None


@pytest.mark.parametrize("value", ["", " 600", "600 ", "0", "-1", "6e5", "2147483648", "9" * 400, "\u0666\u0660"])
def test_a_number_that_java_refuses_is_named_and_not_guessed(value: str) -> None:
    conf = broker_conf({"mappedFileSizeConsumeQueue": value}, "b.conf")
    assert conf.sizes.consumequeue_file_size is None
    assert len(conf.problems) == 1
    assert "mappedFileSizeConsumeQueue" in conf.problems[0]


def test_an_index_file_without_room_is_named_and_not_used() -> None:
    conf = broker_conf({"maxIndexNum": "1", "maxHashSlotNum": "1"}, "b.conf")
    assert conf.settings().index_entry_count is None
    assert conf.settings().index_slot_count == 1
    assert len(conf.problems) == 1


@pytest.mark.parametrize(
    ("properties", "directories"),
    [
        ({"storePathRootDir": "/s", "readOnlyCommitLogStorePaths": "/old"}, ("commitlog", "/old")),
        ({"storePathCommitLog": "commitlog-a,commitlog-b"}, ("commitlog-a", "commitlog-b")),
        ({"storePathRootDir": "store", "storePathCommitLog": "store/commitlog"}, ("commitlog",)),
        ({"storePathRootDir": "/s", "storePathCommitLog": "/s2/commitlog,,"}, ("/s2/commitlog",)),
        ({"storePathRootDir": "/", "storePathCommitLog": "/log"}, ("log",)),
        ({"storePathCommitLog": "${user.home}/log"}, ("${user.home}/log",)),
    ],
)
def test_paths_of_the_commitlog(properties: dict[str, str], directories: tuple[str, ...]) -> None:
    assert broker_conf(properties).settings().commitlog_directories == directories


@pytest.mark.parametrize("name", ["4.9.7-multi-path", "5.5.0-multi-path-crashed"])
def test_a_store_on_several_paths_is_found_by_its_brokers_file(golden: Unpacked, tmp_path: Path, name: str) -> None:
    config = golden_stores.manifest(name).config
    path = tmp_path / "broker.conf"
    path.write_text("".join(f"{key} = {value}\n" for key, value in config.items() if isinstance(value, str | int)))
    settings = read_broker_conf(path).settings()
    assert settings.commitlog_directories == ("commitlog-a", "commitlog-b")
    store = survey(open_directory(golden(name)), settings)
    starts = [segment.start for segment in store.commitlog]
    assert starts == list(range(0, len(starts) * store.commitlog_file_size, store.commitlog_file_size))
    assert {segment.path.partition("/")[0] for segment in store.commitlog} == {"commitlog-a", "commitlog-b"}


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(SIZE_MAX + 1)
    for name in ("missing", "fifo", "huge", "."):
        with pytest.raises(UnreadableError):
            read_broker_conf(tmp_path / name)
