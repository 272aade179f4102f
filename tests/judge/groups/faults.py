"""Faults in the store of a group's member: in entries, units of the group's index, its own files, and the rest."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.judge import faults_derived, faults_small
from tests.judge.groups.entries import HEADER, UNIT, Entry, data_files, entries_of
from tests.judge.target import Fault, Target, record_fields

DLEDGER, PLAIN = "dledger", "commitlog"
HEADER_FIELDS = {
    "magic": (0, 4), "size": (4, 4), "index": (8, 8), "term": (16, 8), "position": (24, 8), "channel": (32, 4),
    "chain-crc": (36, 4), "body-crc": (40, 4), "body-length": (44, 4),
}  # fmt: skip
UNIT_FIELDS = {"magic": (0, 4), "position": (4, 8), "size": (12, 4), "index": (16, 8), "term": (24, 8)}
INDEX_READ_MAX = 1 << 20


@dataclass
class GroupTarget(Target):
    """A copy of a member's store that faults are written into."""

    directories: tuple[str, ...] = ()
    folder: str = ""

    @cached_property
    def entries(self) -> list[Entry]:
        """Of the undamaged store."""
        return entries_of(self.base.path, self.directories)

    @property
    def data(self) -> list[Path]:
        return data_files(self.path, self.directories)

    @property
    def index(self) -> list[Path]:
        return data_files(self.path, (f"{self.folder}/index",))

    def file_of(self, place: int) -> tuple[Path, int] | None:
        """The file of the entries that holds a place, and the position in it."""
        starts = [file for file in self.data if int(file.name) <= place < int(file.name) + file.stat().st_size]
        return (starts[-1], place - int(starts[-1].name)) if starts else None

    def files_of(self, area: str) -> list[Path]:
        """Files of entries, of the group's index, or of the plain log."""
        return {"data": self.data, "index": self.index}.get(area) or data_files(self.path, ("commitlog",))


Change = Callable[[GroupTarget], Fault | None]


def _fault(target: GroupTarget, name: str, file: Path, what: str, *, silent: bool = False) -> Fault:
    path = target.relative(file)
    return Fault(f"{name}", PLAIN if path.startswith(PLAIN) else DLEDGER, path, what, silent)


def header_field(target: GroupTarget) -> Fault | None:
    """A field of an entry's header has another value."""
    entry = target.draw.choice(target.entries)
    found = target.file_of(entry.place)
    name = target.draw.choice(sorted(HEADER_FIELDS))
    at, width = HEADER_FIELDS[name]
    what = target.change_number(found[0], found[1] + at, width) if found else None
    return _fault(target, f"entry {name}", found[0], f"entry {entry.index}: {what}") if found and what else None


def record_field(target: GroupTarget) -> Fault | None:
    """A field of the record in an entry has another value."""
    entry = target.draw.choice([entry for entry in target.entries if entry.is_message])
    found = target.file_of(entry.place)
    fields = record_fields(entry.record)
    name = target.draw.choice(sorted(fields))
    at, width = fields[name]
    if width > 8:
        at, width = at + target.draw.randrange(width), 1
    what = target.change_number(found[0], found[1] + HEADER.size + at, width) if found else None
    return _fault(target, f"record {name}", found[0], f"entry {entry.index}: {what}") if found and what else None


def unit_field(target: GroupTarget) -> Fault | None:
    """A field of a unit of the group's index has another value."""
    entry = target.draw.choice(target.entries)
    name = target.draw.choice(sorted(UNIT_FIELDS))
    at, width = UNIT_FIELDS[name]
    file = target.pick(target.index)
    what = target.change_number(file, entry.index * UNIT.size + at, width) if file else None
    return _fault(target, f"unit {name}", file, f"entry {entry.index}: {what}") if file and what else None


def bytes_changed(target: GroupTarget) -> Fault | None:
    """Some bytes are zeros or noise."""
    area = target.draw.choice(("data", "data", "data", "index", "plain"))
    files = target.files_of(area)
    file = target.draw.choice(files) if files else None
    used = len(target.read(file, 0, INDEX_READ_MAX).rstrip(b"\0")) if file is not None else 0
    if file is None or not used:
        return None
    at, length = target.draw.randrange(used), target.draw.choice((1, 8, 300, 4096))
    length = min(length, file.stat().st_size - at)
    is_noise = target.draw.random() < 0.5
    changed = target.write(file, at, target.draw.randbytes(length) if is_noise else bytes(length))
    name = "noise" if is_noise else "zeros"
    return _fault(target, name, file, f"{length} at {at}") if changed else None


