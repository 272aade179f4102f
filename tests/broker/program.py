"""A Java program that answers JSON lines: started when first asked, killed when it does not answer in time."""

import itertools
import json
import queue
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

from tests.broker.toolchain import java_command
from tests.broker.versions import BrokerVersion

LOG_TAIL = 3000


class JudgeError(Exception):
    """The Java side failed to answer: it reported an exception, died, or was killed after a time-out."""


class JavaProgram:
    """One of our Java programs for one RocketMQ version. A request after its death starts it again."""

    def __init__(self, version: BrokerVersion, main_class: str, *options: str) -> None:
        self.version = version
        self._options = options
        self._main_class = main_class
        self._scratch = tempfile.TemporaryDirectory(prefix=f"rocketmq-{version.name}-")
        self.log = Path(self._scratch.name, "log.txt")
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._ids = itertools.count()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ask(self, op: str, timeout_seconds: float = 300, **fields: Any) -> dict[str, Any]:
        """Send one request and wait for its answer.

        Raises JudgeError, with the end of the program's log, when there is none or when it is an error.
        """
        process = self._started()
        assert process.stdin is not None
        number = next(self._ids)
        try:
            process.stdin.write(json.dumps({"id": number, "op": op, **fields}) + "\n")
            process.stdin.flush()
            line = self._answers.get(timeout=timeout_seconds)
        except queue.Empty:
            self.kill()
            raise JudgeError(f"{self._name} gave no answer to {op} in {timeout_seconds} s and was killed"
                             + self._log_tail()) from None  # fmt: skip
        except BrokenPipeError:
            line = None
        if line is None:
            self.kill()
            raise JudgeError(f"{self._name} died in {op}" + self._log_tail())
        answer: dict[str, Any] = json.loads(line)
        if answer.pop("id") != number:
            self.kill()
            raise JudgeError(f"{self._name} answered something else than {op}: {line[:200]}")
        if "error" in answer:
            raise JudgeError(f"{self._name} failed in {op}: {answer['error']}" + self._log_tail())
        return answer

    def wait_end(self, timeout_seconds: float = 300) -> None:
        """Wait for a program that was told to end."""
        if self._process is not None:
            self._process.wait(timeout_seconds)
            self.kill()

    def kill(self) -> None:
        """End the program with SIGKILL, as the kernel or an operator would."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue  # a request that it never read is of no interest now

    def crash(self) -> None:
        """Send SIGKILL alone, from another thread than the one that asks: that one gets no answer."""
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        self.kill()
        self._scratch.cleanup()

    @property
    def _name(self) -> str:
        return f"{self._main_class} of RocketMQ {self.version.name}"

    def _started(self) -> subprocess.Popen[str]:
        if self._process is not None and self.running:
            return self._process
        self.kill()
        command = java_command(self.version, self._main_class, Path(self._scratch.name), *self._options)
        with self.log.open("a") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, encoding="utf-8"
            )
        self._process = process
        self._answers = queue.Queue()
        threading.Thread(target=_pass_on, args=(process, self._answers), daemon=True).start()
        return process

    def _log_tail(self) -> str:
        log = self.log.read_text(errors="replace") if self.log.exists() else ""
        return f"\n--- end of its log\n{log[-LOG_TAIL:]}"


def _pass_on(process: subprocess.Popen[str], answers: queue.Queue[str | None]) -> None:
    """Put the program's lines into the queue, and None behind the last."""
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith("{"):  # native libraries write there too
                answers.put(line)
    except ValueError:
        pass  # closed under our hands by kill()
    answers.put(None)
