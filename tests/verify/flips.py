"""Flips bits of a store in memory and names the field that each lies in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from rmqtool.findings.finding import Finding
from rmqtool.formats import checkpoint, commitlog, index, system_flag
from rmqtool.formats.consumequeue import UNIT, UNIT_SIZE
from rmqtool.store.directory import Settings, survey
from rmqtool.verify.survey.context import VerifyOptions
from tests.engine.memory_view import MemoryView
from tests.verify.stores import verified

KINDS = ("commitlog", "consumequeue", "index", "checkpoint")


@dataclass
class FlippedStore:
    """A store whose bits can be flipped one at a time."""

    files: Mapping[str, bytes]
    version: str
    _records: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path, version: str) -> FlippedStore:
        """A store of the disk."""
        found = {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}
        return cls(found, version)

    @cached_property
    def settings(self) -> Settings:
        """The sizes, so that a flip in one file does not change how the others are read."""
        store = survey(MemoryView(dict(self.files)))
        return Settings(
            commitlog_file_size=store.commitlog_file_size,
            consumequeue_file_size=store.consumequeue_file_size,
            index_slot_count=store.index_slot_count,
            index_entry_count=store.index_entry_count,
        )

    def bits(self) -> Iterator[tuple[str, int]]:
        """Every bit of the log, the queues, the index and the checkpoint, as (path, bit)."""
        for path, content in self.files.items():
            if path.startswith(KINDS):
                yield from ((path, bit) for bit in range(8 * len(content)))

    def findings(self, flip: tuple[str, int] | None = None) -> list[Finding]:
        """Findings with one bit flipped, or none."""
        files = dict(self.files)
        if flip is not None:
            path, bit = flip
            raw = bytearray(files[path])
            raw[bit // 8] ^= 1 << bit % 8
            files[path] = bytes(raw)
        return verified(MemoryView(files), self.version, VerifyOptions(threads=1), self.settings)[1]

    def field_of(self, flip: tuple[str, int]) -> tuple[str, str]:
        """File kind and field of a bit."""
        path, bit = flip
        kind, position = path.partition("/")[0], bit // 8
        return kind, getattr(self, f"_{kind}_field")(self.files[path], position)

    def _checkpoint_field(self, _raw: bytes, position: int) -> str:
        return "zeros" if position >= checkpoint.FIELDS_SIZE else "times and offsets"

    def _consumequeue_field(self, raw: bytes, position: int) -> str:
        start = position - position % UNIT_SIZE
        if not any(raw[start : start + UNIT_SIZE]):
            return "zero tail"
        return _named(UNIT.fixed_fields, position - start)

    def _index_field(self, raw: bytes, position: int) -> str:
        slots = self.settings.index_slot_count or 0
        if position < index.HEADER_SIZE:
            return _named(index.HEADER.fixed_fields, position)
        if position < index.entry_position(0, slots):
            return "slot"
        number, inside = divmod(position - index.entry_position(0, slots), index.ENTRY_SIZE)
        count = int.from_bytes(raw[36:40], "big")
        name = _named(index.ENTRY.fixed_fields, inside)
        if number == 0:
            return "entry 0"
        if number >= count:
            return "zero tail"
        return f"{name} of the first entry" if number == 1 and name == "time_delta_seconds" else name

    def _commitlog_field(self, raw: bytes, position: int) -> str:
        at = 0
        while True:
            size = int.from_bytes(raw[at : at + 4], "big")
            if size <= 0:
                return "zero tail"
            if position < at + size:
                break
            at += size
        inside = position - at
        if int.from_bytes(raw[at + 4 : at + 8], "big", signed=True) == commitlog.MAGIC_BLANK:
            return "blank" if inside >= 8 else "blank head"
        sys_flag = int.from_bytes(raw[at + 36 : at + 40], "big")
        return _record_field(raw[at : at + size], inside, sys_flag)


def _record_field(record: bytes, inside: int, sys_flag: int) -> str:
    born = 20 if sys_flag & system_flag.BORN_HOST_V6 else 8
    store = 20 if sys_flag & system_flag.STORE_HOST_V6 else 8
    widths = (
        ("size", 4), ("magic", 4), ("body_crc", 4), ("queue_id", 4), ("flag", 4), ("queue_offset", 8),
        ("physical_offset", 8), ("sys_flag", 4), ("born_timestamp_ms", 8), ("born_host", born),
        ("store_timestamp_ms", 8), ("store_host", store), ("reconsume_times", 4), ("prepared_transaction_offset", 8),
        ("body_length", 4),
    )  # fmt: skip
    at = 0
    for name, width in widths:
        at += width
        if inside < at:
            if name == "body_length" and not any(record[at - 4 : at]) and inside == at - 4:
                return "body_length of no body"
            return name + (" of no queue" if name in _QUEUE_FIELDS and _is_in_no_queue(sys_flag) else "")
    at += int.from_bytes(record[at - 4 : at], "big")
    if inside < at:
        return "body"
    topic_end = at + 1 + record[at]
    if inside < topic_end:
        return "topic length" if inside == at else "topic" + (" of no queue" if _is_in_no_queue(sys_flag) else "")
    return "properties length" if inside < topic_end + 2 else "properties"


_QUEUE_FIELDS = ("queue_id", "queue_offset")


def _is_in_no_queue(sys_flag: int) -> bool:
    return not system_flag.takes_queue_entry(sys_flag)


def _named(fields: tuple[object, ...], inside: int) -> str:
    for found in fields:
        if found.position <= inside < found.position + found.size:  # type: ignore[attr-defined]
            return str(found.name)  # type: ignore[attr-defined]
    raise AssertionError(inside)
