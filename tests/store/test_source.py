"""Byte sources give exactly what the disk has: short reads at the end, holes, bad sectors, and nothing that waits."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.errors import UnreadableError
from rmqtool.store.source import SMALLEST_READ, BytesSource, FileSource, read_range, read_salvaging


class RottenSource(BytesSource):
    """A file of which some sectors give an I/O error; every read that touches one fails as a whole."""

    def __init__(self, content: bytes, bad_sectors: set[int]) -> None:
        super().__init__("rotten", content)
        self.bad_sectors = bad_sectors
        self.reads = 0

    def read_into(self, position: int, buffer: memoryview) -> int:
        self.reads += 1
        touched = range(position // SMALLEST_READ, (position + len(buffer) - 1) // SMALLEST_READ + 1)
        if self.bad_sectors.intersection(touched):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read_into(position, buffer)


def content_of(length: int) -> bytes:
    return bytes(1 + i % 255 for i in range(length))


def test_a_read_ends_where_the_file_ends(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with FileSource.open(path) as source:
        assert source.size == 10
        assert read_range(source, 3, 4) == b"3456"
        assert read_range(source, 8, 100) == b"89"
        assert read_range(source, 10, 1) == b""
        assert read_range(source, 1 << 60, 1 << 60) == b""
        assert read_range(source, -1, 5) == b""


def test_a_file_that_shrinks_while_it_is_read_gives_less(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content_of(8192))
    with FileSource.open(path) as source:
        os.truncate(path, 5000)
        assert read_range(source, 4096, 4096) == content_of(8192)[4096:5000]
        buffer = bytearray(b"x" * 4096)
        assert read_salvaging(source, 4096, memoryview(buffer)) == [(5000, 8192)]
        assert buffer == content_of(8192)[4096:5000] + bytes(8192 - 5000)
        os.truncate(path, 0)
        assert read_salvaging(source, 4096, memoryview(buffer)) == [(4096, 8192)]
        assert buffer == bytes(4096)


def test_a_read_that_fails_is_an_error_with_its_place() -> None:
    with pytest.raises(UnreadableError, match="rotten: input/output error at byte 600"):
        read_range(RottenSource(content_of(4096), {2}), 600, 1000)


@pytest.mark.parametrize("position", [0, 1, 511, 512, 700, 1000])
@pytest.mark.parametrize("length", [1, 512, 3000, 8192])
def test_exactly_a_bad_sector_is_missing_wherever_the_read_begins(position: int, length: int) -> None:
    content = content_of(16384)
    buffer = bytearray(length)
    bad = (2048, 2560)
    missing = read_salvaging(RottenSource(content, {4}), position, memoryview(buffer))
    start, end = max(bad[0], position), min(bad[1], position + length)
    assert missing == ([(start, end)] if start < end else [])
    expected = bytearray(content)
    expected[bad[0] : bad[1]] = bytes(512)
    assert buffer == expected[position : position + length]


@settings(deadline=None)  # a busy machine is no failure
@given(bad=st.sets(st.integers(0, 31)), position=st.integers(0, 8191), length=st.integers(1, 9000))
def test_salvaging_misses_the_bad_sectors_and_nothing_else(bad: set[int], position: int, length: int) -> None:
    content = content_of(8192)
    source = RottenSource(content, bad)
    buffer = bytearray(b"x" * length)
    missing = read_salvaging(source, position, memoryview(buffer))
    lost = {at for start, end in missing for at in range(start, end)}
    for index, value in enumerate(buffer):
        at = position + index
        is_lost = at >= len(content) or at // SMALLEST_READ in bad
        assert (at in lost) == is_lost
        assert value == (0 if is_lost else content[at])
    assert all(first[1] < second[0] for first, second in pairwise(missing))


def test_one_bad_sector_costs_few_reads() -> None:
    source = RottenSource(content_of(8 << 20), {777})
    buffer = bytearray(8 << 20)
    assert read_salvaging(source, 0, memoryview(buffer)) == [(777 * 512, 778 * 512)]
    assert source.reads <= 30  # two for each halving of 8 MiB down to 512 bytes


def test_holes_lie_between_the_extents(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    size = 64 << 20
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(10 << 20)
        file.write(b"data")
    with FileSource.open(path) as source:
        extents = list(source.extents(0, size))
        if extents == [(0, size)]:
            pytest.skip("this file system knows no holes")
        assert len(extents) == 1
        start, end = extents[0]
        assert start <= 10 << 20 < (10 << 20) + 4 <= end
        assert end - start <= 1 << 20
        assert list(source.extents(20 << 20, size)) == []
        assert list(source.extents((10 << 20) + 1, (10 << 20) + 3)) == [((10 << 20) + 1, (10 << 20) + 3)]


def test_a_file_system_without_holes_is_all_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1000))

    def refuse(*_: int) -> int:
        raise OSError(errno.EINVAL, "no holes here")

    with FileSource.open(path) as source:
        monkeypatch.setattr(os, "lseek", refuse)
        assert list(source.extents(100, 900)) == [(100, 900)]


def open_descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


@pytest.fixture
def special_files(tmp_path: Path) -> Iterator[list[Path]]:
    fifo, directory, missing, loop = (tmp_path / name for name in ("fifo", "directory", "missing", "loop"))
    os.mkfifo(fifo)
    directory.mkdir()
    loop.symlink_to(loop)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        yield [fifo, directory, missing, loop, tmp_path / "socket", Path("/dev/null")]


def test_what_is_no_regular_file_is_refused_at_once(special_files: list[Path]) -> None:
    before = open_descriptors()
    for path in special_files:
        with pytest.raises(UnreadableError, match=path.name):
            FileSource.open(path)
    assert open_descriptors() == before


def test_looking_at_a_fifo_does_not_let_its_writer_go_on(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.open("wb").close(), daemon=True)
    writer.start()
    with pytest.raises(UnreadableError, match="not a regular file"):
        FileSource.open(fifo)
    writer.join(0.2)
    assert writer.is_alive()
    with fifo.open("rb"):
        writer.join(5)
    assert not writer.is_alive()


@pytest.mark.parametrize("name", ["with\0zero", "lone\ud800surrogate", "long" * 100])
def test_a_name_that_no_file_can_have_is_unreadable(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnreadableError):
        FileSource.open(tmp_path / name)
