"""Writes the timer's three files for messages that wait, so that a broker delivers each of them once.

Broker: `TimerMessageStore#doEnqueue` (units and slots), `#recover` (what it makes of them).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from rmqtool.formats import timer
from rmqtool.formats.timer import TimerCheck, build_check, pack_blank, pack_slot, pack_unit
from rmqtool.store.file_kinds import segment_name

WHEEL_PATH: Final = "timerwheel"
LOG_DIRECTORY: Final = "timerlog"
CHECK_PATH: Final = "config/timercheck"
ROLL_WINDOW_SLOTS: Final = 2 * 86_400
"""`timerRollWindowSlot`: who waits longer is put into the timer again after at most this time."""
LATE_SLOTS: Final = 86_400
"""Slots before now in which late messages are placed. A broker looks back seven days, so six are left to start it."""


class TimerMessage(NamedTuple):
    """A message that waits for its time."""

    queue_offset: int
    physical_offset: int
    record_size: int
    due_timestamp_ms: int
    topic_hash: int
    deletes: bool = False


@dataclass(frozen=True)
class TimerShape:
    """Parameters of the files.

    Attributes:
        now_ms: the time from which messages are late or still to come.
        log_file_size: bytes of a full file of the timer log.
    """

    now_ms: int
    log_file_size: int
    precision_ms: int = timer.DEFAULT_PRECISION_MS


def write_timer(
    folder: Path, messages: Sequence[TimerMessage], newest: TimerMessage | None, queue_end: int, shape: TimerShape
) -> TimerCheck:
    """Write wheel, log and checkpoint below a folder.

    Args:
        messages: those that wait, in the order of their queue.
        newest: the last message of the queue, whether it waits or not; None where there is none. A load continues
            after the message of the log's last unit, so that unit must be the newest message's.
        queue_end: queue offset after the last message.
    """
    precision_ms = shape.precision_ms
    now_tick = shape.now_ms // precision_ms
    # The tick of each delivery time in the new wheel: its own, but for what a broker would not look back to. Order and
    # difference stay, for a unit that deletes counts for its own tick only.
    ticks: dict[int, int] = {}
    last_tick = now_tick - LATE_SLOTS
    for due_tick in sorted({message.due_timestamp_ms // precision_ms for message in messages}):
        last_tick = ticks[due_tick] = max(due_tick, last_tick + 1)
    first_tick = min([*ticks.values(), now_tick + 1]) - 1
    log = _LogWriter(folder / LOG_DIRECTORY, shape, now_tick)
    for message in messages:
        log.append(message, ticks[message.due_timestamp_ms // precision_ms])
    if newest is not None and (not messages or messages[-1].queue_offset < newest.queue_offset):
        # A unit that deletes is delivered to nobody; alone in its slot it deletes nothing.
        log.append(newest._replace(deletes=True), first_tick, deletes_nothing=True)
    log.close()
    with (folder / WHEEL_PATH).open("wb") as wheel:
        wheel.truncate(timer.WHEEL_SIZE)
        for tick, (first_position, last_position, message_count) in log.slots.items():
            wheel.seek(tick % timer.SLOT_COUNT * timer.SLOT_SIZE)
            wheel.write(pack_slot((tick, first_position, last_position, message_count, 0)))
    check = TimerCheck(
        read_timestamp_ms=first_tick * precision_ms,
        flushed_position=log.position,
        queue_offset=queue_end,
        master_queue_offset=queue_end,
        version_timestamp_ms=shape.now_ms,
        version_counter=1,
    )
    path = folder / CHECK_PATH
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(build_check(check))
    return check


class _LogWriter:
    """Appends units, file after file.

    Attributes:
        slots: by tick: positions of its first and last unit, and the number of its messages.
        position: where the next unit comes, unless its file is full.
    """

    def __init__(self, folder: Path, shape: TimerShape, write_tick: int) -> None:
        self._folder, self._shape, self._write_tick = folder, shape, write_tick
        self.slots: dict[int, tuple[int, int, int]] = {}
        self.position = 0
        self._file: BinaryIO | None = None
        self._file_start = 0
        folder.mkdir(parents=True, exist_ok=True)

    def append(self, message: TimerMessage, tick: int, *, deletes_nothing: bool = False) -> None:
        magic = 1 | (timer.DELETE if message.deletes else 0)
        if tick - self._write_tick >= ROLL_WINDOW_SLOTS:
            magic |= timer.ROLL
            is_near = tick - self._write_tick - ROLL_WINDOW_SLOTS < ROLL_WINDOW_SLOTS // 3
            tick = self._write_tick + (ROLL_WINDOW_SLOTS // 2 if is_near else ROLL_WINDOW_SLOTS)
        file_end = self._file_start + self._shape.log_file_size
        if self._file is not None and self.position + timer.UNIT_SIZE + timer.BLANK_SIZE > file_end:
            self._file.write(pack_blank(file_end - self.position))
            self.close()
            self._file_start = self.position = file_end
        if self._file is None:
            self._file = (self._folder / segment_name(self._file_start)).open("wb")
        first, last, count = self.slots.get(tick, (self.position, -1, 0))
        precision_ms = self._shape.precision_ms
        write_tick = min(self._write_tick, tick)
        values = (
            timer.UNIT_SIZE,
            last,
            magic,
            write_tick * precision_ms,
            (tick - write_tick) * precision_ms,
            message.physical_offset,
            message.record_size,
            message.topic_hash,
            0,
        )
        self._file.write(pack_unit(values))
        count = 0 if deletes_nothing else count - 1 if message.deletes else count + 1
        self.slots[tick] = first, self.position, count
        self.position += timer.UNIT_SIZE

    def close(self) -> None:
        """Give the last file its full length."""
        if self._file is not None:
            self._file.truncate(self._shape.log_file_size)
            self._file.close()
            self._file = None
