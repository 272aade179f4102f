"""A connection to a master's replication port: asks for the log from an offset on, and receives it.

Broker: `HAService.HAClient` (4.x), `DefaultHAClient` (5.x).

A master takes each report for an acknowledgement of all bytes before it. So the same offset is repeated, which keeps
the connection open, until `acknowledge` is called.
"""

from __future__ import annotations

import select
import socket
import time
from dataclasses import dataclass
from typing import Final

from rmqtool.errors import RmqtoolError, UsageError
from rmqtool.formats.replication import REPORT_FORM, TRANSFER_FORM
from rmqtool.store.source import Closable, reason

DEFAULT_PORT: Final = 10912
BODY_MAX: Final = 4 << 20
"""Bytes of a body; a slave's buffer takes no more (`HAClient.READ_MAX_BUFFER_SIZE`)."""
_READ_SIZE: Final = 1 << 20


class MasterLostError(RmqtoolError):
    """The master does not answer, closed the connection, or was silent for too long; another try may help."""


class ProtocolError(RmqtoolError):
    """The received data is not the replication protocol."""


@dataclass(frozen=True)
class Timing:
    """Seconds.

    Attributes:
        connect: until an address must have answered.
        report: between two reports (haSendHeartbeatInterval).
        silence: without a byte from the master, after which the connection counts as lost (haHousekeepingInterval).
        retry: between two attempts to connect.
    """

    connect: float = 5.0
    report: float = 5.0
    silence: float = 20.0
    retry: float = 2.0


@dataclass(frozen=True)
class MasterAddress:
    """Where a master listens for its slaves."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Transfer:
    """Bytes of the log in one or more bodies side by side; none are a heartbeat, with the offset of the next byte."""

    physical_offset: int
    body: bytes | bytearray

    @property
    def end(self) -> int:
        return self.physical_offset + len(self.body)


def parse_address(text: str, default_port: int = DEFAULT_PORT) -> MasterAddress:
    """HOST[:PORT], an IPv6 address in brackets.

    Raises:
        UsageError: it is not.
    """
    host, _, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not host or (":" in host and not host.startswith("[")):
        host, port = text, ""
    host = host.removeprefix("[").removesuffix("]")
    if not host or (port and not (port.isascii() and port.isdecimal() and 0 < int(port) <= 65535)):
        raise UsageError(f"{text!r}: not HOST or HOST:PORT")
    return MasterAddress(host, int(port) if port else default_port)


class MasterConnection(Closable):
    """The log of a master from one offset on, as it arrives.

    Attributes:
        last_body_size: bytes of the last whole body; 0 before there is one, a heartbeat has none.
        longest_body_size: the same of the longest one.
    """

    def __init__(self, address: MasterAddress, request_offset: int, timing: Timing) -> None:
        """Connect, and ask for the log from an offset on; 0 asks for the last file.

        Raises:
            MasterLostError: the master does not answer.
        """
        self.address = address
        self._timing = timing
        self._reported = request_offset
        self._buffer = bytearray()
        self.received_bytes = 0
        self.last_body_size = self.longest_body_size = 0
        self._lost: MasterLostError | None = None
        try:
            self._socket = socket.create_connection((address.host, address.port), timing.connect)
        except (OSError, UnicodeError) as error:
            text = reason(error) if isinstance(error, OSError) else "not a host name"
            raise MasterLostError(f"{address}: {text}") from error
        self._heard_at = time.monotonic()
        try:
            self._report()
        except MasterLostError:
            self.close()
            raise

    def receive(self, wait_seconds: float) -> list[Transfer]:
        """Received frames; empty if none arrived in the given time.

        Raises:
            MasterLostError: the connection is gone; what arrived before was returned by an earlier call.
            ProtocolError: what arrived is not the protocol.
        """
        if self._lost is not None:
            raise self._lost
        now = time.monotonic()
        if now - self._reported_at >= self._timing.report:
            self._report()
        if select.select([self._socket], [], [], max(0.0, min(wait_seconds, self._timing.report)))[0]:
            try:
                received = self._socket.recv(_READ_SIZE)
            except OSError as error:
                received, self._lost = b"", MasterLostError(f"{self.address}: {reason(error)}")
            if received:
                self._heard_at = time.monotonic()
                self.received_bytes += len(received)
                self._buffer += received
            elif self._lost is None:
                self._lost = MasterLostError(f"{self.address}: the master closed the connection")
        elif time.monotonic() - self._heard_at >= self._timing.silence:
            raise MasterLostError(f"{self.address}: nothing received for {self._timing.silence:g} s")
        return self._transfers()

    def acknowledge(self, physical_offset: int) -> None:
        """Tell the master that all bytes before an offset are safe here.

        Raises:
            MasterLostError: the connection is gone.
        """
        if physical_offset != self._reported:
            self._reported = physical_offset
            self._report()

    def close(self) -> None:
        self._socket.close()

    def _transfers(self) -> list[Transfer]:
        """Whole frames in the buffer, bodies that continue each other joined."""
        transfers: list[Transfer] = []
        view, at, size = memoryview(self._buffer), 0, TRANSFER_FORM.size
        while at + size <= len(view):
            physical_offset, length = TRANSFER_FORM.unpack_from(view, at)
            if physical_offset < 0 or not 0 <= length <= BODY_MAX:
                raise ProtocolError(
                    f"{self.address}: sent an offset of {physical_offset} with a length of {length}, which no master "
                    f"sends; is this its replication port (haListenPort)?"
                )
            if at + size + length > len(view):
                break
            body = view[at + size : at + size + length]
            self.last_body_size = length or self.last_body_size
            self.longest_body_size = max(length, self.longest_body_size)
            last = transfers[-1] if transfers else None
            if last is not None and last.body and body and last.end == physical_offset:
                assert isinstance(last.body, bytearray)
                last.body.extend(body)
            else:
                transfers.append(Transfer(physical_offset, bytearray(body)))
            at += size + length
            body.release()
        view.release()
        del self._buffer[:at]
        return transfers

    def _report(self) -> None:
        try:
            self._socket.sendall(REPORT_FORM.pack(self._reported))
        except OSError as error:
            raise MasterLostError(f"{self.address}: {reason(error)}") from error
        self._reported_at = time.monotonic()
