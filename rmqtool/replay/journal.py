"""Journal of a replay on disk: lines of JSON, each with the changes since the one before it.

The state after the last whole line counts. It may be older than what the brokers hold: what was sent after it is found
again in the new queues. So a line a second is enough, but for a topic that is used for the first time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from rmqtool.errors import RefusedError, UnreadableError, WriteError
from rmqtool.report.own_file import OwnFile, open_own, replaced_own
from rmqtool.store.source import Closable, reason

FORMAT: Final = 2
_FORMAT_OF_WHOLE_STATES: Final = 1
SIZE_MAX: Final = 1 << 30
"""Bytes of a journal that are read."""
REWRITE_SIZE: Final = 8 << 20
"""Bytes from which on a journal is replaced by one with a single line, once it has four times the bytes of that one."""
REFUSALS_MAX: Final = 100


class TargetQueue(NamedTuple):
    """A queue of the cluster: its topic, the name of its broker, its number there."""

    topic: str
    broker: str
    queue_id: int


@dataclass
class ReplayState:
    """Progress of a replay.

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


class _Change(msgspec.Struct):
    """A line: the position, and other changes since the line before it.

    Attributes:
        queues: broker and number of the queues of each new topic.
        ends: the ends that differ, by the number of their queue: queues count in the order in which lines name them.
        sent, not_sent: the counts that differ.
    """

    store: int
    next_physical_offset: int
    last_record: tuple[int, str] | None
    is_complete: bool
    queues: dict[str, list[tuple[str, int]]]
    ends: list[tuple[int, int]]
    sent: dict[str, int]
    not_sent: dict[str, int]
    refusals: list[dict[str, Any]]


class _WholeState(msgspec.Struct):
    """A line of format 1: queues as lists, and the ends of all of them."""

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

    def __init__(self, path: Path | None, request: Mapping[str, Any], replay_id: str | None = None) -> None:
        """Open a journal, or make it.

        Args:
            request: what is replayed, to where.
            replay_id: 16 hexadecimal digits, where several journals are those of one replay; None for new ones.

        Raises:
            RefusedError: another run uses it, it is the journal of another replay, or no journal.
            UnreadableError, WriteError: the file cannot be read or written, or is damaged.
        """
        self.id, self.state, self.was_there = replay_id or secrets.token_hex(8), ReplayState(), False
        self._path, self._descriptor, self._request = path, -1, dict(request)
        self._written, self._size, self._whole_size = _WrittenState(), 0, 0
        if path is None:
            return
        descriptor = open_own(path, OwnFile.REPLAY_STATE, os.O_RDWR | os.O_APPEND)
        try:
            if descriptor is None:
                self._create(path)
            else:
                self._descriptor = descriptor
                self._lock(path)
                self._load(path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def save(self) -> None:
        """Write the changes, and wait until the disk has them.

        Raises:
            WriteError: it does not.
        """
        if self._descriptor < 0:
            return
        self._append(_line(self._written.change_to(self.state)))
        self._written.update(self.state)
        if self._size > max(REWRITE_SIZE, 4 * self._whole_size):
            assert self._path is not None, self._size
            try:
                self._rewrite(self._path)
            except (WriteError, RefusedError, UnreadableError):
                self._whole_size = self._size  # the long file does as well; the next try is once it is much longer

    def _create(self, path: Path) -> None:
        """Create the file with its first line: one without it is taken for another program's."""
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_APPEND, 0o644)
        except FileExistsError as error:
            raise RefusedError(f"{path}: appeared just now; another replay may use this state file") from error
        except OSError as error:
            raise WriteError(f"{path}: {reason(error)}") from error
        try:
            self._lock(path)
            self._append(_line(_JournalHeader(FORMAT, self.id, self._request)))
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def _lock(self, path: Path) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_there = os.path.samestat(os.fstat(self._descriptor), path.lstat())
        except OSError as error:
            raise RefusedError(f"{path}: another replay uses this state file") from error
        if not is_there:  # its run has written a shorter one meanwhile
            raise RefusedError(f"{path}: another replay uses this state file")

    def _load(self, path: Path) -> None:
        size = os.fstat(self._descriptor).st_size
        if size > SIZE_MAX:
            raise UnreadableError(f"{path}: {size:,} bytes are too many for the state file of a replay")
        content = os.pread(self._descriptor, size, 0)
        header, self.state = _parsed(path, content)
        if header.request != self._request:
            differs = sorted(name for name in self._request if self._request[name] != header.request.get(name))
            raise RefusedError(f"{path}: the state file of another replay: {', '.join(differs)} differs")
        self.id, self.was_there = header.id, True
        self._written.update(self.state)
        if header.format == FORMAT:
            self._size = self._whole_size = content.rindex(b"\n") + 1
            os.ftruncate(self._descriptor, self._size)
        else:
            self._rewrite(path)

    def _rewrite(self, path: Path) -> None:
        """Replace the file by one with the same state in a single line, atomically; the lock stays held."""
        header, change = _JournalHeader(FORMAT, self.id, self._request), _WrittenState().change_to(self.state)
        content, descriptor = _line(header) + _line(change), -1
        try:
            with replaced_own(path, OwnFile.REPLAY_STATE) as file:
                os.fchmod(file.fileno(), os.fstat(self._descriptor).st_mode & 0o777)
                descriptor = os.dup(file.fileno())
                fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_APPEND)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.write(content)
        except BaseException:
            if descriptor >= 0:
                os.close(descriptor)
            raise
        os.close(self._descriptor)
        self._descriptor, self._size, self._whole_size = descriptor, len(content), len(content)

    def _append(self, line: bytes) -> None:
        try:
            rest = line
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            os.fsync(self._descriptor)
        except OSError as error:
            with suppress(OSError):  # a part of a line must not be the start of the next one
                os.ftruncate(self._descriptor, self._size)
            raise WriteError(f"{self._path}: {reason(error)}") from error
        self._size += len(line)