def file_changed(target: GroupTarget) -> Fault | None:
    """A file of entries, of the group's index, or of the plain log is gone, cut, empty or longer, or all zeros."""
    files = target.files_of(target.draw.choice(("data", "data", "index", "plain")))
    file = target.draw.choice(files) if files else None
    if file is None:
        return None
    size = file.stat().st_size
    way = target.draw.choice(("gone", "gone", "gone", "cut", "longer", "zeroed"))
    if way == "gone":
        file.unlink()
        return _fault(target, way, file, "")
    if way == "zeroed":
        if not target.read(file, 0, INDEX_READ_MAX).strip(b"\0"):
            return None
        os.truncate(file, 0)
        os.truncate(file, size)
        return _fault(target, way, file, "")
    new = target.draw.choice((0, 1, size // 2, size - 1)) if way == "cut" else size + target.draw.choice((1, 4096))
    os.truncate(file, new)
    return _fault(target, way, file, f"{size} -> {new}")


def own_file(target: GroupTarget) -> Fault | None:
    """The group's checkpoint is gone, or knows another entry as committed; a broker writes it every three seconds."""
    file = target.path / target.folder / "checkpoint"
    if not file.is_file():
        return None
    last = target.entries[-1].index
    if target.draw.random() < 0.3:
        file.unlink()
        return _fault(target, "checkpoint gone", file, "", silent=True)
    known = target.draw.choice((-1, 0, last // 2, last - 1, last, last + 5))
    file.write_text(f"committedIndex={known}\nendIndex={known}\n")
    return _fault(target, "checkpoint", file, f"{known} of {last}", silent=known <= last)


CHANGES: tuple[Change, ...] = (
    *(header_field,) * 5, *(record_field,) * 5, *(unit_field,) * 3, *(bytes_changed,) * 5, *(file_changed,) * 5,
    own_file, own_file, *faults_derived.CHANGES, *faults_small.CHANGES,
)  # fmt: skip
"""A third of them are faults that plain stores have too."""


def judged_bytes(target: GroupTarget) -> list[bytes | None]:
    """All bytes that somebody looks at of entries and units; None where a file does not reach so far."""
    content = {file: file.read_bytes() for file in target.data}
    starts = {int(file.name): file for file in target.data}
    (index,) = target.index[:1] or (None,)
    units = target.read(index, 0, INDEX_READ_MAX) if index is not None else b""
    found: list[bytes | None] = []
    for entry in target.entries:
        start = max((start for start in starts if start <= entry.place), default=None)
        raw = content[starts[start]][entry.place - start :] if start is not None else b""
        found += [raw[low:high] if len(raw) >= high else None for low, high in entry.judged()]
        found.append(units[entry.index * UNIT.size : (entry.index + 1) * UNIT.size])
    return found


def intact_of(target: GroupTarget) -> set[int]:
    """Physical offsets of the records that lie where they lay, with the judged bytes of their entries unchanged."""
    intact = set()
    for entry in target.entries:
        found = target.file_of(entry.place)
        raw = target.read(*found, len(entry.content)) if found else b""
        if all(raw[low:high] == entry.content[low:high] for low, high in entry.judged()):
            intact.add(entry.place + HEADER.size)
    for file in data_files(target.path, ("commitlog",)):
        before = target.base.path / "commitlog" / file.name
        if before.exists():
            for at, size in target.truth.sizes.items():
                position = at - int(file.name)
                if 0 <= position < before.stat().st_size:
                    old, new = (target.read(path, position, size) for path in (before, file))
                    if old == new:
                        intact.add(at)
    return intact


def is_expired(target: GroupTarget) -> bool:
    """Whether the files of the log are as if the first ones had expired."""
    directories = (PLAIN, *target.directories)
    before, now = ([file.name for file in data_files(path, directories)] for path in (target.base.path, target.path))
    return bool(now) and len(now) < len(before) and before[-len(now) :] == now
