"""`dump` of no store, of broken files and of hostile messages ends with a clear line or a finding, never a crash."""

from __future__ import annotations

import base64
import json
import os
import random
import zlib
from pathlib import Path
from typing import Any

import pytest

from rmqtool.dump import target
from rmqtool.errors import UnreadableError
from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.record_crc import masked_crc
from rmqtool.store.source import FileSource
from tests.commands.transcripts import Ran, rmqtool
from tests.store_state import assert_store_unchanged

NAME = "00000000000000000000"


def record(
    body: bytes = b"x",
    topic: bytes = b"T",
    properties: bytes = b"",
    *,
    at: int = 0,
    sys_flag: int = 0,
    stored_ms: int = 1_700_000_000_001,
) -> bytes:
    """A message record as a broker writes it."""
    born_host, store_host = (
        {"address": b"\x0a\0\0\1" * (4 if sys_flag & bit else 1), "port": 10911}
        for bit in (system_flag.BORN_HOST_V6, system_flag.STORE_HOST_V6)
    )
    fields = {
        "size": 0, "magic": commitlog.MAGIC_V1, "body_crc": masked_crc(body) if body else 0, "queue_id": 1, "flag": 0,
        "queue_offset": 7, "physical_offset": at, "sys_flag": sys_flag, "born_timestamp_ms": 1_700_000_000_000,
        "born_host": born_host, "store_timestamp_ms": stored_ms, "store_host": store_host, "reconsume_times": 0,
        "prepared_transaction_offset": 0, "body": body, "topic": topic, "properties": properties,
    }  # fmt: skip
    magic = commitlog.MAGIC_V1
    if len(topic) > 127:
        magic = fields["magic"] = commitlog.MAGIC_V2
    raw = bytearray(commitlog.message_variant(magic, sys_flag).build(fields))
    raw[:4] = len(raw).to_bytes(4, "big")
    return bytes(raw)


def log_file(folder: Path, *records: bytes, tail: int = 4096) -> Path:
    path = folder / "commitlog" / NAME
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(records) + bytes(tail))
    return path


def dumped(path: Path, *options: str) -> tuple[Ran, list[dict[str, Any]]]:
    with assert_store_unchanged(path):
        ran = rmqtool("dump", path, "--format", "jsonl", *options)
    assert "Traceback" not in ran.err
    assert "internal error" not in ran.err
    return ran, [json.loads(line) for line in ran.out.splitlines()]


def is_safe(text: str) -> bool:
    """Whether a terminal shows the text as it stands."""
    return all(line.isprintable() for line in text.splitlines())


def one_clear_line(ran: Ran, code: int) -> str:
    assert ran.code == code
    assert ran.out == ""
    assert ran.err.startswith("rmqtool: ")
    assert ran.err.count("\n") == 1
    return ran.err


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    assert "no such file" in one_clear_line(rmqtool("dump", tmp_path / "none"), 4)
    assert "no such file" in one_clear_line(rmqtool("dump", str(tmp_path / "a\x1b[2J")), 4)


def test_an_empty_directory_and_one_of_something_else(tmp_path: Path) -> None:
    assert "not a RocketMQ store" in one_clear_line(rmqtool("dump", tmp_path), 4)
    (tmp_path / "base").mkdir()
    (tmp_path / "PG_VERSION").write_text("16\n")
    (tmp_path / "base" / "1").write_bytes(bytes(8192))
    assert "not a RocketMQ store" in one_clear_line(rmqtool("dump", tmp_path), 4)


def test_an_empty_commitlog_directory_holds_no_file_of_a_broker(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert "no broker file" in one_clear_line(rmqtool("dump", tmp_path / "commitlog"), 4)
    ran, rows = dumped(tmp_path)
    assert (ran.code, rows) == (0, [])


def test_a_directory_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path) -> None:
        raise UnreadableError(f"{path}: permission denied")

    monkeypatch.setattr(target, "open_directory", refused)
    (tmp_path / "commitlog").mkdir()
    assert "permission denied" in one_clear_line(rmqtool("dump", tmp_path / "commitlog"), 4)


def test_a_log_file_that_may_not_be_read_is_a_bad_range_and_exit_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_file(tmp_path, record())
    second = tmp_path / "commitlog" / f"{4192:020d}"
    second.write_bytes(record(at=4192) + bytes(100))
    real = FileSource.open.__func__  # type: ignore[attr-defined]

    def refused(cls: type[FileSource], path: Path | str, name: str | None = None) -> FileSource:
        if Path(path).name == NAME:
            raise UnreadableError(f"{NAME}: permission denied")
        found: FileSource = real(cls, path, name)
        return found

    monkeypatch.setattr(FileSource, "open", classmethod(refused))
    ran = rmqtool("dump", tmp_path, "--format", "jsonl")
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert ran.code == 4
    assert "permission denied" in ran.err
    assert rows[0]["finding"] == "commitlog.unreadable-range"
    assert rows[1]["physical_offset"] == 4192


