"""Faults in what is derived from the log: consume queues, extension files and index."""

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.broker.files import copy_store, digest, swap_names
from tests.judge.bases import numbers_of
from tests.judge.target import UNIT, Fault, Target, units_of

Change = Callable[[Target], Fault | None]
QUEUE, INDEX = "consumequeue", "index"
ENTRY = 20


def _fault(target: Target, area: str, name: str, file: Path, what: str = "", *, silent: bool = False) -> Fault:
    return Fault(f"{area}.{name}", area, target.relative(file), what, silent)


def _queue_file(target: Target, units: int = 1) -> Path | None:
    files = [file for file in target.queue_files() if units_of(target, file) >= units]
    return target.draw.choice(files) if files else None


def unit_field(target: Target) -> Fault | None:
    """A field of a unit has another value."""
    file = _queue_file(target)
    if file is None:
        return None
    unit = target.draw.randrange(units_of(target, file))
    name, at, width = target.draw.choice((("physical offset", 0, 8), ("size", 8, 4), ("tags code", 12, 8)))
    what = target.change_number(file, unit * UNIT + at, width)
    return _fault(target, QUEUE, f"unit {name}", file, f"unit {unit}: {what}") if what else None


def units_moved(target: Target) -> Fault | None:
    """Units are swapped, doubled, missing, zeroed or another queue's."""
    file = _queue_file(target, 2)
    if file is None:
        return None
    count = units_of(target, file)
    one, other = target.draw.sample(range(count), 2)
    units = [target.read(file, at * UNIT, UNIT) for at in range(count)]
    before = b"".join(units)
    way = target.draw.choice(("swapped", "doubled", "lost", "zeroed", "zeroed to the end", "copied", "foreign"))
    if way == "swapped":
        units[one], units[other] = units[other], units[one]
    elif way == "doubled":
        units = [*units[:one], units[one], *units[one:]][:count]
    elif way == "lost":
        del units[one]
    elif way == "zeroed":
        units[one] = bytes(UNIT)
    elif way == "zeroed to the end":
        units = units[:one]
    elif way == "copied":
        units[one] = units[other]
    elif (source := _queue_file(target)) is not None:
        units[one] = target.read(source, 0, UNIT)
    content = b"".join(units)[: len(before)].ljust(len(before), b"\0")
    changed = target.write(file, 0, content)
    return _fault(target, QUEUE, f"units {way}", file, f"{one}, {other} of {count}") if changed else None


def units_behind(target: Target) -> Fault | None:
    """Something lies behind a queue's end: old units, noise, or units that point behind the log."""
    files = [file for file in target.queue_files() if 0 < (units_of(target, file) + 2) * UNIT <= file.stat().st_size]
    if not files:
        return None
    file = target.draw.choice(files)
    end = units_of(target, file) * UNIT
    way = target.draw.choice(("old unit", "noise", "ahead", "after a gap"))
    unit = target.read(file, max(0, end - UNIT), UNIT).ljust(UNIT, b"\0")
    if way == "noise":
        unit = target.draw.randbytes(UNIT)
    elif way == "ahead":
        unit = (
            (target.log_end() + target.draw.choice((0, 4096))).to_bytes(8, "big") + (200).to_bytes(4, "big") + bytes(8)
        )
    changed = target.write(file, end + (UNIT if way == "after a gap" else 0), unit)
    return _fault(target, QUEUE, f"behind the end: {way}", file) if changed else None


def block(target: Target) -> Fault | None:
    """A block is lost or noise."""
    area = target.draw.choice((QUEUE, INDEX))
    file = target.pick(target.queue_files() if area == QUEUE else target.index_files(), 1)
    if file is None:
        return None
    size = min(file.stat().st_size, 1 << 20)
    length = target.draw.choice((1, 20, 512, 4096))
    start = target.draw.randrange(size) // length * length
    content = target.read(file, start, length)
    way = target.draw.choice(("zeros", "noise"))
    new = bytes(len(content)) if way == "zeros" else target.draw.randbytes(len(content))
    changed = target.write(file, start, new)
    return _fault(target, area, f"block {way}", file, f"{start}, {length}") if changed else None


