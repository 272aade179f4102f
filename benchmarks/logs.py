"""Generated logs for benchmarks: real records of one body length, in files of one size."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

from rmqtool.formats import commitlog
from rmqtool.formats.properties import SCHEDULE_TOPIC
from rmqtool.formats.record_crc import masked_crc
from rmqtool.scan.log import LogFile
from rmqtool.store.source import FileSource

HEAD = Struct(">iiiiiqqiqqqqiqi")
"""The fields in front of the body, hosts as one number each."""
LOCALHOST = 0x7F000001 << 32 | 10911
STORE_TIMESTAMP_MS = 1_700_000_000_000
TEXT = os.urandom(1 << 20)


def record(
    number: int, body_length: int, physical_offset: int, *, content: bytes = TEXT, is_delayed: bool = False
) -> bytes:
    """A record as a broker writes it for a producer that sets keys and tags.

    Args:
        content: what bodies are cut out of.
        is_delayed: whether it waits in the topic of delayed messages.
    """
    at = number * 97 % (len(content) - body_length)
    body = content[at : at + body_length]
    topic = SCHEDULE_TOPIC.encode() if is_delayed else b"TopicTest%d" % (number % 4)
    properties = b"\x02".join(
        (
            b"KEYS\x01order-%08d" % number,
            b"UNIQ_KEY\x017F0000010000%020d" % number,
            b"TAGS\x01Tag%d" % (number % 7),
            b"CLUSTER\x01DefaultCluster\x02",
        )
    )
    if is_delayed:
        properties += b"DELAY\x013\x02REAL_TOPIC\x01TopicTest%d\x02" % (number % 4)
    size = HEAD.size + len(body) + 1 + len(topic) + 2 + len(properties)
    head = HEAD.pack(
        size, commitlog.MAGIC_V1, masked_crc(body), number % 8, 0, number // 8, physical_offset, 0,
        STORE_TIMESTAMP_MS + number, LOCALHOST, STORE_TIMESTAMP_MS + number, LOCALHOST, 0, 0, len(body),
    )  # fmt: skip
    return b"".join((head, body, bytes([len(topic)]), topic, len(properties).to_bytes(2, "big"), properties))


def blank(size: int) -> bytes:
    """The blank that ends a file; only its first 8 bytes are written."""
    return size.to_bytes(4, "big") + commitlog.MAGIC_BYTES[commitlog.MAGIC_BLANK]


def write_log(
    folder: Path,
    file_count: int,
    file_size: int,
    body_length: int,
    *,
    records_per_file: int | None = None,
    content: bytes = TEXT,
    is_delayed: bool = False,
) -> int:
    """Write the files of a log below `folder`, each ended by a blank; what is not written is a hole.

    Args:
        records_per_file: how many; None fills each file.
        content, is_delayed: as in `record`.

    Returns:
        The number of records.
    """
    folder.mkdir(parents=True, exist_ok=True)
    number = 0
    for physical_offset in range(0, file_count * file_size, file_size):
        with (folder / f"{physical_offset:020d}").open("wb") as file:
            at, first = 0, number
            while records_per_file is None or number - first < records_per_file:
                raw = record(number, body_length, physical_offset + at, content=content, is_delayed=is_delayed)
                if at + len(raw) + commitlog.BLANK_SIZE_MIN > file_size:
                    break
                file.write(raw)
                at += len(raw)
                number += 1
            file.write(blank(file_size - at))
            file.truncate(file_size)
    return number


def log_files(folder: Path) -> Iterator[LogFile]:
    """The files of a log, in order."""
    for path in sorted(folder.iterdir()):
        yield LogFile(lambda path=path: FileSource.open(path), int(path.name))
