"""What a path of a store is, by the names that brokers give."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.quantities import JAVA_LONG_MAX, SEGMENT_START_MAX
from rmqtool.store.file_kinds import (
    FileKind,
    is_broker_directory,
    is_java_long,
    is_segment_name,
    is_single_file,
    is_tiered_directory,
    kind_of,
    name_hash,
    segment_name,
    stray_kind_of,
)

ZERO = "0" * 20
TOO_LARGE = "9" * 20


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (f"commitlog/{ZERO}", FileKind.COMMITLOG),
        (f"commitlog2/{ZERO}", FileKind.COMMITLOG),
        (f"commitlog/{ZERO[1:]}", FileKind.STRAY_COMMITLOG),
        (f"commitlog/{TOO_LARGE}", FileKind.STRAY_COMMITLOG),
        (f"commitlog/a/{ZERO}", FileKind.STRAY_COMMITLOG),
        ("commitlog/rmqtool-repair-in-progress", FileKind.RMQTOOL),
        (".rmqtool/undo/1/journal", FileKind.RMQTOOL),
        (f"consumequeue/topic/0/{ZERO}", FileKind.CONSUMEQUEUE),
        (f"consumequeue/topic/-3/{ZERO}", FileKind.CONSUMEQUEUE),
        (f"consumequeue/a\nb/0/{ZERO}", FileKind.CONSUMEQUEUE),
        (f"consumequeue/topic/00/{ZERO}", FileKind.STRAY_QUEUE),
        (f"consumequeue/topic/{ZERO}", FileKind.STRAY_QUEUE),
        ("consumequeue/000012.sst", FileKind.CONSUMEQUEUE_ROCKSDB),
        ("consumequeue/archive/000012.log", FileKind.CONSUMEQUEUE_ROCKSDB),
        ("consumequeue_rocksdb/CURRENT", FileKind.CONSUMEQUEUE_ROCKSDB),
        (f"consumequeue_ext/topic/0/{ZERO}", FileKind.CONSUMEQUEUE_EXT),
        (f"batchconsumequeue/topic/0/{ZERO}", FileKind.BATCH_CONSUMEQUEUE),
        ("index/20240101000000000", FileKind.INDEX),
        ("index/2024", FileKind.STRAY_INDEX),
        ("checkpoint", FileKind.CHECKPOINT),
        ("checkpoint.bak", FileKind.UNKNOWN),
        ("abort", FileKind.ABORT),
        ("abort.bak", FileKind.ABORT_BACKUP),
        ("lock", FileKind.LOCK),
        ("config/topics.json", FileKind.CONFIG),
        ("config/topics.json.bak", FileKind.CONFIG),
        ("config/timermetrics", FileKind.CONFIG),
        ("config/timercheck", FileKind.TIMER_CHECK),
        ("config/topics/CURRENT", FileKind.CONFIG_ROCKSDB),
        ("config/tieredStoreMetadata.json", FileKind.TIERED),
        ("config/other", FileKind.UNKNOWN),
        ("rocksdbstore/CURRENT", FileKind.ROCKSDB),
        ("kvStore/CURRENT", FileKind.POP_ROCKSDB),
        ("timerwheel", FileKind.TIMER_WHEEL),
        ("timerwheel.1700000000000", FileKind.TIMER_WHEEL),
        (f"timerlog/{ZERO}", FileKind.TIMER_LOG),
        (f"compaction/compactionLog/topic/0/{ZERO}", FileKind.COMPACTION_LOG),
        (f"compaction/compactionCq/topic/0/{ZERO}", FileKind.COMPACTION_QUEUE),
        (f"compaction/compactionLog/topic/0/compacting/{ZERO}", FileKind.COMPACTION_LEFTOVER),
        ("compaction/position-checkpoint", FileKind.COMPACTION_CHECKPOINT),
        (f"dledger-n0/data/{ZERO}", FileKind.DLEDGER),
        ("epochFileCheckpoint", FileKind.CONTROLLER),
        ("transaction/statetable/0", FileKind.TRANSACTION),
        ("checkpoint\n", FileKind.UNKNOWN),
        ("", FileKind.UNKNOWN),
    ],
)
def test_kinds_of_files(path: str, kind: FileKind) -> None:
    assert kind_of(path) is kind


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (f"commitlog/{ZERO}", FileKind.STRAY_COMMITLOG),
        (f"consumequeue/topic/0/{ZERO}", FileKind.STRAY_QUEUE),
        ("index/20240101000000000", FileKind.STRAY_INDEX),
        ("index/other", FileKind.STRAY_INDEX),
        ("checkpoint", FileKind.UNKNOWN),
    ],
)
def test_what_has_the_path_of_a_file_and_is_none(path: str, kind: FileKind) -> None:
    assert stray_kind_of(path) is kind


@given(st.text(max_size=40))
def test_every_path_has_a_kind(path: str) -> None:
    assert isinstance(kind_of(path), FileKind)


@given(st.integers(0, SEGMENT_START_MAX))
def test_the_name_of_a_segment_is_one(start: int) -> None:
    name = segment_name(start)
    assert is_segment_name(name)
    assert int(name) == start
    assert kind_of(f"commitlog/{name}") is FileKind.COMMITLOG


@pytest.mark.parametrize(
    "name",
    ["", "0" * 19, TOO_LARGE, f"{SEGMENT_START_MAX + 1:020d}", str(JAVA_LONG_MAX), "٠" * 20, "-" + ZERO, ZERO + "a"],
)
def test_names_of_no_segment(name: str) -> None:
    assert not is_segment_name(name)


@pytest.mark.parametrize(
    ("name", "is_number"),
    [
        ("0", True), ("+7", True), ("-7", True), ("٣", True), ("0" * 40 + "1", True), (str(JAVA_LONG_MAX), True),
        (f"-{JAVA_LONG_MAX + 1}", True), (str(JAVA_LONG_MAX + 1), False), ("", False), ("+", False), ("-+1", False),
        ("1.0", False), ("²", False),
    ],
)  # fmt: skip
def test_names_that_java_reads_as_numbers(name: str, is_number: bool) -> None:
    assert is_java_long(name) is is_number


@pytest.mark.parametrize(
    ("path", "is_own"),
    [
        ("commitlog", True), ("consumequeue/topic/0", True), ("consumequeue/topic/x", False), ("config/rdb", True),
        ("config/a/b", False), ("dledger-n0/data", True), ("dledger-n0/other", False), ("home", False), ("", False),
        ("compaction/compactionLog/topic/0/compacting", True), ("transaction/statetable", True),
    ],
)  # fmt: skip
def test_directories_of_a_broker(path: str, is_own: bool) -> None:
    assert is_broker_directory(path) is is_own


def test_the_directory_of_a_tiered_store_has_the_hash_of_its_cluster() -> None:
    digest = hashlib.md5(b"DefaultCluster", usedforsecurity=False).hexdigest()[:8]
    assert name_hash("DefaultCluster") == digest
    assert is_tiered_directory(f"{digest}_DefaultCluster")
    assert not is_tiered_directory(f"{digest}_OtherCluster")
    assert not is_tiered_directory("DefaultCluster")


@pytest.mark.parametrize(
    ("path", "is_single"),
    [
        ("abort", True),
        ("abort.bak", True),
        ("lock", True),
        ("checkpoint", True),
        ("config/topics.json.tmp", True),
        ("config/transactionMetrics", True),
        ("rocksdbstore/CURRENT", True),
        ("consumequeue/000012.sst", True),
        ("compaction/position-checkpoint", True),
        (f"timerlog/{ZERO}", True),
        ("rocksdbstore/archive", False),
        ("rocksdbstore/mine", False),
        ("config/topics", False),
        ("config", False),
        (f"commitlog/{ZERO}", False),
        (f"consumequeue/topic/0/{ZERO}", False),
        ("transaction/statetable", False),
        ("mine", False),
    ],
)
def test_what_a_broker_opens_for_itself(path: str, is_single: bool) -> None:
    assert is_single_file(path) is is_single
