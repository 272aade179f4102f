"""Manifests: what goes in comes out, the same store gives the same bytes, and a hostile file gives one clear error."""

from __future__ import annotations

import random
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.compare.log_side import Terms
from rmqtool.compare.manifest import (
    CHUNK,
    TRAILER,
    TRAILER_MARK,
    ManifestLog,
    packed_rows,
    unpacked_rows,
    write_manifest,
)
from rmqtool.compare.rows import ROW, QueueNumbers
from rmqtool.errors import RmqtoolError, UnreadableError, UnsupportedError
from tests.compare.stores import Message, laid_out, numbered, store_of, subject

MESSAGES = numbered([Message("T", number % 3, 0, f"KEY{number}", bytes(number % 90)) for number in range(150)])


def written(path: Path, *, has_rows: bool = True) -> bytes:
    near = subject(store_of(laid_out(MESSAGES)))
    write_manifest(path, near, "test", Terms(block_size=2048), has_rows=has_rows)
    return path.read_bytes()


def read_all(path: Path) -> int:
    """Read every block of a manifest; the number of rows."""
    log = ManifestLog(path)
    numbers = QueueNumbers()
    blocks = [
        block
        for number in range(len(log.files))
        for block in log.stream(number, numbers, log.description.terms).blocks()
    ]
    return sum(0 if block.rows is None else len(block.rows) for block in blocks)


def test_the_same_store_gives_the_same_bytes(tmp_path: Path) -> None:
    assert written(tmp_path / "a") == written(tmp_path / "b")
    assert read_all(tmp_path / "a") >= len(MESSAGES)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a", "b"]


def test_blocks_alone_take_little_room(tmp_path: Path) -> None:
    with_rows, blocks = len(written(tmp_path / "a")), len(written(tmp_path / "b", has_rows=False))
    assert blocks < with_rows / 3


@settings(deadline=None)
@given(
    offsets=st.lists(st.tuples(st.integers(-3, 4), st.integers(-(1 << 62), 1 << 62)), min_size=1, max_size=40),
    begin=st.integers(0, 1 << 50),
)
def test_rows_come_back(offsets: list[tuple[int, int]], begin: int) -> None:
    rows = np.zeros(len(offsets), ROW)
    for row, (queue, queue_offset) in zip(rows, offsets, strict=True):
        row["queue"], row["queue_offset"], row["size"] = queue, queue_offset, 100 + queue
        row["identity"], row["content"], row["whole"] = queue_offset & (1 << 60) - 1, 7, 1 << 31
    rows["physical_offset"] = begin + np.cumsum(rows["size"]) - rows["size"]
    end = begin + int(rows["size"].sum())
    found = unpacked_rows(packed_rows(rows), len(rows), begin, end, np.arange(5, dtype=np.int32))
    assert found.tolist() == rows.tolist()


@pytest.mark.parametrize("has_rows", [True, False])
def test_a_manifest_that_was_cut_off_is_none(tmp_path: Path, *, has_rows: bool) -> None:
    whole = written(tmp_path / "m", has_rows=has_rows)
    for length in (*range(0, len(whole), 97), len(whole) - 1):
        (tmp_path / "m").write_bytes(whole[:length])
        with pytest.raises(UnreadableError):
            read_all(tmp_path / "m")


def test_a_flipped_byte_is_found_or_harmless(tmp_path: Path) -> None:
    whole = written(tmp_path / "m")
    rows = read_all(tmp_path / "m")
    chance = random.Random(1)
    for at in (*range(80), *(chance.randrange(len(whole)) for _ in range(300)), *range(len(whole) - 40, len(whole))):
        raw = bytearray(whole)
        raw[at] ^= 1 << chance.randrange(8)
        (tmp_path / "m").write_bytes(raw)
        said = ""
        try:
            found = read_all(tmp_path / "m")
        except RmqtoolError as error:
            said = str(error)
        assert str(tmp_path / "m") in said or found == rows


def test_another_version_is_named(tmp_path: Path) -> None:
    whole = written(tmp_path / "m")
    (tmp_path / "m").write_bytes(whole.replace(b"rmqtool manifest 1\n", b"rmqtool manifest 2\n", 1))
    with pytest.raises(UnsupportedError, match="the manifest has version 2, and not 1"):
        ManifestLog(tmp_path / "m")


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"{}", b"rmqtool manifest 1\n", b"rmqtool manifest 1\n" * 20])
def test_something_else_is_no_manifest(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(UnreadableError, match="the manifest is incomplete"):
        ManifestLog(tmp_path / "m")


def test_a_directory_or_nothing_is_no_manifest(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UnreadableError):
            ManifestLog(path)


def test_a_claim_of_much_costs_little(tmp_path: Path) -> None:
    """A chunk that would unpack to two gigabytes is not unpacked."""
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 24))
    chunk = CHUNK.pack(len(bomb), 1 << 31, zlib.crc32(bomb)) + bomb
    head = b"rmqtool manifest 1\n"
    (tmp_path / "m").write_bytes(head + chunk + TRAILER.pack(len(head), len(head), TRAILER_MARK))
    lies = CHUNK.pack(0xFFFFFFFF, 100, 0)
    (tmp_path / "n").write_bytes(head + lies + TRAILER.pack(len(head), len(head), TRAILER_MARK))
    tracemalloc.start()
    try:
        for name in "mn":
            with pytest.raises(UnreadableError):
                ManifestLog(tmp_path / name)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def rewritten(path: Path, **changes: object) -> None:
    """Write the manifest again with another description."""
    import json

    raw = path.read_bytes()
    table_at, description_at, _ = TRAILER.unpack(raw[-TRAILER.size :])
    packed_length = struct.unpack_from("<I", raw, description_at)[0]
    packed = raw[description_at + CHUNK.size :][:packed_length]
    said = json.loads(zstandard.ZstdDecompressor().decompress(packed))
    assert changes.keys() <= said.keys()
    plain = json.dumps({**said, **changes}).encode()
    packed = zstandard.ZstdCompressor().compress(plain)
    chunk = CHUNK.pack(len(packed), len(plain), zlib.crc32(packed)) + packed
    path.write_bytes(raw[:description_at] + chunk + TRAILER.pack(table_at, description_at, TRAILER_MARK))


@pytest.mark.parametrize(
    "changes",
    [
        {"files": [[0, 4096], [100, 4096]]},
        {"files": []},
        {"files": [[-5, 4096]]},
        {"files": "none"},
        {"block_size": 0},
        {"block_size": 1 << 62},
        {"queues": []},
        {"queues": [["T", 1 << 70]]},
        {"topics": [["T", "many", 0, 0]]},
        {"topics": [["T", 1]]},
        {"log": {}},
        {"log": None},
        {"config": [["a", "b", "c", "no JSON"]]},
        {"queue_ends": [["T"]]},
        {"has_rows": False, "files": [[0, 100]]},
    ],
    ids=str,
)
def test_a_description_that_makes_no_sense_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    written(tmp_path / "m")
    rewritten(tmp_path / "m", **changes)
    with pytest.raises(UnreadableError):
        read_all(tmp_path / "m")
