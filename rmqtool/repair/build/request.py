"""What a build of queues and index is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

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
        keeps_keys: whether the digest is told what records put into the index, for a later check of it.
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
    keeps_keys: bool = True
    shows_tombstones: bool = False


@dataclass(frozen=True)
class BuildRequest:
    """What is to be built.

    Attributes:
        queue: tells by (topic, queue id) which queues; None builds no queue at all.
        log_end: records from here on do not count; None reads to the end of the log.
        earlier: where files of the log begin that lie before the store's, if it is a window of a larger one: what
            queues and index have there stays as it is, and must reach up to the first record here.
    """

    queue: Callable[[str, int], bool] | None
    index: bool
    log_end: int | None = None
    earlier: tuple[int, ...] = ()
