"""Writes a customer's text over everything in a store, and looks for it in the bundle in each of its encodings.

What is written over comes from the declared formats: every field of each, runs of fields, sectors, and ranges that
begin and end anywhere. A format that is declared later is written over as well.
"""

from __future__ import annotations

import base64
import json
import random
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import lz4.frame
import numpy as np
import zstandard

from rmqtool.evidence.plausible import BOUNDS
from rmqtool.formats import checkpoint, commitlog, consumequeue, index, timer
from rmqtool.formats.catalog import BY_NAME
from rmqtool.formats.layout import Format
from rmqtool.store.file_kinds import FileKind, kind_of
from tests.evidence.leak_scan import contents

WINDOW: Final = 8
"""Bytes in a row from which a text is taken for a leak: what a header of a record passes for is shorter."""
_DIGITS: Final = re.compile(rb"-?\d{16,20}")
_LETTERS: Final = "bcdfghjkmnpqrstvwz"


@dataclass(frozen=True)
class Tape:
    """A secret in many encodings, one after the other.

    Attributes:
        windows: each eight bytes in a row, as numbers in order.
    """

    raw: bytes
    windows: np.ndarray

    @classmethod
    def of(cls, seed: int) -> Tape:
        """A tape of its own for each seed."""
        pick = random.Random(seed)
        words = ["".join(pick.choices(_LETTERS, k=pick.randint(5, 9))) for _ in range(16)]
        text = " ".join(words)
        wide = "".join(chr(pick.randint(0x4E00, 0x9FA5)) for _ in range(40))
        noise = pick.randbytes(300)
        parts = [
            text.encode(), wide.encode(), text.encode("utf-16-be"), wide.encode("utf-16-le"), text.encode("utf-16-le"),
            base64.b64encode(text.encode()), text.encode().hex().encode(), json.dumps(wide + text).encode(),
            zlib.compress(noise + text.encode()), lz4.frame.compress(noise + text.encode())[:-4],
            zstandard.ZstdCompressor().compress(noise + text.encode()), "_".join(words).encode(),
        ]  # fmt: skip
        raw = b"".join(parts)
        windows = np.unique(_windows(raw))
        zeros = windows.view(np.uint8).reshape(-1, WINDOW) == 0
        is_wide = zeros[:, ::2].all(axis=1) | zeros[:, 1::2].all(axis=1)
        return cls(raw, windows[(zeros.sum(axis=1) < 3) | is_wide])

    def found_in(self, content: bytes) -> list[bytes]:
        """What of the tape is in some bytes, and in the long decimal numbers in them."""
        seen = _windows(content)
        hits = np.unique(seen[np.isin(seen, self.windows)])
        found = [int(number).to_bytes(WINDOW, "little") for number in hits]
        for match in _DIGITS.findall(content):
            number = int(match)
            if -(1 << 63) <= number < 1 << 63:
                raw = number.to_bytes(WINDOW, "big", signed=True)
                if np.isin(np.frombuffer(raw, "<u8"), self.windows)[0]:
                    found.append(match)
        return found


def _windows(raw: bytes) -> np.ndarray:
    if len(raw) < WINDOW:
        return np.zeros(0, "<u8")
    array = np.frombuffer(raw, np.uint8)
    return np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(array, WINDOW)).view("<u8").ravel()


UNITS: Final[dict[FileKind, Format]] = {
    FileKind.CONSUMEQUEUE: consumequeue.UNIT,
    FileKind.BATCH_CONSUMEQUEUE: consumequeue.BATCH_UNIT,
    FileKind.COMPACTION_QUEUE: consumequeue.BATCH_UNIT,
    FileKind.CONSUMEQUEUE_EXT: consumequeue.EXTENSION_UNIT,
    FileKind.CHECKPOINT: checkpoint.CHECKPOINT,
    FileKind.TIMER_CHECK: timer.CHECK,
    FileKind.TIMER_WHEEL: timer.SLOT,
    FileKind.TIMER_LOG: timer.UNIT,
    FileKind.COMMITLOG: commitlog.MESSAGE_V1,
    FileKind.COMPACTION_LOG: commitlog.MESSAGE_V1,
}


@dataclass(frozen=True)
class Place:
    """A unit in a file: where its fields are.

    Attributes:
        fields: name, position in the file, and length of each that has both.
    """

    path: Path
    declared: str
    fields: tuple[tuple[str, int, int], ...]


