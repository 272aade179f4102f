"""A cache answers what the log says, or nothing at all; and a repair reads the log once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks.stores import write_store
from rmqtool.engine.dispatch.index_entries import IndexEntries, batch_entries
from rmqtool.engine.rules.versions import rules_for
from rmqtool.scan.log import LogFile, RecordTable, ScanOptions
from rmqtool.scan.row_cache import KEPT, RowCache, columns_values, keep_column
from rmqtool.scan.split import splits_of
from rmqtool.store.directory import survey
from rmqtool.store.source import FileSource
from rmqtool.store.view import open_directory
from tests.commands.transcripts import rmqtool

FILE_SIZE = 1 << 20
MESSAGE_COUNT = 3000
RULES = rules_for("5.5.0")
COLUMNS = (*KEPT, "physical_offset", "own_offset", "verdict", "magic", "features", "topic_length")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_store(tmp_path / "store", MESSAGE_COUNT, 700, FILE_SIZE)
    return tmp_path / "store"


@contextmanager
def bytes_read(monkeypatch: pytest.MonkeyPatch, below: Path) -> Iterator[list[int]]:
    """Gathers the sizes of all reads from files below a directory."""
    sizes: list[int] = []
    read_into = FileSource.read_into

    def counted(self: FileSource, position: int, buffer: memoryview) -> int:
        count = read_into(self, position, buffer)
        if Path(f"/proc/self/fd/{self.descriptor}").readlink().is_relative_to(below):
            sizes.append(count)
        return count

    with monkeypatch.context() as patch:
        patch.setattr(FileSource, "read_into", counted)
        yield sizes


def log_table(root: Path, options: ScanOptions | None = None) -> RecordTable:
    files = sorted((root / "commitlog").iterdir())
    return RecordTable.of([LogFile(partial(FileSource.open, path), int(path.name)) for path in files], options)


def seen(root: Path, options: ScanOptions) -> tuple[dict[str, list[int]], list[bytes], IndexEntries]:
    """All rows of a log column by column, their topics, and what they put into the index."""
    columns: dict[str, list[int]] = {name: [] for name in COLUMNS}
    topics: list[bytes] = []
    entries = []
    table = log_table(root, options)
    for batch in table.batches():
        rows = batch.as_array()
        entries.append(batch_entries(batch, rows, RULES))
        for name in COLUMNS:
            columns[name] += rows[name].tolist()
        is_message = rows["topic_length"] > 0
        topics += [batch.topics[number] for number in rows["topic_number"][is_message].tolist()]
    table.close()
    columns["topic_number"] = []  # counts within a split
    joined = [np.concatenate(parts) for parts in list(zip(*entries, strict=True))[:3]]
    return columns, topics, IndexEntries(*joined, ends_without=False)


@pytest.mark.parametrize("memory_max", [1 << 30, 100_000, 0])
@pytest.mark.parametrize("compiled", [True, False])
def test_what_is_answered_is_what_was_scanned(
    store: Path, memory_max: int, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ScanOptions(compiled=compiled)
    columns, topics, entries = seen(store, plain)
    assert len(topics) == MESSAGE_COUNT
    with RowCache(memory_max) as cache:
        options = replace(plain, cache=cache, columns_only=True, keys_of=RULES.version)
        seen(store, options)
        with bytes_read(monkeypatch, store) as sizes:
            again, again_topics, again_entries = seen(store, options)
    assert sum(sizes) < 100_000, "the records are not read again"
    assert again == columns
    assert again_topics == topics
    for first, second in zip(entries[:3], again_entries[:3], strict=True):
        assert np.array_equal(first, second)


@pytest.mark.parametrize("dtype", ["<i8", "<i4"])
@pytest.mark.parametrize("memory_max", [1 << 30, 0])
def test_a_column_comes_back_as_it_was(dtype: str, memory_max: int) -> None:
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    chance = np.random.default_rng(1)
    columns = [
        [least],
        [most, least],
        [least, most] * 300,
        [0] * 300 + [most],
        [most] * 256 + [least, 7],
        list(range(most - 300, most)),
        chance.integers(least, most, 3000).tolist(),
        (chance.integers(0, 60, 3000) * (most // 60)).tolist(),
        (chance.integers(0, 70_000, 3000) + least).tolist(),
    ]
    with RowCache(memory_max) as cache:
        for values in columns:
            kept = keep_column(np.array(values, dtype), cache._keep)
            [back] = columns_values([kept], len(values), cache._read)
            assert back.dtype == np.dtype(dtype)
            assert back.tolist() == values


def test_a_record_with_three_keys_takes_few_bytes(tmp_path: Path) -> None:
    write_store(tmp_path / "store", 20_000, 100, 16 << 20)
    with RowCache(0) as cache:
        seen(tmp_path / "store", ScanOptions(compiled=True, cache=cache, columns_only=True, keys_of=RULES.version))
        assert 0 < cache._spilled < 18 * 20_000


def test_parts_that_were_scanned_answer_for_the_whole_file_and_from_a_record_on(store: Path) -> None:
    with RowCache() as cache:
        options = ScanOptions(cache=cache, columns_only=True)
        table = log_table(store)
        for split in table.splits:
            for part in splits_of(split, 1 << 18):
                for _ in options.walk(part).batches():
                    pass
        first = table.splits[0]
        offsets = [
            offset
            for batch in ScanOptions().walk(first).batches()
            for offset in batch.as_array()["physical_offset"].tolist()
        ]
        for start in (0, offsets[1], offsets[600], offsets[-2], offsets[-1]):
            walk = options.walk(replace(first, start=start))
            assert cache.answers(walk)
            answered = [offset for batch in walk.batches() for offset in batch.as_array()["physical_offset"].tolist()]
            assert answered == [offset for offset in offsets if offset >= start]
            assert walk.outcome.data_end == first.source.size
        for start in (1, offsets[600] + 1):
            assert not cache.answers(options.walk(replace(first, start=start)))
        table.close()


@pytest.mark.parametrize("compiled", [True, False])
def test_parts_of_a_file_read_its_bytes_once(store: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    table = log_table(store)
    whole = table.splits[0]
    with bytes_read(monkeypatch, store) as sizes:
        parts = splits_of(whole, count=8)
        for part in parts:
            walk = ScanOptions(compiled=compiled, block_size=whole.source.size).walk(part)
            assert all(len(batch.rows) for batch in walk.batches())
    table.close()
    assert len(parts) == 8
    assert sum(sizes) < FILE_SIZE + len(parts) * (8 << 10), "only what shows a part's first and last record"


def overwritten(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


@pytest.mark.parametrize("position", [40_000, FILE_SIZE // 2])
def test_a_file_with_damage_is_read_again(store: Path, position: int) -> None:
    overwritten(store / "commitlog" / f"{0:020d}", position, b"noise" * 40)
    options = ScanOptions(compiled=True)
    with RowCache() as cache:
        noted = replace(options, cache=cache, columns_only=True)
        table = log_table(store, noted)
        for batch in table.batches():
            assert batch.rows is not None
        known = [cache.answers(noted.walk(split)) for split in table.splits]
        table.close()
    assert known == [False] + [True] * (len(known) - 1)


def test_a_file_that_changed_since_is_read_again(store: Path) -> None:
    first = store / "commitlog" / f"{0:020d}"
    with RowCache() as cache:
        options = ScanOptions(compiled=True, cache=cache, columns_only=True)
        before = seen_verdicts(store, options)
        overwritten(first, 40_000, b"noise" * 40)
        os.utime(first, ns=(1, 1))
        after = seen_verdicts(store, options)
    assert not any(before)
    assert any(after)


def seen_verdicts(root: Path, options: ScanOptions) -> list[int]:
    table = log_table(root, options)
    verdicts = [verdict for batch in table.batches() for verdict in batch.as_array()["verdict"].tolist()]
    table.close()
    return verdicts


def test_a_file_under_another_name_is_read_again(store: Path) -> None:
    first = store / "commitlog" / f"{0:020d}"
    with RowCache() as cache:
        options = ScanOptions(compiled=True, cache=cache, columns_only=True)
        os.link(first, store / "commitlog" / f"{100 * FILE_SIZE:020d}")
        seen_verdicts(store, options)
        table = log_table(store)
        known = [cache.answers(options.walk(split)) for split in table.splits]
        table.close()
    assert known[0]
    assert not known[-1], "its records say that they lie elsewhere"


def test_an_answer_needs_the_checksum_that_was_looked_at(store: Path) -> None:
    with RowCache() as cache:
        options = ScanOptions(cache=cache, columns_only=True)
        seen_verdicts(store, options)
        table = log_table(store)
        stricter = replace(options, record_crc=True).walk(table.splits[0])
        with_keys = replace(options, keys_of="5.5.0").walk(table.splits[0])
        other_delays = replace(options, delays_ms=()).walk(table.splits[0])
        assert not cache.answers(stricter)
        assert not cache.answers(with_keys)
        assert cache.answers(other_delays), "no record here waits for a delay"
        table.close()


@pytest.mark.parametrize("arguments", [("recover", "--full"), ("salvage",), ("rebuild",)], ids=" ".join)
def test_a_repair_reads_each_byte_of_the_log_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    root = tmp_path / "store"
    write_store(root, 7_000, 4096, 16 << 20)
    opened = survey(open_directory(root))
    log_bytes = sum(segment.entry.allocated_bytes for segment in opened.commitlog)
    damaged = min((root / "consumequeue" / "TopicTest1" / "2").iterdir())
    overwritten(damaged, 200, bytes(400))
    with bytes_read(monkeypatch, root / "commitlog") as sizes:
        outcome = rmqtool(*arguments, str(root), "--dry-run", "--format", "json", "--broker-version", "5.5.0")
    assert outcome.code == 3, outcome.err
    assert sum(sizes) < 1.5 * log_bytes, "parts that threads share overlap by a block"