def test_a_fifo_and_a_circle_of_links(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in one_clear_line(rmqtool("dump", tmp_path / "pipe"), 4)
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert "symbolic links" in one_clear_line(rmqtool("dump", tmp_path / "a"), 4)
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "commitlog" / NAME)
    ran = dumped(tmp_path)[0]
    assert (ran.code, f"commitlog/{NAME}: a FIFO, not a regular file" in ran.err) == (4, True)


@pytest.mark.parametrize("content", [b"", bytes(100_000)], ids=["empty", "zeros"])
def test_a_log_of_nothing_has_no_rows(tmp_path: Path, content: bytes) -> None:
    path = log_file(tmp_path, content, tail=0)
    for place in (tmp_path, path.parent, path):
        ran, rows = dumped(place)
        assert (ran.code, rows) == (0, [])


@pytest.mark.parametrize("content", [b"", bytes(5000), random.Random(1).randbytes(5000)], ids=["empty", "0", "random"])
def test_a_file_that_nothing_tells_what_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "thing.bin"
    path.write_bytes(content)
    assert "--type" in one_clear_line(rmqtool("dump", path), 4)
    for kind in ("commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "checkpoint", "config"):
        ran, _ = dumped(path, "--type", kind)
        assert ran.code in (0, 3, 4)


def test_random_bytes_in_a_log_are_one_bad_range(tmp_path: Path) -> None:
    ran, rows = dumped(log_file(tmp_path, random.Random(2).randbytes(9000)))
    assert ran.code == 3
    assert [(row["type"], row["physical_offset"]) for row in rows] == [("bad", 0)]


def test_every_truncation_of_a_log_file(tmp_path: Path) -> None:
    whole = record(b"first", properties=b"KEYS\x01k\x02")
    whole += record(b"second", at=len(whole))
    path = log_file(tmp_path, whole, tail=0)
    for length in range(len(whole)):
        os.truncate(path, length)
        ran, rows = dumped(path)
        assert ran.code in (0, 3)
        assert sum(row["size"] for row in rows) <= length
        path.write_bytes(whole)


def test_an_unknown_magic_and_a_length_of_two_gigabytes(tmp_path: Path) -> None:
    first, third = record(), record(at=2 * len(record()))
    unknown = bytearray(record(at=len(first)))
    unknown[4:8] = b"\x11\x22\x33\x44"
    ran, rows = dumped(log_file(tmp_path / "magic", first, bytes(unknown), third))
    assert [row["type"] for row in rows] == ["message", "bad", "message"]
    assert (ran.code, rows[1]["finding"]) == (3, "commitlog.bad-magic")
    huge = bytearray(record(at=len(first)))
    huge[:4] = b"\x7f\xff\xff\xff"
    ran, rows = dumped(log_file(tmp_path / "size", first, bytes(huge), third))
    assert [row["type"] for row in rows] == ["message", "bad", "message"]
    assert (ran.code, rows[1]["finding"]) == (3, "commitlog.bad-size")


@pytest.mark.parametrize(
    "topic",
    [
        b"../../etc/passwd",
        b"\x1b]0;evil\x07\x1b[2J",
        b"a\nb\r\x00\x9b",
        "\u202egnp.exe\u2066".encode(),
        b"t" * 255,
        b"\xff\xfe",
    ],
    ids=["path", "terminal", "control", "bidi", "long", "no-text"],
)
def test_a_hostile_topic_is_text_and_nothing_else(tmp_path: Path, topic: bytes) -> None:
    evil = b"KEYS\x01\x1b[31mred\x02TAGS\x01\xe2\x80\xaetag\x02"
    store = log_file(tmp_path, record(topic, topic, evil)).parent.parent
    for options in (["--format", "table"], ["--format", "csv"], ["--format", "json"], ["--body", "text"], ["--hex"]):
        ran = rmqtool("dump", store, *options)
        assert ran.code == 0
        assert is_safe(ran.out)
    _, rows = dumped(store, "--body", "base64")
    assert rows[0]["topic"] == topic.decode("utf-8", "replace")
    assert base64.b64decode(rows[0]["body"]) == topic


def lz4_bomb(size: int) -> bytes:
    import lz4.frame

    return bytes(lz4.frame.compress(bytes(size)))


def zstd_bomb(size: int) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(bytes(size))


@pytest.mark.parametrize(
    ("sys_flag", "compress"),
    [(0x001, lambda size: zlib.compress(bytes(size))), (0x101, lz4_bomb), (0x201, zstd_bomb)],
    ids=["zlib", "lz4", "zstd"],
)
def test_a_compressed_body_is_shown_up_to_the_limit(tmp_path: Path, sys_flag: int, compress: Any) -> None:
    bomb = compress(64 << 20)
    small = compress(1000)
    first = record(bomb, sys_flag=sys_flag)
    cut = record(small[:-6], at=len(first), sys_flag=sys_flag)
    whole = record(small, at=len(first) + len(cut), sys_flag=sys_flag)
    lie = record(b"not compressed", at=len(first) + len(cut) + len(whole), sys_flag=sys_flag)
    _, rows = dumped(log_file(tmp_path, first, cut, whole, lie), "--body", "hex", "--body-limit", "1000")
    assert [row["body_truncated"] for row in rows] == [True, False, False, False]
    assert [row["body"] for row in rows] == ["00" * 1000, None, "00" * 1000, None]
    assert [row["body_error"] is None for row in rows] == [True, False, True, False]
    _, rows = dumped(tmp_path, "--raw", "--limit", "1")
    assert base64.b64decode(rows[0]["body"]) == bomb


def test_a_deeply_nested_or_lying_json_body_is_not_shown_as_json(tmp_path: Path) -> None:
    bodies = [b"[" * 100_000, b"NaN", b'{"a": 1', b"\xff", b'{"a": [1, null, "\\u001b"]}', b"9" * 5000]
    records: list[bytes] = []
    for body in bodies:
        records.append(record(body, at=sum(map(len, records))))
    store = log_file(tmp_path, *records).parent.parent
    _, rows = dumped(store, "--body", "json")
    assert [row["body"] for row in rows] == [None, None, None, None, {"a": [1, None, "\x1b"]}, None]
    assert is_safe(rmqtool("dump", store, "--body", "json").out)


@pytest.mark.parametrize(
    "content", [b"{broken", b"", b"\xff\xfe", b"[" * 100_000], ids=["cut", "empty", "bytes", "deep"]
)
def test_a_broken_configuration_is_a_bad_row(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config" / "topics.json"
    path.parent.mkdir()
    path.write_bytes(content)
    ran, rows = dumped(path)
    assert ran.code == 4
    assert rows[0]["finding"] == "config.unreadable"


def test_lying_units_are_shown_and_bounded(tmp_path: Path) -> None:
    queue = tmp_path / "consumequeue" / "T" / "0"
    queue.mkdir(parents=True)
    unit = (-1).to_bytes(8, "big", signed=True) + b"\x7f\xff\xff\xff" + b"\x80" + bytes(7)
    (queue / NAME).write_bytes(unit + bytes(40) + unit + b"odd")
    ran, rows = dumped(queue)
    assert ran.code == 3
    assert [row["type"] for row in rows] == ["unit", "bad", "unit", "bad"]
    assert [row["finding"] for row in rows if row["type"] == "bad"] == [
        "consumequeue.gap",
        "consumequeue.wrong-file-size",
    ]
    extension = tmp_path / "consumequeue_ext" / "T" / "0"
    extension.mkdir(parents=True)
    (extension / NAME).write_bytes(b"\x7f\xff" + bytes(30) + b"x")
    ran, rows = dumped(extension)
    assert (ran.code, rows[0]["finding"]) == (3, "consumequeue.bad-extension")


def test_an_index_that_lies_about_its_entries(tmp_path: Path) -> None:
    path = tmp_path / "index" / "20240101000000000"
    path.parent.mkdir()
    path.write_bytes(bytes(36) + b"\x7f\xff\xff\xff" + bytes(400 + 200 * 20))
    ran, rows = dumped(path, "--index-slots", "100")
    assert ran.code == 3
    assert rows[0]["type"] == "header"
    assert rows[-1]["finding"] == "index.bad-header"
    path.write_bytes(b"short")
    ran, rows = dumped(path)
    assert (ran.code, rows[0]["finding"]) == (3, "index.bad-header")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("consumequeue/CURRENT", "RocksDB"),
        ("rocksdbstore/000001.sst", "RocksDB"),
        ("tiered_index_file/x", "tiered"),
        ("lock", "lock"),
    ],
)
def test_what_is_not_decoded_is_named(tmp_path: Path, name: str, says: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"anything")
    assert says in one_clear_line(rmqtool("dump", path), 4)
