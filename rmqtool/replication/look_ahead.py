"""Checks what a master has after the end of a copy before anything of it is written.

Two things need that: bytes that the copy has already after its end, all of which the master must have too before a
hole between them is filled; and an end by store time, for earlier records may follow a late one. Each receives over a
connection of its own, whose bytes are dropped; what is copied is then asked for again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from rmqtool.replication.log_copy import LogCopy
from rmqtool.replication.master_log import ArrivedBlock, MasterLog
from rmqtool.replication.record_check import DivergedError, StoreTimes

CHUNK_SIZE: Final = 1 << 20
"""Bytes that are held until they are known to be those that were seen before."""


@dataclass(frozen=True)
class EndByTime:
    """Where a copy is to end whose end is a store time.

    Attributes:
        earlier_end: after the last record that was stored before; None where nothing after the copy was.
        rest_count: records after that.
        is_final: whether the time has come, so that nothing more is waited for.
    """

    earlier_end: int | None
    rest_count: int
    is_final: bool


def find_end(stream: MasterLog, time_ms: int, on_turn: Callable[[], None]) -> EndByTime:
    """Look for records that were stored before a time, up to the end of the master's log.

    Waits for such a record or for the time, whichever comes first.

    Raises:
        MasterLostError, ProtocolError, DivergedError: as `MasterLog.blocks`.
    """
    times = StoreTimes(time_ms)
    for block in stream.blocks(times=times):
        if block is None:
            has_come = time.time() * 1000 >= time_ms
            if stream.is_idle or (stream.is_drained and is_past(times, time_ms)):
                if has_come or times.earlier_end is not None:
                    return EndByTime(times.earlier_end, times.rest_count, has_come)
            elif stream.is_drained and times.earlier_end is not None and not has_come:
                return EndByTime(times.earlier_end, times.rest_count, is_final=False)
        on_turn()
    raise AssertionError("without a limit there is no end")


def is_past(times: StoreTimes, time_ms: int) -> bool:
    """Whether the last record was stored at a time or later."""
    return times.last_ms is not None and times.last_ms >= time_ms


def agree_on_rest(stream: MasterLog, copy: LogCopy, on_turn: Callable[[], None]) -> SeenBytes:
    """Receive what follows the copy as far as the copy has bytes after its end; waits for more where nothing follows.

    Raises:
        MasterLostError, ProtocolError: as `MasterLog.blocks`.
        DivergedError: the master has other bytes, or its log ends before intact records of the copy.
    """
    seen = SeenBytes(copy.end)
    for block in stream.blocks():
        if block is not None:
            content = block.content[: copy.rest_end - block.physical_offset]
            differing = copy.first_difference(block.physical_offset, content)
            if differing is not None:
                text = (
                    f"the copy differs from the master at {differing}, after its last whole record, which ends at "
                    f"{copy.end}: one of both is damaged, or it is a copy of another log"
                )
                raise DivergedError("mirror.differs", differing, text)
            seen.add(content)
            if block.end >= copy.rest_end:
                return seen
        elif stream.is_idle:
            intact = copy.intact_after(stream.end)
            if intact is not None:
                text = f"the master's log ends at {stream.end}, and the copy has intact records after that, at {intact}"
                raise DivergedError("mirror.copy-ahead-of-master", stream.end, text)
            if stream.end > copy.end:
                return seen
        on_turn()
    raise AssertionError("without a limit there is no end")


class SeenBytes:
    """What a master sent once, as hashes, so that nothing else is written when it sends that again.

    Attributes:
        end: physical offset after the last of them.
    """

    def __init__(self, physical_offset: int) -> None:
        self.end = self._chunk_start = physical_offset
        self._hash = hashlib.sha256()
        self._chunks: list[tuple[int, bytes]] = []

    def add(self, content: bytes | bytearray) -> None:
        """These bytes came next."""
        for part in _parts(content, self.end - self._chunk_start):
            self._hash.update(part)
            self.end += len(part)
            if self.end - self._chunk_start == CHUNK_SIZE:
                self._end_chunk()

    def again(self, blocks: Iterable[ArrivedBlock | None]) -> Iterator[ArrivedBlock | None]:
        """The same bytes in blocks that arrive now, each once all bytes up to the end of a chunk are the same.

        Raises:
            DivergedError: they are not.
        """
        if self.end > self._chunk_start:
            self._end_chunk()
        chunks, held, hashed = iter(self._chunks), list[ArrivedBlock](), hashlib.sha256()
        chunk_end, digest = next(chunks)
        for block in blocks:
            if block is None:
                yield None
                continue
            held.append(block)
            at = block.physical_offset
            while at < min(block.end, self.end):
                part = block.content[at - block.physical_offset : chunk_end - block.physical_offset]
                hashed.update(part)
                at += len(part)
                if at == chunk_end:
                    if hashed.digest() != digest:
                        text = f"the master now sends other bytes before offset {chunk_end} than a moment ago"
                        raise DivergedError("mirror.differs", held[0].physical_offset, text)
                    chunk_end, digest = next(chunks, (self.end, b""))
                    hashed = hashlib.sha256()
                    count = len(held) if at in (block.end, self.end) else len(held) - 1
                    yield from held[:count]
                    del held[:count]
            if at == self.end:
                return

    def _end_chunk(self) -> None:
        self._chunks.append((self.end, self._hash.digest()))
        self._chunk_start, self._hash = self.end, hashlib.sha256()


def _parts(content: bytes | bytearray, done: int) -> Iterator[bytes | bytearray]:
    """The bytes in parts that end where chunks do; of the first chunk some are done already."""
    at = 0
    while at < len(content):
        length = CHUNK_SIZE - done
        yield content[at : at + length]
        at, done = at + length, 0
