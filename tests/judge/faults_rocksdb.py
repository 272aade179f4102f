"""Faults in consume queues in RocksDB, in rows and in files, and what of them nobody can see."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocksdict import AccessType, Options, Rdict

from tests.broker.files import copy_store
from tests.judge.target import Fault, Target
from tests.rocksdb_cases import edit, numbers

Change = Callable[[Target], Fault | None]
Rows = Any
AREA = "rocksdb"
DATA = (
    "*.sst",
    "*.sst",
    "*.sst",
    "CURRENT",
    "MANIFEST-*",
    "MANIFEST-*",
    "OPTIONS-*",
    "*.log",
    "IDENTITY",
    "LOCK",
    "LOG",
)
PLACE, SIZE, TIME = (0, 8), (8, 4), (20, 8)
CODE = (12, 8)


def _changed_rows(
    target: Target, name: str, change: Callable[[Rows, Rows], str | None], folder: Path | None
) -> Fault | None:
    """Change rows of a copy, which takes the place of the database; nothing where the library does not open it."""
    if folder is None:
        return None
    spare = target.path.parent / "rows"
    shutil.rmtree(spare, ignore_errors=True)
    spare.mkdir()
    copy_store(folder, spare / folder.name)
    what: list[str | None] = []
    try:
        edit(spare, lambda units, ends: what.append(change(units, ends)), folder.name)
    except Exception:  # noqa: BLE001 - the library has no other for a database that an earlier fault damaged
        what.append(None)
    if what[0] is None or what[-1] is None:
        shutil.rmtree(spare)
        return None
    shutil.rmtree(folder)
    (spare / folder.name).rename(folder)
    return Fault(f"{AREA}.{name}", AREA, target.relative(folder), what[0])


def unit_field(target: Target) -> Fault | None:
    """A field of a unit has another value."""
    name, (at, width) = target.draw.choice(
        (("physical offset", PLACE), ("size", SIZE), ("tags code", CODE), ("time", TIME))
    )

    def change(units: Rows, _ends: Rows) -> str | None:
        keys = list(units.keys())
        if not keys:
            return None
        key = target.draw.choice(keys)
        old = units[key]
        value = int.from_bytes(old[at : at + width], "big", signed=True)
        ways = (0, -1, value + target.draw.choice((1, 20, 4096)), value - 1, value ^ 1 << target.draw.randrange(31))
        new = old[:at] + (target.draw.choice(ways) & (1 << 8 * width) - 1).to_bytes(width, "big") + old[at + width :]
        units[key] = new
        return None if new == old else f"{key.hex()}: {old.hex()} -> {new.hex()}"

    return _changed_rows(target, f"unit {name}", change, target.database())


def units_moved(target: Target) -> Fault | None:
    """Units are gone, swapped, doubled, without a meaning, or stand after their queue's end."""
    way = target.draw.choice(
        ("gone", "some gone", "queue gone", "all gone", "swapped", "copied", "cut", "after", "odd")
    )

    def change(units: Rows, _ends: Rows) -> str | None:
        keys = list(units.keys())
        if len(keys) < 2:
            return None
        one, other = target.draw.sample(keys, 2)
        before = units[one], units[other]
        if way in ("gone", "some gone", "queue gone", "all gone"):
            first = target.draw.randrange(len(keys))
            chosen = {"gone": [one], "some gone": keys[first : first + target.draw.randrange(2, 20)], "all gone": keys}
            for key in chosen.get(way, [key for key in keys if key[:-8] == one[:-8]]):
                units.delete(key)
        elif way == "swapped":
            units[one], units[other] = before[1], before[0]
        elif way == "copied":
            units[one] = before[1]
        elif way == "cut":
            units[one] = before[0][: target.draw.choice((0, 8))]
        elif way == "after":
            queue = [key for key in keys if key[:-8] == one[:-8]]
            units[queue[-1][:-8] + numbers(int.from_bytes(queue[-1][-8:]) + target.draw.choice((1, 2, 50)))] = before[0]
        else:
            units[target.draw.randbytes(target.draw.choice((1, 9, 40)))] = before[0]
        return f"{one.hex()}, {other.hex()} of {len(keys)}"

    return _changed_rows(target, f"units {way}", change, target.database())


