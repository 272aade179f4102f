"""How many bytes commands read, next to the bytes of the log and of what is derived from it.

`/proc/self/io` counts what a process reads from all files, whatever reads it and however busy the machine is. Each
command runs over two stores that differ in the number of messages only. What the larger one costs more is compared with
what it has more: the program itself, the ends of log and queues and all that is read of any store cancel out.

A plan's floor reads each unit of the queues that it leaves once: of messages of 100 bytes these are 0.06 of the store.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.stores import write_store
from rmqtool.scan.compiled import load_kernel
from tests.commands.transcripts import rmqtool

IO = Path("/proc/self/io")
DERIVED = ("consumequeue", "index")
BODY_LENGTHS = {"1 KiB": (1 << 10, 60_000), "100 B": (100, 150_000)}
LOG_FILE_SIZE = 16 << 20
SLOT_COUNT = 50_000
SLACK = 1 << 20
"""Blocks that are read whole, and a start of the program that loads a module more."""

pytestmark = pytest.mark.skipif(not IO.exists(), reason="the system does not count what a process reads")


@pytest.fixture(scope="module", params=BODY_LENGTHS)
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A store of a broker that was killed, and one with half as many messages."""
    folder = tmp_path_factory.mktemp("read")
    load_kernel()  # as larger stores have it loaded; smaller ones are read again sooner than it is loaded
    body_length, count = BODY_LENGTHS[request.param]
    roots = (folder / "half", folder / "whole")
    for root, number in zip(roots, (count // 2, count), strict=True):
        write_store(root, number, body_length, LOG_FILE_SIZE, index_slot_count=SLOT_COUNT)
    yield roots
    shutil.rmtree(folder)


def copy_of(store: Path, place: Path, *, derived: bool) -> Path:
    """A copy, with its holes; the broker's properties file beside it says what no file shows."""
    subprocess.run(["cp", "-a", "--sparse=always", store, place], check=True)
    if not derived:
        for name in DERIVED:
            shutil.rmtree(place / name)
    sizes = f"mappedFileSizeCommitLog={LOG_FILE_SIZE}\nmaxHashSlotNum={SLOT_COUNT}\n"
    place.with_name("broker.conf").write_text(sizes, "utf-8")
    return place


def bytes_of(store: Path) -> int:
    """What log, queues and index take; holes are no bytes."""
    folders = (store / "commitlog", *(store / name for name in DERIVED))
    return sum(path.stat().st_blocks * 512 for folder in folders for path in folder.rglob("*"))


def read_by(*arguments: str) -> int:
    """Bytes that a command reads, while it is the only thing that this process does."""
    before = _read_so_far()
    outcome = rmqtool(*arguments)
    assert outcome.code in (0, 3), outcome.err
    return _read_so_far() - before


def _read_so_far() -> int:
    rchar = re.search(r"^rchar: (\d+)", IO.read_text("ascii"), re.MULTILINE)
    assert rchar
    return int(rchar[1])


@pytest.mark.parametrize(
    ("arguments", "derived", "goal"),
    [
        (("verify",), True, 1.1),
        (("recover", "--full", "--dry-run"), True, 1.5),
        (("rebuild", "--dry-run"), False, 1.3),
        (("rebuild", "--yes"), False, 1.4),
        (("salvage", "--dry-run"), True, 2.0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_command_reads_little_more_than_there_is(
    stores: tuple[Path, Path], tmp_path: Path, arguments: tuple[str, ...], derived: bool, goal: float
) -> None:
    counts = []
    for name, store in (("before", stores[0]), ("half", stores[0]), ("whole", stores[1])):
        root = copy_of(store, tmp_path / name, derived=derived)
        options = ("--broker-version", "5.5.0", "--broker-conf", str(root.with_name("broker.conf")))
        counts.append(read_by(*arguments, str(root), *options, "--format", "json"))
        shutil.rmtree(root)
    half, whole = map(bytes_of, stores)
    _, of_half, of_whole = counts  # the first run loads the program
    assert of_whole - of_half <= goal * (whole - half) + SLACK, (of_whole - of_half) / (whole - half)
