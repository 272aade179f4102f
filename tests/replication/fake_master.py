"""A master on the loopback that sends a log as brokers do, as far as its tests need, or as no broker would."""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

from rmqtool.replication.connection import MasterAddress, Timing

QUICK = Timing(connect=5.0, report=0.1, silence=5.0, retry=0.05)
HEARTBEAT_SECONDS = 0.15
Frames = Callable[[int], Iterator[bytes]]


def frame(physical_offset: int, body: bytes = b"") -> bytes:
    return struct.pack(">qi", physical_offset, len(body)) + body


class FakeMaster:
    """Sends `log`, whose first byte is at `start`, in files of `file_size`.

    `frames`, if set, makes what is sent to a request instead. `reports` has what each connection reported.
    """

    def __init__(self, log: bytes, file_size: int, start: int = 0, *, batch_size: int = 32768) -> None:
        self.log, self.file_size, self.start, self.batch_size = log, file_size, start, batch_size
        self.frames: Frames | None = None
        self.cut_after: int | None = None
        self.reports: list[list[int]] = []
        self._closed = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = MasterAddress("127.0.0.1", self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def end(self) -> int:
        return self.start + len(self.log)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        reports: list[int] = []
        self.reports.append(reports)
        with suppress(OSError), client:
            client.settimeout(10)
            raw = b""
            while len(raw) < 8:
                raw += client.recv(8 - len(raw))
            reports.append(int.from_bytes(raw, "big", signed=True))
            for part in self.frames(reports[0]) if self.frames is not None else self._sent(reports[0]):
                client.sendall(part)
                if self._closed.is_set() or not self._read(client, reports, 0.0):
                    return
            if self.frames is None:
                return
            while not self._closed.is_set() and self._read(client, reports, HEARTBEAT_SECONDS):
                pass

    @staticmethod
    def _read(client: socket.socket, reports: list[int], wait_seconds: float) -> bool:
        """Take reports that are there; False once the mirror is gone."""
        if not select.select([client], [], [], wait_seconds)[0]:
            return True
        data = client.recv(4096)
        reports += [value for (value,) in struct.iter_unpack(">q", data)]
        return bool(data)

    def _sent(self, request: int) -> Iterator[bytes]:
        at = request or self.end - (self.end - self.start) % self.file_size
        sent = 0
        while not self._closed.is_set():
            here = at - self.start
            if not 0 <= here < len(self.log):
                self._closed.wait(HEARTBEAT_SECONDS)
                yield frame(at)
                continue
            stop = min(here + self.batch_size, (here // self.file_size + 1) * self.file_size, len(self.log))
            content = frame(at, self.log[here:stop])
            if self.cut_after is not None and sent + len(content) > self.cut_after:
                yield content[: self.cut_after - sent]
                self.cut_after = None
                return
            yield content
            sent += len(content)
            at = self.start + stop
