"""Mirrors a real broker under load while both are killed again and again, and compares the logs byte for byte.

`python -m tests.broker.mirror_run VERSION DIRECTORY SECONDS` prints a line of JSON; docs/mirror.md has the figures.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from rmqtool.formats.remoting import RequestCode
from rmqtool.remoting.connection import Connection
from rmqtool.remoting.requests import pull_records, queue_offset
from tests.broker.whole import WholeBroker

FILE_SIZE = 1 << 20
SIZES = {"mappedFileSizeConsumeQueue": 60_000, "maxHashSlotNum": 1000, "maxIndexNum": 20_000}
QUEUES = 4
TOPICS = {"Load": {"readQueueNums": QUEUES, "writeQueueNums": QUEUES}}
ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    """A port that nobody listens on, of those that the kernel gives to nobody who connects."""
    while True:
        port = random.SystemRandom().randrange(12_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def rmqtool(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rmqtool", *arguments]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)


class MirroredBroker:
    """A broker under load and a mirror of it, each of which may be killed at any time."""

    def __init__(self, version: str, directory: Path, config: dict[str, Any] | None = None) -> None:
        self.version, self.master, self.copy = version, directory / "master", directory / "copy"
        self.port, self.ha_port = free_port(), free_port()
        self.config = {"mappedFileSizeCommitLog": FILE_SIZE, **SIZES, "haListenPort": self.ha_port, **(config or {})}
        self.random = random.Random(version)
        self.sent = 0
        self.figures: dict[str, int] = {"master_kills": 0, "mirror_kills": 0, "mirror_starts": 0}
        self._stopped = threading.Event()
        self.broker: WholeBroker | None = None
        self.mirror: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self.broker = WholeBroker(self.version, self.master, self.config, TOPICS, port=self.port)

    def options(self, *more: str) -> list[str]:
        sizes = [word for name, value in SIZES.items() for word in ("--config", f"{name}={value}")]
        place = ["--build", "--log-file-size", str(FILE_SIZE), *sizes, "--format", "jsonl"]
        return ["mirror", f"127.0.0.1:{self.ha_port}", str(self.copy), *place, *more]

    def start_mirror(self) -> None:
        self.figures["mirror_starts"] += 1
        self.mirror = rmqtool(*self.options("--quiet"))

    def send_for(self, seconds: float) -> None:
        """Send messages of 10 to 4,000 bytes, as fast as one client can."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.broker is not None:
            body = self.random.randbytes(self.random.choice((10, 300, 1000, 4000)))
            with suppress(Exception):  # a broker that was killed, or is still starting
                self.broker.send("Load", self.sent % QUEUES, body, {"KEYS": f"k{self.sent}"})
                self.sent += 1

    def run(self, seconds: float) -> None:
        """Send, kill one or the other after some seconds, start it again, and so on."""
        began = time.monotonic()
        self.start()
        self.start_mirror()
        while time.monotonic() - began < seconds:
            self.send_for(self.random.uniform(4, 20))
            assert self.mirror is not None
            if self.random.random() < 0.5 and self.broker is not None:
                self.broker.kill()
                self.figures["master_kills"] += 1
                self.start()
            else:
                self.mirror.kill()
                self.mirror.communicate()
                self.figures["mirror_kills"] += 1
                self.start_mirror()
            if (code := self.mirror.poll()) not in (None, -signal.SIGKILL):
                # A mirror that finds no master at its start ends; anything else it says is a fault.
                told = self.mirror.communicate()
                assert code == 4, (code, told)
                self.start_mirror()

    def finish(self) -> None:
        """Let the mirror copy the rest, and stop both."""
        assert self.mirror is not None
        self.mirror.terminate()
        out, errors = self.mirror.communicate(timeout=600)
        assert self.mirror.returncode in (0, 4, -signal.SIGTERM), (out, errors)
        last = rmqtool(*self.options("--until", "now"))
        out, errors = last.communicate(timeout=120)
        assert last.returncode == 0, (out, errors)
        self.figures["end_offset"] = json.loads(out)["end_offset"]
        assert self.broker is not None
        self.broker.__exit__(None, None, None)

    def differences(self) -> list[str]:
        """Names of log files that differ up to the end of the master's log."""
        end = self.figures["end_offset"]
        differing = []
        names = sorted(path.name for path in (self.master / "commitlog").iterdir() if int(path.name) < end)
        assert names
        for name in names:
            length = min(FILE_SIZE, end - int(name))
            ours, theirs = (folder / "commitlog" / name for folder in (self.copy, self.master))
            if not ours.exists() or ours.read_bytes()[:length] != theirs.read_bytes()[:length]:
                differing.append(name)
        self.figures["files"] = len(names)
        return differing


def served_by(address: str) -> int:
    """How many messages a consumer is given, 32 at a time; an answer of the test's client would hold them all."""
    count = 0
    with closing(Connection(address)) as broker:
        for queue_id in range(QUEUES):
            at = queue_offset(broker, RequestCode.GET_MIN_OFFSET, "Load", queue_id)
            while at < queue_offset(broker, RequestCode.GET_MAX_OFFSET, "Load", queue_id):
                pulled = pull_records(broker, "Load", queue_id, at)
                assert pulled.records, (queue_id, at)
                count += record_count(pulled.records)
                at = pulled.next_queue_offset
    return count


def record_count(records: bytes) -> int:
    count = position = 0
    while position < len(records):
        position += int.from_bytes(records[position : position + 4], "big")
        count += 1
    return count


def main(version: str, directory: Path, seconds: float) -> None:
    pair = MirroredBroker(version, directory)
    began = time.monotonic()
    pair.run(seconds)
    pair.finish()
    differing = pair.differences()
    verified = rmqtool("verify", str(pair.copy), "--format", "json")
    out, _ = verified.communicate()
    with WholeBroker(version, pair.copy, pair.config, TOPICS) as broker:
        served = served_by(broker.started["address"])
    result = {
        "version": version,
        "seconds": round(time.monotonic() - began),
        "acknowledged": pair.sent,
        **pair.figures,
        "differing_files": differing,
        "verify": json.loads(out)["summary"]["findings"],
        "served_by_copy": served,
        "cpu": os.times()[2],
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
