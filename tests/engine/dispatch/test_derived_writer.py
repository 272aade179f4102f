"""What real brokers derived from their logs, derived again: every queue, extension and index file byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmqtool.engine.dispatch.derived_writer import DerivedSizes, DerivedWriter
from rmqtool.engine.dispatch.index_writer import IndexWriter
from rmqtool.engine.dispatch.queue_entries import DispatchSettings, batch_bytes
from rmqtool.engine.rules.versions import rules_for
from rmqtool.formats.consumequeue import FILLER_UNIT, UNIT
from rmqtool.formats.index import ENTRY, HEADER, entry_position
from rmqtool.formats.tags import DEFAULT_DELAY_LEVELS, parse_delay_levels
from rmqtool.scan.log import LogFile, RecordTable, ScanOptions
from rmqtool.store.sink import DirectorySink, TrackingSink
from rmqtool.store.source import FileSource
from tests import golden_stores

Unpacked = Callable[[str], Path]

OTHER_LOG = {
    "broker-4.9.7-dledger": "the log is a DLedger one",
    "broker-5.3.3-dledger": "the log is a DLedger one",
}
NO_QUEUE_FILES = {
    "5.5.0-rocksdb-cq": "queues are kept in RocksDB",
    "5.5.0-rocksdb-cq-crashed": "queues are kept in RocksDB",
}
HEAD_IS_GONE = {
    "4.9.7-expired-head": "the log begins behind what queues and index begin with",
    "5.5.0-expired-head": "the log begins behind what queues and index begin with",
    "4.9.7-expired-head-and-queues": "the log begins in the middle of queue and index files",
    "5.5.0-expired-head-and-queues": "the log begins in the middle of queue and index files",
    "4.9.7-filler-queue": "the log begins behind what the kept queues begin with",
    "5.5.0-filler-queue": "the log begins behind what the kept queues begin with",
}
DISPATCHED_FROM = {
    "5.5.0-filler-min-zero": (81920, "the broker rebuilt its lost queues from the tenth file from the end on"),
    "5.5.0-filler-queue": (262144, "the broker rebuilt its lost queues from the last file on"),
}
"""Physical offset from which the broker dispatched the log again."""
STALE_UNITS = {
    "4.9.7-stale-tail": "the broker cut the queue and left what stands behind its end",
    "5.5.0-stale-tail": "the broker cut the queue and left what stands behind its end",
}
DISPATCHED_TWICE = {
    "4.9.7-filler-queue": "records that the index held already were dispatched again, and some entered again",
    "5.5.0-filler-queue": "records that the index held already were dispatched again, and some entered again",
    "5.5.0-filler-min-zero": "records that the index held already were dispatched again, and some entered again",
}


def _names() -> list[str]:
    made = [name for name in golden_stores.names() if golden_stores.manifest(name).base is None]
    return [name for name in [*made, *golden_stores.broker_names()] if name not in OTHER_LOG]


def _config(name: str) -> tuple[str, Mapping[str, Any]]:
    """Version that wrote a store, and its settings."""
    if name.startswith("broker-"):
        found = golden_stores.broker_manifest(name)
        return found["broker_version"], found["config"]
    manifest = golden_stores.manifest(name)
    return manifest.writer, manifest.config


def _dispatched_end(name: str) -> int | None:
    """Physical offset up to which the broker had dispatched when it ended; None where the manifest does not say."""
    if name.startswith("broker-"):
        return None
    ends = [
        phase["answers"][-1][1] for phase in golden_stores.manifest(name).raw.get("phases", ()) if "answers" in phase
    ]
    return ends[-1]["maxPhysicalOffset"] - ends[-1]["dispatchBehindBytes"] if ends else None


def _batch_topics(store: Path) -> frozenset[bytes]:
    path = store / "config" / "topics.json"
    table = json.loads(path.read_text("utf-8")).get("topicConfigTable", {}) if path.exists() else {}
    return frozenset(
        topic.encode()
        for topic, settings in table.items()
        if (settings.get("attributes") or {}).get("queue.type") == "BatchCQ"
    )


def _clock() -> Callable[[], int]:
    times = iter(range(1_700_000_000_000, 1_800_000_000_000))
    return lambda: next(times)


def _derive(name: str, store: Path, target: Path, *, compiled: bool) -> int:
    """Write a store's derived files again from its log; the first physical offset that was dispatched."""
    target.mkdir(exist_ok=True)
    version, config = _config(name)
    rules, sizes = rules_for(version), golden_stores.settings(name)
    extension = config.get("mappedFileSizeConsumeQueueExt", 48 << 20) if config.get("enableConsumeQueueExt") else None
    sink = TrackingSink(DirectorySink(target))
    writer = DerivedWriter(
        sink,
        DerivedSizes(
            sizes.consumequeue_file_size, config.get("mapperFileSizeBatchConsumeQueue", 300_000 * 46), extension
        ),
        DispatchSettings(rules, batch_topics=_batch_topics(store)),
        IndexWriter(sink, sizes.index_slot_count, sizes.index_entry_count, rules, _clock()),
        with_queues=name not in NO_QUEUE_FILES,
    )
    paths = sorted((path for path in store.glob("commitlog*/*") if path.name.isdigit()), key=lambda path: path.name)
    files = [LogFile(lambda path=path: FileSource.open(path), int(path.name)) for path in paths]  # type: ignore[misc]
    options = ScanOptions(
        delays_ms=parse_delay_levels(config.get("messageDelayLevel", DEFAULT_DELAY_LEVELS)),
        compiled=compiled,
    )
    first = max(DISPATCHED_FROM.get(name, (0, ""))[0], int(paths[0].name) if paths else 0)
    end = _dispatched_end(name)
    for batch in RecordTable.of(files, options, finds_crc=True).batches():
        rows = batch.as_array()
        rows = rows[rows["physical_offset"] >= first]
        if end is not None:
            rows = rows[rows["physical_offset"] < end]
        writer.put(rows, batch.topics, batch_bytes(batch))
    writer.finish(clean=not (store / "abort").exists())
    writer.sync()
    sink.close()
    assert not writer.refused
    return first


