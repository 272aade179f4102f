"""A store that is about to be damaged: where its files and records lie, and plain edits of bytes."""

import random
import struct
from dataclasses import dataclass
from pathlib import Path

from tests.judge.bases import Base, Truth

UNIT = 20
BLANK_MAGIC = 0xCBD43194


@dataclass(frozen=True)
class Fault:
    """One thing that was done to a store.

    Attributes:
        area: the first part of the findings that may name it: commitlog, consumequeue,
            index, checkpoint, config or store.
        file: relative path of the file or directory that was damaged.
        silent: whether no checksum and no other file repeats what was changed, so that nobody can see it.
    """

    name: str
    area: str
    file: str
    what: str
    silent: bool = False


@dataclass
class Target:
    """A copy of a base that faults are written into."""

    base: Base
    truth: Truth
    path: Path
    draw: random.Random

    def log_files(self) -> list[Path]:
        """The log's files with a proper name, in the order of their names."""
        files = [file for name in self.base.plan.log_directories for file in self._below(name)]
        return sorted((file for file in files if file.name.isdigit()), key=lambda file: file.name)

    def queue_files(self) -> list[Path]:
        if self.base.plan.has_database:
            return []
        return self._below("consumequeue") + self._below("batchconsumequeue")

    def extension_files(self) -> list[Path]:
        return self._below("consumequeue_ext")

    def index_files(self) -> list[Path]:
        return self._below("index")

    def database(self) -> Path | None:
        """The directory of the consume queues in RocksDB, where there is one with a database in it."""
        if not self.base.plan.has_database:
            return None
        folders = [self.path / name for name in ("consumequeue", "consumequeue_rocksdb")]
        return next((folder for folder in folders if any(folder.glob("MANIFEST-*"))), None)

    def records(self) -> list[tuple[int, int]]:
        """(physical offset, size) of the base's records."""
        return list(self.truth.sizes.items())

    def record(self) -> tuple[int, int] | None:
        """A record: any, or one near an end, which is where things go wrong."""
        records = self.records()
        if not records:
            return None
        where = self.draw.random()
        if where < 0.15:
            return records[-1]
        if where < 0.25:
            return records[0]
        return self.draw.choice(records)

    def log_file_of(self, physical_offset: int) -> tuple[Path, int] | None:
        """The file that holds a physical offset by its name, and the position in it."""
        size = self.base.plan.log_file_size
        start = physical_offset - physical_offset % size
        for file in self.log_files():
            if int(file.name) == start and file.stat().st_size > physical_offset - start:
                return file, physical_offset - start
        return None

    def log_end(self) -> int:
        """Behind the last record of the base."""
        return max((at + size for at, size in self.truth.sizes.items()), default=0)

    def relative(self, file: Path) -> str:
        return str(file.relative_to(self.path))

    def pick(self, files: list[Path], at_least: int = 0) -> Path | None:
        files = [file for file in files if file.is_file() and file.stat().st_size >= at_least]
        return self.draw.choice(files) if files else None

    def read(self, file: Path, position: int, length: int) -> bytes:
        with file.open("rb") as source:
            source.seek(position)
            return source.read(length)

    def write(self, file: Path, position: int, content: bytes) -> bool:
        """Write bytes into a file; whether that changed any."""
        if self.read(file, position, len(content)) == content:
            return False
        with file.open("r+b") as sink:
            sink.seek(position)
            sink.write(content)
        return True

    def change_number(self, file: Path, position: int, width: int) -> str | None:
        """Change a big-endian number in one of the ways in which numbers go wrong."""
        raw = self.read(file, position, width) if position >= 0 else b""
        if len(raw) < width:
            return None
        value = int.from_bytes(raw, "big", signed=True)
        bits = width * 8
        ways = {
            "flipped": value ^ (1 << self.draw.randrange(bits)),
            "zeroed": 0,
            "plus": value + self.draw.choice((1, 20, 4096)),
            "minus": value - self.draw.choice((1, 20, 4096)),
            "largest": (1 << (bits - 1)) - 1,
            "negative": -self.draw.choice((1, value if value > 0 else 2)),
            "random": self.draw.getrandbits(bits - 1),
        }
        way = self.draw.choice(sorted(ways))
        content = (ways[way] & ((1 << bits) - 1)).to_bytes(width, "big")
        return f"{way}: {raw.hex()} -> {content.hex()}" if self.write(file, position, content) else None

    def _below(self, folder: str) -> list[Path]:
        return sorted(file for file in (self.path / folder).rglob("*") if file.is_file())


def units_of(target: Target, file: Path) -> int:
    """Units of a queue file that are in use, those in front of the trailing zeros."""
    content = target.read(file, 0, 1 << 20).rstrip(b"\0")
    return -(-len(content) // UNIT)


def record_fields(content: bytes) -> dict[str, tuple[int, int]]:
    """Position and length of every field of a record; the variable ones only where there is something in them."""
    (flags,) = struct.unpack_from(">i", content, 36)
    born, store = (20 if flags & 0x10 else 8), (20 if flags & 0x20 else 8)
    fields = {"size": (0, 4), "magic": (4, 4), "body-crc": (8, 4), "queue-id": (12, 4), "flag": (16, 4),
              "queue-offset": (20, 8), "physical-offset": (28, 8), "sys-flag": (36, 4), "born-time": (40, 8),
              "born-host": (48, born)}  # fmt: skip
    at = 48 + born
    widths = (
        ("store-time", 8),
        ("store-host", store),
        ("reconsume-times", 4),
        ("prepared-offset", 8),
        ("body-length", 4),
    )
    for name, width in widths:
        fields[name] = (at, width)
        at += width
    (body,) = struct.unpack_from(">i", content, at - 4)
    fields["body"] = (at, body)
    at += body
    width = 2 if content[7] == 0xAB else 1
    fields["topic-length"] = (at, width)
    topic = int.from_bytes(content[at : at + width], "big")
    fields["topic"] = (at + width, topic)
    at += width + topic
    fields["properties-length"] = (at, 2)
    fields["properties"] = (at + 2, int.from_bytes(content[at : at + 2], "big"))
    return {name: place for name, place in fields.items() if place[1] > 0}
