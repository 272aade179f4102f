"""Builds consume queues, index and checkpoint of a copy from each block of records as it is written.

A killed run leaves them behind the log, or one queue behind another. So what was built is noted at each sync, and a
later run starts there again: a queue skips what it has, as a broker's does. The index may then have an entry
twice, as after the crash of a broker.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from rmqtool.engine.append.log_dispatcher import LogDispatcher, dispatch_from
from rmqtool.engine.append.open_writer import config_of, existing_dispatcher, last_units, new_dispatcher
from rmqtool.engine.append.store_writer import CHECKPOINT
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnsupportedError
from rmqtool.formats.checkpoint import FILE_SIZE, Checkpoint, build_checkpoint
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.sink import DirectorySink
from rmqtool.store.source import Closable


class BuilderBehind(Closable):
    """Queues, index and checkpoint of a copy, open for appending.

    Attributes:
        built_offset: physical offset up to which all records are in queues and index that are on the disk.
    """

    def __init__(
        self,
        look: Callable[[], Store | None],
        sink: DirectorySink,
        rules: BrokerRules,
        config: WriterConfig,
        *,
        built_offset: int | None,
        log_end: int,
    ) -> None:
        """Open what is there, and build what is missing up to the log's end.

        Args:
            look: surveys the copy; None where it has no log yet.
            built_offset: as an earlier run noted it.

        Raises:
            UnsupportedError: the copy has queues in RocksDB.
        """
        self._sink, self._rules = sink, rules
        self._stack = ExitStack()
        self._last_ms = 0
        self.built_offset = self._end = log_end
        try:
            self._dispatcher = self._open(look, config, built_offset, log_end)
        except BaseException:
            self._stack.close()
            raise

    def _open(
        self, look: Callable[[], Store | None], config: WriterConfig, built_offset: int | None, log_end: int
    ) -> LogDispatcher:
        store = look()
        if store is None:
            return new_dispatcher(self._sink, self._rules, config)
        if store.files.get(FileKind.CONSUMEQUEUE_ROCKSDB):
            raise UnsupportedError(f"{store.view.label}: --build does not write consume queues in RocksDB")
        reader = self._stack.enter_context(open_reader(store, self._rules))
        dispatcher = existing_dispatcher(store, reader, self._sink, self._rules, config_of(store, config))
        if built_offset is None:
            built_offset = max((begin + size for begin, size in last_units(reader)), default=store.commitlog[0].start)
        dispatch_from(store, dispatcher, built_offset, log_end)
        dispatcher.sync()
        changed = look()
        assert changed is not None
        # Queues have grown by what was dispatched just now, and some of them are new.
        dispatcher.go_on_from(self._stack.enter_context(open_reader(changed, self._rules)))
        return dispatcher

    def dispatch(self, physical_offset: int, block: bytearray) -> None:
        """Build from a block of whole records that follows the last one.

        Raises:
            WriteError: the disk does not take it.
        """
        self._dispatcher.dispatch(physical_offset, block)
        self._end = physical_offset + len(block)

    def sync(self) -> None:
        """Return once all that was built, and a checkpoint that says so, are on the disk.

        Raises:
            WriteError: they are not.
        """
        dispatcher = self._dispatcher
        dispatcher.sync()
        self.built_offset = self._end
        checkpoint = Checkpoint(
            commitlog_timestamp_ms=dispatcher.last_store_timestamp_ms,
            consumequeue_timestamp_ms=dispatcher.last_store_timestamp_ms,
            index_timestamp_ms=dispatcher.index_timestamp_ms or 0,
            consumequeue_physical_offset=dispatcher.last_physical_offset
            if self._rules.checkpoint_after_queue_flush
            else 0,
        )
        if checkpoint.commitlog_timestamp_ms:  # else nothing came in this run, and the last one stays
            self._sink.create(CHECKPOINT, FILE_SIZE)
            self._sink.write_at(CHECKPOINT, 0, build_checkpoint(checkpoint))
            self._sink.sync(CHECKPOINT)

    def finish(self) -> None:
        """Leave queues and index as a broker does that stops cleanly.

        Raises:
            WriteError: the disk does not take it.
        """
        self._dispatcher.finish(clean=True)
        self.sync()

    def close(self) -> None:
        self._stack.close()
