"""Which changed bytes nobody can see: no checksum covers them, and no other file repeats them any more."""

import struct
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

from tests.judge.bases import CLEAN, KILLED_BEFORE_DISPATCH, Truth
from tests.judge.intact import log_content
from tests.judge.target import UNIT, Target, record_fields

UNJUDGED = ("flag", "sys-flag", "born-time", "born-host", "store-time", "store-host", "reconsume-times",
            "prepared-offset", "properties")  # fmt: skip
IN_NO_QUEUE = ("topic", "queue-id", "queue-offset")
"""Of a half message or rollback, which is in no queue."""
BLANK_HEADER = 8
INDEX_HEADER = 40
RECORD_CRC = b"__CRC32#\x01"
RECORD_CRC_SIZE = 20
"""Name, ten digits and an end: the last bytes of a record."""
EXTENSION_END = 1 << 47
"""No address in an extension is as large."""


def judged_ranges(target: Target) -> dict[int, list[tuple[int, int]]]:
    """The ranges of each file's bytes that are judged, by the file's first offset: of the undamaged base."""
    size = target.base.plan.log_file_size
    content = log_before(target)
    ranges: dict[int, list[tuple[int, int]]] = {}
    for at, length in target.truth.sizes.items():
        start, position = at - at % size, at % size
        record = content[start][0][position : position + length]
        for low, high in judged_ranges_of(record, has_crc="crc" in target.base.plan.features):
            ranges.setdefault(start, []).append((position + low, position + high))
    for end in _blanks(target.truth):
        ranges.setdefault(end - end % size, []).append((end % size, end % size + BLANK_HEADER))
    return ranges


def log_now(target: Target) -> dict[int, list[bytes]]:
    """The log's files, up to where the base has records."""
    return log_content(target.path, target.base.plan.log_directories, log_length(target))


def log_before(target: Target) -> dict[int, list[bytes]]:
    """The same of the undamaged base."""
    return log_content(target.base.path, target.base.plan.log_directories, log_length(target))


def log_length(target: Target) -> int:
    size = target.base.plan.log_file_size
    return min(size, max((at % size + length for at, length in target.truth.sizes.items()), default=0) + BLANK_HEADER)


def is_changed(target: Target, before: dict[int, list[bytes]], after: dict[int, list[bytes]]) -> bool:
    """Whether a byte of the log changed that is judged."""
    undamaged = log_before(target)
    for start, ranges in judged_ranges(target).items():
        old, new = (
            _without_negative_lengths(target, start, undamaged[start][0], log.get(start, [b""])[0])
            for log in (before, after)
        )
        if old != new and any(old[low:high] != new[low:high] for low, high in ranges):
            return True
    return False


def is_early_end(target: Target, before: dict[int, list[bytes]], after: dict[int, list[bytes]]) -> bool:
    """Whether nothing is left behind the first change, and no queue and no key knew of a record there.

    A file that is gone is as one of zeros; the first ones may have expired, and all may be gone where the checkpoint
    is one of zeros, as a first start leaves it. After a clean stop the checkpoint has the time of the last record, so
    only records with the time of the one in front of them are known to nothing.
    """
    checkpoint = target.base.path / "checkpoint"
    if not after.keys() <= before.keys() or (not after and checkpoint.exists() and any(checkpoint.read_bytes())):
        return False
    starts = sorted(start for start in before if start >= min(after, default=start))
    pairs = {start: (before[start][0], after.get(start, [bytes(len(before[start][0]))])[0]) for start in starts}
    first = next((start for start in starts if _first_change(*pairs[start]) is not None), None)
    if first is None:
        return False
    position = _first_change(*pairs[first]) or 0
    record = max((at for at in target.truth.sizes if first <= at <= first + position), default=first + position)
    rest = [pairs[first][1][record - first :], *(pairs[start][1] for start in starts if start > first)]
    if target.base.plan.runs[-1][1] == CLEAN and len(_times_around(target, record)) != 1:
        return False
    return not any(content.strip(b"\0") for content in rest) and not _is_known_from(target, record)


def _times_around(target: Target, record: int) -> set[bytes]:
    """Store times of the record in front of an offset and of all later ones; none without one in front."""
    size, content, times = target.base.plan.log_file_size, log_before(target), set()
    in_front = max((at for at in target.truth.sizes if at < record), default=None)
    for at, length in target.truth.sizes.items() if in_front is not None else ():
        if at >= in_front:
            raw = content[at - at % size][0][at % size : at % size + length]
            position, width = record_fields(raw)["store-time"]
            times.add(raw[position : position + width])
    return times


