"""Commands in processes of their own, which stop in the middle, start at once, or run as another user."""

from __future__ import annotations

import json
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.campaign.calls import watched
from tests.campaign.command import Outcome


class Running:
    """A process that was forked to do some work; its outcome once it has ended."""

    def __init__(self, folder: Path, work: Callable[[], Outcome], setup: Callable[[], None] | None = None) -> None:
        self._answer = folder / f"answer-{time.monotonic_ns()}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forking while another test's threads sleep
            self._descriptor = os.open(self._answer, os.O_CREAT | os.O_WRONLY, 0o600)
            self.pid = os.fork()
        if self.pid == 0:
            try:
                if setup is not None:
                    setup()
                os.write(self._descriptor, json.dumps(work()).encode())
            finally:
                os._exit(0)
        os.close(self._descriptor)

    def wait_stopped(self) -> bool:
        """Wait until it stops, or ends; whether it stopped."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        return os.WIFSTOPPED(status)

    def go_on(self) -> None:
        """Let it run again."""
        os.kill(self.pid, signal.SIGCONT)

    def outcome(self, *, has_ended: bool = False) -> Outcome:
        """What came out of it."""
        if not has_ended:
            os.waitpid(self.pid, 0)
        text = self._answer.read_bytes()
        self._answer.unlink()
        return Outcome(*json.loads(text)) if text else Outcome(-1, "", "the process was killed")


@contextmanager
def stopped_at(number: int, folder: Path, answers: Path, work: Callable[[], Outcome]) -> Iterator[Running | None]:
    """A process that stands in front of its nth changing call in a folder; None where it has made fewer calls.

    Whoever uses this lets it go on and asks for its outcome.
    """
    count = 0

    def stop(_call: str, _path: str) -> None:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGSTOP)

    def watched_work() -> Outcome:
        with watched(folder, stop):
            return work()

    process = Running(answers, watched_work)
    if process.wait_stopped():
        try:
            yield process
        except BaseException:
            with suppress(ProcessLookupError):  # it may have ended
                os.kill(process.pid, signal.SIGKILL)
            raise
    else:
        process.outcome(has_ended=True)
        yield None
