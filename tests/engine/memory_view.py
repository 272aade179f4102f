"""A store in memory for tests: a view over a dictionary of files, and builders for what lies in them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rmqtool.errors import UnreadableError
from rmqtool.formats import commitlog, index
from rmqtool.formats.properties import encode_properties
from rmqtool.formats.record_crc import masked_crc
from rmqtool.store.directory import Settings, Store, survey
from rmqtool.store.source import BytesSource
from rmqtool.store.view import Entry, EntryKind

HOST = {"address": b"\x7f\0\0\1", "port": 10911}


@dataclass
class MemoryView:
    """Files by path, and their modification times."""

    files: dict[str, bytes]
    mtimes_ms: Mapping[str, int] = field(default_factory=dict)
    label: str = "memory"

    def list(self, path: str) -> list[Entry]:
        prefix = f"{path}/" if path else ""
        names = {name[len(prefix) :].partition("/")[0] for name in self.files if name.startswith(prefix)}
        return [entry for name in sorted(names) if (entry := self.stat(prefix + name)) is not None]

    def stat(self, path: str) -> Entry | None:
        if path in self.files:
            size = len(self.files[path])
            return Entry(path, EntryKind.FILE, size, self.mtimes_ms.get(path, 0) * 1_000_000, size)
        if any(name.startswith(f"{path}/") for name in self.files):
            return Entry(path, EntryKind.DIRECTORY)
        return None

    def open(self, path: str) -> BytesSource:
        if path not in self.files:
            raise UnreadableError(f"{path}: no such file")
        return BytesSource(path, self.files[path])


def made_store(files: dict[str, bytes], *, mtimes_ms: Mapping[str, int] | None = None, **sizes: int) -> Store:
    """The survey of a store in memory.

    Args:
        sizes: fields of `Settings`, where files are too few to infer them.
    """
    return survey(MemoryView(files, mtimes_ms or {}), Settings(**sizes))  # type: ignore[arg-type]


def record(
    physical_offset: int,
    topic: str = "T",
    *,
    queue_id: int = 0,
    queue_offset: int = 0,
    properties: Mapping[str, str] | None = None,
    body: bytes = b"body",
    store_timestamp_ms: int = 1_000_000,
    sys_flag: int = 0,
    magic: int = commitlog.MAGIC_V1,
) -> bytes:
    """A whole message record."""
    fields = {
        "size": 0,
        "magic": magic,
        "body_crc": masked_crc(body),
        "queue_id": queue_id,
        "flag": 0,
        "queue_offset": queue_offset,
        "physical_offset": physical_offset,
        "sys_flag": sys_flag,
        "born_timestamp_ms": store_timestamp_ms - 1,
        "born_host": HOST,
        "store_timestamp_ms": store_timestamp_ms,
        "store_host": HOST,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body": body,
        "topic": topic.encode("utf-8", "surrogateescape"),
        "properties": encode_properties(properties or {}, trailing_separator=True),
    }
    form = commitlog.message_variant(magic, sys_flag)
    size = len(form.build(fields))
    return bytes(form.build({**fields, "size": size}))


def log_file(records: Iterable[bytes], file_size: int) -> bytes:
    """One commitlog file that begins with these records, zeros behind."""
    return b"".join(records).ljust(file_size, b"\0")


def segment_name(start: int) -> str:
    """Name of a file by its first byte's place."""
    return f"{start:020d}"


def queue_file(units: Iterable[tuple[int, int, int]], file_size: int = 200) -> bytes:
    """One consume queue file that begins with these units, zeros behind."""
    return b"".join(struct.pack(">qiq", *unit) for unit in units).ljust(file_size, b"\0")


def batch_queue_file(units: Iterable[tuple[int, int, int, int, int, int]], file_size: int) -> bytes:
    """One batch queue file: physical offset, size, tags code, store time, base offset, count of each unit."""
    return b"".join(struct.pack(">qiqqqhii", *unit, -1, 0) for unit in units).ljust(file_size, b"\0")


def index_file(
    entries: Iterable[tuple[int, int, int, int]],
    slots: Mapping[int, int],
    *,
    slot_count: int,
    entry_count: int,
    begin_ms: int,
    end_ms: int,
) -> bytes:
    """One index file: hash, physical offset, seconds and previous entry of entries 1, 2, ...; newest entry by slot."""
    listed = list(entries)
    raw = bytearray(index.file_size(slot_count, entry_count))
    offsets = [entry[1] for entry in listed] or [0]
    struct.pack_into(">qqqqii", raw, 0, begin_ms, end_ms, offsets[0], offsets[-1], len(slots), len(listed) + 1)
    for slot, number in slots.items():
        struct.pack_into(">i", raw, index.slot_position(slot), number)
    for number, entry in enumerate(listed, 1):
        struct.pack_into(">iqii", raw, index.entry_position(number, slot_count), *entry)
    return bytes(raw)
