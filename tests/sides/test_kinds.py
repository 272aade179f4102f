"""What a broker uses and nothing decodes is named; files without content are not used."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.sides.kinds import FORECAST, SIDES, side_kinds, unread_files
from rmqtool.sides.unread import ReadBy
from rmqtool.store.directory import survey
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.view import open_directory
from tests.repair.small_stores import small_store


def kinds_of(store: Path) -> list[tuple[str, str]]:
    return [(files.path, files.kind) for files in unread_files(survey(open_directory(store)))]


@pytest.mark.parametrize(
    ("path", "content", "expected"),
    [
        ("consumequeue/000012.sst", b"", ("consumequeue", "RocksDB consume queue")),
        ("rocksdbstore/000004.log", b"x", ("rocksdbstore", "RocksDB of index, timer and transactions")),
        ("rocksdbstore/000004.log", b"", None),
        ("rocksdbstore/CURRENT", b"MANIFEST-000001\n", ("rocksdbstore", "RocksDB of index, timer and transactions")),
        ("timerwheel", bytes(100_000), None),
        ("timerwheel", bytes(100_000) + b"\1", ("timerwheel", "timer wheel")),
        ("timerlog/00000000000000000000", b"\1" + bytes(100), ("timerlog", "timer log")),
        ("compaction/compactionLog/T/0/00000000000000000000", b"\1", ("compaction", "compaction log")),
    ],
)
def test_files_that_are_used_are_named(
    tmp_path: Path, path: str, content: bytes, expected: tuple[str, str] | None
) -> None:
    store = small_store(tmp_path / "store")
    file = store / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    assert kinds_of(store) == ([] if expected is None else [expected])


def test_what_reads_the_files_is_named_once(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store")
    (store / "epochFileCheckpoint").write_bytes(b"1\n")
    (store / "transaction").mkdir()
    (store / "transaction/redolog").write_bytes(b"x")
    surveyed = survey(open_directory(store))
    reasons = {files.kind: (files.reason, files.read_by) for files in unread_files(surveyed)}
    assert reasons == {
        "controller mode": ("only verify and forecast look into the files of controller mode", ReadBy.VERIFY),
        "transaction table": ("the transaction table is not decoded", ReadBy.BROKER),
    }
    kinds = side_kinds(surveyed, rules_for("4.9.7"), FORECAST)
    assert kinds == {FileKind.CONTROLLER}
    assert [files.kind for files in unread_files(surveyed, kinds)] == ["transaction table"]


def test_no_kind_of_file_has_two_rows() -> None:
    kinds = [kind for side in SIDES for kind in side.files]
    assert len(kinds) == len(set(kinds))
