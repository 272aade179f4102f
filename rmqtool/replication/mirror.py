"""Keeps a copy of a master's log: connects, checks, writes, syncs, and connects again, until it is told to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rmqtool.errors import RmqtoolError
from rmqtool.replication.connection import (
    MasterAddress,
    MasterConnection,
    MasterLostError,
    ProtocolError,
    Timing,
    Transfer,
)
from rmqtool.replication.log_copy import LogCopy, MismatchError
from rmqtool.replication.log_start import find_log_start, first_transfer, last_file_start
from rmqtool.replication.record_check import BadRecord, RecordChecker, Until

BLOCK_SIZE: Final = 1 << 20
"""Bytes that are gathered before they are checked and written, if the master sends them at once."""
PROBLEMS_MAX: Final = 3
"""How often the same thing is asked for again before what is wrong with it counts."""
_WAIT_SECONDS: Final = 0.25

OnWritten = Callable[[int, bytearray], None]


class DivergedError(RmqtoolError):
    """The master's log does not continue the copy, or has something in it that is no good record."""

    exit_code = 3

    def __init__(self, finding: str, physical_offset: int, text: str) -> None:
        super().__init__(text)
        self.finding = finding
        self.physical_offset = physical_offset


class _StopAsked(Exception):  # noqa: N818 - no error
    """There is a reason to stop."""


