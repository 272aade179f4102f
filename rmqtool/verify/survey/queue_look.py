"""Checks all queues of one kind, each alone; results of an earlier check are reused, as far as memory allows."""

from __future__ import annotations

from typing import Final

from rmqtool.findings.account import Account
from rmqtool.memory import memory_budget
from rmqtool.scan.log_digest import LogDigest
from rmqtool.store.directory import QueueFiles, Store
from rmqtool.verify.survey.queue_map import QueueMap
from rmqtool.verify.survey.queue_pass import QueuePass
from rmqtool.verify.survey.recall import Seen, seen_by

SEEN_BYTES: Final = 4096
"""What a queue takes of which a digest recalls what was seen."""
_ALL: Final = 1 << 60


class QueueLook:
    """Looks at queues in files, plain ones or batch queues; any thread may do it.

    Attributes:
        queues: all of them.
    """

    def __init__(
        self, store: Store, account: Account, digest: LogDigest | None, log_minimum: int, *, is_batch: bool
    ) -> None:
        self._store, self._account, self._log_minimum, self._is_batch = store, account, log_minimum, is_batch
        self.queues = tuple((store.batch_queues if is_batch else store.queues).values())
        has_room = len(self.queues) <= memory_budget().share(_ALL, 8) // SEEN_BYTES
        self._digest = digest if has_room else None
        self._seen: list[object] = []

    def __call__(self, queue: QueueFiles) -> Seen[QueueMap]:
        """What is to see of one queue."""
        store = self._store
        file_size = store.batch_file_size if self._is_batch else store.consumequeue_file_size
        one = QueuePass(queue, self._is_batch, file_size, store.commitlog_file_size, self._log_minimum, self._account)
        files = tuple((segment.path, segment.start, segment.size) for segment in queue.segments)
        terms = files, one.is_batch, one.file_size, one.log_file_size, one.log_minimum
        return seen_by(one, [path for path, _, _ in files], terms, store.view.open, self._digest)

    def note(self, seen: Seen[QueueMap]) -> None:
        """Take what was seen of a queue, in the order of the queues: another look compares the whole."""
        if self._digest is not None:
            self._seen.append(seen)

    @property
    def seen(self) -> list[object]:
        """What tells whether another look saw the very same; nothing equals it where nothing was kept."""
        return self._seen if self._digest is not None or not self.queues else [object()]