def _first_change(old: bytes, new: bytes) -> int | None:
    return next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), None)


def _is_known_from(target: Target, start: int) -> bool:
    """Whether a queue or a key leads to a record that begins there or later."""
    if target.base.plan.runs[-1][1] == KILLED_BEFORE_DISPATCH:
        return False
    known = {*target.truth.served.values(), *chain.from_iterable(target.truth.keys.values())}
    return any(at >= start for at in known)


def says_nothing(base: Path, store: Path, path: str, intact: set[int], sizes: Mapping[int, int]) -> bool:
    """Whether only such units of a queue file changed that no intact record tells of any more, or nothing that counts.

    Such a unit has another size or tags code; or it points elsewhere between the same two intact records, in the order
    of its queue, or was added there; or it and all later ones of its queue are zeros, as after the last one.
    Nothing that counts: the tags code itself instead of its address in the queue's extension. The only file of a queue
    may also be gone where no record of the queue is intact.
    """
    old, new = base / path, store / path
    if path.startswith("consumequeue/") and old.is_file() and not new.exists():
        return len(list(old.parent.iterdir())) == 1 and not {_offset_of(unit) for unit in _units(old)} & intact
    if not path.startswith("consumequeue/") or not old.is_file() or not new.is_file():
        return False
    codes = _ExtensionCodes(base / path.replace("consumequeue/", "consumequeue_ext/", 1))
    pairs = [
        (before, before if codes.say_the_same(before, after) else after)
        for before, after in zip(_units(old), _units(new), strict=False)
    ]
    if _units(old) != _units(new) and all(before == after for before, after in pairs):
        return True
    changed = [number for number, (before, after) in enumerate(pairs) if before != after]
    if old.stat().st_size != new.stat().st_size or not changed:
        return False
    later = [unit for file in old.parent.iterdir() if file.name > old.name for unit in _units(file)]
    end = [before for before, _ in pairs[changed[0] :]] + later
    if not any(any(after) for _, after in pairs[changed[0] :]):
        return not any(_offset_of(unit) in intact for unit in end if any(unit))
    end_of_log = max((at + size for at, size in sizes.items()), default=0)
    places = [-1, *(_offset_of(after) if any(after) else EXTENSION_END for _, after in pairs), EXTENSION_END + 1]
    return all(
        places[number] < places[number + 1] < places[number + 2]
        and (_is_moved(before, after, intact, sizes) if any(before) else _is_lost(after, intact, sizes, end_of_log))
        for number, (before, after) in enumerate(pairs)
        if before != after
    )


def _is_moved(before: bytes, after: bytes, intact: set[int], sizes: Mapping[int, int]) -> bool:
    gaps = [_gap_of(_offset_of(unit), intact, sizes) for unit in (before, after)]
    return _offset_of(before) not in intact and gaps[0] == gaps[1]


def _is_lost(added: bytes, intact: set[int], sizes: Mapping[int, int], end_of_log: int) -> bool:
    """Whether a unit that was added points to where records are lost, of which one could have been its own."""
    gap = _gap_of(_offset_of(added), intact, sizes)
    low, high = gap or (0, 0)
    high = high if high >= 0 else end_of_log
    return (
        gap is not None
        and _offset_of(added) <= end_of_log
        and any(low < at < high and at not in intact for at in sizes)
    )


def directory_says_nothing(base: Path, store: Path, path: str, intact: set[int], sizes: Mapping[int, int]) -> bool:
    """The same of all files of a directory; one that is gone had units of no intact record."""
    names = {str(file.relative_to(base)) for file in (base / path).rglob("*") if file.is_file()}
    if any(str(file.relative_to(store)) not in names for file in (store / path).rglob("*") if file.is_file()):
        return False
    return all(
        (base / name).read_bytes() == (store / name).read_bytes() or says_nothing(base, store, name, intact, sizes)
        if (store / name).exists()
        else name.startswith("consumequeue/")
        and not {_offset_of(unit) for unit in _units(base / name) if any(unit)} & intact
        for name in names
    )


def extension_says_nothing(base: Path, path: str) -> bool:
    """Whether no unit of the queue has an address in this file of its extension: nobody reads it."""
    file = base / path
    begin = int(file.name)
    queue = (base / path.replace("consumequeue_ext/", "consumequeue/", 1)).parent
    codes = (int.from_bytes(unit[12:], "big", signed=True) for name in queue.iterdir() for unit in _units(name))
    return not any(begin <= code + (1 << 63) < begin + file.stat().st_size for code in codes)