def end_changed(target: Target) -> Fault | None:
    """A stored end of a queue, or of what was dispatched, is gone or has another value."""
    way = target.draw.choice(("gone", "gone", "offset", "offset", "place", "both", "zero", "cut", "odd"))

    def change(_units: Rows, ends: Rows) -> str | None:
        keys = list(ends.keys())
        if not keys:
            return None
        key = target.draw.choice(keys)
        old = ends[key]
        values = [int.from_bytes(old[at : at + 8], "big", signed=True) for at in range(0, len(old), 8)]
        step = target.draw.choice((-4096, -20, -3, -1, 1, 2, 50, 1 << 20))
        if way == "gone":
            ends.delete(key)
            return key.hex()
        if way == "odd":
            ends[target.draw.randbytes(target.draw.choice((1, 9)))] = b""
            return "odd"
        if way == "cut":
            ends[key] = old[:7]
            return key.hex()
        if way in ("offset", "both"):
            values[-1] += step
        if way in ("place", "both"):
            values[0] += step * (100 if way == "both" else 1)
        new = numbers(*(0 if way == "zero" else value for value in values))
        ends[key] = new
        return None if new == old else f"{key.hex()}: {old.hex()} -> {new.hex()}"

    return _changed_rows(target, f"end {way}", change, target.database())


def file_changed(target: Target) -> Fault | None:
    """A file of the database is overwritten, cut, longer, empty, gone, noise in one place, or another one's."""
    folder = target.database()
    pattern = target.draw.choice(DATA)
    files = sorted(folder.glob(pattern)) if folder is not None else []
    if not files:
        return None
    file = target.draw.choice(files)
    size = file.stat().st_size
    ways = ("overwritten", "cut", "longer", "empty", "gone", "all gone", "noise", "noise", "bit", "swapped", "old")
    way = target.draw.choice(ways)
    what = ""
    if way == "gone":
        file.unlink()
    elif way == "all gone":
        for each in files:
            each.unlink()
    elif way == "swapped":
        other = target.draw.choice(files)
        content = file.read_bytes()
        if other.read_bytes() == content:
            return None
        file.write_bytes(other.read_bytes())
        other.write_bytes(content)
        what = other.name
    elif way == "old":
        old = target.base.early and target.base.early / target.relative(file)
        if old is None or not old.is_file() or old.read_bytes() == file.read_bytes():
            return None
        shutil.copy2(old, file)
    elif way in ("cut", "empty", "longer"):
        new = {"cut": target.draw.randrange(max(1, size)), "empty": 0, "longer": size + 100}[way]
        if new == size:
            return None
        with file.open("r+b") as sink:
            sink.truncate(new)
        what = f"{size} -> {new}"
    else:
        at = target.draw.randrange(max(1, size)) if way != "overwritten" else 0
        noise = target.draw.randbytes(1 if way == "noise" else 100)
        if way == "bit":
            noise = bytes([(target.read(file, at, 1) or b"\0")[0] ^ 1 << target.draw.randrange(8)])
        if not target.write(file, at, noise):
            return None
        what = f"at {at} of {size}"
    return Fault(f"{AREA}.{pattern.split('-', maxsplit=1)[0]} {way}", AREA, target.relative(file), what)


