"""A store that grows in the test's own process, as a running broker's does, and a watch on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rmqtool.engine.append.message import Message
from rmqtool.engine.append.open_writer import existing_store, new_store
from rmqtool.engine.append.store_writer import StoreWriter
from rmqtool.engine.append.writer_config import config_from
from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.recipe import SMALL
from rmqtool.fixtures.samples import FixedClock
from rmqtool.store.config.broker_conf import broker_conf
from rmqtool.store.directory import Store
from rmqtool.store.location import survey_store
from rmqtool.watch.limited_view import ReadLimit
from rmqtool.watch.state import WatchState
from rmqtool.watch.watcher import Watcher, WatchOptions

CONF = broker_conf(SMALL, "test")
FILE_SIZE = 65536
RULES = rules_for("5.5.0")


class GrowingStore:
    """Puts messages of 300 bytes into four queues, in the order of the queues."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.count = 0
        self.clock = FixedClock()
        self._stack = ExitStack()
        self.writer = self._stack.enter_context(self._writer())

    def _writer(self) -> AbstractContextManager[StoreWriter]:
        config = config_from(CONF)
        if not self.root.exists():
            return new_store(self.root, RULES, config, self.clock, process_id=1)
        return existing_store(self.root, self.survey, RULES, config, self.clock, after_crash=True, process_id=1)

    def survey(self) -> Store:
        return survey_store(self.root, conf=CONF)

    def put(self, count: int, *, flushed: bool = True, dispatched: bool = True, keys: bool = True) -> int:
        """Put messages; the end of the log. What is not flushed is behind the checkpoint's time."""
        checkpoint = (self.root / "checkpoint").read_bytes()
        for _ in range(count):
            self.count += 1
            properties = {"KEYS": f"k{self.count}", "TAGS": "a"} if keys else {}
            self.writer.put(Message(topic="orders", queue_id=self.count % 4, body=b"x" * 200, properties=properties))
        self.writer.write_out()
        if dispatched:
            self.writer.sync()
            if not flushed:
                (self.root / "checkpoint").write_bytes(checkpoint)
        return self.writer.log_end

    def restart(self, *, crash: bool, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.writer.close(crash=crash)
        self._stack.close()
        meanwhile()
        self.clock.now_ms += 60_000
        self.writer = self._stack.enter_context(self._writer())

    def close(self) -> None:
        self._stack.close()

    def log_file(self, number: int) -> Path:
        return self.root / "commitlog" / f"{number * FILE_SIZE:020d}"

    def flip(self, physical_offset: int) -> None:
        """Change a byte of the log, and put it back the second time."""
        with self.log_file(physical_offset // FILE_SIZE).open("r+b") as file:
            file.seek(physical_offset % FILE_SIZE)
            byte = file.read(1)[0]
            file.seek(physical_offset % FILE_SIZE)
            file.write(bytes([byte ^ 0xFF]))


@contextmanager
def growing_store(root: Path) -> Iterator[GrowingStore]:
    store = GrowingStore(root)
    try:
        yield store
    finally:
        store.close()


class WatchedStore:
    """A watch whose clock the test moves: each look is ten seconds after the one before."""

    def __init__(self, store: GrowingStore, state: WatchState | None = None, **options: Any) -> None:
        self.now = 0.0
        self.rows: list[dict[str, Any]] = []
        self.limit = ReadLimit()
        self.watcher = Watcher(
            WatchOptions(store.root, store.survey, RULES, **options),
            state or WatchState(),
            self.limit,
            self.rows.append,
            clock=lambda: self.now,
        )

    def look(self, times: int = 1) -> list[str]:
        """Look; the ids of the findings so far, in order."""
        for _ in range(times):
            self.watcher.look()
            self.now += 10
        return [row["id"] for row in self.rows if row["type"] == "finding"]

    @property
    def position(self) -> int:
        assert self.watcher.state.position is not None
        return self.watcher.state.position.physical_offset

    @property
    def events(self) -> list[str]:
        return [row["event"] for row in self.rows if row["type"] == "event"]
