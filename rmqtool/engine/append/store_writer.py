"""A store that is written to: log, queues, index, checkpoint, abort, from its opening to a clean stop or a crash.

Broker: `DefaultMessageStore#load`, `#start`, `#shutdown`; `StoreCheckpoint#flush`; the flush services.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from threading import Lock
from time import monotonic
from types import TracebackType
from typing import Final, Self

from rmqtool.engine.append.appender import MessageAppender, clock_ms
from rmqtool.engine.append.batch_append import ColumnAppender, MessageColumns
from rmqtool.engine.append.log_dispatcher import LogDispatcher
from rmqtool.engine.append.log_writer import LogWriter
from rmqtool.engine.append.message import Message, MessageBatch
from rmqtool.engine.append.status import PutResult, PutStatus
from rmqtool.engine.append.writer_config import Replication, Slave, WriterConfig
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.formats import properties as names
from rmqtool.formats.abort import build_abort
from rmqtool.formats.checkpoint import FILE_SIZE, Checkpoint, build_checkpoint
from rmqtool.store.directory import Segment
from rmqtool.store.sink import FileSink

ABORT: Final = "abort"
ABORT_BACKUP: Final = "abort.bak"
CHECKPOINT: Final = "checkpoint"


class CrashStep(StrEnum):
    """Progress of a broker with a message at the moment of a crash."""

    WRITTEN = "written"
    """In memory: the operating system's, or with `transientStorePoolEnable` the broker's own, which ends with it."""
    COMMITTED = "committed"
    """In the file of the log."""
    FLUSHED = "flushed"
    """On the disk, so that the end of the machine does not take it either."""
    DISPATCHED = "dispatched"
    """In its consume queue; the last message not in the index."""
    INDEX = "index"
    """In the index too."""
    CHECKPOINT = "checkpoint"
    """And the checkpoint tells its time."""


_UNDISPATCHED: Final = (CrashStep.WRITTEN, CrashStep.COMMITTED, CrashStep.FLUSHED)
SYNC_INTERVAL_MS: Final = 500
"""Without synchronous flush the log goes to the disk this often (flushIntervalCommitLog)."""


def make_abort(sink: FileSink, rules: BrokerRules, process_id: int | None = None) -> None:
    """Mark a store as not cleanly stopped; nothing else in it changes before.

    Args:
        process_id: what the file says; that of this process if it is None.

    Raises:
        WriteError: the disk does not take it.
    """
    process_id = os.getpid() if process_id is None else process_id
    sink.create(ABORT, 0)
    sink.write_at(ABORT, 0, build_abort(process_id if rules.abort_holds_process_id else None))
    if rules.abort_holds_process_id:
        # The broker writes the pid through a routine that first keeps a copy of the (empty) file.
        sink.create(ABORT_BACKUP, 0)
    sink.sync_directory("")


class StoreWriter:
    """A store under the broker's lock, which the caller holds. Puts are reported as safe by `sync` only.

    A put raises WriteError where the disk does not take it; the store is left as a crashed one. `abort` is there
    already (`make_abort`), and goes with a clean stop.

    Attributes:
        is_writable: False makes it read-only, as a full disk does.

    Args:
        log_end: physical offset at which the log continues; None for a store without a log file.
        checkpoint: as it was found.
        was_abnormal: the last stop was no clean one; then `abort` stays, and so do the checkpoint's times.
        log_file: the file in which the log continues; None where the next record begins one.
        from_dump: see `MessageAppender`.
    """

    def __init__(
        self,
        sink: FileSink,
        rules: BrokerRules,
        config: WriterConfig,
        dispatcher: LogDispatcher,
        log_end: int | None,
        checkpoint: Checkpoint | None = None,
        *,
        was_abnormal: bool = False,
        log_file: Segment | None = None,
        clock: Callable[[], int] = clock_ms,
        from_dump: bool = False,
    ) -> None:
        self._sink = sink
        self.rules = rules
        self._config = config
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint or Checkpoint()
        self._keeps_abort = was_abnormal
        self.is_writable = True
        self._crash_step: CrashStep | None = None
        self._held: tuple[int, bytearray] | None = None
        self._clock = clock
        self._last_store_timestamp_ms = 0
        self._synced_at_ms = clock()
        self._log = LogWriter(
            sink, config.commitlog_directories, config.commitlog_file_size, self._written, log_end, log_file
        )
        self._putter = MessageAppender(
            self._log, rules, config, dispatcher.next_queue_offset, clock, from_dump=from_dump
        )
        self._is_open = True
        self._put_lock = Lock()
        self._busy_since: float | None = None
        sink.create(CHECKPOINT, FILE_SIZE)
        sink.sync_directory("")

    @property
    def log_end(self) -> int:
        """Physical offset after the last record."""
        return self._log.end

    def put(self, message: Message | MessageBatch) -> PutResult:
        """Put a message or a batch."""
        return self.put_all([message])[0]

    def put_all(self, messages: Sequence[Message | MessageBatch]) -> list[PutResult]:
        """Put several; see `put_group`."""
        return list(self.put_group(messages))

    def put_group(self, messages: Sequence[Message | MessageBatch]) -> Sequence[PutResult]:
        """Put several; with synchronous flush each one is on the disk before the next.

        Of many plain messages the results are `WrittenMessages`, which cost nothing until they are looked at.
        """
        if (refused := self._refusal()) is not None:
            return [refused] * len(messages)
        with self._put_lock:
            self._busy_since = monotonic()
            try:
                config = self._config
                if config.synchronous_flush or config.replication.role == SYNCHRONOUS:
                    results: Sequence[PutResult] = [self._put_and_wait(message) for message in messages]
                else:
                    results = self._putter.put_all(messages)
            finally:
                self._busy_since = None
        written = (result.store_timestamp_ms for result in reversed(results) if result.is_written)
        self._last_store_timestamp_ms = next(written, self._last_store_timestamp_ms)
        return results

    def _put_and_wait(self, message: Message | MessageBatch) -> PutResult:
        """Put a message, and wait for disk and replicas; of two errors that of the replicas counts."""
        config, rules = self._config, self.rules
        if (refused := replica_refusal(message, config.replication, rules)) is not None:
            return refused
        [result] = self._putter.put_all([message])
        if not result.is_written:
            return result
        status = PutStatus.PUT_OK
        if config.synchronous_flush:
            began = monotonic()
            self._log.sync()
            is_late = (monotonic() - began) * 1000 > config.flush_timeout_ms
            if is_late and waits_for_store(message, rules):
                status = PutStatus.FLUSH_DISK_TIMEOUT
        replicas = replica_status(message, config.replication, rules)
        status = status if replicas is PutStatus.PUT_OK else replicas
        return result if status is PutStatus.PUT_OK else result._replace(status=status)

    def _refusal(self) -> PutResult | None:
        replication = self._config.replication
        refused = state_refusal(replication, self.rules, is_open=self._is_open, is_writable=self.is_writable)
        since = self._busy_since
        if refused is None and since is not None and (monotonic() - since) * 1000 > self._config.busy_limit_ms:
            reason = "another put has taken too long for more than osPageCacheBusyTimeOutMills"
            return PutResult(PutStatus.OS_PAGE_CACHE_BUSY, reason=reason)
        return refused

    def put_columns(self, columns: MessageColumns) -> ColumnAppender | None:
        """Put plain messages as columns; None, and nothing written, where one of them is not plain."""
        if self._config.replication.role == SYNCHRONOUS or self._refusal() is not None:
            return None
        put = self._putter.put_columns(columns)
        if put is not None and put.store_timestamps_ms.size:
            self._last_store_timestamp_ms = int(put.store_timestamps_ms[-1])
            if self._config.synchronous_flush:
                self._log.sync()
        return put

    def expect(self, body_bytes: int) -> None:
        """Get ready for messages with so many bytes of bodies in all, which are to come."""
        self._dispatcher.expect(body_bytes)

    def crash_after(self, step: CrashStep) -> None:
        """Stop all further puts at this step, after which the broker is killed."""
        self._log.write_out()
        self._crash_step = step
        self._log.holds_back = self._config.transient_pool and step is CrashStep.WRITTEN

    def write_out(self) -> None:
        """Hand everything that was put to the operating system: it survives the end of this process."""
        self._log.write_out()

    def sync(self) -> None:
        """Return once everything that was put is on the disk: it survives the end of the machine."""
        self._log.sync()
        if self._crash_step is None or self._crash_step is CrashStep.CHECKPOINT:
            before, dispatcher = self._checkpoint, self._dispatcher
            dispatcher.derived.sync()
            consumequeue_offset = before.consumequeue_physical_offset
            if self.rules.checkpoint_after_queue_flush:
                consumequeue_offset = dispatcher.last_physical_offset or consumequeue_offset
            self._checkpoint = replace(
                before,
                commitlog_timestamp_ms=self._last_store_timestamp_ms or before.commitlog_timestamp_ms,
                consumequeue_timestamp_ms=dispatcher.last_store_timestamp_ms or before.consumequeue_timestamp_ms,
                index_timestamp_ms=dispatcher.index_timestamp_ms or before.index_timestamp_ms,
                consumequeue_physical_offset=consumequeue_offset,
            )
            self._sink.write_at(CHECKPOINT, 0, build_checkpoint(self._checkpoint))
            self._sink.sync(CHECKPOINT)
        self._synced_at_ms = self._clock()

    def sync_if_due(self) -> None:
        """`sync`, if the last one is long enough ago."""
        if self._clock() - self._synced_at_ms >= SYNC_INTERVAL_MS:
            self.sync()

    def close(self, *, crash: bool = False) -> None:
        """Stop.

        Args:
            crash: leave the files as a killed broker would: `abort`, the file made in advance, an old checkpoint.
        """
        if not self._is_open:
            return
        self._is_open = False
        self._log.write_out()
        self._log.discard()
        if self._crash_step is CrashStep.FLUSHED:
            self._log.sync()
        if self._held is not None:
            # The very last record of what was held back comes into its queue, but not into the index.
            (begin, block), self._held = self._held, None
            last = at = 0
            while at < len(block):
                last, at = at, at + int.from_bytes(block[at : at + 4], "big")
            if last:
                self._dispatcher.dispatch(begin, block[:last])
            self._dispatcher.dispatch(begin + last, block[last:], with_index=False)
        self._dispatcher.derived.finish(clean=not crash)
        if crash and self._crash_step is CrashStep.CHECKPOINT:
            self.sync()
        if not crash:
            self.sync()
            self._log.drop_preallocated()
            if not self._keeps_abort:
                self._sink.remove(ABORT)
            self._sink.sync_directory("")
        self._sink.close()

    def _written(self, physical_offset: int, block: bytearray) -> None:
        if self._crash_step in _UNDISPATCHED and not self._log.holds_back:
            return
        if self._crash_step is not CrashStep.DISPATCHED:
            self._dispatcher.dispatch(physical_offset, block)
            return
        if self._held is not None:
            self._dispatcher.dispatch(*self._held)
        self._held = (physical_offset, block)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(crash=kind is not None)


# What a store answers for its own state: whether it takes messages, and whether disk and replicas had them in time.


SYNCHRONOUS = "SYNC_MASTER"


def state_refusal(
    replication: Replication, rules: BrokerRules, *, is_open: bool, is_writable: bool
) -> PutResult | None:
    """Why the store takes no message at all; None if it does.

    Args:
        is_writable: neither a full disk nor a failed write made it read-only (`RunningFlags#isWriteable`).
    """
    reason = None
    if not is_open:
        reason = "the store was shut down"
    elif replication.role == "SLAVE" and not (rules.counts_replicas and replication.duplicates):
        reason = "the broker is a slave (brokerRole)"
    elif not is_writable:
        reason = "the disk is too full to be written to (diskSpaceWarningLevelRatio)"
    return None if reason is None else PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=reason)


def replica_refusal(message: Message | MessageBatch, replication: Replication, rules: BrokerRules) -> PutResult | None:
    """Why a master does not write a message that fewer replicas would have than it has to; None if it writes it."""
    if not (rules.counts_replicas and replication.acts_for_master and _waits_for_replicas(message, replication, rules)):
        return None
    alive = replication.replica_count
    needed = replication.in_sync_replicas
    if replication.adapts:
        needed = max(min(needed, alive), replication.in_sync_replicas_min)
    if needed <= alive:
        return None
    reason = f"{needed} replicas are needed (inSyncReplicas), {alive} alive"
    return PutResult(PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, reason=reason)


def replica_status(message: Message | MessageBatch, replication: Replication, rules: BrokerRules) -> PutStatus:
    """Status of a written message after replication."""
    if not _waits_for_replicas(message, replication, rules):
        return PutStatus.PUT_OK
    if rules.counts_replicas:
        needed = replication.in_sync_replicas
        if replication.acts_for_master and replication.adapts:
            needed = max(min(needed, replication.replica_count), replication.in_sync_replicas_min)
        has_enough = needed <= 1 or (needed == 2 and replication.slave is Slave.ACKNOWLEDGES)
        return PutStatus.PUT_OK if has_enough else PutStatus.FLUSH_SLAVE_TIMEOUT
    if replication.slave is Slave.NONE:
        return PutStatus.SLAVE_NOT_AVAILABLE
    return PutStatus.PUT_OK if replication.slave is Slave.ACKNOWLEDGES else PutStatus.FLUSH_SLAVE_TIMEOUT


def waits_for_store(message: Message | MessageBatch, rules: BrokerRules) -> bool:
    """True if the sender waits until disk and replicas have the message (`Message#isWaitStoreMsgOK`)."""
    shared = message.shared if isinstance(message, MessageBatch) else message
    text = shared.properties.get(names.WAIT)
    if text is None and shared.properties_text is not None:
        text = rules.property_decoder.decode(shared.properties_text).get(names.WAIT)
    return text is None or text.lower() == "true"


def _waits_for_replicas(message: Message | MessageBatch, replication: Replication, rules: BrokerRules) -> bool:
    if replication.role != SYNCHRONOUS or (rules.counts_replicas and replication.duplicates):
        return False
    return waits_for_store(message, rules)
