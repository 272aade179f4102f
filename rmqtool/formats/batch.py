"""The body of a batch as a client sends it, which an inner batch keeps as one record.

Broker: `MessageDecoder#encodeMessages`, `MessageDecoder#decodeMessages`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from construct import Bytes, Int16sb, Int32sb, Rebuild, Struct

from rmqtool.formats.layout import Format

BATCH_PART: Final = Format(
    "batch-part",
    "Part of a batch body",
    "MessageDecoder#encodeMessage",
    Struct(
        "size"
        / Rebuild(Int32sb, lambda context: BATCH_PART_SIZE_MIN + len(context.body) + len(context.properties))
        * "bytes of this part",
        "magic" / Int32sb * "0",
        "body_crc" / Int32sb * "0; the broker computes its own",
        "flag" / Int32sb * "the application's own value",
        "body_length" / Rebuild(Int32sb, lambda context: len(context.body)) * "bytes of the body",
        "body" / Bytes(lambda context: max(0, context.body_length)) * "as sent",
        "properties_length" / Rebuild(Int16sb, lambda context: len(context.properties)) * "bytes of the properties",
        "properties" / Bytes(lambda context: max(0, context.properties_length)) * "the client's own encoding",
    ),
    "Parts follow each other without anything between.",
)
BATCH_PART_SIZE_MIN: Final = 22


@dataclass(frozen=True)
class BatchPart:
    """One message of a batch."""

    flag: int
    body: bytes
    properties: bytes


def join_batch(parts: list[BatchPart]) -> bytes:
    """The batch body of these parts."""
    return b"".join(BATCH_PART.struct.build({"magic": 0, "body_crc": 0, **vars(part)}) for part in parts)