def directory_changed(target: Target) -> Fault | None:
    """The database is gone, as it was after the first run, or a mixture of both; or a file more is in it."""
    folder = target.database()
    if folder is None:
        return None
    way = target.draw.choice(("gone", "empty", "old", "torn", "stray"))
    if way == "stray":
        name = target.draw.choice(("notes.txt", "999999.sst", "000001.dbtmp", "archive"))
        (folder / name).write_bytes(b"hello\n")
        return Fault(f"{AREA}.stray {name}", AREA, target.relative(folder), name, silent=True)
    old = target.base.early and target.base.early / target.relative(folder)
    if way in ("old", "torn"):
        if old is None or not (old / "CURRENT").is_file():
            return None
        if way == "old":
            shutil.rmtree(folder)
            copy_store(old, folder)
        else:  # what a copy of a running database may be: what names the tables is older than the tables
            for file in folder.glob("MANIFEST-*"):
                file.unlink()
            for file in (old / "CURRENT", *old.glob("MANIFEST-*")):
                shutil.copy2(file, folder / file.name)
    else:
        shutil.rmtree(folder)
        if way == "empty":
            folder.mkdir()
    return Fault(f"{AREA}.directory {way}", AREA, target.relative(folder), "")


CHANGES: tuple[Change, ...] = (
    unit_field, unit_field, units_moved, units_moved, units_moved, end_changed, end_changed, end_changed,
    file_changed, file_changed, file_changed, file_changed, directory_changed,
)  # fmt: skip


@dataclass(frozen=True)
class Content:
    """The rows of a database."""

    units: dict[bytes, bytes]
    ends: dict[bytes, bytes]


def content_of(folder: Path, scratch: Path) -> Content | None:
    """All rows of a copy; None where the library does not open it, or not all rows can be read."""
    shutil.rmtree(scratch, ignore_errors=True)
    if not folder.is_dir():
        return None
    copy_store(folder, scratch)
    for file in scratch.glob("OPTIONS-*"):
        file.unlink()
    try:
        names = Rdict.list_cf(str(scratch))
        options = {name: Options(raw_mode=True) for name in names}
        database = Rdict(
            str(scratch), Options(raw_mode=True), column_families=options, access_type=AccessType.read_only()
        )
        rows = [dict(database.get_column_family(name).items()) for name in ("default", "offset")]
        database.close()
    except Exception:  # noqa: BLE001 - the library has no other
        return None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Content(*rows)


def rows_say_nothing(before: Content | None, after: Content | None, intact: set[int], log_end: int) -> bool:
    """Whether only such rows changed that no intact record tells of, or that may be out of date.

    Out of date may be the first unit of a queue, as long as no intact message is before it, and how far the log was
    dispatched.
    """
    if before is None or after is None:
        return before is after
    units = before.units.items() ^ after.units.items()
    if any(key not in before.units or _place(before.units[key]) in intact for key, _ in units):
        return False
    return all(_may_be(key, before, after, intact, log_end) for key, _ in before.ends.items() ^ after.ends.items())


def _may_be(key: bytes, before: Content, after: Content, intact: set[int], log_end: int) -> bool:
    old, new = before.ends.get(key, b""), after.ends.get(key, b"")
    if old == b"":
        return False
    if key[5:].startswith(b"CHECKPOINT_TOPIC"):
        return new == b"" or (len(new) == len(old) and 0 <= _place(new) <= log_end)
    queue = {
        int.from_bytes(name[-8:]): _place(unit)
        for name, unit in before.units.items()
        if name.startswith(_queue_of(key))
    }
    if b"\x01min\x01" in key:
        return new == b"" or (len(new) == len(old) and _hides_nothing(new, queue, intact))
    return not any(place in intact for place in queue.values())


def _hides_nothing(minimum: bytes, queue: dict[int, int], intact: set[int]) -> bool:
    lowest = int.from_bytes(minimum[8:], "big", signed=True)
    return not any(place in intact for queue_offset, place in queue.items() if queue_offset < lowest)


def _queue_of(end_key: bytes) -> bytes:
    """What the units of an end's queue begin with."""
    return end_key[:-8] + end_key[-4:] + b"\x01"


def _place(row: bytes) -> int:
    return int.from_bytes(row[:8], "big", signed=True)
