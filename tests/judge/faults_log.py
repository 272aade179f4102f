"""Faults in the commit log: fields, records, blocks and whole files."""

import struct
from collections.abc import Callable
from pathlib import Path

from tests.broker.files import copy_store, digest, swap_names
from tests.judge.target import BLANK_MAGIC, Fault, Target, record_fields

Change = Callable[[Target], Fault | None]


def _fault(target: Target, name: str, file: Path, what: str = "", *, silent: bool = False) -> Fault:
    return Fault(f"log.{name}", "commitlog", target.relative(file), what, silent)


def field(target: Target) -> Fault | None:
    """A field of a record has another value."""
    place = target.record()
    found = target.log_file_of(place[0]) if place else None
    if place is None or found is None:
        return None
    file, position = found
    content = target.read(file, position, place[1])
    try:
        fields = record_fields(content)
    except (struct.error, IndexError):
        return None
    name = target.draw.choice(sorted(fields))
    at, width = fields[name]
    if width > 8:
        at, width = at + target.draw.randrange(width), 1
    what = target.change_number(file, position + at, width)
    return _fault(target, f"field {name}", file, f"record {place[0]}: {what}") if what else None


def record_overwritten(target: Target) -> Fault | None:
    """One to three records are zeros, noise, or another record's bytes."""
    place = target.record()
    found = target.log_file_of(place[0]) if place else None
    if place is None or found is None:
        return None
    size = place[1] * target.draw.choice((1, 1, 3))
    file, position = found
    size = min(size, file.stat().st_size - position)
    way = target.draw.choice(("zeros", "noise", "another"))
    content = bytes(size) if way == "zeros" else target.draw.randbytes(size)
    if way == "another":
        other = target.draw.choice(target.records())
        source = target.log_file_of(other[0])
        if source is None:
            return None
        content = target.read(source[0], source[1], other[1])[: file.stat().st_size - position]
    if not target.write(file, position, content):
        return None
    return _fault(target, f"record {way}", file, f"{place[0]}, {len(content)} bytes")


