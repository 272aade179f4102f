"""Runs a plugin's decoder with a limit of time: code of anybody over bytes of anybody, which may never end.

A decoder is made and called in a thread of its own, because nothing else can be left waiting. A thread that gives no
answer is asked to end, which plain Python code obeys, and left alone if it does not; the next body gets a new one.
"""

from __future__ import annotations

import ctypes
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from rmqtool.decoders.decoder import Decode, MakeDecoder
from rmqtool.report.bodies import MessageFacts

DECODE_S: Final = 10.0
"""For a body; the largest that a broker takes are decoded in well below a second."""
MAKE_S: Final = 60.0
"""For reading a schema, maybe from a registry."""
LATE_MAX: Final = 3
"""After so many bodies without an answer, a decoder is not asked any more: with all bodies, a dump would never end."""


class DecoderTimeoutError(Exception):
    """A decoder gave no answer in time."""


class _Stopped(BaseException):
    """Ends a thread that nobody waits for any more."""


class _Worker:
    """A thread that does one job after the other."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"decoder {name}", daemon=True)
        self._thread.start()

    def do(self, job: Callable[[], Any], limit_s: float) -> Any:
        """The result of a job.

        Raises:
            DecoderTimeoutError: it takes too long; the worker is of no use any more.
        """
        self._jobs.put(job)
        try:
            value, error = self._answers.get(timeout=limit_s)
        except queue.Empty:
            identity = ctypes.c_ulong(self._thread.ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(identity, ctypes.py_object(_Stopped))
            raise DecoderTimeoutError(f"no answer within {limit_s:g} s") from None
        if error is not None:
            raise error
        return value

    def _work(self) -> None:
        try:
            while True:
                job = self._jobs.get()
                try:
                    self._answers.put((job(), None))
                except (Exception, SystemExit) as error:  # noqa: BLE001 - told by the one who waits
                    self._answers.put((None, error))
        except _Stopped:
            pass


@dataclass
class TimedDecoder:
    """A decoder that has a limit of time for each body."""

    name: str
    make: MakeDecoder
    argument: str | None
    late_count: int = 0
    _worker: _Worker | None = None
    _decode: Any = field(default=None, repr=False)

    def start(self) -> Any:
        """Make the plugin's decoder.

        Raises:
            DecoderTimeoutError: that takes too long.
            Exception: whatever the plugin raises.
        """
        self._worker = _Worker(self.name)
        try:
            self._decode = self._worker.do(lambda: self.make(self.argument), MAKE_S)
        except DecoderTimeoutError:
            self._worker = None
            raise
        return self._decode

    def __call__(self, body: bytes, message: MessageFacts) -> Any:
        """Decode a body.

        Raises:
            DecoderTimeoutError: it takes too long, or too many have.
            Exception: whatever the decoder raises.
        """
        if self.late_count >= LATE_MAX:
            raise DecoderTimeoutError(f"not asked any more: no answer within {DECODE_S:g} s to {LATE_MAX} bodies")
        if self._worker is None:
            self.start()
        assert self._worker is not None
        decode: Decode = self._decode
        try:
            return self._worker.do(lambda: decode(body, message), DECODE_S)
        except DecoderTimeoutError:
            self.late_count += 1
            self._worker = None
            raise
