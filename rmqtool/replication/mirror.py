"""Keeps a copy of a master's log: connects, checks, writes, syncs, and connects again, until it is told to stop.

Two things are looked for before anything is written: whether the master has all bytes that the copy has already after
its end, before a hole between them is filled; and, where a store time ends the copy, whether earlier records follow a
late one. Each receives over a connection of its own, whose bytes are dropped; what is copied is then asked for again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from rmqtool.errors import RmqtoolError
from rmqtool.replication.connection import MasterAddress, MasterLostError, ProtocolError, Timing
from rmqtool.replication.log_copy import LogCopy, MismatchError
from rmqtool.replication.master_log import ArrivedBlock, Master, MasterLog
from rmqtool.replication.mirror_status import MirrorStatus, SkippedRecords
from rmqtool.replication.record_check import DivergedError, RecordChecker, StoreTimes, Until

CHUNK_SIZE: Final = 1 << 20
"""Bytes that are held until they are known to be those that were seen before."""
PROBLEMS_MAX: Final = 3
"""Number of repeated requests for the same data before its error counts."""


class _StopAsked(Exception):  # noqa: N818 - no error
    """There is a reason to stop."""


@dataclass(frozen=True)
class MirrorOptions:
    """Request for a mirror.

    Attributes:
        from_offset: where a new copy starts; None for the start of the master's log.
        run_seconds: after which it stops; None for never.
        until: where it stops; with a time, it also stops once that has come and nothing is left to copy.
        sync_seconds: between two syncs; 0 after each write, None never but at the end of a file.
        acknowledges: whether the master is told what is safe here, as a slave does.
    """

    from_offset: int | None = None
    run_seconds: float | None = None
    until: Until = field(default_factory=Until)
    sync_seconds: float | None = 1.0
    acknowledges: bool = False
    record_crc: bool = False
    timing: Timing = field(default_factory=Timing)


class Mirror:
    """A copy of the log of one master.

    Args:
        on_written: gets each block of records that was appended, with its physical offset.
        on_synced: called after each sync.
        should_stop: whether somebody asked to.
        on_turn: called a few times a second.
    """

    def __init__(
        self,
        address: MasterAddress,
        copy: LogCopy,
        options: MirrorOptions,
        status: MirrorStatus,
        *,
        on_written: Callable[[int, bytearray], None],
        on_synced: Callable[[], None],
        should_stop: Callable[[], bool],
        on_turn: Callable[[], None],
    ) -> None:
        self._master = Master(address, options.timing, self._turn)
        self._copy, self._options, self.status = copy, options, status
        self._on_written, self._on_synced = on_written, on_synced
        self._should_stop, self._on_turn = should_stop, on_turn
        self._checker = RecordChecker(record_crc=options.record_crc)
        self._began = self._synced_at = time.monotonic()
        until = options.until
        self._times = StoreTimes(until.time_ms) if until.time_ms is not None else None
        self._end = until.physical_offset
        """Where the copy ends, once that is known."""
        self._copy_to = 0
        """Records before it are copied whatever their store times are."""
        self._is_done = self._end is not None and not copy.is_empty and copy.end >= self._end
        self._problems: list[tuple[int, str]] = []
        status.start_offset, status.end_offset, status.synced_offset = copy.start, copy.end, copy.end

    def run(self) -> str:
        """Copy until there is a reason to stop: "asked", "duration" or "until". All that was copied is synced then.

        Raises:
            MasterLostError: the master did not answer the first time.
            DivergedError: what it sends does not continue the copy, or is damaged, and so it was each time.
            WriteError: the disk does not take it.
        """
        try:
            while (reason := self._reason_to_stop()) is None:
                try:
                    self._follow()
                except (MasterLostError, ProtocolError) as error:
                    if self.status.connect_count == 0 or isinstance(error, ProtocolError):
                        raise
                    self._wait_for_retry(error)
                except DivergedError as error:
                    problem = error.physical_offset, error.finding
                    self._problems.append(problem)
                    if self._problems.count(problem) >= PROBLEMS_MAX:
                        self._sync()
                        self.status.state = "stopped"
                        raise
                    self._wait_for_retry(error)
        except _StopAsked:
            reason = self._reason_to_stop() or "asked"
        self._sync()
        self.status.state = "stopped"
        return reason

    def _follow(self) -> None:
        """Copy over one connection, until it or the mirror ends, or the next data must be known."""
        self.status.state = "connecting"
        if self._copy.is_empty:
            self._begin()
        if self._copy.end < self._copy.rest_end:
            self._fill_rest()
            return
        with self._stream() as stream:
            for block in stream.blocks(self._limit(), self._times):
                if block is not None:
                    self._append(block)
                else:
                    self._note_end(stream)
                self._sync_if_due(stream)
                self._turn()
        if self._limit().time_ms is not None:
            self._look_for_end()
        elif self._end is not None:
            self._is_done = True

    def _stream(self) -> MasterLog:
        return MasterLog(self._master, self._copy, self._checker, self.status)

    def _begin(self) -> None:
        start = self._options.from_offset
        if start is None:
            self.status.state = "searching"
            start = self._master.find_log_start(self._copy.file_size if self._copy.is_size_known else None)
        self._copy.begin(start)
        self.status.start_offset = self.status.end_offset = self.status.synced_offset = start

    def _fill_rest(self) -> None:
        """Copy up to the end of the bytes that the copy has after its end, once the master has sent all of them."""
        with self._stream() as stream:

            def turn() -> None:
                if stream.end == self._copy.end:
                    self._note_end(stream)
                self._turn()

            seen = agree_on_rest(stream, self._copy, turn)
        with self._stream() as stream:
            for block in seen.again(stream.blocks(times=self._times)):
                if block is not None:
                    self._append(block)
                elif stream.is_idle:
                    text = f"the master's log ends at {stream.end} now, and a moment ago at {seen.end}"
                    raise DivergedError("mirror.copy-ahead-of-master", stream.end, text)
                self._turn()

    def _look_for_end(self) -> None:
        """Find out whether earlier records follow the next one, which was stored too late.

        Waits for such a record or for the time, whichever comes first.
        """
        time_ms = self._options.until.time_ms
        assert time_ms is not None, self._options
        times, has_come = StoreTimes(time_ms), False
        with self._stream() as stream:
            for block in stream.blocks(times=times):
                if block is None:
                    has_come = time.time() * 1000 >= time_ms
                    if stream.is_idle or (stream.is_drained and times.is_past):
                        if has_come or times.earlier_end is not None:
                            break
                    elif stream.is_drained and times.earlier_end is not None and not has_come:
                        break
                self._turn()
        self._copy_to = times.earlier_end or 0
        if has_come:  # nothing more is waited for
            self._end = max(self._copy.end, self._copy_to)
            self._is_done = self._end == self._copy.end
            self.status.skipped = SkippedRecords(self._end, times.rest_count)

    def _limit(self) -> Until:
        """Limit before which the connection ends."""
        if self._copy.end < self._copy_to:
            return Until(physical_offset=self._copy_to)
        return self._options.until

    def _append(self, block: ArrivedBlock) -> None:
        copy = self._copy
        try:
            if block.times_ms is None:
                copy.end_file(block.content)
            else:
                copy.append(block.content, *block.times_ms)
                self._on_written(block.physical_offset, block.content)
        except MismatchError as error:
            raise DivergedError("mirror.differs", error.physical_offset, str(error)) from error
        status = self.status
        status.end_offset = copy.end
        status.copied_bytes += len(block.content)
        status.record_count += block.record_count
        if block.times_ms is not None:
            status.last_store_timestamp_ms = block.times_ms[1]
        status.late = self._times.late if self._times is not None else None
        self._problems.clear()
        self._is_done |= self._end is not None and copy.end >= self._end

    def _note_end(self, stream: MasterLog) -> None:
        """Check if the master has nothing more at a time that has come."""
        until = self._options.until
        if self._times is not None and until.time_ms is not None and time.time() * 1000 >= until.time_ms:
            is_drained = until.is_now and stream.is_drained and self._times.is_past
            self._is_done |= stream.is_idle or is_drained

    def _sync_if_due(self, stream: MasterLog) -> None:
        interval = 0.0 if self._options.acknowledges else self._options.sync_seconds
        if interval is not None and time.monotonic() - self._synced_at >= interval and not self._copy.is_synced:
            self._sync()
        if self._options.acknowledges:
            stream.connection.acknowledge(self._copy.end)

    def _sync(self) -> None:
        if not self._copy.is_synced:
            self._copy.sync()
            self._on_synced()
        self._synced_at = time.monotonic()
        self.status.synced_offset = self._copy.end

    def _reason_to_stop(self) -> str | None:
        options = self._options
        if self._is_done:
            return "until"
        if self._should_stop():
            return "asked"
        if options.run_seconds is not None and time.monotonic() - self._began >= options.run_seconds:
            return "duration"
        return None

    def _turn(self) -> None:
        """Repeated work, a few times a second; raises _StopAsked when it is time to stop."""
        self._on_turn()
        if self._reason_to_stop() is not None:
            raise _StopAsked

    def _wait_for_retry(self, error: RmqtoolError) -> None:
        self.status.state, self.status.trouble = "waiting", str(error)
        deadline = time.monotonic() + self._options.timing.retry
        while self._reason_to_stop() is None and time.monotonic() < deadline:
            if self._options.sync_seconds is not None and not self._copy.is_synced:
                self._sync()
            self._on_turn()
            time.sleep(0.05)


def agree_on_rest(stream: MasterLog, copy: LogCopy, on_turn: Callable[[], None]) -> SeenBytes:
    """Receive the log after the copy as far as the copy has bytes after its end; waits for more where none arrives.

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
    """Hashes of bytes that a master sent once, so that nothing else is written when it sends them again.

    Attributes:
        end: physical offset after the last of them.
    """

    def __init__(self, physical_offset: int) -> None:
        self.end = self._chunk_start = physical_offset
        self._hash = hashlib.sha256()
        self._chunks: list[tuple[int, bytes]] = []

    def add(self, content: bytes | bytearray) -> None:
        """These bytes came next."""
        at = 0
        while at < len(content):
            part = content[at : at + CHUNK_SIZE - (self.end - self._chunk_start)]
            self._hash.update(part)
            at += len(part)
            self.end += len(part)
            if self.end - self._chunk_start == CHUNK_SIZE:
                self._end_chunk()

    def again(self, blocks: Iterable[ArrivedBlock | None]) -> Iterator[ArrivedBlock | None]:
        """The bytes in blocks that arrive now, each once all bytes up to the end of a chunk equal the seen ones.

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
