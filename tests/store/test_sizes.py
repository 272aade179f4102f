"""The size of a full file is told from names and lengths, and one odd file does not change it."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from rmqtool.store.directory import Segment, survey
from rmqtool.store.file_kinds import segment_name
from rmqtool.store.sizes import infer_file_size, infer_log_file_size
from rmqtool.store.view import Entry, EntryKind, open_directory
from tests.conftest import Unpacked

K = 65536


def segments(*files: tuple[int, int]) -> list[Segment]:
    return [Segment(Entry(segment_name(start), EntryKind.FILE, size), start) for start, size in files]


@pytest.mark.parametrize(
    ("files", "size"),
    [
        ([], 0),
        ([(0, 0)], 0),
        ([(0, K)], K),
        ([(7 * K, K)], K),
        ([(0, K), (K, K), (2 * K, K)], K),
        ([(0, K), (K, 512)], K),  # cut short, to a length that divides everything
        ([(0, 512), (K, K)], K),
        ([(0, K), (K, 0)], K),
        ([(0, K), (K + 1, K)], K),  # a wrong name, which is no size
        ([(0, 50000), (50001, 50000)], 50000),
        ([(0, 100), (K, 100)], K),
        ([(0, K + 77), (K, K)], K),  # grown
        ([(0, 2 * K), (K, K), (2 * K, K)], K),
        ([(0, 30000), (K, 20000)], K),  # all cut: the names tell
        ([(0, 0), (K, 0)], K),
        ([(0, 30000), (K, 30000)], K),  # all cut to one length
        ([(0, 2 * K), (2 * K, K), (4 * K, K), (6 * K, K)], 2 * K),  # most are cut to a length that divides all
        ([(0, K), (2 * K, K)], K),  # one missing
        ([(0, K), (3 * K, K), (5 * K, 100)], K),
        ([(0, K), (K, K), (1, K)], K),  # a wrong name
        ([(K, K), (12345, 3)], K),
    ],
)
def test_size_of_a_full_file(files: list[tuple[int, int]], size: int) -> None:
    assert infer_file_size(segments(*files)) == size


@pytest.mark.parametrize(
    ("files", "size"),
    [
        ([(0, 50000), (50000, 50000)], 50000),
        ([(0, 54096), (50000, 50000)], 50000),
        ([(0, 50000), (50000, 20000)], 50000),
        ([(0, 50000), (50001, 50000)], 50000),
        ([(0, 30000), (50000, 30000), (100000, 30000)], 50000),  # two names agree
        ([(150000, 30000), (100000, 0)], 50000),
        ([(0, 30000), (K, 0)], K),  # whole pages
        ([(0, 50000), (50001, 54096)], None),
        ([(0, 30000), (50001, 20000)], None),
        ([(0, 0), (50000, 0)], None),
        ([(50001, 54096), (100000, 49999)], None),
    ],
)
def test_one_name_alone_shows_no_unlikely_size(files: list[tuple[int, int]], size: int | None) -> None:
    log_file_size = infer_log_file_size(segments(*files), others_are_default=False)
    assert (log_file_size.bytes if log_file_size.is_shown else None) == size
    assert log_file_size.is_proven == log_file_size.is_shown


def test_a_full_file_holds_whole_units() -> None:
    assert infer_file_size(segments((0, 601), (0, 600)), 20) == 600
    assert infer_file_size(segments((0, 590)), 20) == 600  # nothing better is there
    assert infer_file_size(segments((0, 590)), 20, rounds_up=False) == 590


def test_a_batch_queue_file_that_grew_shows_no_size(tmp_path: Path) -> None:
    for queue_id, length in enumerate((461, 460)):
        file = tmp_path / f"batchconsumequeue/T/{queue_id}/{0:020d}"
        file.parent.mkdir(parents=True)
        file.write_bytes(bytes(length))
    assert survey(open_directory(tmp_path)).batch_file_size == 460


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_unit_is_not_believed_against_a_whole_record(golden_copy: Unpacked, is_cut: bool) -> None:
    """One damaged size made the only file of a log count as cut, so that a forecast said that no broker starts."""
    path = golden_copy("5.5.0-bodies")
    [log] = (path / "commitlog").iterdir()
    queue = min((path / "consumequeue").glob("*/*/*"))
    with queue.open("r+b") as units:
        physical_offset, size = struct.unpack(">qi", units.read(12))
        units.seek(8)
        units.write(struct.pack(">i", size ^ 1 << 25))
    if is_cut:
        os.truncate(log, physical_offset + size - 1)
    found = survey(open_directory(path)).log_file_size
    assert (found.bytes > log.stat().st_size) == is_cut
