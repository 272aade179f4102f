"""Memory does not grow with the log: rows go to files, and those are gone afterwards, whatever happens."""

from __future__ import annotations

import threading
import tracemalloc
from pathlib import Path

import pytest

from benchmarks.logs import write_log
from rmqtool.compare.join import Kind
from rmqtool.compare.log_side import Terms
from rmqtool.compare.manifest import write_manifest
from rmqtool.compare.run import CompareOptions, compare
from rmqtool.errors import WriteError
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.compare.stores import Message, laid_out, numbered, store_of, subject

FILE_SIZE = 16 << 20
MESSAGES_MIN = 100_000


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two logs with the same keys, no message at the same place."""
    folder = tmp_path_factory.mktemp("logs")
    for name, body_length in (("a", 100), ("b", 101)):
        assert write_log(folder / name / "commitlog", 2, FILE_SIZE, body_length) > MESSAGES_MIN
    return folder / "a", folder / "b"


def peak_of(a: Path, b: Path, options: CompareOptions) -> tuple[int, int]:
    """Peak of traced memory, and the messages that both have."""
    tracemalloc.start()
    try:
        found = compare(*(subject(survey(open_directory(path)), facts=False) for path in (a, b)), Terms(), options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.messages is not None
    return peak, found.a.totals.messages - found.messages[Kind.ONLY_A].count


def test_rows_beyond_a_bound_go_to_files(logs: tuple[Path, Path], tmp_path: Path) -> None:
    bounded = CompareOptions(threads=1, folder=tmp_path, memory_max=1 << 20, partition_bytes=1 << 20)
    peak_of(*logs, bounded)  # what is loaded once is no part of it
    low, both = peak_of(*logs, bounded)
    high, same = peak_of(*logs, CompareOptions(threads=1))
    assert both == same > MESSAGES_MIN
    # 13 to 19 MB, as much as the process has loaded before; without a bound 52 MB.
    assert low < 22 << 20
    assert low < high / 2
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_is_written_block_by_block(logs: tuple[Path, Path], tmp_path: Path) -> None:
    side = subject(survey(open_directory(logs[0])), facts=False)
    tracemalloc.start()
    try:
        write_manifest(tmp_path / "m", side, "test", Terms(block_size=1 << 20), has_rows=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12 << 20


def test_a_folder_that_takes_no_files_is_an_error(tmp_path: Path) -> None:
    messages = numbered([Message("T", 0, 0, f"KEY{number}") for number in range(50)])
    stores = store_of(laid_out(messages)), store_of(laid_out(messages, 4096 * 8))
    threads_before = set(threading.enumerate())  # other tests may have left some of their own
    with pytest.raises(WriteError):
        compare(*map(subject, stores), Terms(), CompareOptions(folder=tmp_path / "absent", memory_max=1))
    assert set(threading.enumerate()) <= threads_before
