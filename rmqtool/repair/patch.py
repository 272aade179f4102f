"""Plans `patch`: fields of one declared structure set by name, or a range of bytes copied from another file.

Which structure begins at a file position follows from the kind of the file, and the fields from its declaration in
`formats`. A patch never moves a byte: each value is as long as the one that it replaces.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmqtool.errors import UnsupportedError, UsageError
from rmqtool.formats import commitlog, consumequeue, dledger, index
from rmqtool.formats.commitlog import MESSAGE_MAGICS, SYS_FLAG_AT
from rmqtool.formats.layout import Format
from rmqtool.formats.record_crc import masked_crc, stored_record_crc, with_record_crc
from rmqtool.repair.machine.plan import Loss
from rmqtool.repair.machine.steps import WriteRange, write_range
from rmqtool.report.hexview import BYTES_SHOWN_MAX, HexField, bare_parts, message_parts, parts_of
from rmqtool.report.names import nearest
from rmqtool.scan.log import open_log
from rmqtool.scan.rules import Verdict
from rmqtool.store.directory import Segment, Store
from rmqtool.store.file_kinds import FileKind, is_segment_name, kind_of
from rmqtool.store.index_slots import infer_slot_count
from rmqtool.store.overlay import Overlay
from rmqtool.store.source import ByteSource, FileSource, Literal, read_range
from rmqtool.store.unit_files import SINGLE_UNITS, UNITS
from rmqtool.store.view import StoreView

if TYPE_CHECKING:
    from numpy.typing import NDArray

COPY_BYTES_MAX: Final = 64 << 20
"""Bytes that one patch copies; whole files are replaced by other means."""
_COLUMNS: Final = [("physical_offset", "i8"), ("size", "i8"), ("topic_number", "i8")]
_LOGS: Final = (FileKind.COMMITLOG, FileKind.COMPACTION_LOG)


@dataclass(frozen=True)
class RangeCopy:
    """Bytes of another file that replace as many of the patched one."""

    source: Path
    file_position: int
    length: int


@dataclass(frozen=True)
class PatchRequest:
    """Changes that a person requests.

    Attributes:
        path: of the file, relative to the store.
        file_position: where the structure or the range begins.
        values: field names with their new values, as typed.
        fix_crc: compute the checksums of a record again.
    """

    path: str
    file_position: int
    values: Sequence[tuple[str, str]] = ()
    fix_crc: bool = False
    copy: RangeCopy | None = None


@dataclass(frozen=True)
class Patch:
    """The steps, their losses, and the structure before and after."""

    steps: tuple[WriteRange, ...]
    loss: Loss
    structure: str
    before: tuple[HexField, ...]
    after: tuple[HexField, ...]

    def as_json(self, request: PatchRequest) -> dict[str, Any]:
        """The patch for the plan: only fields that differ."""
        rows = [
            {"name": new.name, "position": old.position, "before": _shown(old), "after": _shown(new)}
            for old, new in zip(self.before, self.after, strict=True)
            if old.content != new.content
        ]
        return {
            "patch": {
                "file": request.path,
                "file_position": request.file_position,
                "structure": self.structure,
                "fields": rows,
            }
        }


@dataclass(frozen=True)
class _Structure:
    """A structure in a file: its name, and its fields with their bytes."""

    name: str
    position: int
    content: bytes
    split: Callable[[bytes], list[HexField]]

    @property
    def fields(self) -> list[HexField]:
        return self.split(self.content)


def plan_patch(store: Store, request: PatchRequest) -> Patch:
    """Find the structure, and lay the new values over it.

    Raises:
        UsageError: no such field, or a value that does not fit.
        UnsupportedError: the file has no declared fields.
        UnreadableError: the file is not there or may not be read.
    """
    view = store.view
    with closing(view.open(request.path)) as source:
        if request.copy is None:
            old = _structure(store, request, source)
            content = _with_values(old, request)
        else:
            old = _range(source, request)
            content = _copied(request.copy)
    new = _Structure(old.name, old.position, content, old.split)
    log = _readable(view, request.path) if kind_of(request.path) in _LOGS else None
    inside = ""
    if log is not None and request.copy is None:
        at, rows = log.start + request.file_position, log.rows
        around = rows[(rows["physical_offset"] < at) & (at < rows["physical_offset"] + rows["size"])]
        if around.size:
            place = around[0]["physical_offset"] - log.start
            inside = f", inside the message of {log.topic(around[0])} at {place}"
    steps = tuple(_steps(view, request.path, old, content, inside))
    after, loss = tuple(_after(old.fields, new)), Loss()
    if steps and log is not None:  # what is readable now, and not afterwards
        import numpy as np

        patched = Overlay(view)
        for step in steps:
            patched.lay(step.path, step.file_position, step.content)
        left = _readable(patched, request.path).rows
        lost = log.rows[~np.isin(log.rows["physical_offset"], left["physical_offset"])]
        loss = Loss(len(lost), int(lost["size"].sum()), dict(Counter(map(log.topic, lost))))
    return Patch(steps, loss, old.name, tuple(old.fields), after)


def _after(before: Sequence[HexField], new: _Structure) -> Iterable[HexField]:
    """The new bytes by the fields of the old ones; a changed length may lead to others."""
    fields = {(part.name, part.position, part.length): part for part in new.fields}
    for part in before:
        content = new.content[part.position : part.position + part.length]
        same = fields.get((part.name, part.position, part.length))
        yield same or HexField(part.name, part.position, content, part.length, "")


def _structure(store: Store, request: PatchRequest, source: ByteSource) -> _Structure:
    kind, at = kind_of(request.path), request.file_position
    if at >= source.size:
        raise UsageError(f"--at: {request.path} has {source.size} bytes")
    if kind in _LOGS or (kind is FileKind.DLEDGER and "/data/" in request.path):
        return _record(source, at, is_dledger=kind is FileKind.DLEDGER)
    if kind in SINGLE_UNITS:
        return _unit(source, SINGLE_UNITS[kind], 0, at, 1)
    if kind is FileKind.INDEX:
        return _index_part(store, request.path, source, at)
    if kind is FileKind.DLEDGER and "/index/" in request.path:
        return _unit(source, dledger.INDEX_UNIT, 0, at)
    if kind is FileKind.CONSUMEQUEUE_EXT:
        size = int.from_bytes(read_range(source, at, 2), "big", signed=True)
        length = min(max(size, consumequeue.EXTENSION_HEAD_SIZE), source.size - at)
        return _declared(source, consumequeue.EXTENSION_UNIT, at, length)
    if kind in UNITS:
        return _unit(source, UNITS[kind], 0, at)
    if kind is FileKind.CONFIG:
        raise UnsupportedError(f"{request.path}: a text file without declared fields; edit it with an editor")
    what = "" if kind.value == request.path else f"{kind.value}: "
    raise UnsupportedError(f"{request.path}: {what}no structure of a fixed place is declared for it")


def _record(source: ByteSource, at: int, *, is_dledger: bool) -> _Structure:
    """A record of a log, a blank, or the header of a DLedger entry; a damaged one as far as its header goes."""
    head = read_range(source, at, commitlog.HEAD_SIZE_MAX)
    size, magic = (int.from_bytes(head[place : place + 4], "big", signed=True) for place in (0, 4))
    if magic == commitlog.MAGIC_BLANK:
        return _declared(source, commitlog.BLANK, at, commitlog.BLANK.size or 0)
    if is_dledger and magic not in MESSAGE_MAGICS:
        return _declared(source, dledger.ENTRY, at, dledger.ENTRY_SIZE)
    is_sound = magic in MESSAGE_MAGICS and commitlog.RECORD_SIZE_MIN <= size <= source.size - at
    sys_flag = int.from_bytes(head[SYS_FLAG_AT:][:4], "big")
    length = size if is_sound else min(commitlog.head_size(sys_flag), source.size - at)
    name = commitlog.MESSAGE_V2.name if magic == commitlog.MAGIC_V2 else commitlog.MESSAGE_V1.name
    return _Structure(name, at, read_range(source, at, length), _record_fields)


def _record_fields(raw: bytes) -> list[HexField]:
    """Fields of a record; one whose magic is wrong is split as version 1."""
    if int.from_bytes(raw[4:8], "big", signed=True) in MESSAGE_MAGICS:
        return message_parts(_reads(raw), len(raw), len(raw))
    return parts_of(_reads(raw), len(raw), commitlog.MESSAGE_V1.fields, len(raw))


def _index_part(store: Store, path: str, source: ByteSource, at: int) -> _Structure:
    if at < index.HEADER_SIZE:
        return _unit(source, index.HEADER, 0, at, 1)
    entry = store.view.stat(path)
    slots = store.index_slot_count or (infer_slot_count(store.view, [entry]) if entry is not None else None)
    if slots is None:
        raise UsageError(f"{path}: nothing shows its number of slots; pass --index-slots")
    entries = index.HEADER_SIZE + slots * index.SLOT_SIZE
    if at < entries:
        return _unit(source, index.SLOT, index.HEADER_SIZE, at)
    return _unit(source, index.ENTRY, entries, at)


def _unit(source: ByteSource, declared: Format, first: int, at: int, count: int | None = None) -> _Structure:
    """One of many structures of a size, which begin at `first`."""
    size = declared.size
    assert size is not None
    begin = first + (at - first) // size * size if count is None else first
    if begin != at:
        raise UsageError(f"--at {at}: one {declared.name} begins at {begin} and the next one at {begin + size}")
    return _declared(source, declared, at, size)


def _declared(source: ByteSource, declared: Format, at: int, length: int) -> _Structure:
    content = read_range(source, at, length)
    return _Structure(
        declared.name, at, content, lambda raw: parts_of(_reads(raw), len(raw), declared.fields, len(raw))
    )


def _range(source: ByteSource, request: PatchRequest) -> _Structure:
    assert request.copy is not None
    length = request.copy.length
    if not 0 < length <= COPY_BYTES_MAX:
        raise UsageError(f"--length: 1 to {COPY_BYTES_MAX} bytes")
    if request.file_position + length > source.size:
        raise UsageError(f"--length {length}: {request.path} has {source.size} bytes; a patch makes no file longer")
    content = read_range(source, request.file_position, length)
    return _Structure("bytes", request.file_position, content, lambda raw: bare_parts(_reads(raw), len(raw), len(raw)))


def _copied(copy: RangeCopy) -> bytes:
    with closing(FileSource.open(copy.source)) as source:
        content = read_range(source, copy.file_position, copy.length)
    if len(content) < copy.length:
        raise UsageError(f"--from: {copy.source} has {len(content)} bytes from position {copy.file_position} on")
    return content


def _reads(raw: bytes) -> Callable[[int, int], bytes]:
    return lambda position, length: raw[position : position + length]


def _with_values(old: _Structure, request: PatchRequest) -> bytes:
    fields = {part.name: part for part in old.fields if not part.name.startswith("(")}
    content = bytearray(old.content)
    for name, value in request.values:
        part = fields.get(name)
        if part is None:
            raise UsageError(f"--set {name}: {old.name} has {', '.join(fields)}{nearest(name, fields)}")
        content[part.position : part.position + part.length] = _encoded(part, value)
    if request.fix_crc:
        _fix_crc(old, fields, content)
    return bytes(content)


def _encoded(part: HexField, value: str) -> bytes:
    """The value in as many bytes as the field has."""
    label = f"--set {part.name}={value}"
    if value.startswith("0x") or part.is_integer:
        return _number(label, part.length, value)
    if part.name.endswith(".address"):
        try:
            content = ipaddress.ip_address(value).packed
        except ValueError as error:
            raise UsageError(f"{label}: {error}") from error
    elif part.name.startswith("properties."):
        name = part.content.partition(b"\x01")[0]
        content = name + b"\x01" + value.encode("utf-8", "surrogateescape")
        content += b"\x02" if part.content.endswith(b"\x02") else b""
    else:
        content = value.encode("utf-8", "surrogateescape")
    if len(content) != part.length:
        have = f"the field has {part.length} bytes, this would be {len(content)}"
        raise UsageError(f"{label}: {have}; a patch changes no length")
    return content


def _number(label: str, length: int, value: str) -> bytes:
    """Decimal, or hexadecimal after 0x: as a number of up to 8 bytes, and as bytes where there are more."""
    try:
        if length > 8:
            content = bytes.fromhex(value.removeprefix("0x"))
            if len(content) != length:
                raise UsageError(f"{label}: the field has {length} bytes, this would be {len(content)}")
            return content
        number = int(value, 0)
    except ValueError as error:
        raise UsageError(f"{label}: not a number") from error
    bits = 8 * length
    if not -(1 << (bits - 1)) <= number < 1 << bits:
        raise UsageError(f"{label}: does not fit into {length} bytes")
    return (number % (1 << bits)).to_bytes(length, "big")


def _fix_crc(old: _Structure, fields: Mapping[str, HexField], content: bytearray) -> None:
    """Set the CRC of the current body, and of the record if it has one."""
    if "body_crc" not in fields or "body_length" not in fields or old.name == dledger.ENTRY.name:
        raise UsageError(f"--fix-crc: {old.name} has no checksum that a broker checks")
    end = len(content)
    length = int.from_bytes(content[fields["body_length"].position :][:4], "big", signed=True)
    start = fields["body_length"].position + 4
    if not 0 <= length <= end - start or end < commitlog.RECORD_SIZE_MIN or "properties_length" not in fields:
        raise UsageError("--fix-crc: the record's lengths are damaged; set them first")
    crc = fields["body_crc"].position
    content[crc : crc + 4] = masked_crc(bytes(content[start : start + length])).to_bytes(4, "big")
    if stored_record_crc(bytes(content)) is not None:
        content[:] = with_record_crc(bytes(content))


def _shown(part: HexField) -> dict[str, Any]:
    """Bytes and value of a field; of a long one its two ends."""
    if part.length > BYTES_SHOWN_MAX:
        end = BYTES_SHOWN_MAX // 2
        part = replace(part, content=part.content[:end], tail=part.content[-end:])
    row = part.as_json()
    return {name: row[name] for name in ("length", "hex", "hex_end", "value")}


def _steps(view: StoreView, path: str, old: _Structure, content: bytes, inside: str) -> Iterable[WriteRange]:
    why = f"patch of {old.name} at {old.position}{inside}"
    for part in old.fields:
        piece = content[part.position : part.position + part.length]
        if piece != part.content:
            yield write_range(view, path, old.position + part.position, Literal(piece), why)


class _IntactLog(NamedTuple):
    """Intact messages of one log file (`physical_offset`, `size`, `topic_number`), and the names of the topics."""

    start: int
    rows: NDArray[Any]
    topics: Sequence[bytes]

    def topic(self, row: Any) -> str:
        return bytes(self.topics[row["topic_number"]]).decode("utf-8", "backslashreplace")


def _readable(view: StoreView, path: str) -> _IntactLog:
    import numpy as np

    entry = view.stat(path)
    assert entry is not None
    start = int(entry.name) if is_segment_name(entry.name) else 0
    blocks = [np.zeros(0, _COLUMNS)]
    topics: Sequence[bytes] = []
    with open_log(view.open, [Segment(entry, start)]) as table:
        for block in table.batches():
            rows = block.as_array()
            rows = rows[(rows["verdict"] == Verdict.GOOD) & (rows["magic"] != commitlog.MAGIC_BLANK)]
            blocks.append(rows[[name for name, _ in _COLUMNS]].astype(_COLUMNS))
            topics = block.topics
    return _IntactLog(start, np.concatenate(blocks), topics)
