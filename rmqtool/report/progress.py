"""Progress of a long run, on standard error: a line on a terminal, or JSON objects for a program.

Nothing is shown of a run of less than a second. The rate is of the bytes that were really read in the last seconds,
whatever a command does with them; what is done comes from the command, and between two of its reports from those bytes.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Self, TextIO

DELAY_S: Final = 1.0
"""A run of less than this shows nothing."""
_PERIODS_S: Final = {"terminal": 0.25, "json": 1.0}
_WINDOW_S: Final = 10.0
Facts = Callable[[], dict[str, Any]]
_CLEAR: Final = "\r\x1b[K"
_WIDTH_MAX: Final = 100


class ProgressForm(StrEnum):
    """Presentation of progress."""

    AUTO = "auto"
    """A line, if standard error is a terminal."""
    JSON = "json"
    NONE = "none"


class Progress:
    """Progress of one phase of a command.

    Args:
        what: the phase, as a person calls it.
        form: how it is shown.
        bytes_read: how many bytes this process has read so far.
        unit: what `show` counts: bytes, or another noun in the singular.
        total: how much there is in all; asked for when it is first shown.
        facts: what a program gets beside it, as `mirror`.
        width: columns of the terminal.
        clock: seconds; another one in a test.
    """

    def __init__(
        self,
        what: str,
        form: ProgressForm,
        bytes_read: Callable[[], int],
        *,
        unit: str = "byte",
        total: Callable[[], int] | None = None,
        facts: Facts | None = None,
        width: int = 80,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        if form is ProgressForm.AUTO and not self._stream.isatty():
            form = ProgressForm.NONE
        self._what, self._form, self._unit = what, form, unit
        self._bytes_read, self._clock, self._width = bytes_read, clock, width
        self._find_total, self._total = total, 0
        self._facts = facts
        self._done, self._shown = 0, 0
        self._began, self._hidden_at = clock(), clock()
        self._read_before = self._read_at_report = bytes_read()
        self._samples: deque[tuple[float, int, int]] = deque([(self._began, self._read_before, 0)])
        self._is_drawn = self._is_paused = False
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def show(self, done: int, total: int) -> None:
        with self._lock:
            self._done, self._total, self._find_total = done, total, None
            self._read_at_report = self._bytes_read()

    def next(self, what: str) -> None:
        self._what = what

    def hide(self) -> None:
        """Give the terminal's line to output; progress comes back once there was none for a while."""
        with self._lock:
            self._hidden_at = self._clock()
            self._clear()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep the terminal's line free, for a question that a person reads as long as they like."""
        self.hide()
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False
            self.hide()

    def tick(self) -> None:
        """Show how far it is now, unless it is too early."""
        with self._lock:
            now = self._clock()
            self._sample(now)
            if self._is_paused or now - self._hidden_at < DELAY_S:
                return
            if self._form is ProgressForm.JSON:
                self._write(json.dumps(self._state(now, finished=False)) + "\n")
            else:
                self._write(_CLEAR + self._line(now))
                self._is_drawn = True

    def __enter__(self) -> Self:
        if self._form is not ProgressForm.NONE:
            period = _PERIODS_S["json" if self._form is ProgressForm.JSON else "terminal"]

            def tick_until_ended() -> None:
                while not self._ended.wait(period):
                    self.tick()

            self._thread = threading.Thread(target=tick_until_ended, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            self._clear()
            if self._form is ProgressForm.JSON:
                now = self._clock()
                self._sample(now)
                self._write(json.dumps(self._state(now, finished=kind is None)) + "\n")

    def _sample(self, now: float) -> None:
        if self._find_total is not None:
            self._total, self._find_total = self._find_total(), None
        # What is done: the last report, and what was read since, if that is what is counted.
        done = self._done
        if self._unit == "byte":
            done += self._bytes_read() - self._read_at_report
        self._shown = max(self._shown, min(done, self._total) if self._total else done)
        self._samples.append((now, self._bytes_read(), self._shown))
        while len(self._samples) > 2 and now - self._samples[0][0] > _WINDOW_S:
            self._samples.popleft()

    def _rates(self) -> tuple[float | None, float | None]:
        """Bytes read and units done in a second."""
        (first, read, done), (last, read_now, done_now) = self._samples[0], self._samples[-1]
        if last <= first:
            return None, None
        return (read_now - read) / (last - first), (done_now - done) / (last - first)

    def _state(self, now: float, *, finished: bool) -> dict[str, Any]:
        rate, speed = self._rates()
        units = f"{self._unit}s"
        return {
            "type": "progress",
            "phase": self._what,
            f"done_{units}": self._total if finished and self._total else self._shown,
            f"total_{units}": self._total or None,
            "read_bytes": self._bytes_read() - self._read_before,
            "rate_bytes_per_second": None if rate is None else round(rate),
            "elapsed_seconds": round(now - self._began, 1),
            "remaining_seconds": 0 if finished else self._remaining(speed),
            "finished": finished,
            **({} if self._facts is None else {"mirror": self._facts()}),
        }

    def _remaining(self, speed: float | None) -> int | None:
        if not self._total or not speed or self._shown < self._total // 100:  # what a start takes tells nothing
            return None
        return round((self._total - self._shown) / speed)

    def _line(self, now: float) -> str:
        """Line for a person, cut to the terminal's width: a longer line could not be cleared."""
        from rmqtool.report.text import ELLIPSIS, counted, cropped, size_text  # here: every command loads this file

        rate, speed = self._rates()
        parts = []
        if self._total:
            percent = f"{100 * self._shown // self._total} %"
            if self._unit == "byte":
                parts.append(f"{percent} of {size_text(self._total)}")
            else:
                parts.append(f"{self._shown} of {counted(self._total, self._unit)}")
        elif read := self._bytes_read() - self._read_before:
            parts.append(f"{size_text(read)} read")
        if rate:
            parts.append(f"{size_text(round(rate))}/s")
        remaining = self._remaining(speed)
        parts.append(f"{_span(now - self._began)}" if remaining is None else f"{_span(remaining)} left")
        return cropped(f"{self._what}{ELLIPSIS} {', '.join(parts)}", min(self._width, _WIDTH_MAX) - 1)

    def _clear(self) -> None:
        if self._is_drawn:
            self._write(_CLEAR)
            self._is_drawn = False

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # nobody listens: no reason to fail
            self._stream.write(text)
            self._stream.flush()


def _span(seconds: float) -> str:
    seconds = round(seconds)
    if seconds < 90:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 5400 else f"{seconds // 3600} h {seconds // 60 % 60} min"
