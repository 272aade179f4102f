"""Read a master's log after the end of a copy, over one connection: whole records that pass their checks.

The copy is only read here: what it has already is asked for again, and compared.

Where the log starts is found with nothing but the replication port. A master answers a request for 0 from the start of
its last file, and a request for an offset that it has at once. To one for an offset that it no longer has it sends
nothing but a heartbeat after 5 s (4.9.7 and 5.5.0 do). So the start is searched for, several requests at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from rmqtool.replication.connection import MasterAddress, MasterConnection, MasterLostError, Timing, Transfer
from rmqtool.replication.log_copy import LogCopy
from rmqtool.replication.mirror_status import MirrorStatus
from rmqtool.replication.record_check import CheckedRecords, DivergedError, RecordChecker, StoreTimes, Until
from rmqtool.store.sizes import DEFAULT_LOG_FILE_SIZE
from rmqtool.store.source import Closable

BLOCK_SIZE: Final = 1 << 20
"""Bytes that are gathered before they are checked and given out, if the master sends them at once."""
_WAIT_SECONDS: Final = 0.25
PROBES: Final = 8
"""Connections at a time."""
SETTLE_SECONDS: Final = 10.0
"""A request acknowledges all before it: no message from so long ago is waited for (syncFlushTimeout is 5 s)."""
_OTHER_PROTOCOL: Final = (
    "is this its replication port (haListenPort), and does the broker run without a controller "
    "(enableControllerMode=false)?"
)
_POLL_SECONDS: Final = 0.02


@dataclass(frozen=True)
class ArrivedBlock:
    """Records side by side, or the blank that ends a file with all that follows it there.

    Attributes:
        times_ms: store times of the first and the last record; None of a blank.
    """

    physical_offset: int
    content: bytearray
    record_count: int = 0
    times_ms: tuple[int, int] | None = None

    @property
    def end(self) -> int:
        return self.physical_offset + len(self.content)


@dataclass(frozen=True)
class Master:
    """A master, asked over connections of their own; each question raises MasterLostError where it does not answer.

    Attributes:
        on_wait: called repeatedly while waiting for it; an exception from it ends the wait.
    """

    address: MasterAddress
    timing: Timing
    on_wait: Callable[[], None]

    def first_transfers(self, connection: MasterConnection) -> list[Transfer]:
        """First frames over a connection, data or a heartbeat."""
        deadline = time.monotonic() + self.timing.silence
        try:
            while time.monotonic() < deadline:
                self.on_wait()
                if transfers := connection.receive(0.5):
                    return transfers
        except MasterLostError as error:
            if connection.received_bytes:
                raise
            # A master of controller mode waits for a handshake, and closes on a report (`AutoSwitchHAConnection`).
            raise MasterLostError(f"{error}, and sent nothing before; {_OTHER_PROTOCOL}") from error
        raise MasterLostError(f"{connection.address}: the master sends nothing; {_OTHER_PROTOCOL}")

    def last_file_start(self) -> int:
        """Physical offset at which the last file of the log starts."""
        with MasterConnection(self.address, 0, self.timing) as connection:
            return self.first_transfers(connection)[0].physical_offset

    def find_log_start(self, file_size: int | None) -> int:
        """Physical offset of the first byte that the master has.

        Args:
            file_size: bytes of its files, where that is known.
        """
        last_start = self.last_file_start()
        if last_start == 0:
            return 0
        asked_at = time.monotonic()
        if self._has([1]):
            return 0  # the first byte of a log that starts at 0 is the first of a size, and 0
        while time.monotonic() - asked_at < SETTLE_SECONDS * self.timing.report / Timing().report:
            self.on_wait()
            time.sleep(0.1)
        step = file_size or (DEFAULT_LOG_FILE_SIZE if last_start % DEFAULT_LOG_FILE_SIZE == 0 else 1)
        start = self._search(0, last_start, step)
        if step == 1 or file_size is not None or not self._has([start - 1]):
            return start
        return self._search(start - step, start - 1, 1)

    def _search(self, absent: int, present: int, step: int) -> int:
        """Lowest offset that exists, between one that does not and one that does, some steps below the latter."""
        while present - absent > step:
            count = (present - absent - 1) // step
            chosen = sorted({present - step * (1 + count * index // PROBES) for index in range(PROBES)} - {present})
            chosen = [physical_offset for physical_offset in chosen if physical_offset > absent] or [present - step]
            there = self._has(chosen)
            absent = max([absent, *(start for start in chosen if start not in there)])
            present = min([present, *(start for start in there if start > absent)])
        return present

    def _has(self, physical_offsets: list[int]) -> set[int]:
        """Those of some offsets from which the master sends its log."""
        with ExitStack() as stack:
            waiting = {
                physical_offset: stack.enter_context(MasterConnection(self.address, physical_offset, self.timing))
                for physical_offset in physical_offsets
            }
            there: set[int] = set()
            deadline = time.monotonic() + self.timing.silence
            while waiting and time.monotonic() < deadline:
                self.on_wait()
                for physical_offset, connection in list(waiting.items()):
                    if transfers := connection.receive(_POLL_SECONDS):
                        del waiting[physical_offset]
                        connection.close()
                        if transfers[0].body:
                            there.add(physical_offset)
                if there:  # the log has no holes: whatever comes after is there too
                    for physical_offset in [start for start in waiting if start > min(there)]:
                        waiting.pop(physical_offset).close()
                        there.add(physical_offset)
            if waiting:
                raise MasterLostError(f"{self.address}: no answer to a request for offset {min(waiting)}")
        return there


class MasterLog(Closable):
    """The log of a master from the end of a copy on.

    Attributes:
        end: physical offset after what was given out.
        is_idle: whether the master has said that it has nothing more, and sent nothing since.
    """

    def __init__(self, master: Master, copy: LogCopy, checker: RecordChecker, status: MirrorStatus) -> None:
        """Connect, and receive the first bytes.

        Args:
            status: is told of the connection and its bytes.

        Raises:
            MasterLostError: the master does not answer.
            DivergedError: it does not have what the copy ends with, or what follows that.
        """
        self._master, self._copy, self._checker, self._status = master, copy, checker, status
        self.end = self._copy_end = copy.end
        self.is_idle = self._is_caught_up = False
        self._file_start = copy.start or 0
        self._file_size = copy.file_size if copy.is_size_known else None
        self._pending = bytearray()
        self._needed = 0
        self._received_before = status.received_bytes
        status.state = "connecting"
        if not copy.is_empty:
            self._at = copy.request_offset
        elif self.end:
            self._at = self.end
        else:  # 0 means the last file, so that a log with more than one is asked for from its second byte
            self._at = 0 if master.last_file_start() == 0 else 1
        self.connection = MasterConnection(master.address, self._at, master.timing)
        try:
            self._first = self._first_transfers()
        except BaseException:
            self.close()
            raise
        status.connect_count += 1
        status.trouble = None
        if self._at == 1 and self.end == 0:
            self._pending = bytearray(1)  # the first byte of a log is the first of a size, and 0

    def blocks(self, until: Until | None = None, times: StoreTimes | None = None) -> Iterator[ArrivedBlock | None]:
        """Blocks after the copy, as they arrive, up to the record at which it ends; None a few times a second.

        Raises:
            MasterLostError: the connection is gone.
            ProtocolError: what arrived is not the protocol.
            DivergedError: what arrived is not what the copy has, does not follow it, or is damaged.
        """
        wait_seconds = 0.0
        while True:
            before, was_caught_up = self._at, self._is_caught_up
            is_new = self._receive(wait_seconds)
            self.is_idle = self._at == before and (self.is_idle or (wait_seconds > 0 and was_caught_up))
            if not is_new or len(self._pending) >= max(BLOCK_SIZE, self._needed):
                while (checked := self._check(until, times)) is not None:
                    if checked.length:
                        yield self._cut_off(checked.length, checked.count, checked.times_ms)
                    if checked.blank_length and not self._needed:
                        block = self._cut_off(checked.blank_length)
                        if self._file_size is None:
                            self._file_size = self.end - self._file_start
                        yield block
                    if checked.bad is not None:
                        text = f"the master's log is damaged: {checked.bad}"
                        raise DivergedError(checked.bad.finding, checked.bad.physical_offset, text)
                    if checked.is_until:
                        return
                if self._is_caught_up and self._needed and len(self._pending) > 1:
                    # A heartbeat says that the master has nothing more, so the log must not end within a record.
                    text = f"the master's log ends within the record at {self.end}"
                    raise DivergedError("mirror.torn-record", self.end, text)
                yield None
            wait_seconds = 0.0 if is_new else _WAIT_SECONDS

    @property
    def is_drained(self) -> bool:
        """True if all is given out that the master had at some time since the connection was made.

        A master puts as much as it has into a body, up to a length, but nothing of a second file. So it had no more
        where a body ends with a record, is shorter than others, and does not end a file.
        """
        is_short = self.connection.last_body_size < self.connection.longest_body_size
        is_at_file_end = self._file_size is not None and (self.end - self._file_start) % self._file_size == 0
        return is_short and not self._pending and not is_at_file_end

    def close(self) -> None:
        self.connection.close()

    def _first_transfers(self) -> list[Transfer]:
        """First frames of the master; a heartbeat for an offset of the copy means that the master does not have it."""
        end, request = self._copy_end, self._at
        try:
            transfers = self._master.first_transfers(self.connection)
        except MasterLostError:
            if end <= request:
                raise
            transfers = []  # 4.9.7 closes where an offset after its log's end is asked for
        if transfers and transfers[0].body:
            return transfers
        last = self._master.last_file_start()
        if last > end:
            text = (
                f"the master no longer has what follows the copy at {end}; its last file starts at {last}. "
                "Mirror into a new directory"
            )
            raise DivergedError("mirror.deleted-on-master", end, text)
        if end > request:
            text = (
                f"the master's log ends before offset {request}, and the copy at {end}. Another master may have taken "
                "over: compare its store with the copy, with rmqtool diff"
            )
            raise DivergedError("mirror.copy-ahead-of-master", request, text)
        return transfers

    def _receive(self, wait_seconds: float) -> bool:
        """Compare or gather received frames; return True if any arrived."""
        transfers, self._first = self._first or self.connection.receive(wait_seconds), []
        self._status.received_bytes = self._received_before + self.connection.received_bytes
        for transfer in transfers:
            at, body = self._at, transfer.body
            if transfer.physical_offset != at:
                text = f"the master sent offset {transfer.physical_offset} where {at} follows"
                raise DivergedError("mirror.wrong-offset", at, text)
            self._is_caught_up = not body
            self._status.state = "copying" if body else "caught up"
            known = min(len(body), max(0, self._copy_end - at))
            if known:
                differing = self._copy.first_difference(at, bytes(body[:known]))
                if differing is not None:
                    text = f"the copy differs from the master at {differing}: it is a copy of another log, or damaged"
                    raise DivergedError("mirror.differs", differing, text)
                body = body[known:]
            self._pending += body
            self._at = transfer.end
        return bool(transfers)

    def _check(self, until: Until | None, times: StoreTimes | None) -> CheckedRecords | None:
        """Judge gathered bytes; None where they do not start with anything whole or wrong."""
        if not self._pending or len(self._pending) < self._needed:
            return None
        room = None if self._file_size is None else self._file_size - (self.end - self._file_start) % self._file_size
        checked = self._checker.check(self._pending, self.end, room, until, times)
        self._needed = checked.needed_length
        if checked.blank_length and len(self._pending) < checked.length + checked.blank_length:
            self._needed = checked.blank_length
        is_something = checked.length or checked.bad is not None or checked.is_until
        return checked if is_something or (checked.blank_length and not self._needed) else None

    def _cut_off(self, length: int, record_count: int = 0, times_ms: tuple[int, int] | None = None) -> ArrivedBlock:
        pending = self._pending
        content = pending if length == len(pending) else pending[:length]
        self._pending = pending[length:] if length < len(pending) else bytearray()
        self.end += length
        return ArrivedBlock(self.end - length, content, record_count, times_ms)
