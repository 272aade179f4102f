"""Rows that the compiled writer makes are, byte for byte, those of the plain one, whatever a store holds."""

from __future__ import annotations

import io
import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtool.dump import json_rows
from rmqtool.dump.log import LogDump
from rmqtool.dump.request import Request, fields_of_kind
from rmqtool.dump.target import DumpKind, TargetOptions, find_target
from rmqtool.engine.rules.versions import NEWEST
from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.report.bodies import BodyChoice, BodyForm
from rmqtool.report.rows import RowBlock
from rmqtool.report.writers import row_writer
from rmqtool.store.location import StoreLocation
from tests.dump.test_hostile import log_file, record
from tests.golden_stores import unpack

SPECIAL = [
    *(bytes([code]) for code in range(256)),
    *("é", "世界", "\u3000", "\u200b", "\u202e", "\ufffd", "\uffff", "😀", "\U0001ffff", "\U00020000", "\U0010ffff"),
    b"\xed\xa0\x80", b"\xed\xa0", b"\xc0\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xe4\xb8",
    b"\xf0\x9f\x98", b'"', b"\\", b"\r\n", b'{"a": "b"}, {', b"a b  c ", b" ", b"name\x01value\x02", b"TAGS\x01",
    b"TAGS\x01t\x02", b"KEYS\x01k j\x02", b"UNIQ_KEY\x01u\x02", b"\x02\x02", b"\x01\x01", b"plain text of some length",
]  # fmt: skip
BODIES = [
    BodyChoice(),
    BodyChoice(raw=True),
    BodyChoice(BodyForm.TEXT),
    BodyChoice(BodyForm.TEXT, limit=20),
    BodyChoice(BodyForm.BASE64),
    BodyChoice(BodyForm.HEX, raw=True),
    BodyChoice(BodyForm.REDACTED),
    BodyChoice(BodyForm.JSON),
]


def texts(chance: random.Random) -> Iterator[bytes]:
    """Bytes of which some are special, at any place."""
    while True:
        parts = [chance.choice(SPECIAL) for _ in range(chance.randrange(4))]
        raw = [part if isinstance(part, bytes) else part.encode() for part in parts]
        raw.insert(chance.randrange(len(raw) + 1), b"x" * chance.randrange(80))
        yield b"".join(raw)


def plain_block(number: int) -> bytes:
    return b"KEYS\x01order-%d more\x02TAGS\x01T%d\x02UNIQ_KEY\x01u%d\x02CLUSTER\x01" % (number, number % 3, number)


def hostile_records(count: int) -> Iterator[bytes]:
    """Messages with anything in their texts, of all kinds."""
    chance = random.Random(7)
    text = texts(chance)
    at = 0
    for number in range(count):
        topic = next(text)[:100] if number % 3 == 0 else b"Topic%d" % (number % 5)
        block = next(text) if number % 2 else plain_block(number) + next(text)
        if number % 17 == 0:
            block = plain_block(number) + b"\x02TAGS\x01again\x02" + next(text)
        if number % 51 == 0:
            block = b"".join(b"name%d\x01%d\x02" % (part, number) for part in range(70))
        body, flag = next(text), chance.choice((0, 0, 0x4, 0x8, 0xC))
        if number % 7 == 0:
            body, flag = zlib.compress(body), flag | system_flag.COMPRESSED
        if number % 11 == 0:
            flag |= chance.choice((system_flag.BORN_HOST_V6, system_flag.STORE_HOST_V6))
        raw = bytearray(record(body, topic or b"T", block, at=at, sys_flag=flag))
        if number % 13 == 0:
            place = commitlog.MESSAGE_V1.position("prepared_transaction_offset")
            raw[place : place + 8] = (TOMBSTONE if number % 2 else -number).to_bytes(8, "big", signed=True)
        yield bytes(raw)
        at += len(raw)


def written(
    store: Path, body: BodyChoice, *, compiled: bool, form: str = "jsonl", fields: list[str] | None = None,
    encoding: str = "utf-8", **asked: Any,
) -> bytes:  # fmt: skip
    """What the writer of a form makes of a store's log."""
    target = find_target(StoreLocation(store), TargetOptions())
    dump = LogDump(target, Request(body=body, broker_version=NEWEST, **asked), compiled=compiled)
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace", newline="")
    writer = row_writer(form, stream, fields_of_kind(DumpKind.COMMITLOG, body), fields)
    for rows in dump.rows():
        if isinstance(rows, RowBlock):
            writer.write_block(rows)
        elif rows is not None:
            writer.write(rows)
    writer.close()
    stream.flush()
    return raw.getvalue()


@pytest.fixture(scope="module")
def hostile_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return log_file(tmp_path_factory.mktemp("hostile"), *hostile_records(1500))


@pytest.mark.parametrize("body", BODIES, ids=lambda body: f"{body.form}-{body.limit}-{body.raw}")
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_hostile_messages_are_written_alike(hostile_log: Path, body: BodyChoice, encoding: str) -> None:
    outputs = [written(hostile_log, body, compiled=compiled, encoding=encoding) for compiled in (False, True)]
    assert outputs[0].count(b"\n") == 1500
    assert outputs[0].splitlines() == outputs[1].splitlines()
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("form", ["json", "jsonl"])
@pytest.mark.parametrize(
    "fields", [["body", "topic", "keys", "type"], ["type", "finding"], ["properties_raw"], ["size"]]
)
def test_chosen_fields_are_written_alike(hostile_log: Path, form: str, fields: list[str]) -> None:
    plain, compiled = (
        written(hostile_log, BodyChoice(BodyForm.TEXT, raw=True), compiled=compiled, form=form, fields=fields)
        for compiled in (False, True)
    )
    assert plain == compiled


@pytest.mark.parametrize("asked", [{"reverse": True}, {"limit": 777, "from_offset": 1}, {"tag": "T1"}, {"stale": True}])
def test_the_same_rows_are_written_alike(hostile_log: Path, asked: dict[str, Any]) -> None:
    plain, compiled = (written(hostile_log, BodyChoice(), compiled=compiled, **asked) for compiled in (False, True))
    assert plain == compiled
    assert len(plain.splitlines()) >= 100


def test_text_that_does_not_fit_at_once_is_written_in_parts(hostile_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that might not fit even alone is left to the plain writer."""
    plain = written(hostile_log, BodyChoice(BodyForm.TEXT), compiled=False)
    for out_bytes in (3000, 5000, 20_000):
        monkeypatch.setattr(json_rows, "OUT_BYTES", out_bytes)
        assert written(hostile_log, BodyChoice(BodyForm.TEXT), compiled=True) == plain


def test_plain_messages_are_not_left_to_the_plain_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[bytes] = []
    for number in range(40):
        text = f'"{number}"\n世界 \u200b'.encode()
        records.append(record(text, b"Topic", plain_block(number) + text, at=sum(map(len, records))))
    log = log_file(tmp_path, *records)
    monkeypatch.delattr(json_rows.JsonRows, "_with_left_rows")
    body = BodyChoice(BodyForm.TEXT, raw=True)
    assert written(log, body, compiled=True) == written(log, body, compiled=False)


@pytest.mark.parametrize("name", ["5.5.0-bodies", "4.9.7-damage-flip-body-middle-file", "5.5.0-ipv6"])
def test_golden_stores_are_written_alike(name: str, tmp_path: Path) -> None:
    store = unpack(name, tmp_path)
    for body in BODIES:
        assert written(store, body, compiled=True, stale=True) == written(store, body, compiled=False, stale=True)
