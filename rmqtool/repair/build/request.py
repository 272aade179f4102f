"""What a build of queues and index is asked for, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rmqtool.formats.tags import parse_delay_levels
from rmqtool.repair.build.log_pass import PART_BYTES
from rmqtool.scan.log_digest import LogDigest


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
        shows_tombstones: leave the units of tombstones as any others, for consumers to see that messages are lost.
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
    shows_tombstones: bool = False


@dataclass(frozen=True)
class BuildRequest:
    """What is to be built.

    Attributes:
        queue: tells by (topic, queue id) which queues; None builds no queue at all.
        log_end: records from here on do not count; None reads to the end of the log.
        earlier: where files of the log begin that lie in front of the store's, if it is a window of a larger one: what
            queues and index have there stays as it is, and must reach up to the first record here.
    """

    queue: Callable[[str, int], bool] | None
    index: bool
    log_end: int | None = None
    earlier: tuple[int, ...] = ()


@dataclass
class BuiltQueues:
    """What came of queues.

    Attributes:
        repeated: records that found their place in a queue taken.
        gap_units: units in the place of messages that the log does not have.
        displaced: records at another queue offset than they say, by queue.
        file_times_ms: store time of the last record in a queue file, by path.
        refused: why a queue is not written, as sentences.
    """

    repeated: int = 0
    gap_units: int = 0
    displaced: dict[str, int] = field(default_factory=dict)
    file_times_ms: dict[str, int] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    def add(self, others: BuiltQueues) -> None:
        """Count other queues of the same store too."""
        self.repeated += others.repeated
        self.gap_units += others.gap_units
        self.displaced.update(others.displaced)
        self.file_times_ms.update(others.file_times_ms)
        self.refused = tuple(sorted((*self.refused, *others.refused)))


@dataclass
class BuildResult(BuiltQueues):
    """What came of it; files are below `directory`, with the paths that they have in the store.

    Attributes:
        log_end: physical offset behind the last record that was read.
        last_record: physical offset and store time of that record; None without one.
        newest_ms: the latest store time of all.
        bad: where a scan met something that is no record: (physical offset, length, finding).
        needs: of a window, physical offset to which it would have to reach: what a queue or the index has below it
            does not reach up to it. None where nothing is missing.
    """

    directory: Path = field(kw_only=True)
    log_end: int = 0
    last_record: tuple[int, int] | None = None
    newest_ms: int = 0
    bad: tuple[int, int, str] | None = None
    record_count: int = 0
    needs: int | None = None