def block(target: Target) -> Fault | None:
    """A block of the disk is lost, noise, or was written to the wrong place; or two changed places."""
    end = target.log_end()
    size = target.draw.choice((512, 4096, 4096, 16384))
    starts = [target.draw.randrange(end) // size * size for _ in range(2)] if end else []
    places = [target.log_file_of(start) for start in starts]
    if not places or None in places:
        return None
    (file, position), (other, other_position) = places  # type: ignore[misc]
    content, other_content = target.read(file, position, size), target.read(other, other_position, size)
    way = target.draw.choice(("zeros", "noise", "copied", "swapped"))
    new = {"zeros": bytes(len(content)), "noise": target.draw.randbytes(len(content))}.get(way, other_content)
    changed = target.write(file, position, new[: len(content)])
    if way == "swapped":
        changed |= target.write(other, other_position, content[: len(other_content)])
    return _fault(target, f"block {way}", file, f"{starts}, {size} bytes") if changed else None


def hole(target: Target) -> Fault | None:
    """Zeros that begin and end anywhere."""
    end = target.log_end()
    start = target.draw.randrange(end) if end else 0
    found = target.log_file_of(start)
    if found is None:
        return None
    size = min(target.draw.choice((1, 4, 91, 700, 9000)), found[0].stat().st_size - found[1])
    return _fault(target, "hole", found[0], f"{start}, {size}") if target.write(*found, bytes(size)) else None


def shifted(target: Target) -> Fault | None:
    """Some bytes are missing or doubled in a file, which keeps its length: all behind them is shifted."""
    place = target.record()
    found = target.log_file_of(place[0]) if place else None
    if found is None:
        return None
    file, position = found
    rest = target.read(file, position, min(file.stat().st_size - position, 1 << 18))
    count = target.draw.choice((1, 4, 20, 91))
    way = target.draw.choice(("lost", "doubled"))
    new = (rest[count:] + bytes(count)) if way == "lost" else (rest[:count] + rest)[: len(rest)]
    return _fault(target, f"bytes {way}", file, f"{place}, {count}") if target.write(file, position, new) else None


def blank(target: Target) -> Fault | None:
    """The header of the blank at a file's end is changed."""
    sizes = target.truth.sizes
    ends = [at + size for at, size in sizes.items() if at + size not in sizes]
    found = target.log_file_of(target.draw.choice(ends)) if ends else None
    if found is None or int.from_bytes(target.read(found[0], found[1] + 4, 4), "big") != BLANK_MAGIC:
        return None
    what = target.change_number(found[0], found[1] + target.draw.choice((0, 4)), 4)
    return _fault(target, "blank", found[0], what) if what else None


def file_length(target: Target) -> Fault | None:
    """A file is cut, or longer than it should be."""
    files = target.log_files()
    file = files[-1] if files and target.draw.random() < 0.4 else target.pick(files)
    if file is None:
        return None
    size = file.stat().st_size
    new = target.draw.choice((0, 1, 4096, size // 2, size - 1, size + 1, size + 4096, target.draw.randrange(size + 1)))
    if new == size:
        return None
    with file.open("r+b") as sink:
        sink.truncate(new)
    return _fault(target, "cut" if new < size else "longer", file, f"{size} -> {new}")


def file_gone(target: Target) -> Fault | None:
    """One file is missing or zeroed; or all but one are missing."""
    files = target.log_files()
    if not files:
        return None
    way = target.draw.choice(("missing", "zeroed", "first missing", "last missing", "alone"))
    file = {"first missing": files[0], "last missing": files[-1]}.get(way) or target.draw.choice(files)
    empty = not target.read(file, 0, 1 << 20).strip(b"\0")
    if way == "zeroed":
        size = file.stat().st_size
        if empty:
            return None
        file.write_bytes(b"")
        with file.open("r+b") as sink:
            sink.truncate(size)
    elif way == "alone":
        if len(files) == 1:
            return None
        later = files[files.index(file) + 1 :]  # those before it may have expired
        empty = not any(target.read(other, 0, 1 << 20).strip(b"\0") for other in later)
        for other in files:
            if other != file:
                other.unlink()
    else:
        file.unlink()
    # A log may begin anywhere, and a file that was made in advance holds nothing.
    first = min((int(left.name) for left in target.log_files()), default=-1)
    silent = (way == "alone" and empty) or (way.endswith("missing") and (empty or int(file.name) < first))
    return _fault(target, f"file {way}", file, silent=silent)


def file_named(target: Target) -> Fault | None:
    """A file has a wrong name, or two have each other's."""
    files = target.log_files()
    if not files:
        return None
    file, other = target.draw.choice(files), target.draw.choice(files)
    size = target.base.plan.log_file_size
    way = target.draw.choice(("wrong", "swapped", "twice"))
    if way == "swapped":
        if file == other:
            return None
        swap_names(file, other)
        return _fault(target, "names swapped", file, other.name)
    names = (f"{file.name}.bak", f"x{file.name}", f"{int(file.name) + 1:020d}", f"{int(file.name)}",
             f"{int(file.name) + 7 * size:020d}", f"{int(file.name):022d}")  # fmt: skip
    new = file.with_name(target.draw.choice(names))
    if new.exists():
        return None
    if way == "twice":
        copy_store(file, new)
    else:
        file.rename(new)
    return _fault(target, f"name {way}", new, file.name)


def stray(target: Target) -> Fault | None:
    """Something in the log's directory that is no part of it."""
    folder = target.path / target.base.plan.log_directories[0]
    if not folder.is_dir():
        return None
    way = target.draw.choice(("file", "empty file", "directory", "hidden file"))
    new = folder / {"directory": "lost+found", "hidden file": ".DS_Store"}.get(way, "notes.txt")
    if new.exists():
        return None
    if way == "directory":
        new.mkdir()
    else:
        new.write_bytes(b"" if way == "empty file" else b"hello\n")
    return _fault(target, f"stray {way}", new)


def next_files(target: Target) -> Fault | None:
    """Files of zeros behind the end, as a crash during a roll leaves: one, several, or with a gap between them."""
    files = target.log_files()
    if not files:
        return None
    size = target.base.plan.log_file_size
    numbers = target.draw.choice(((1,), (1, 2), (1, 2, 3), (2,), (1, 3), (1, 2, 4)))
    length = target.draw.choice((size, size, size, 0, size // 2))
    last = int(files[-1].name)
    for number in numbers:
        new = files[-1].with_name(f"{last + number * size:020d}")
        with new.open("wb") as sink:
            sink.truncate(length)
    usual = length == size and numbers in {(1,), (1, 2)}  # what a broker makes in advance
    return _fault(target, "next files", files[-1], f"{numbers}, {length} bytes", silent=usual)


def tail(target: Target) -> Fault | None:
    """Something behind the log's end: noise, a record that was once there, or the begin of one."""
    end = target.log_end()
    found = target.log_file_of(end)
    records = target.records()
    if found is None or not records:
        return None
    file, position = found
    way = target.draw.choice(("noise", "old record", "torn record", "moved record"))
    at, size = target.draw.choice(records)
    source = target.log_file_of(at)
    if source is None:
        return None
    content = target.read(source[0], source[1], size)
    if way == "noise":
        content = target.draw.randbytes(target.draw.choice((1, 8, 300)))
    elif way == "torn record":
        content = content[: target.draw.randrange(1, size)]
    elif way == "moved record":
        position += target.draw.choice((8, 91, 4096))
    content = content[: max(0, file.stat().st_size - position)]
    return _fault(target, f"tail {way}", file, f"{position}") if target.write(file, position, content) else None


def torn(target: Target) -> Fault | None:
    """The last record is there in part, as after a power failure."""
    records = target.records()
    found = target.log_file_of(records[-1][0]) if records else None
    if found is None:
        return None
    size = records[-1][1]
    kept = target.draw.randrange(size)
    changed = target.write(found[0], found[1] + kept, bytes(size - kept))
    return _fault(target, "torn", found[0], f"{records[-1]}, {kept} bytes kept") if changed else None


def old_file(target: Target) -> Fault | None:
    """A file is as it was after the first run."""
    file = target.pick(target.log_files())
    if file is None or target.base.early is None:
        return None
    old = target.base.early / target.relative(file)
    if not old.is_file() or (old.stat().st_size == file.stat().st_size and digest(old) == digest(file)):
        return None
    copy_store(old, file)
    return _fault(target, "old file", file)


CHANGES: tuple[Change, ...] = (
    field, field, field, field, record_overwritten, record_overwritten, block, block, hole, hole, shifted, blank,
    file_length, file_gone, file_gone, file_named, stray, next_files, tail, torn, old_file,
)  # fmt: skip
