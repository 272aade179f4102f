"""Reads the metadata of a tiered store (`config/tieredStoreMetadata.json`), and finds its segments in files.

Broker: `DefaultMetadataStore`, `FileSegmentMetadata`, `PosixFileSegment`, `MessageStoreUtil`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rmqtool.errors import UnreadableError
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.store.config.config_json import ConfigFile, ConfigState
from rmqtool.store.config.read_config import read_config
from rmqtool.store.file_kinds import is_tiered_directory, name_hash
from rmqtool.store.view import Entry, StoreView

METADATA: Final = "config/tieredStoreMetadata.json"
INDEX: Final = "tiered_index_file"
"""Directory of the part of the index that is not in segments yet."""
_TABLES: Final = {
    "commitLogFileSegmentTable": "COMMIT_LOG",
    "consumeQueueFileSegmentTable": "CONSUME_QUEUE",
    "indexFileSegmentTable": "INDEX",
}
_DELETED: Final = 2
_CODA_SIZE: Final = 16
_CODA_MAGIC: Final = bytes.fromhex("cbd43194")


class TieredSegment(NamedTuple):
    """A segment of the tiered store.

    Attributes:
        owner: broker, topic and queue id, as a path.
        path: of its file, relative to the store.
        kind: `COMMIT_LOG`, `CONSUME_QUEUE` or `INDEX`.
        start: place of its first byte in the log or queue.
        size: bytes that the metadata counts.
        entry: None where there is no file.
    """

    owner: str
    path: str
    kind: str
    start: int
    size: int
    entry: Entry | None


@dataclass(frozen=True)
class TieredStore:
    """Metadata of a tiered store.

    Attributes:
        root: directory of the segments, relative to the store; None where they are not in the store.
    """

    config: ConfigFile
    root: str | None
    segments: tuple[TieredSegment, ...] = ()

    @property
    def is_used(self) -> bool:
        """True if the metadata is there and names a segment, or cannot be read."""
        return self.config.state is not ConfigState.ABSENT and (self.config.value is None or bool(self.segments))


def read_tiered(view: StoreView) -> TieredStore:
    """Read the metadata, or its `.bak`, and find the segments. Never raises for damage in it."""
    config = read_config(view, METADATA)
    root = tiered_root(view) if config.value else None
    return TieredStore(config, root, tuple(_segments(view, root, config.value or {})))


def is_coda(size: int, head: bytes) -> bool:
    """True if a range of a log segment (its size, its first 8 bytes) ends an old one: a length, a magic and a time."""
    return size == _CODA_SIZE and head[4:8] == _CODA_MAGIC


def what_is_no_store(view: StoreView) -> str:
    """Describe a directory that holds no store of a broker, as a part of a sentence."""
    tiered = tiered_root(view)
    if tiered is None:
        return "not a RocketMQ store (`commitlog`, `index`, `checkpoint` and the like are missing)"
    return (
        f"{tiered} is the directory of a tiered store, which is read with the broker's store: name the one whose "
        "config/tieredStoreMetadata.json lists its segments"
    )


def tiered_root(view: StoreView) -> str | None:
    """The directory that a broker's class for files makes in the directory `tieredStoreFilePath`."""
    above = _directories(view, "")
    below = [entry for directory in above for entry in _directories(view, directory.path)]
    return next((entry.path for entry in [*above, *below] if is_tiered_directory(entry.name)), None)


def _directories(view: StoreView, path: str) -> list[Entry]:
    try:
        return [entry for entry in view.list(path) if entry.is_directory and not entry.is_link]
    except UnreadableError:
        return []


def _segments(view: StoreView, root: str | None, value: Mapping[Any, Any]) -> Iterator[TieredSegment]:
    for table, kind in _TABLES.items():
        for owner, by_start in _items(value.get(table)):
            for key, segment in _items(by_start):
                start, size = _number(key), _number(segment.get("size")) if isinstance(segment, dict) else None
                is_plain = isinstance(owner, str) and not {"", ".", ".."} & set(owner.split("/")) and "\0" not in owner
                if start is None or size is None or not is_plain or segment.get("status") == _DELETED:
                    continue
                path = f"{owner}/{kind}/{name_hash(str(start))}{start:020d}"
                entry = None
                if root is not None:
                    path = f"{root}/{path}"
                    with suppress(UnreadableError):
                        entry = view.stat(path)
                yield TieredSegment(owner, path, kind, start, size, entry if entry and entry.is_file else None)


def _items(value: object) -> list[tuple[Any, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def _number(value: object) -> int | None:
    text = str(value)
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(JAVA_LONG_MAX))
    return int(text) if is_number and int(text) <= JAVA_LONG_MAX else None
