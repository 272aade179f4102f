"""Which changed bytes of the log nobody can see: no checksum covers them and no other file repeats them."""

import struct

from tests.judge.bases import KILLED_BEFORE_DISPATCH, Truth
from tests.judge.intact import log_content
from tests.judge.target import Target, record_fields

UNJUDGED = ("flag", "sys-flag", "born-time", "born-host", "store-time", "store-host", "reconsume-times",
            "prepared-offset", "properties")  # fmt: skip
IN_NO_QUEUE = ("topic", "queue-id", "queue-offset")
"""Of a half message or rollback, which is in no queue."""
BLANK_HEADER = 8


def judged_ranges(target: Target) -> dict[int, list[tuple[int, int]]]:
    """The ranges of each file's bytes that are judged, by the file's first offset: of the undamaged base."""
    size = target.base.plan.log_file_size
    content = log_content(target.base.path, target.base.plan.log_directories, log_length(target))
    ranges: dict[int, list[tuple[int, int]]] = {}
    for at, length in target.truth.sizes.items():
        start, position = at - at % size, at % size
        record = content[start][0][position : position + length]
        for low, high in _judged(record, has_crc="crc" in target.base.plan.features):
            ranges.setdefault(start, []).append((position + low, position + high))
    for end in _blanks(target.truth):
        ranges.setdefault(end - end % size, []).append((end % size, end % size + BLANK_HEADER))
    return ranges


def log_now(target: Target) -> dict[int, list[bytes]]:
    """The log's files, up to where the base has records."""
    return log_content(target.path, target.base.plan.log_directories, log_length(target))


def log_length(target: Target) -> int:
    size = target.base.plan.log_file_size
    return min(size, max((at % size + length for at, length in target.truth.sizes.items()), default=0) + BLANK_HEADER)


def is_changed(target: Target, before: dict[int, list[bytes]], after: dict[int, list[bytes]]) -> bool:
    """Whether a byte of the log changed that is judged."""
    for start, ranges in judged_ranges(target).items():
        old, new = before.get(start, [b""])[0], after.get(start, [b""])[0]
        if old != new and any(old[low:high] != new[low:high] for low, high in ranges):
            return True
    return False


def is_early_end(target: Target, before: dict[int, list[bytes]], after: dict[int, list[bytes]]) -> bool:
    """Whether nothing is left behind the first change, in a log that no queue knew the end of."""
    if target.base.plan.runs[-1][1] != KILLED_BEFORE_DISPATCH or before.keys() != after.keys():
        return False
    end = max(target.truth.sizes, default=0)
    last = end - end % target.base.plan.log_file_size
    if last not in before or any(before[start] != after[start] for start in before if start != last):
        return False
    old, new = before[last][0], after[last][0]
    position = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), None)
    if position is None:
        return False
    record = max((at - last for at in target.truth.sizes if last <= at <= last + position), default=position)
    return not new[record:].strip(b"\0")


def _judged(record: bytes, *, has_crc: bool) -> list[tuple[int, int]]:
    if has_crc:
        return [(0, len(record))]
    unjudged = set(UNJUDGED)
    fields = record_fields(record)
    (flags,) = struct.unpack_from(">i", record, 36)
    if flags & 0xC in {4, 0xC}:
        unjudged.update(IN_NO_QUEUE)
    if "body" not in fields:
        unjudged.add("body-crc")
    return [(at, at + width) for name, (at, width) in fields.items() if name not in unjudged]


def _blanks(truth: Truth) -> list[int]:
    ends = [at + size for at, size in truth.sizes.items()]
    last = max(ends, default=0)
    return [end for end in ends if end not in truth.sizes and end != last]
