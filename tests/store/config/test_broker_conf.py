"""A broker's properties are read as Java reads them, and become settings in the words of this package."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqtool.errors import UnreadableError
from rmqtool.store.config.broker_conf import SIZE_MAX, ReadSettings, broker_conf, read_broker_conf
from rmqtool.store.directory import Settings, survey
from rmqtool.store.view import open_directory
from tests import golden_stores
from tests.conftest import Unpacked


def test_what_shapes_a_store_is_taken_over() -> None:
    conf = broker_conf(
        {
            "storePathRootDir": "/data/store/",
            "storePathCommitLog": "/data/store/log-a,/disk2/log-b,/data/store/./log-c",
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
    assert conf.odd_sizes == ()


def test_what_is_not_said_stays_open() -> None:
    conf = broker_conf({"brokerName": "broker-a"})
    assert conf.settings() == Settings(defaults_hold=True, queue_kind="file")
    assert conf.has_queue_extension is None


@pytest.mark.parametrize("value", ["", " 600", "600 ", "6e5", "2147483648", "9" * 400])
def test_a_number_that_java_refuses_is_not_guessed(value: str) -> None:
    conf = broker_conf({"mappedFileSizeConsumeQueue": value}, "b.conf")
    assert conf.sizes.consumequeue_file_size is None
    assert conf.odd_sizes == ()
    assert conf.settings().defaults_hold


@pytest.mark.parametrize(("value", "size"), [("+600", 600), ("\u0666\u0661", 80), ("2147483621", 2147483640)])
def test_a_number_that_java_parses_counts_as_the_broker_rounds_it(value: str, size: int) -> None:
    assert broker_conf({"mappedFileSizeConsumeQueue": value}).sizes.consumequeue_file_size == size


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mappedFileSizeCommitLog", "0"),
        ("mappedFileSizeConsumeQueue", "-1"),
        ("maxIndexNum", "1"),
        ("mappedFileSizeConsumeQueue", "2147483647"),
    ],
)
def test_a_size_without_room_is_named_and_no_default_holds_instead(name: str, value: str) -> None:
    """The broker keeps such a number; what it does with it is another question."""
    conf = broker_conf({name: value, "maxHashSlotNum": "1"}, "b.conf")
    assert conf.odd_sizes == (name,)
    assert conf.settings() == Settings(index_slot_count=1, queue_kind="file")


def test_each_version_reads_its_own_names_in_its_own_way() -> None:
    names = {"mapedFileSizeCommitLog", "storePathCommitLog", "storePathRootDir"}
    properties = {
        "mapedFileSizeCommitLog": "4096",
        "mappedFileSizeCommitLog": "8192",
        "storePathCommitLog": "/a,/b ",
        "storePathRootDir": " /s",
    }
    old = broker_conf(properties, reads=ReadSettings(names, trims_texts=False, splits_log_paths=False))
    assert (old.sizes.commitlog_file_size, old.commitlog_paths, old.store_root) == (4096, ("/a,/b ",), " /s")
    new = old.read_as(ReadSettings({*names, "mappedFileSizeCommitLog"} - {"mapedFileSizeCommitLog"}))
    assert (new.sizes.commitlog_file_size, new.commitlog_paths, new.store_root) == (8192, ("/a", "/b"), "/s")
    assert broker_conf({"mapedFileSizeCommitLog": "4096"}).sizes.commitlog_file_size == 4096


@pytest.mark.parametrize(
    ("properties", "directories"),
    [
        ({"storePathRootDir": "/s", "readOnlyCommitLogStorePaths": "/old"}, ()),  # read beside several paths only
        ({"storePathCommitLog": "/s", "readOnlyCommitLogStorePaths": "/old"}, ("/s",)),
        ({"storePathCommitLog": " a, b ", "readOnlyCommitLogStorePaths": "/o, p"}, ("a", " b", "/o", " p")),
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


def test_a_file_that_java_refuses_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b.conf").write_bytes(rb"brokerName=a\u12")
    with pytest.raises(UnreadableError, match=r"no broker starts with this file.*\\u12"):
        read_broker_conf(tmp_path / "b.conf")


@pytest.mark.parametrize("name", ["storePathRootDir", "storePathCommitLog"])
@pytest.mark.parametrize("odd", ["\\u0000", "\\ud800"])
def test_a_path_with_a_character_that_no_path_has_is_refused(tmp_path: Path, name: str, odd: str) -> None:
    (tmp_path / "broker.conf").write_text(f"{name}=/data/{odd}x\n", "utf-8")
    with pytest.raises(UnreadableError, match=f"{name} has a character that no path has"):
        read_broker_conf(tmp_path / "broker.conf")


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(SIZE_MAX + 1)
    for name in ("missing", "fifo", "huge", "."):
        with pytest.raises(UnreadableError):
            read_broker_conf(tmp_path / name)
