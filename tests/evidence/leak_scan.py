"""Looks in a bundle for what customers wrote into its store, by bytes: rmqtool's redaction is not asked what it did."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import zstandard

from rmqtool.evidence.bundle import BundleManifest
from rmqtool.evidence.redact_record import KNOWN_PROPERTIES as PROPERTIES
from rmqtool.report.screens.evidence_screen import README
from tests.commands.transcripts import rmqtool

WINDOW = 10
"""Bytes of text from which it cannot be in a bundle by chance."""
RUN = re.compile(rb"[\x21-\x7e\x80-\xff]{%d,}" % WINDOW)
NUMBERS = re.compile(rb"[\d.,:+-]+\Z")
KEPT_VALUES = ("PGROUP", "REAL_TOPIC", "RETRY_TOPIC", "INNER_MULTI_DISPATCH", "__LITE_TOPIC", "POP_CK")
BROKERS_OWN = ("rmq_sys_", "RMQ_SYS_", "SCHEDULE_TOPIC_XXXX")
CHUNK = 1 << 20


def leaks(store: Path, bundle: Path) -> list[bytes]:
    """Texts of the store's messages that are in the bundle."""
    dump = rmqtool("dump", store, "--format", "jsonl", "--stale", "--body", "text").out
    rows = [json.loads(line) for line in dump.splitlines()]
    allowed = b"\0".join(text.encode() for text in allowed_texts(store, rows))
    texts = set[bytes]()
    for path in sorted(store.rglob("commitlog/[0-9]*")):
        for run in runs_of(path):
            texts |= windows(run)
    values = {value for row in rows for value in customer_values(row)}
    seen = set[bytes]()
    for content in contents(bundle):
        for run in RUN.findall(content):
            seen |= windows(run) & texts
        values_seen = {value for value in values if value in content}
        seen |= values_seen
    return sorted(text for text in seen if not NUMBERS.match(text) and not any(map(allowed.__contains__, cores(text))))


def cores(text: bytes) -> Iterator[bytes]:
    """A text without what may be a length before it or the start of something else after it."""
    yield text
    if len(text) == WINDOW:
        yield from (text[1:], text[2:], text[3:], text[:-1], text[:-2], text[1:-1])


def allowed_texts(store: Path, rows: list[dict[str, object]]) -> Iterator[str]:
    """Names of topics and groups, and of RocketMQ's properties."""
    yield README
    yield from (field.name for field in fields(BundleManifest))
    yield from (name.decode() for name in PROPERTIES)
    yield from (path.name for path in store.glob("*/*") if path.is_dir())
    for path in store.glob("config/*.json*"):
        yield from re.findall(r"[%|\w.$@-]+", path.read_text("utf-8", "replace"))
    for row in rows:
        yield str(row.get("topic"))
        values = row.get("properties")
        if isinstance(values, dict):
            yield from (values[name] for name in KEPT_VALUES if name in values)
        if str(row.get("topic")).startswith(BROKERS_OWN):
            topic = str(row["topic"])
            yield f"{row['body']}{chr(len(topic))}{topic} {json.dumps(values)}"


def customer_values(row: dict[str, object]) -> Iterator[bytes]:
    """Keys, tags and values of properties as they are in a record; names of properties that are not RocketMQ's."""
    values = row.get("properties")
    if not isinstance(values, dict) or str(row["topic"]).startswith(BROKERS_OWN):
        return
    for name, value in values.items():
        is_known = name.encode() in PROPERTIES
        if not is_known and len(name) > 2:  # shorter ones are there by chance
            yield b"\x02" + name.encode() + b"\x01"
        if name in ("KEYS", "TAGS", "UNIQ_KEY") or not is_known:
            for text in value.split() if name == "KEYS" else [value]:
                if len(text) > 4:  # few texts have the hash of a shorter one, such as AaAa and BBBB
                    yield name.encode() + b"\x01" + text.encode() + b"\x02"


def windows(run: bytes) -> set[bytes]:
    return {run[at : at + WINDOW] for at in range(len(run) - WINDOW + 1) if len(set(run[at : at + WINDOW])) > 2}


def runs_of(path: Path) -> Iterator[bytes]:
    """Texts of a file, which may have large holes."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            if any(chunk):
                yield from RUN.findall(chunk)


def contents(bundle: Path) -> Iterator[bytes]:
    """The members of a bundle without holes, as it is unpacked by anybody."""
    with (
        bundle.open("rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file) as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        for member in archive:
            yield member.name.encode()
            content = archive.extractfile(member)
            assert content is not None
            kept = b""
            while chunk := content.read(CHUNK):
                if any(chunk):
                    yield kept + chunk
                kept = chunk[-300:]