def places_in(store: Path, pick: random.Random) -> list[Place]:
    """One unit of each format in each kind of file, and for other files a place without fields."""
    by_kind: dict[FileKind, list[Path]] = {}
    for path in sorted(store.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.stat().st_size:
            by_kind.setdefault(kind_of(path.relative_to(store).as_posix()), []).append(path)
    places = []
    for kind, paths in by_kind.items():
        path = pick.choice(paths)
        if kind is FileKind.INDEX:
            places += _index_places(path)
        elif kind in UNITS:
            starts = _starts(path, kind)
            if starts:
                places.append(_place(path, UNITS[kind], pick.choice(starts)))
        if kind not in UNITS and kind is not FileKind.INDEX:
            places.append(Place(path, kind.value, ()))
    return places


def _place(path: Path, declared: Format, start: int) -> Place:
    fields = tuple((field.name, start + (field.position or 0), field.size or 0) for field in declared.fixed_fields)
    return Place(path, declared.name, fields)


def _index_places(path: Path) -> list[Place]:
    raw = path.read_bytes()
    slot_count = next(
        (count for count in (500, 1000, 5_000_000) if index.file_size(count, 4 * count) == len(raw)), len(raw) // 84
    )
    used = next((slot for slot in range(slot_count) if any(raw[40 + 4 * slot : 44 + 4 * slot])), 0)
    return [
        _place(path, index.HEADER, 0),
        _place(path, index.SLOT, index.slot_position(used)),
        _place(path, index.ENTRY, index.entry_position(1, slot_count)),
    ]


def _starts(path: Path, kind: FileKind) -> list[int]:
    """Where units with data begin."""
    raw = path.read_bytes()
    declared = UNITS[kind]
    if declared is commitlog.MESSAGE_V1:
        magics = b"|".join(re.escape(commitlog.MAGIC_BYTES[magic]) for magic in commitlog.MESSAGE_MAGICS)
        return [match.start() - 4 for match in re.finditer(magics, raw) if match.start() >= 4]
    size = declared.size
    if size is None or kind in (FileKind.CHECKPOINT, FileKind.TIMER_CHECK):
        return [0]
    found = np.flatnonzero(np.frombuffer(raw, np.uint8)[: len(raw) - len(raw) % size].reshape(-1, size).any(axis=1))
    return [int(number) * size for number in found]


Damage = tuple[str, Callable[[Place, random.Random], tuple[int, int]]]


def _ranges() -> Iterator[Damage]:
    """Start and length of what is written over, by name: fifty kinds."""
    for count in range(1, 9):
        for shift in (0, 1):
            yield f"{count} fields from byte {shift}", lambda place, pick, c=count, s=shift: _fields(place, pick, c, s)
    for size in (8, 12, 16, 24, 40, 64, 88, 128, 200, 300):
        yield f"{size} bytes from a field on", lambda place, pick, n=size: (_fields(place, pick, 1, 0)[0], n)
        yield f"{size} bytes up to the end of a field", lambda place, pick, n=size: _before(place, pick, n)
    for size in (512, 4096):
        for step in (1, 8, 512):
            yield f"{size} bytes at a multiple of {step}", lambda place, pick, n=size, m=step: _block(place, pick, n, m)
    for size in (9, 33, 100, 700, 1500, 2048, 3000, 5000):
        yield f"{size} bytes anywhere", lambda place, pick, n=size: (pick.randrange(place.path.stat().st_size), n)


def _fields(place: Place, pick: random.Random, count: int, shift: int) -> tuple[int, int]:
    if not place.fields:
        return pick.randrange(place.path.stat().st_size), 8 * count
    first = pick.randrange(len(place.fields))
    last = place.fields[min(first + count, len(place.fields)) - 1]
    start = place.fields[first][1] + shift
    return start, max(1, last[1] + last[2] - start)


def _before(place: Place, pick: random.Random, size: int) -> tuple[int, int]:
    start, length = _fields(place, pick, 1, 0)
    return max(0, start + length - size), size


def _block(place: Place, pick: random.Random, size: int, step: int) -> tuple[int, int]:
    start = _fields(place, pick, 1, 0)[0]
    return (start - start % step if step > 1 else max(0, start - pick.randrange(size))), size


DAMAGES: Final[Sequence[Damage]] = tuple(_ranges())


def plant(place: Place, damage: Damage, tape: Tape, pick: random.Random) -> tuple[int, int]:
    """Write a piece of the tape over a part of a file, which keeps its length; start and length."""
    start, length = damage[1](place, pick)
    length = min(length, place.path.stat().st_size - start)
    at = pick.randrange(len(tape.raw))
    content = (tape.raw + tape.raw * (length // len(tape.raw) + 1))[at : at + length]
    with place.path.open("r+b") as file:
        file.seek(start)
        file.write(content)
    return start, length


def leaks_of(tape: Tape, bundle: Path) -> list[bytes]:
    """What of a tape is in a bundle."""
    return [found for content in contents(bundle) for found in tape.found_in(content)]


def covered() -> set[str]:
    """Formats that are written over field by field."""
    return {declared.name for declared in (*UNITS.values(), index.HEADER, index.SLOT, index.ENTRY)}


def copied_formats() -> set[str]:
    """Formats of which a bundle has units."""
    return set(BOUNDS) & set(BY_NAME)
