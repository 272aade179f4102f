"""Databases are read in a process of its own, whatever they hold, and nothing in the store changes."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import pytest

from rmqtool.store.databases import rocksdb
from rmqtool.store.databases.queue_database import QueueDatabase, StoredEnd, read_queue_database
from rmqtool.store.databases.rocksdb import RocksFailure
from rmqtool.store.directory import Store, survey
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.view import open_directory
from tests.conftest import Unpacked
from tests.engine.memory_view import MemoryView
from tests.rocksdb_cases import CASES, NAME, Case
from tests.store_state import assert_store_unchanged

AUDIT = ("Audit", 0)


def store_at(path: Path) -> Store:
    return survey(open_directory(path))


def read(path: Path) -> QueueDatabase:
    database = store_at(path).queue_database
    assert database is not None
    return database


def test_every_unit_and_end_is_read(golden: Unpacked) -> None:
    with assert_store_unchanged(golden(NAME)):
        database = read(golden(NAME))
    assert database.failure is None
    assert database.families == ("default", "offset")
    assert sum(units.unit_count for units in database.units.values()) == 150
    assert database.ends[AUDIT].maximum == StoredEnd(120_092, 43)
    assert database.dispatched == 129_221
    assert database.between(AUDIT, 2, 4)["physical_offset"].tolist() == [2645, 7770]
    assert [database.number_of(AUDIT, place) for place in (-5, 0, 7, 43, 44, 1 << 60)] == [0, 0, 7, 43, 44, 44]


def test_a_database_elsewhere_is_copied_first(golden: Unpacked) -> None:
    store = store_at(golden(NAME))
    entries = store.files[FileKind.CONSUMEQUEUE_ROCKSDB]
    view = MemoryView({entry.path: (golden(NAME) / entry.path).read_bytes() for entry in entries})
    database = read_queue_database(view, view.list("consumequeue"))
    assert sum(units.unit_count for units in database.units.values()) == 150


def test_a_file_of_a_database_is_not_read_through_a_link(golden_copy: Unpacked, tmp_path: Path) -> None:
    path = golden_copy(NAME)
    table = next((path / "consumequeue").glob("*.sst"))
    outside = tmp_path / "outside.sst"
    table.rename(outside)
    table.symlink_to(outside)
    database = read(path)
    assert database.failure is rocksdb.RocksFailure.UNREADABLE
    assert "symbolic link" in database.reason


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_whether_it_opens_is_as_with_brokers(golden_copy: Unpacked, case: Case) -> None:
    path = golden_copy(NAME)
    case.apply(path)
    with assert_store_unchanged(path):
        database = read(path)
    expected = (None if case.is_read else RocksFailure.UNREADABLE) if case.opens else RocksFailure.DOES_NOT_OPEN
    assert database.failure is expected, database.reason
    assert "rmqtool-" not in database.reason


def test_a_damaged_block_is_not_the_end_of_the_rows(golden_copy: Unpacked) -> None:
    path = golden_copy(NAME)
    with (path / "consumequeue/000011.sst").open("r+b") as table:
        table.seek(10)
        table.write(b"xxxx")
    database = read(path)
    assert database.failure is RocksFailure.UNREADABLE
    assert "checksum" in database.reason
    assert not database.is_read


def test_where_the_library_is_missing_one_line_says_so(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb, "LIBRARY", "no_such_library")
    database = read(golden(NAME))
    assert (database.failure, database.is_read) == (RocksFailure.NO_LIBRARY, False)
    assert database.reason == "install rmqtool[rocksdb] to read it"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import os; os.abort()", "signal 6"),
        ("raise SystemExit(7)", "exit code 7"),
        ("import time; time.sleep(60)", "no answer for 0 s"),
        ("import os; os.write(1, b'U' * 900)", "nonsense"),
        ("import os; os.write(1, b'U' + bytes(7))", "ended its process"),
    ],
)
def test_the_end_of_the_librarys_process_is_survived(
    golden: Unpacked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, reason: str
) -> None:
    (tmp_path / "reader.py").write_text(program, "utf-8")
    monkeypatch.setattr(rocksdb.rocksdb_reader, "__file__", str(tmp_path / "reader.py"))
    monkeypatch.setattr(rocksdb, "SILENCE_S", 30.0 if "sleep" not in program else 0.2)
    begun = time.monotonic()
    database = read(golden(NAME))
    assert database.failure is RocksFailure.CRASH
    assert reason in database.reason
    assert time.monotonic() - begun < 30


def test_memory_has_a_limit(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb, "MEMORY_BYTES", 60 << 20)
    assert read(golden(NAME)).failure is not None


@pytest.mark.parametrize("pattern", ["MANIFEST-*", "CURRENT", "IDENTITY", "*.log"])
def test_bytes_that_were_never_written_are_not_read(golden_copy: Unpacked, pattern: str) -> None:
    """The library reads these files to their end: 20 GiB of zeros took a minute."""
    path = golden_copy(NAME)
    [file] = (path / "consumequeue").glob(pattern)
    os.truncate(file, 20 << 30)
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    database = read(path)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert database.failure is RocksFailure.UNREADABLE
    assert f"consumequeue/{file.name}: {20 << 30} bytes, most of them never written" in database.reason
    assert ended.ru_utime + ended.ru_stime == began.ru_utime + began.ru_stime, "no process was started"
