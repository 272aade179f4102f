"""The files that a comparison does not decode: equal byte for byte, or named as not compared.

Consume queues, index, checkpoint, timer, RocksDB, compaction and the like. A byte that differs says nothing about what
brokers would do with it, so that such files are no difference but something that was not looked at.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Final

from rmqtool.errors import UnreadableError
from rmqtool.sides.unread import UnreadFiles
from rmqtool.store.config.config_json import ConfigFile, ConfigState
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind, kind_of
from rmqtool.store.source import ByteSource, read_range
from rmqtool.store.view import Entry

_LEFT_ALONE: Final = frozenset({FileKind.LOCK, FileKind.ABORT_BACKUP, FileKind.RMQTOOL, FileKind.UNKNOWN})
"""No broker reads these."""
_STREAMS: Final = frozenset(
    {FileKind.COMMITLOG, FileKind.CONSUMEQUEUE, FileKind.BATCH_CONSUMEQUEUE, FileKind.CONSUMEQUEUE_EXT}
)
"""Their ends are compared: a file that only one store has says no more."""
_LOG: Final = "commitlog/"
_COPIES: Final = (".bak", ".tmp")
_ROCKSDB_DIARY: Final = ("LOG", "LOCK")
"""Files of RocksDB that it does not read."""
_BLOCK: Final = 64 << 10
_DIGEST_SIZE: Final = 16
READ: Final = "read"
"""Instead of a digest: the file was read, and its entries are compared."""


def other_files(store: Store, config: Mapping[str, ConfigFile]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Digests of these files by their paths, and what could not be read, as sentences.

    Args:
        config: the configuration files whose entries are compared, as they were read.
    """
    digests: dict[str, str] = {}
    problems = []
    for kind, entries in store.files.items():
        for entry in entries:
            if not _is_used(kind, entry):
                continue
            if kind is FileKind.COMMITLOG:  # its records are compared; wherever it lies
                digests[_LOG + entry.name] = str(entry.size)
                continue
            known = config.get(entry.path)
            if known is not None and known.state is ConfigState.READ and not known.is_database:
                digests[entry.path] = READ
                continue
            try:
                digests[entry.path] = "" if kind is FileKind.ABORT else _digest(store, entry)
            except UnreadableError as error:
                problems.append(str(error))
    return digests, tuple(problems)


def unequal_files(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[UnreadFiles]:
    """What differs, or is in one store only, kind by kind."""
    counts: dict[tuple[str, FileKind], Counter[str]] = defaultdict(Counter)
    for path in sorted(a.keys() | b.keys()):
        if a.get(path) == b.get(path):
            continue
        kind = kind_of(path)
        if path in a and path in b:
            what = "{} differ{s}"
        elif kind in _STREAMS:
            continue
        else:
            what = "{} only in A" if path in a else "{} only in B"
        where = path if kind is FileKind.CONFIG else path.partition("/")[0]
        counts[where, kind][what] += 1
    for (where, kind), counted in counts.items():
        parts = (what.format(_files(count), s="s" if count == 1 else "") for what, count in sorted(counted.items()))
        what = " in length" if kind is FileKind.COMMITLOG else "; only bytes were compared"
        yield UnreadFiles(where, kind.value, f"{', '.join(parts)}{what}")


def _files(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"


def _is_used(kind: FileKind, entry: Entry) -> bool:
    if kind in _LEFT_ALONE or not entry.is_file:
        return False
    if kind is FileKind.CONFIG:
        return not entry.name.endswith(_COPIES)
    return "RocksDB" not in kind.value or entry.name.partition(".")[0] not in _ROCKSDB_DIARY


def _digest(store: Store, entry: Entry) -> str:
    """A digest of a file's length and of all blocks that are not zero, so that holes cost nothing."""
    digest = hashlib.blake2b(digest_size=_DIGEST_SIZE)
    with closing(store.view.open(entry.path)) as source:
        digest.update(source.size.to_bytes(8, "little"))
        for position in _blocks(source):
            block = read_range(source, position, min(_BLOCK, source.size - position))
            if block.strip(b"\0"):
                digest.update(position.to_bytes(8, "little"))
                digest.update(block)
    return digest.hexdigest()


def _blocks(source: ByteSource) -> Iterator[int]:
    """Positions of the blocks that have data."""
    done = 0
    for start, end in source.extents(0, source.size):
        for position in range(max(done, start // _BLOCK * _BLOCK), end, _BLOCK):
            yield position
            done = position + _BLOCK
