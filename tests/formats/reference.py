"""Records, batches and keys taken apart by the shortest way: what faster readers and writers are compared with."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from construct import ConstructError, ValidationError

from rmqtool.formats import commitlog
from rmqtool.formats.batch import BATCH_PART, BATCH_PART_SIZE_MIN, BatchPart
from rmqtool.formats.index import key_text, tag_text


def parse_message(record: bytes) -> Any:
    """Parse one whole record into a construct container.

    Raises:
        construct.ConstructError: the bytes are no such record.
    """
    magic = int.from_bytes(record[4:8], "big", signed=True)
    if magic not in (commitlog.MAGIC_V1, commitlog.MAGIC_V2):
        raise ValidationError(f"magic {record[4:8].hex()} is not that of a message")
    at = commitlog.MESSAGE_V1.position("sys_flag")
    sys_flag = int.from_bytes(record[at : at + 4], "big", signed=True)
    return commitlog.message_variant(magic, sys_flag).parse(record)


def split_batch(body: bytes) -> list[BatchPart]:
    """The parts of a batch body.

    Raises:
        ValueError: the bytes are not a run of whole parts.
    """
    parts: list[BatchPart] = []
    stream = io.BytesIO(body)  # slices of what is left would copy a large body over and over
    while (at := stream.tell()) < len(body):
        try:
            part = BATCH_PART.struct.parse_stream(stream)
        except ConstructError as error:
            raise ValueError(f"not a batch part at byte {at}") from error
        length = BATCH_PART_SIZE_MIN + len(part.body) + len(part.properties)
        if part.size != length:
            raise ValueError(f"batch part at byte {at} says {part.size} bytes and has {length}")
        parts.append(BatchPart(part.flag, part.body, part.properties))
    return parts


def key_texts(topic: str, properties: dict[str, str], *, with_tags: bool) -> Iterator[str]:
    """The texts under which a record is entered, in the order of `IndexService#buildIndex`."""
    if unique_key := properties.get("UNIQ_KEY"):
        yield key_text(topic, unique_key)
    yield from (key_text(topic, key) for key in properties.get("KEYS", "").split(" ") if key)
    if with_tags and (tags := properties.get("TAGS")):
        yield tag_text(topic, tags)
