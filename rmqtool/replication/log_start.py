"""Finds where a master's log starts, with nothing but the replication port.

A master answers a request for 0 from the start of its last file, and a request for an offset that it has at once. To
one for an offset that it no longer has it sends nothing but a heartbeat after 5 s (4.9.7 and 5.5.0 do). So the start
is searched for, several requests at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from rmqtool.replication.connection import MasterAddress, MasterConnection, MasterLostError, Timing, Transfer
from rmqtool.store.sizes import DEFAULT_LOG_FILE_SIZE

PROBES: Final = 8
"""Connections at a time."""
SETTLE_SECONDS: Final = 10.0
"""A request acknowledges all before it: no message from so long ago is waited for (syncFlushTimeout is 5 s)."""
_OTHER_PROTOCOL: Final = (
    "is this its replication port (haListenPort), and does the broker run without a controller "
    "(enableControllerMode=false)?"
)
_POLL_SECONDS: Final = 0.02

OnWait = Callable[[], None]
"""Called again and again while the master is waited for; what it raises ends the wait."""


def first_transfer(connection: MasterConnection, timing: Timing, on_wait: OnWait) -> list[Transfer]:
    """What a master sends first, data or a heartbeat.

    Raises:
        MasterLostError: it sends nothing.
    """
    deadline = time.monotonic() + timing.silence
    try:
        while time.monotonic() < deadline:
            on_wait()
            if transfers := connection.receive(0.5):
                return transfers
    except MasterLostError as error:
        if connection.received_bytes:
            raise
        # A master of controller mode waits for a handshake, and closes on a report (`AutoSwitchHAConnection`).
        raise MasterLostError(f"{error}, and sent nothing before; {_OTHER_PROTOCOL}") from error
    raise MasterLostError(f"{connection.address}: the master sends nothing; {_OTHER_PROTOCOL}")


def last_file_start(address: MasterAddress, timing: Timing, on_wait: OnWait) -> int:
    """Physical offset at which the last file of a master's log starts.

    Raises:
        MasterLostError: the master does not answer.
    """
    with MasterConnection(address, 0, timing) as connection:
        return first_transfer(connection, timing, on_wait)[0].physical_offset


def find_log_start(
    address: MasterAddress, last_start: int, file_size: int | None, timing: Timing, on_wait: OnWait
) -> int:
    """Physical offset of the first byte that a master has.

    Args:
        last_start: that of its last file, as it said just now.
        file_size: bytes of its files, where that is known.

    Raises:
        MasterLostError: the master does not answer.
    """
    if last_start == 0:
        return 0
    asked_at = time.monotonic()
    if _has(address, [1], timing, on_wait):
        return 0  # the first byte of a log that starts at 0 is the first of a size, and 0
    while time.monotonic() - asked_at < SETTLE_SECONDS * timing.report / Timing().report:
        on_wait()
        time.sleep(0.1)
    step = file_size or (DEFAULT_LOG_FILE_SIZE if last_start % DEFAULT_LOG_FILE_SIZE == 0 else 1)
    start = _search(address, 0, last_start, step, timing, on_wait)
    if step == 1 or file_size is not None or not _has(address, [start - 1], timing, on_wait):
        return start
    return _search(address, start - step, start - 1, 1, timing, on_wait)


def _search(address: MasterAddress, absent: int, present: int, step: int, timing: Timing, on_wait: OnWait) -> int:
    """The lowest offset that is there, between one that is not and one that is; a number of steps below the latter."""
    while present - absent > step:
        count = (present - absent - 1) // step
        chosen = sorted({present - step * (1 + count * index // PROBES) for index in range(PROBES)} - {present})
        chosen = [physical_offset for physical_offset in chosen if physical_offset > absent] or [present - step]
        there = _has(address, chosen, timing, on_wait)
        absent = max([absent, *(start for start in chosen if start not in there)])
        present = min([present, *(start for start in there if start > absent)])
    return present


def _has(address: MasterAddress, physical_offsets: list[int], timing: Timing, on_wait: OnWait) -> set[int]:
    """Those of some offsets from which a master sends its log.

    Raises:
        MasterLostError: it does not answer.
    """
    with ExitStack() as stack:
        waiting = {
            physical_offset: stack.enter_context(MasterConnection(address, physical_offset, timing))
            for physical_offset in physical_offsets
        }
        there: set[int] = set()
        deadline = time.monotonic() + timing.silence
        while waiting and time.monotonic() < deadline:
            on_wait()
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
            raise MasterLostError(f"{address}: no answer to a request for offset {min(waiting)}")
    return there