class _WrittenState:
    """State of a journal's lines so far, as much as is needed to find changes."""

    def __init__(self) -> None:
        self._queues: list[TargetQueue] = []
        self._topics = 0
        self._ends: list[int] = []
        self._sent: dict[str, int] = {}
        self._not_sent: dict[str, int] = {}
        self._refusals = 0

    def change_to(self, state: ReplayState) -> _Change:
        topics = list(state.queues.items())[self._topics :]
        ends = list(map(state.ends.__getitem__, self._queues))
        changed = [(number, end) for number, end in enumerate(ends) if end != self._ends[number]]
        added = [state.ends[queue] for _, queues in topics for queue in queues]
        return _Change(
            state.store,
            state.next_physical_offset,
            state.last_record,
            state.is_complete,
            {topic: [(queue.broker, queue.queue_id) for queue in queues] for topic, queues in topics},
            [*changed, *enumerate(added, len(ends))],
            _changed(self._sent, state.sent),
            _changed(self._not_sent, state.not_sent),
            state.refusals[self._refusals :],
        )

    def update(self, state: ReplayState) -> None:
        for queues in list(state.queues.values())[self._topics :]:
            self._queues += queues
        self._topics = len(state.queues)
        self._ends = list(map(state.ends.__getitem__, self._queues))
        self._sent, self._not_sent = dict(state.sent), dict(state.not_sent)
        self._refusals = len(state.refusals)


def read_state(path: Path) -> ReplayState:
    """The state of a journal that another run writes, or has written; an empty one before its first line is whole.

    Raises:
        RefusedError, UnreadableError: it is no journal, or cannot be read, or is damaged.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UnreadableError(f"{path}: {reason(error)}") from error
    return _parsed(path, content)[1] if b"\n" in content else ReplayState()


def body_digest(body: bytes) -> str:
    """Digest that shows if a record is still the one that was sent."""
    return hashlib.sha256(body).hexdigest()


def _parsed(path: Path, content: bytes) -> tuple[_JournalHeader, ReplayState]:
    """Header and state, as far as the lines are whole."""
    whole, state = content.split(b"\n")[:-1], ReplayState()
    if not whole:
        raise RefusedError(f"{path}: the first line is not whole, so no replay has sent anything; remove the file")
    try:
        header = msgspec.json.decode(whole[0], type=_JournalHeader)
        if header.format == FORMAT:
            _apply(state, (msgspec.json.decode(line, type=_Change) for line in whole[1:]))
        elif header.format == _FORMAT_OF_WHOLE_STATES and len(whole) > 1:
            state = _state(msgspec.json.decode(whole[-1], type=_WholeState))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, IndexError) as error:
        raise UnreadableError(f"{path}: the state file of a replay is damaged ({error})") from error
    if header.format not in (FORMAT, _FORMAT_OF_WHOLE_STATES):
        raise RefusedError(f"{path}: of another version of rmqtool (format {header.format})")
    return header, state


def _line(content: msgspec.Struct) -> bytes:
    return msgspec.json.encode(content) + b"\n"


def _changed(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in now.items() if before.get(name) != count}


def _apply(state: ReplayState, changes: Iterable[_Change]) -> None:
    order: list[TargetQueue] = []
    for change in changes:
        state.store, state.next_physical_offset = change.store, change.next_physical_offset
        state.last_record, state.is_complete = change.last_record, change.is_complete
        for topic, queues in change.queues.items():
            state.queues[topic] = [TargetQueue(topic, *queue) for queue in queues]
            order += state.queues[topic]
        for number, end in change.ends:
            state.ends[order[number]] = end
        for counts, changed in ((state.sent, change.sent), (state.not_sent, change.not_sent)):
            for name, count in changed.items():
                counts[name] = count
        state.refusals += change.refusals


def _state(line: _WholeState) -> ReplayState:
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
