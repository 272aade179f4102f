"""An interrupt during a repair waits for the end of the current step; then the repair is rolled back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass
class Interrupt:
    """Request of a user to stop."""

    is_asked: bool = False

    def demand_none(self) -> None:
        """Stop here, with KeyboardInterrupt, if somebody asked to."""
        if self.is_asked:
            raise KeyboardInterrupt


@contextmanager
def held_interrupts() -> Iterator[Interrupt]:
    """Keep ^C and a polite kill from ending the program in the middle of a step; only the main thread can."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def ask(number: int, frame: FrameType | None) -> None:
        del number, frame
        interrupt.is_asked = True

    earlier: dict[signal.Signals, Any] = {
        number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield interrupt
    finally:
        for number, answer in earlier.items():
            signal.signal(number, answer)
