"""What a replay has done, on disk: a line of JSON for each state, the last whole line counts.

A state may be older than what the brokers hold: what was sent after it is found again in the new queues. So a line a
second is enough, but for a topic that is used for the first time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from rmqtool.errors import RefusedError, UnreadableError, WriteError
from rmqtool.report.own_file import OwnFile, open_own
from rmqtool.store.source import Closable, reason

FORMAT: Final = 1
SIZE_MAX: Final = 1 << 30
"""Bytes of a journal that are read."""
REFUSALS_MAX: Final = 100


class TargetQueue(NamedTuple):
    """A queue of the cluster: its topic, the name of its broker, its number there."""

    topic: str
    broker: str
    queue_id: int


@dataclass
class ReplayState:
    """How far a replay is.

    Attributes:
        store: number of the store that is read.
        next_physical_offset: everything before it in this store is done.
        last_record: physical offset and SHA-256 of the body of the last message of this store that was sent.
        queues: by new topic the queues that its messages go to, the first for queue 0.
        ends: for each of these queues the offset from which on messages may be newer than this state.
        sent: messages by old topic.
        not_sent: messages and bad ranges by reason.
        refusals: the first messages that a broker refused, and why.
    """

    store: int = 0
    next_physical_offset: int = 0
    last_record: tuple[int, str] | None = None
    queues: dict[str, list[TargetQueue]] = field(default_factory=dict)
    ends: dict[TargetQueue, int] = field(default_factory=dict)
    sent: Counter[str] = field(default_factory=Counter)
    not_sent: Counter[str] = field(default_factory=Counter)
    refusals: list[dict[str, Any]] = field(default_factory=list)
    is_complete: bool = False


class _Line(msgspec.Struct):
    """A state as it is written: queues as lists, and their ends beside them."""

    store: int
    next_physical_offset: int
    last_record: tuple[int, str] | None
    queues: dict[str, list[tuple[str, str, int]]]
    ends: list[tuple[tuple[str, str, int], int]]
    sent: dict[str, int]
    not_sent: dict[str, int]
    refusals: list[dict[str, Any]]
    is_complete: bool


class _JournalHeader(msgspec.Struct):
    format: int
    id: str
    request: dict[str, Any]


class ReplayJournal(Closable):
    """The journal of one replay; without a path it is kept in memory only.

    Attributes:
        id: tells the messages of this replay from those of all others.
        state: as far as the journal knows.
        was_there: whether an earlier run wrote it.
    """

    def __init__(self, path: Path | None, request: Mapping[str, Any]) -> None:
        """Open a journal, or make it.

        Args:
            request: what is replayed, to where.

        Raises:
            RefusedError: another run uses it, it is the journal of another replay, or no journal.
            UnreadableError, WriteError: the file cannot be read or written, or is damaged.
        """
        self.id, self.state, self.was_there = secrets.token_hex(8), ReplayState(), False
        self._path, self._descriptor = path, -1
        if path is None:
            return
        descriptor = open_own(path, OwnFile.REPLAY_STATE, os.O_RDWR | os.O_APPEND)
        try:
            if descriptor is None:
                self._create(path, dict(request))
            else:
                self._descriptor = descriptor
                self._lock(path)
                self._load(path, dict(request))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def save(self) -> None:
        """Write the state, and wait until the disk has it.

        Raises:
            WriteError: it does not.
        """
        if self._descriptor >= 0:
            self._append(_line(self.state))

    def _create(self, path: Path, request: dict[str, Any]) -> None:
        """Make the file with its first line: one without it is taken for somebody else's."""
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_APPEND, 0o644)
        except FileExistsError as error:
            raise RefusedError(f"{path}: appeared just now; another replay may use this state file") from error
        except OSError as error:
            raise WriteError(f"{path}: {reason(error)}") from error
        try:
            self._lock(path)
            self._append(_JournalHeader(FORMAT, self.id, request))
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def _lock(self, path: Path) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RefusedError(f"{path}: another replay uses this state file") from error

    def _load(self, path: Path, request: dict[str, Any]) -> None:
        size = os.fstat(self._descriptor).st_size
        if size > SIZE_MAX:
            raise UnreadableError(f"{path}: {size:,} bytes are too many for the state file of a replay")
        lines = os.pread(self._descriptor, size, 0).split(b"\n")
        whole = lines[:-1]
        if not whole:
            raise RefusedError(f"{path}: the first line is not whole, so no replay has sent anything; remove the file")
        try:
            header = msgspec.json.decode(whole[0], type=_JournalHeader)
            line = msgspec.json.decode(whole[-1], type=_Line) if len(whole) > 1 else None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UnreadableError(f"{path}: the state file of a replay is damaged ({error})") from error
        if header.format != FORMAT:
            raise RefusedError(f"{path}: of another version of rmqtool (format {header.format})")
        if header.request != request:
            differs = sorted(name for name in request if request[name] != header.request.get(name))
            raise RefusedError(f"{path}: the state file of another replay: {', '.join(differs)} differs")
        os.ftruncate(self._descriptor, size - len(lines[-1]))
        self.id, self.was_there = header.id, True
        if line is not None:
            self.state = _state(line)

    def _append(self, line: msgspec.Struct) -> None:
        data = msgspec.json.encode(line) + b"\n"
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
            os.fsync(self._descriptor)
        except OSError as error:
            raise WriteError(f"{self._path}: {reason(error)}") from error


def body_digest(body: bytes) -> str:
    """What tells whether a record is still the one that was sent."""
    return hashlib.sha256(body).hexdigest()


def _line(state: ReplayState) -> _Line:
    return _Line(**vars(state) | {"queues": dict(state.queues), "ends": list(state.ends.items())})


def _state(line: _Line) -> ReplayState:
    return ReplayState(
        line.store,
        line.next_physical_offset,
        line.last_record,
        {topic: [TargetQueue(*queue) for queue in queues] for topic, queues in line.queues.items()},
        {TargetQueue(*queue): end for queue, end in line.ends},
        Counter(line.sent),
        Counter(line.not_sent),
        line.refusals,
        line.is_complete,
    )
