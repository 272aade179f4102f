"""What a build of queues and index is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from rmqtool.engine.queues.shown_topics import shown_topics
from rmqtool.engine.rules.topic_names import is_deleted, may_be_deleted
from rmqtool.formats.tags import parse_delay_levels
from rmqtool.quantities import OFFSETS_END
from rmqtool.repair.derived.log_pass import PART_BYTES
from rmqtool.scan.log_digest import LogDigest
from rmqtool.store.config.config_json import TOPICS, whole_topics
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Store


@dataclass(frozen=True)
class BuildOptions:
    """What the store's files do not say.

    Attributes:
        delays_ms: of the broker's delay levels.
        multi_dispatch, lmq: the broker's `enableMultiDispatch` and `enableLmq`.
        extension: whether queues have extensions; None looks at the store.
        record_crc: whether the broker is set to write whole-record CRCs; else the log's records tell.
        compiled: which reader scans; None leaves it to the size of the log.
        threads: that read the log; whatever their number, the same is built.
        part_bytes: of a file of the log that a thread reads at a time.
        digest: what is known of the log already, and is told what a build reads.
        keeps_keys: whether the digest is told what records put into the index, for a later check of it.
        shows_tombstones: leave the units of tombstones as any others, for consumers to see that messages are lost.
        restored: deleted topics whose messages are entered too; None: all of them.
    """

    delays_ms: tuple[int, ...] = field(default_factory=parse_delay_levels)
    multi_dispatch: bool = True
    lmq: bool = True
    extension: bool | None = None
    record_crc: bool = False
    compiled: bool | None = None
    threads: int = 2
    part_bytes: int = PART_BYTES
    digest: LogDigest | None = field(default=None, compare=False, repr=False)
    keeps_keys: bool = True
    shows_tombstones: bool = False
    restored: frozenset[str] | None = frozenset()


@dataclass(frozen=True)
class RemovedTopics:
    """Up to where in the log the messages of topics were removed, because the topics were deleted.

    Attributes:
        whole: all topics that are configured; None where no whole configuration tells.
        shown: the topics of which nobody can doubt that they are there; None: no topic is in doubt.
        restored: see `BuildOptions`.
        again: where topics begin again whose names are used again.
    """

    whole: frozenset[str] | None = None
    restored: frozenset[str] | None = frozenset()
    again: Mapping[str, int] = field(default_factory=dict)
    shown: frozenset[str] | None = None

    @classmethod
    def of(cls, store: Store, restored: frozenset[str] | None, incomplete: frozenset[str]) -> Self:
        """Look at a store.

        Args:
            restored: see `BuildOptions`.
            incomplete: topics of which a check has told that queues lack messages.
        """
        shown = shown_topics(store)
        whole = whole_topics(read_config(store.view, TOPICS))
        return cls(whole, restored, shown=None if shown is None else shown | incomplete)

    def end(self, topic: str) -> int:
        """Physical offset before which the messages of a topic were removed; 0 where none was."""
        if topic in self.again:
            return self.again[topic]
        is_restored = self.restored is None or topic in self.restored
        is_gone = is_deleted(topic, self.whole) or may_be_deleted(topic, self.shown)
        return OFFSETS_END if is_gone and not is_restored else 0


@dataclass(frozen=True)
class BuildRequest:
    """What is to be built.

    Attributes:
        queue: tells by (topic, queue id) which queues; None builds no queue at all.
        log_end: records from here on do not count; None reads to the end of the log.
        earlier: where files of the log begin that lie before the store's, if it is a window of a larger one: what
            queues and index have there stays as it is, and must reach up to the first record here.
        topics: of the wanted queues, where these are some of all.
    """

    queue: Callable[[str, int], bool] | None
    index: bool
    log_end: int | None = None
    earlier: tuple[int, ...] = ()
    topics: frozenset[str] = frozenset()