@dataclass(frozen=True)
class MirrorOptions:
    """What is asked for.

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


@dataclass
class MirrorStatus:
    """How far a mirror is.

    Attributes:
        state: connecting, searching (for the log's start), copying, caught up, waiting (for the master), stopped.
        received_bytes: from the network, what was only compared included.
        copied_bytes: appended to the copy.
        connect_count: connections that were made.
        last_store_timestamp_ms: of the last record of the copy that arrived in this run; None before.
        trouble: why the last connection ended; None while one is there.
    """

    state: str = "connecting"
    start_offset: int | None = None
    end_offset: int = 0
    synced_offset: int = 0
    received_bytes: int = 0
    copied_bytes: int = 0
    record_count: int = 0
    connect_count: int = 0
    last_store_timestamp_ms: int | None = None
    trouble: str | None = None

    @property
    def is_connected(self) -> bool:
        return self.state in ("copying", "caught up")


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
        on_written: OnWritten = lambda _physical_offset, _block: None,
        on_synced: Callable[[], None] = lambda: None,
        should_stop: Callable[[], bool] = lambda: False,
        on_turn: Callable[[], None] = lambda: None,
    ) -> None:
        self._address, self._copy, self._options, self.status = address, copy, options, status
        self._on_written, self._on_synced = on_written, on_synced
        self._should_stop, self._on_turn = should_stop, on_turn
        self._checker = RecordChecker(record_crc=options.record_crc)
        self._pending = bytearray()
        self._needed = 0
        self._began = self._synced_at = time.monotonic()
        until = options.until.physical_offset
        self._is_done = until is not None and not copy.is_empty and copy.end >= until
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
                    self._note_lost(str(error))
                except DivergedError as error:
                    self._note_problem(error)
                self._pending.clear()
                self._wait_for_retry()
        except _StopAsked:
            reason = self._reason_to_stop() or "asked"
        self._sync()
        self.status.state = "stopped"
        return reason

    def _follow(self) -> None:
        """Copy over one connection, until it or the mirror ends."""
        self.status.state = "connecting"
        if self._copy.is_empty:
            self._begin()
        request = self._request_of_empty_copy() if self._copy.is_empty else self._copy.request_offset
        with MasterConnection(self._address, request, self._options.timing) as connection:
            received_before = self.status.received_bytes
            transfers = self._first(connection, request)
            self.status.connect_count += 1
            self.status.trouble = None
            at = request
            if request == 1 and self._copy.end == 0:
                self._pending = bytearray(1)  # the first byte of a log is the first of a size, and 0
            while True:
                for transfer in transfers:
                    at = self._take(transfer, at)
                self.status.received_bytes = received_before + connection.received_bytes
                transfers = connection.receive(0.0)
                if not transfers or len(self._pending) >= BLOCK_SIZE:
                    self._write_pending()
                    self._sync_if_due(connection)
                    self._turn()
                if not transfers:
                    transfers = connection.receive(_WAIT_SECONDS)

    def _begin(self) -> None:
        """Find out where a new copy starts."""
        start = self._options.from_offset
        if start is None:
            self.status.state = "searching"
            last = last_file_start(self._address, self._options.timing, self._turn)
            size = self._copy.file_size if self._copy.is_size_known else None
            start = find_log_start(self._address, last, size, self._options.timing, self._turn)
        self._copy.begin(start)
        self.status.start_offset = self.status.end_offset = self.status.synced_offset = start

    def _request_of_empty_copy(self) -> int:
        """Its start; but 0 means the last file, so that a log with more than one is asked for from its second byte."""
        if self._copy.end:
            return self._copy.end
        return 0 if last_file_start(self._address, self._options.timing, self._turn) == 0 else 1

    def _first(self, connection: MasterConnection, request: int) -> list[Transfer]:
        """What the master sends first: of what the copy has already, a heartbeat means that the master has it not."""
        end, timing = self._copy.end, self._options.timing
        try:
            transfers = first_transfer(connection, timing, self._turn)
        except MasterLostError:
            if end <= request:
                raise
            transfers = []  # 4.9.7 closes where an offset after its log's end is asked for
        if transfers and transfers[0].body:
            return transfers
        last = last_file_start(self._address, timing, self._turn)
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

    def _take(self, transfer: Transfer, at: int) -> int:
        """Compare or gather what arrived; the offset that has to come next."""
        if transfer.physical_offset != at:
            text = f"the master sent offset {transfer.physical_offset} where {at} follows"
            raise DivergedError("mirror.wrong-offset", at, text)
        body = transfer.body
        if not body:
            self.status.state = "caught up"
            self._demand_whole_end()
            return at
        self.status.state = "copying"
        known = min(len(body), max(0, self._copy.end - at))
        if known:
            differing = self._copy.first_difference(at, bytes(body[:known]))
            if differing is not None:
                text = f"the copy differs from the master at {differing}: it is a copy of another log, or damaged"
                raise DivergedError("mirror.differs", differing, text)
            body = body[known:]
        self._pending += body
        if len(self._pending) >= max(BLOCK_SIZE, self._needed):
            self._write_pending()
            self._turn()
        return transfer.end

    def _demand_whole_end(self) -> None:
        """A heartbeat says that the master has nothing more, so the log must not end within a record."""
        self._write_pending()
        if self._needed and len(self._pending) > 1:
            text = f"the master's log ends within the record at {self._copy.end}"
            raise DivergedError("mirror.torn-record", self._copy.end, text)

    def _write_pending(self) -> None:
        """Write the whole records at the start of what was gathered."""
        while self._pending and len(self._pending) >= self._needed and not self._is_done:
            copy = self._copy
            checked = self._checker.check(self._pending, copy.end, copy.room, self._options.until)
            length, self._needed = checked.length, checked.needed_length
            try:
                if length:
                    assert checked.times_ms is not None
                    block = self._pending if length == len(self._pending) else self._pending[:length]
                    begin = copy.end
                    copy.append(block, *checked.times_ms)
                    self._on_written(begin, block)
                    self._note_copied(length, checked.count, checked.times_ms[1])
                self._is_done |= checked.is_until
                if (blank := checked.blank_length) and not self._is_done:
                    if len(self._pending) < length + blank:
                        self._needed = blank
                    else:
                        copy.end_file(self._pending[length : length + blank])
                        self._note_copied(blank, 0, None)
                        length, self._needed = length + blank, 0
            except MismatchError as error:
                raise DivergedError("mirror.differs", error.physical_offset, str(error)) from error
            self._pending = self._pending[length:] if length < len(self._pending) else bytearray()
            if checked.bad is not None:
                raise _damaged(checked.bad)
            if length == 0:
                return

    def _note_copied(self, length: int, count: int, time_ms: int | None) -> None:
        status = self.status
        status.end_offset = self._copy.end
        status.copied_bytes += length
        status.record_count += count
        status.last_store_timestamp_ms = time_ms or status.last_store_timestamp_ms
        self._problems.clear()
        until = self._options.until.physical_offset
        self._is_done = self._is_done or (until is not None and self._copy.end >= until)

    def _sync_if_due(self, connection: MasterConnection) -> None:
        interval = 0.0 if self._options.acknowledges else self._options.sync_seconds
        if interval is not None and time.monotonic() - self._synced_at >= interval and not self._copy.is_synced:
            self._sync()
        if self._options.acknowledges:
            connection.acknowledge(self._copy.end)

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
        time_ms = options.until.time_ms
        if time_ms is not None and self.status.state == "caught up" and time.time() * 1000 >= time_ms:
            return "until"
        return None

    def _turn(self) -> None:
        """What is done a few times a second.

        Raises:
            _StopAsked: it is time to stop.
        """
        self._on_turn()
        if self._reason_to_stop() is not None:
            raise _StopAsked

    def _note_lost(self, text: str) -> None:
        self.status.state, self.status.trouble = "waiting", text

    def _note_problem(self, error: DivergedError) -> None:
        """Ask again for what is wrong; it counts once it comes a third time.

        Raises:
            DivergedError: it does.
        """
        self._problems.append((error.physical_offset, error.finding))
        if self._problems.count((error.physical_offset, error.finding)) >= PROBLEMS_MAX:
            self._sync()
            self.status.state = "stopped"
            raise error
        self._note_lost(str(error))

    def _wait_for_retry(self) -> None:
        self._needed = 0
        deadline = time.monotonic() + self._options.timing.retry
        while self._reason_to_stop() is None and time.monotonic() < deadline:
            self._sync_alone()
            self._on_turn()
            time.sleep(0.05)

    def _sync_alone(self) -> None:
        if self._options.sync_seconds is not None and not self._copy.is_synced:
            self._sync()


def _damaged(bad: BadRecord) -> DivergedError:
    return DivergedError(bad.finding, bad.physical_offset, f"the master's log is damaged: {bad}")
