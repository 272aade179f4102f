"""The column `body_decoded` is what `dump` decompresses, within limits for a body and for a batch."""

from __future__ import annotations

import base64
import json
import zlib

import lz4.frame
import pyarrow as pa
import pytest
import zstandard

import rmqtool
from rmqtool.formats import system_flag
from rmqtool.pipeline.tables import decoded_bodies
from rmqtool.pipeline.tables.decoded_bodies import content_batches, searched_content, whole_content
from tests.commands.transcripts import rmqtool as command
from tests.conftest import Unpacked

ZLIB, LZ4, ZSTD = (system_flag.COMPRESSED | kind for kind in (0, 0x100, 0x200))
BODIES = "5.5.0-bodies"


def test_decoded_bodies_are_those_of_dump(golden: Unpacked) -> None:
    words = ("dump", golden(BODIES), "--format", "jsonl", "--body", "base64", "--body-limit", 1 << 24)
    rows = [json.loads(line) for line in command(*words).out.splitlines()]
    expected = {
        row["physical_offset"]: None if row["body"] is None else base64.b64decode(row["body"])
        for row in rows
        if row["type"] == "message"
    }
    assert None in expected.values(), "one that is not what its flags say"
    columns = ["physical_offset", "type", "compression", "body_decoded", "body"]
    table = rmqtool.open(golden(BODIES)).messages(columns)
    messages = [row for row in table.read_all().to_pylist() if row["type"] == "message"]
    assert {row["physical_offset"]: row["body_decoded"] for row in messages} == expected
    assert {row["compression"] for row in messages} >= {None, "zlib", "lz4", "zstd"}
    assert all((row["body"] == row["body_decoded"]) == (row["compression"] is None) for row in messages)


@pytest.mark.parametrize(
    ("flag", "pack"), [(ZLIB, zlib.compress), (LZ4, lz4.frame.compress), (ZSTD, zstandard.ZstdCompressor().compress)]
)
def test_contents_end_at_a_limit(monkeypatch: pytest.MonkeyPatch, flag: int, pack: object) -> None:
    assert callable(pack)
    monkeypatch.setattr(decoded_bodies, "CONTENT_MAX", 1000)
    bodies = [pack(bytes(1000)), pack(bytes(1001)), pack(b"short")[:-3] if flag != LZ4 else pack(b"short")[:7], b"?"]
    [(first, contents)] = content_batches(pa.array(bodies), pa.array([flag] * 4), whole_content)
    assert (first, contents.to_pylist()) == (0, [bytes(1000), None, None, None])
    [(_, searched)] = content_batches(pa.array(bodies), pa.array([flag] * 4), searched_content)
    assert searched.to_pylist() == [bytes(1000), bytes(1000), *bodies[2:]]


def test_a_batch_holds_few_contents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of bodies that are small as stored and large as decompressed; none is lost."""
    monkeypatch.setattr(decoded_bodies, "BATCH_BYTES", 2500)
    packed = zlib.compress(bytes(1000))
    bodies = pa.array([packed, b"plain", packed, packed, None, packed])
    flags = pa.array([ZLIB, 0, ZLIB, ZLIB, None, ZLIB], pa.int32())
    batches = [(first, contents.to_pylist()) for first, contents in content_batches(bodies, flags, whole_content)]
    content = bytes(1000)
    assert batches == [(0, [content, b"plain", content, content]), (4, [None, content])]


def test_a_window_of_small_bodies_makes_bounded_batches(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = ["physical_offset", "size", "topic", "body_decoded", "store_host"]
    whole = list(rmqtool.open(golden(BODIES)).messages(columns))
    monkeypatch.setattr(decoded_bodies, "BATCH_BYTES", 1)
    small = list(rmqtool.open(golden(BODIES)).messages(columns))
    assert len(small) > len(whole)
    assert pa.Table.from_batches(small).to_pylist() == pa.Table.from_batches(whole).to_pylist()