def entries_say_nothing(base: Path, store: Path, intact: set[int], sizes: Mapping[int, int], slots: int) -> bool:
    """Whether only such entries of an index file changed that no intact record tells of any more.

    Such an entry has another time, or points elsewhere between the same two intact records. The order of entries tells
    nothing: brokers enter records once more when they dispatch again. A time in the header is that of the record whose
    offset the header has too.
    """
    if not base.is_file() or not store.is_file() or base.stat().st_size != store.stat().st_size:
        return False
    start = INDEX_HEADER + 4 * slots
    with base.open("rb") as one, store.open("rb") as other:
        head = one.read(start)
        changed_head = other.read(start)
        if _judged_head(head, intact) != _judged_head(changed_head, intact):
            return False
        length = int.from_bytes(head[INDEX_HEADER - 4 : INDEX_HEADER], "big") * UNIT
        pairs = list(zip(_split(one.read(length)), _split(other.read(length)), strict=True))
    changed = [(before, after) for before, after in pairs if before != after]
    return (bool(changed) or head != changed_head) and all(
        before[:4] + before[16:] == after[:4] + after[16:]
        and (old := int.from_bytes(before[4:12], "big")) not in intact
        and _gap_of(old, intact, sizes) == _gap_of(int.from_bytes(after[4:12], "big"), intact, sizes)
        for before, after in changed
    )


def _judged_head(head: bytes, intact: set[int]) -> bytes:
    """An index header and its slots, without the times of first and last record that are not intact.

    Nor does the count of slots in use tell anything from what is in use up to the number of entries: 4.4.0 counted
    entries, and 5.3.3 went on with such a file.
    """
    content = bytearray(head)
    used = sum(1 for at in range(INDEX_HEADER, len(head), 4) if any(head[at : at + 4]))
    if used <= int.from_bytes(head[32:36], "big") <= int.from_bytes(head[36:40], "big"):
        content[32:36] = bytes(4)
    for time_at, offset_at in ((0, 16), (8, 24)):
        if int.from_bytes(head[offset_at : offset_at + 8], "big") not in intact:
            content[time_at : time_at + 8] = bytes(8)
    return bytes(content)


def _gap_of(at: int, intact: set[int], sizes: Mapping[int, int]) -> tuple[int, int] | None:
    """Between which two intact records a physical offset lies; None where it lies within one."""
    before = max((start for start in intact if start <= at), default=-1)
    if before >= 0 and at < before + sizes[before]:
        return None
    return before, min((start for start in intact if start > at), default=-1)


class _ExtensionCodes:
    """The tags codes that the extension of a queue keeps for its units."""

    def __init__(self, queue_file: Path) -> None:
        files = queue_file.parent.iterdir() if queue_file.parent.is_dir() else ()
        self._files = sorted((int(file.name), file) for file in files)

    def say_the_same(self, before: bytes, after: bytes) -> bool:
        """Whether a unit has its tags code instead of the address under which the extension has the same one."""
        address = int.from_bytes(before[12:], "big", signed=True) + (1 << 63)
        if before[:12] != after[:12] or not 0 <= address < EXTENSION_END:
            return False
        start, file = max(((start, file) for start, file in self._files if start <= address), default=(0, None))
        content = file.read_bytes()[address - start :] if file is not None else b""
        return content[2:10] == after[12:]


def _units(file: Path) -> list[bytes]:
    return _split(file.read_bytes())


def _split(content: bytes) -> list[bytes]:
    return [content[at : at + UNIT] for at in range(0, len(content), UNIT)]


def _offset_of(unit: bytes) -> int:
    return int.from_bytes(unit[:8], "big")


def _without_negative_lengths(target: Target, start: int, undamaged: bytes, log: bytes) -> bytes:
    """A log file's bytes with 0 where a record without a body has a negative length of it, which brokers read as 0."""
    if "crc" in target.base.plan.features:
        return log
    content = bytearray(log)
    for at, size in target.truth.sizes.items():
        record = undamaged[at - start : at - start + size] if at >= start else b""
        fields = record_fields(record) if record else {"body": (0, 0)}
        if "body" not in fields:
            position = at - start + fields["body-length"][0]
            if len(content) > position and content[position] & 0x80:
                content[position : position + 4] = bytes(4)
    return bytes(content)


def judged_ranges_of(record: bytes, *, has_crc: bool) -> list[tuple[int, int]]:
    """The ranges of a record's bytes that somebody looks at."""
    if has_crc:
        name = len(record) - RECORD_CRC_SIZE
        digits = name + len(RECORD_CRC)
        return [(0, name), (digits, len(record))] if record[name:digits] == RECORD_CRC else [(0, len(record))]
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
