"""Sparse files are cut by their data: a hole of a terabyte makes no part, and is not read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from rmqtool.engine.append.message import Message
from rmqtool.engine.append.open_writer import new_store
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import UnsupportedError
from rmqtool.repair.derived.result import BuildOptions
from rmqtool.repair.rebuild import RebuildChoice, plan_rebuild
from rmqtool.scan.split import Split, splits_of
from rmqtool.store.directory import survey
from rmqtool.store.source import FileSource
from rmqtool.store.view import open_directory

TB = 1 << 40
MB = 1 << 20


@dataclass
class Sparse:
    """A file of which only the extents are known."""

    size: int
    data: list[tuple[int, int]] = field(default_factory=list)
    name: str = "sparse"
    identity: ClassVar[None] = None

    def read_into(self, _position: int, _buffer: memoryview) -> int:
        raise AssertionError("nothing has to be read to cut a file")

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        yield from ((max(low, start), min(high, end)) for low, high in self.data if low < end and start < high)

    def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize(
    ("data", "starts"),
    [
        ([(0, MB)], [0]),
        ([(0, MB), (TB - MB, TB)], [0]),
        ([(0, 256 * MB)], [0, 64 * MB, 128 * MB, 192 * MB]),
        ([(0, 128 * MB), (TB - 128 * MB, TB)], [0, 64 * MB, TB - 128 * MB, TB - 64 * MB]),
        ([(TB // 2, TB // 2 + 128 * MB)], [0, TB // 2, TB // 2 + 64 * MB]),
        ([], [0]),
    ],
)
def test_parts_have_equal_shares_of_the_data(data: list[tuple[int, int]], starts: list[int]) -> None:
    parts = splits_of(Split(Sparse(TB, data), 0, TB, 0, more_follows=True))
    assert [part.start for part in parts] == starts
    assert [part.end for part in parts] == [*starts[1:], TB]
    assert [part.anchor for part in parts] == [start > 0 for start in starts]


def test_a_rebuild_reads_the_data_of_a_sparse_log_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = WriterConfig(
        commitlog_file_size=MB, consumequeue_file_size=6000, index_slot_count=100, index_entry_count=100
    )
    with new_store(tmp_path / "store", rules_for("5.5.0"), config) as writer:
        for number in range(50):
            writer.put(Message(topic="T", body=bytes(100), properties={"KEYS": f"k{number}"}))
    first = tmp_path / "store" / "commitlog" / f"{0:020d}"
    second = first.with_name(f"{TB:020d}")
    second.write_bytes(first.read_bytes())
    for path in (first, second):
        os.truncate(path, TB)
    requests: list[int] = []
    read_into, extents = FileSource.read_into, FileSource.extents

    def counted_read(source: FileSource, position: int, buffer: memoryview) -> int:
        requests.append(len(buffer))
        return read_into(source, position, buffer)

    def counted_extents(source: FileSource, start: int, end: int) -> Iterator[tuple[int, int]]:
        requests.append(0)
        return extents(source, start, end)

    monkeypatch.setattr(FileSource, "read_into", counted_read)
    monkeypatch.setattr(FileSource, "extents", counted_extents)
    (tmp_path / "staging").mkdir()
    with pytest.raises(UnsupportedError, match="damaged"):
        plan_rebuild(
            survey(open_directory(tmp_path / "store")), rules_for("5.5.0"), RebuildChoice(), tmp_path / "staging",
            BuildOptions(threads=2),
        )  # fmt: skip
    assert 0 < len(requests) < 1000
    assert sum(requests) < 64 * MB
