"""Which log of DLedger a broker reads, where its files are, and how it continues a plain log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool.errors import UnsupportedError
from rmqtool.formats import dledger
from rmqtool.store.config.broker_conf import broker_conf
from rmqtool.store.directory import Settings, Store, survey
from rmqtool.store.dledger_files import (
    data_directories,
    demand_dledger_data,
    demand_plain_log,
    dledger_log,
    reads_dledger,
    with_dledger_log,
)
from rmqtool.store.file_kinds import segment_name
from rmqtool.store.view import open_directory

SIZE = 1000
ENTRY = (1).to_bytes(4, "big") + (99).to_bytes(4, "big")


def write(root: Path, *starts: int, content: bytes = ENTRY) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for start in starts:
        (root / segment_name(start)).write_bytes(content.ljust(SIZE, b"\0"))


def surveyed(path: Path, settings: Settings | None = None) -> Store:
    return survey(open_directory(path), settings or Settings())


def log_of(store: Store) -> list[str]:
    return [segment.path.replace("0" * 16, "") for segment in with_dledger_log(store).commitlog]


def test_a_log_of_dledger_continues_the_plain_one(tmp_path: Path) -> None:
    write(tmp_path / "commitlog", 0, 1000)
    write(tmp_path / "dledger-n0/data", 2000, 3000)
    store = surveyed(tmp_path)
    joined = with_dledger_log(store)
    assert log_of(store) == ["commitlog/0000", "commitlog/1000", "dledger-n0/data/2000", "dledger-n0/data/3000"]
    assert [segment.has_entries for segment in joined.commitlog] == [False, False, True, True]
    assert (store.has_dledger_log, joined.has_dledger_log) == (False, True)
    with pytest.raises(UnsupportedError, match="continues in that of DLedger"):
        demand_plain_log(store)
    demand_plain_log(joined)


def test_one_with_the_offsets_of_the_plain_log_is_read_only_where_the_settings_say_so(tmp_path: Path) -> None:
    write(tmp_path / "commitlog", 0, 1000)
    write(tmp_path / "dledger-n0/data", 0, 1000, 2000)
    assert not reads_dledger(surveyed(tmp_path))
    assert log_of(surveyed(tmp_path)) == ["commitlog/0000", "commitlog/1000"]
    on = Settings(uses_dledger=True)
    assert log_of(surveyed(tmp_path, on)) == [f"dledger-n0/data/{start}" for start in ("0000", "1000", "2000")]


def test_of_several_members_the_settings_tell_the_own(tmp_path: Path) -> None:
    write(tmp_path / "dledger-n0/data", 0)
    write(tmp_path / "dledger-n1/data", 0, 1000)
    assert dledger_log(surveyed(tmp_path)) is None
    assert log_of(surveyed(tmp_path)) == []
    own = surveyed(tmp_path, Settings(uses_dledger=True, dledger_id="n1"))
    assert log_of(own) == ["dledger-n1/data/0000", "dledger-n1/data/1000"]


def test_data_in_other_directories_is_that_of_the_member(tmp_path: Path) -> None:
    root, disks = tmp_path / "store", [tmp_path / "a", tmp_path / "b"]
    (root / "dledger-n0/index").mkdir(parents=True)
    (root / "dledger-n0/index" / segment_name(0)).touch()
    write(disks[0], 0, 2000)
    write(disks[1], 1000)
    properties = {
        "enableDLegerCommitLog": "true", "dLegerSelfId": "n0", "storePathCommitLog": "/nowhere",
        "storePathDLedgerCommitLog": f"{disks[0]},{disks[1]}",
    }  # fmt: skip
    by_conf = surveyed(root, broker_conf(properties).settings())
    by_hand = surveyed(root, Settings(commitlog_directories=tuple(map(str, disks))))
    for store in (by_conf, by_hand):
        assert [segment.start for segment in with_dledger_log(store).commitlog] == [0, 1000, 2000]
        assert data_directories(store) == tuple(map(str, disks))
        assert (store.commitlog, store.problems) == ((), ())


def test_a_plain_log_in_a_named_directory_is_none_of_dledger(tmp_path: Path) -> None:
    record = (99).to_bytes(4, "big") + bytes.fromhex("daa320a7")
    write(tmp_path / "disk", 0, content=record)
    write(tmp_path / "dledger-n0/data", 1000)
    store = surveyed(tmp_path, Settings(commitlog_directories=("disk",)))
    assert log_of(store) == ["disk/0000", "dledger-n0/data/1000"]


def test_a_file_at_which_a_start_ends_is_told_with_the_size_that_it_should_have(tmp_path: Path) -> None:
    write(tmp_path / "dledger-n0/data", 0, 1000)
    (tmp_path / "dledger-n0/data/notes.txt").write_bytes(bytes(SIZE))
    (tmp_path / "dledger-n0/data" / segment_name(1000)).write_bytes(b"short")
    (tmp_path / "dledger-n0/index").mkdir()
    (tmp_path / "dledger-n0/index" / segment_name(0)).write_bytes(b"short")
    log = dledger_log(surveyed(tmp_path))
    assert log is not None
    told = {(entry.path.rpartition("/")[2], size) for entry, size in log.unloadable_files(SIZE)}
    assert told == {("notes.txt", SIZE), (segment_name(1000), SIZE), (segment_name(0), dledger.INDEX_FILE_SIZE)}


def test_a_log_of_dledger_without_files_beside_a_plain_log_is_not_repaired(tmp_path: Path) -> None:
    write(tmp_path / "commitlog", 0)
    (tmp_path / "dledger-n0/index").mkdir(parents=True)
    (tmp_path / "dledger-n0/checkpoint").write_text("committedIndex=7\n")
    store = surveyed(tmp_path)
    with pytest.raises(UnsupportedError, match="dledger-n0/data"):
        demand_dledger_data(store)
    demand_dledger_data(replace(store, settings=Settings(uses_dledger=False)))
    demand_plain_log(store)