def _files(root: Path, pattern: str) -> dict[str, Path]:
    return {str(path.relative_to(root)): path for path in sorted(root.glob(pattern)) if path.is_file()}


def _read(path: Path) -> bytes:
    """Content without its zero tail, and the length: default-sized files are nearly all hole."""
    with FileSource.open(path) as source:
        ends = [end for _, end in source.extents(0, source.size)]
    with path.open("rb") as stream:
        return stream.read(max(ends, default=0)).rstrip(b"\0") + b"|%d" % path.stat().st_size


def _same_units(theirs: bytes, ours: bytes, log_minimum: int) -> bool:
    """Whether units agree, but for those that point below the log, in whose place filler stands."""
    length = max(len(theirs), len(ours))
    length += -length % UNIT.dtype.itemsize
    left = np.frombuffer(theirs.ljust(length, b"\0"), UNIT.dtype)
    right = np.frombuffer(ours.ljust(length, b"\0"), UNIT.dtype)
    is_filler = right == np.array([FILLER_UNIT], UNIT.dtype)
    below = (left["physical_offset"] < log_minimum) & (left["record_size"] > 0)
    return bool(((left == right) | (below & is_filler)).all())


def _index_entries(files: Iterator[Path], log_minimum: int, slot_count: int) -> list[tuple[int, int]]:
    """(key hash, physical offset) of all entries of records that are still in the log."""
    found: list[tuple[int, int]] = []
    for path in files:
        raw = path.read_bytes()
        count = HEADER.struct.parse(raw).next_entry_number
        entries = np.frombuffer(raw, ENTRY.dtype, max(0, count - 1), entry_position(1, slot_count))
        found += [(h, p) for h, p in entries[["key_hash", "physical_offset"]].tolist() if p >= log_minimum]
    return found


@pytest.mark.parametrize("name", _names())
def test_derived_files_equal_the_brokers(name: str, golden: Unpacked, tmp_path: Path) -> None:
    store = golden(name)
    log_minimum = _derive(name, store, tmp_path, compiled=False)
    for kind in ("consumequeue", "consumequeue_ext", "batchconsumequeue"):
        theirs, ours = _files(store, f"{kind}/*/*/*"), _files(tmp_path, f"{kind}/*/*/*")
        if name in NO_QUEUE_FILES:
            theirs = {}
        if name in HEAD_IS_GONE:
            gone = set(theirs) - set(ours)
            for path in gone:
                units = np.frombuffer(theirs.pop(path).read_bytes(), UNIT.dtype)
                assert (units["physical_offset"] < log_minimum).all(), path
        assert sorted(ours) == sorted(theirs)
        for path, found in theirs.items():
            if name in HEAD_IS_GONE:
                assert ours[path].stat().st_size == found.stat().st_size
                assert _same_units(found.read_bytes(), ours[path].read_bytes(), log_minimum), path
            elif name in STALE_UNITS:
                assert ours[path].stat().st_size == found.stat().st_size
                end = ours[path].read_bytes().rstrip(b"\0")
                assert end
                assert found.read_bytes().startswith(end)
            else:
                assert _read(ours[path]) == _read(found), path
    theirs, ours = _files(store, "index/*"), _files(tmp_path, "index/*")
    if name in HEAD_IS_GONE or name in DISPATCHED_TWICE:
        slots = golden_stores.settings(name).index_slot_count
        expected = _index_entries(iter(theirs.values()), log_minimum, slots)
        found_here = _index_entries(iter(ours.values()), log_minimum, slots)
        assert found_here
        if name in DISPATCHED_TWICE:
            assert set(found_here) == set(expected)
            assert len(found_here) < len(expected)
        else:
            assert found_here == expected
        return
    assert [_read(path) for path in ours.values()] == [_read(path) for path in theirs.values()]


@pytest.mark.parametrize("name", ["4.9.7-lmq", "5.5.0-inner-batch", "broker-5.5.0-mixed-killed", "5.5.0-large"])
def test_rows_of_the_compiled_reader_give_the_same_files(name: str, golden: Unpacked, tmp_path: Path) -> None:
    pytest.importorskip("numba")
    for compiled in (False, True):
        _derive(name, golden(name), tmp_path / str(compiled), compiled=compiled)
    plain, fast = (_files(tmp_path / str(compiled), "*/**/*") for compiled in (False, True))
    assert plain
    assert {path: _read(found) for path, found in plain.items()} == {path: _read(found) for path, found in fast.items()}
