"""Damaged records that are kept: where the bytes prove what they were, or a person wants them as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

from rmqtool.engine.reading.record import Record
from rmqtool.errors import UnreadableError
from rmqtool.formats import commitlog
from rmqtool.formats.record_crc import (
    CRC_MASK,
    PROPERTY_SIZE,
    is_record_crc_lost,
    masked_crc,
    record_crc_matches,
    record_crc_property,
    stored_record_crc,
)
from rmqtool.store.source import ByteSource, read_range
from rmqtool.verify.match.flipped_bit import flipped_bits

MENDED_MAX: Final = 64 << 20
"""Bytes of a record that is repaired; no broker takes a message anywhere near as long."""


class RepairedRecord(Enum):
    """How a record was kept; the value stands in JSON."""

    FRAME = "frame"
    """Size or magic were wrong; lengths, CRC and own offset prove what they were."""
    OWN_OFFSET = "own-offset"
    HEAD = "head"
    """A field that no checksum covers and that the queue contradicts."""
    FLIPPED_BIT = "flipped-bit"
    AS_IS = "as-is"
    """A damaged body under an intact header, with a new CRC."""


NEEDS_CONSENT: Final = frozenset({RepairedRecord.FLIPPED_BIT, RepairedRecord.AS_IS})
"""What is not done unless a person asks for it."""


def possible_repairs(
    source: ByteSource, file_position: int, physical_offset: int, head: Record, *, record_crc: bool
) -> Iterator[tuple[RepairedRecord, bytes]]:
    """The ways in which a damaged record could be kept, the surest first, each with the record's bytes then.

    Args:
        head: of a record all of whose lengths agree.
        record_crc: whether the store writes whole-record CRCs.
    """
    if head.size > MENDED_MAX:
        return
    try:
        raw = read_range(source, file_position, head.size)
        body_is_right = head.body_crc_ok
    except UnreadableError:
        return
    if len(raw) < head.size:
        return
    has_crc = record_crc and (stored_record_crc(raw) is not None or is_record_crc_lost(raw))
    if not body_is_right:
        yield from _with_another_body(raw, head, has_crc=has_crc)
        return
    repaired = with_fields(raw, {"physical_offset": physical_offset})
    if repaired != raw and (not has_crc or record_crc_matches(repaired)):
        yield RepairedRecord.OWN_OFFSET, repaired
    elif has_crc:
        yield RepairedRecord.AS_IS, with_record_crc(repaired)


def with_fields(record: bytes, values: Mapping[str, int]) -> bytes:
    """A record with other values in fixed fields of its header; checksums stay as they are."""
    changed = bytearray(record)
    for field in commitlog.MESSAGE_V1.fixed_fields:
        if field.name in values and field.position is not None and field.size is not None:
            end = field.position + field.size
            changed[field.position : end] = values[field.name].to_bytes(field.size, "big", signed=True)
    return bytes(changed)


def with_record_crc(record: bytes) -> bytes:
    """A record whose whole-record CRC, which it carries, is computed again."""
    rest = record[:-PROPERTY_SIZE]
    return rest + record_crc_property(rest)


def _with_another_body(raw: bytes, head: Record, *, has_crc: bool) -> Iterator[tuple[RepairedRecord, bytes]]:
    body = raw[head.body_position : head.body_position + head.body_length]
    candidate_bits = flipped_bits(head.body_crc & CRC_MASK, masked_crc(body), head.body_length)
    kept = with_fields(raw, {"body_crc": masked_crc(body)})
    if head.body_crc & CRC_MASK == masked_crc(body):
        # The top bit, which a broker never sets (`UtilAll#crc32`).
        yield RepairedRecord.FLIPPED_BIT, kept
    elif len(candidate_bits) == 1:
        repaired = bytearray(raw)
        if candidate_bits[0].byte >= 0:
            repaired[head.body_position + candidate_bits[0].byte] ^= 1 << candidate_bits[0].bit
        unflipped = bytes(repaired) if candidate_bits[0].byte >= 0 else kept
        if not has_crc or record_crc_matches(unflipped):
            yield RepairedRecord.FLIPPED_BIT, unflipped
    yield RepairedRecord.AS_IS, with_record_crc(kept) if has_crc else kept