def file_length(target: Target) -> Fault | None:
    """A file is cut, empty or longer."""
    area = target.draw.choice((QUEUE, QUEUE, INDEX))
    file = target.pick(_files(target, area))
    if file is None:
        return None
    size = file.stat().st_size
    new = target.draw.choice((0, 1, size - 20, size - 1, size // 2, size + 1, size + 20, size + 4096, 40))
    if new == size or new < 0:
        return None
    # Nothing in an only index file tells how many entries a file has room for.
    is_room = area == INDEX and len(_files(target, area)) == 1 and (new - size) % ENTRY == 0
    silent = is_room and not any(target.read(file, new, max(0, size - new)))
    with file.open("r+b") as sink:
        sink.truncate(new)
    return _fault(target, area, "cut" if new < size else "longer", file, f"{size} -> {new}", silent=silent)


def file_gone(target: Target) -> Fault | None:
    """A file is missing or zeroed; all but one are; a whole directory is missing."""
    area = target.draw.choice((QUEUE, QUEUE, INDEX))
    file = target.pick(_files(target, area))
    if file is None:
        return None
    way = target.draw.choice(("missing", "missing", "zeroed", "zeroed", "alone", "directory", "all"))
    if way == "zeroed":
        size = file.stat().st_size
        if not target.read(file, 0, 1 << 20).strip(b"\0"):
            return None
        file.write_bytes(b"")
        with file.open("r+b") as sink:
            sink.truncate(size)
    elif way == "alone":
        others = [other for other in file.parent.iterdir() if other != file]
        if not others:
            return None
        for other in others:
            other.unlink()
    elif way == "directory":
        is_topic = target.draw.random() >= 0.5 and area != INDEX and file.parent.parent != target.path
        file = file.parent.parent if is_topic else file.parent
        shutil.rmtree(file)
    elif way == "all":
        file = target.path / target.relative(file).split("/")[0]
        shutil.rmtree(file)
    else:
        file.unlink()
    return _fault(target, area, f"{way} gone" if way in ("directory", "all") else f"file {way}", file)


def file_named(target: Target) -> Fault | None:
    """A file has a wrong name, there is a second one, or two have each other's name."""
    area = target.draw.choice((QUEUE, QUEUE, INDEX))
    files = _files(target, area)
    file, other = target.pick(files), target.pick(files)
    if file is None or other is None:
        return None
    way = target.draw.choice(("wrong", "twice", "swapped"))
    if way == "swapped":
        if file == other or (file.stat().st_size == other.stat().st_size and digest(file) == digest(other)):
            return None
        swap_names(file, other)
        return _fault(target, area, "names swapped", file, target.relative(other))
    names = [f"{file.name}.bak", f"{file.name[:-1]}1", f"00{file.name}", "1"]
    if file.name.isdigit():
        names.append(f"{int(file.name) + 600:0{len(file.name)}d}")
    new = file.with_name(target.draw.choice(names))
    if new.exists():
        return None
    if way == "twice":
        copy_store(file, new)
    else:
        file.rename(new)
    # More zeros in front mean the same number; brokers sort by name.
    others = [other.name for other in new.parent.iterdir() if other != new and other.name.isdigit()]
    same = new.name.isdigit() and file.name.isdigit() and int(new.name) == int(file.name) and len(others) == len(
        [other for other in others if (other < new.name) == (int(other) < int(new.name))]
    )  # fmt: skip
    # Nothing but an index file's name tells when it was made; brokers only sort by it.
    place = [sorted((name, *others)).index(name) for name in (file.name, new.name) if len(name) == 17]
    same = same or (area == INDEX and new.name.isdigit() and len(place) == 2 and place[0] == place[1])
    return _fault(target, area, f"name {way}", new, file.name, silent=same and way == "wrong")


def stray(target: Target) -> Fault | None:
    """Something that is no part of queues or index."""
    area = target.draw.choice((QUEUE, QUEUE, INDEX))
    file = target.pick(_files(target, area))
    if file is None:
        return None
    folder = target.draw.choice((file.parent, file.parent.parent)) if area == QUEUE else file.parent
    if folder == target.path:
        return None
    way = target.draw.choice(("file", "empty file", "directory", "number"))
    new = folder / {"file": "notes.txt", "empty file": ".empty", "directory": "lost+found", "number": "77"}[way]
    if new.exists():
        return None
    if way in ("directory", "number"):
        new.mkdir()
    else:
        new.write_bytes(b"" if way == "empty file" else b"hello\n")
    # No broker looks at a file beside queues, or at a directory whose name is no number; an empty queue is a queue.
    beside = area == QUEUE and folder == file.parent.parent
    skipped = (
        area == QUEUE
        and way in {"directory", "number"}
        and not ((4, 5, 0) <= numbers_of(target.base.plan.version) < (5, 1, 0))
    )
    return _fault(target, area, f"stray {way}", new, silent=beside or skipped)


def next_file(target: Target) -> Fault | None:
    """A file of zeros behind the last one of a queue, or of the index."""
    area = target.draw.choice((QUEUE, INDEX))
    file = target.pick(_files(target, area))
    if file is None:
        return None
    last = max(file.parent.iterdir())
    if not last.name.isdigit() or not last.is_file():
        return None
    size = last.stat().st_size
    new = last.with_name(f"{int(last.name) + (size if area == QUEUE else 1):0{len(last.name)}d}")
    with new.open("wb") as sink:
        sink.truncate(target.draw.choice((size, size, 0)))
    # A broker that is killed while it rolls a queue leaves such a file.
    return _fault(target, area, "next file", new, silent=area == QUEUE)


def old_file(target: Target) -> Fault | None:
    """A file, or all of a directory, is as it was after the first run."""
    area = target.draw.choice((QUEUE, INDEX))
    file = target.pick(_files(target, area))
    if file is None or target.base.early is None:
        return None
    if target.draw.random() < 0.3:
        file = target.path / target.relative(file).split("/")[0]
    old = target.base.early / target.relative(file)
    if not old.exists():
        return None
    if old.is_dir():
        shutil.rmtree(file)
        copy_store(old, file)
        return _fault(target, area, "old directory", file)
    if old.stat().st_size == file.stat().st_size and digest(old) == digest(file):
        return None
    copy_store(old, file)
    return _fault(target, area, "old file", file)


def index_field(target: Target) -> Fault | None:
    """A field of an index file's header, a slot, or an entry has another value."""
    file = target.pick(target.index_files(), 40)
    if file is None:
        return None
    plan = target.base.plan.config
    slots = int(plan.get("maxHashSlotNum", 5_000_000))
    count = int.from_bytes(target.read(file, 36, 4), "big")
    way = target.draw.choice(("header", "header", "slot", "entry", "entry", "loop"))
    if way == "header":
        name, at, width = target.draw.choice((("begin time", 0, 8), ("end time", 8, 8), ("begin offset", 16, 8),
                                              ("end offset", 24, 8), ("slots", 32, 4), ("count", 36, 4)))  # fmt: skip
    elif way == "slot":
        name, at, width = "slot", 40 + 4 * target.draw.randrange(min(slots, 1000)), 4
    else:
        entry = target.draw.randrange(1, max(2, min(count, 1000)))
        name, at, width = target.draw.choice(
            (("hash", 0, 4), ("physical offset", 4, 8), ("time", 12, 4), ("previous", 16, 4))
        )
        at += 40 + 4 * slots + 20 * entry
        if way == "loop":
            at += 16 - (at - 40 - 4 * slots) % 20
            changed = target.write(file, at, entry.to_bytes(4, "big"))
            return _fault(target, INDEX, "loop", file, f"entry {entry}") if changed else None
    what = target.change_number(file, at, width)
    silent = (way == "entry" and name == "time") or name == "slots"
    return _fault(target, INDEX, f"{way} {name}", file, what, silent=silent) if what else None


def extension(target: Target) -> Fault | None:
    """An extension file is cut, zeroed, missing or changed."""
    file = target.pick(target.extension_files(), 1)
    if file is None:
        return None
    way = target.draw.choice(("missing", "cut", "zeroed", "noise"))
    size = file.stat().st_size
    if way == "missing":
        file.unlink()
    elif way == "cut":
        with file.open("r+b") as sink:
            sink.truncate(size // 2)
    elif not target.write(file, 0, bytes(min(size, 400)) if way == "zeroed" else target.draw.randbytes(40)):
        return None
    return _fault(target, QUEUE, f"extension {way}", file)


def _files(target: Target, area: str) -> list[Path]:
    return target.queue_files() if area == QUEUE else target.index_files()


CHANGES: tuple[Change, ...] = (
    unit_field, unit_field, units_moved, units_moved, units_moved, units_behind, block, file_length, file_gone,
    file_gone, file_named, stray, next_file, old_file, index_field, index_field, index_field, extension,
)  # fmt: skip
