"""Progress of a mirror, for monitoring."""

from __future__ import annotations

from dataclasses import dataclass

from rmqtool.replication.record_check import LateRecords


@dataclass(frozen=True)
class SkippedRecords:
    """Records of the master after the end of a copy that ends at a time.

    Attributes:
        physical_offset: of the first of them, the end of the copy.
    """

    physical_offset: int
    count: int


@dataclass
class MirrorStatus:
    """Progress of a mirror.

    Attributes:
        state: connecting, searching (for the log's start), copying, caught up, waiting (for the master), stopped.
        received_bytes: from the network, what was only compared included.
        last_store_timestamp_ms: of the last record of the copy that arrived in this run; None before.
        late: records of this run with a store time at which it should end, although earlier ones follow.
        skipped: records that are not copied, as they were stored too late; None unless a time ended the copy.
        trouble: why the last connection ended; None while one is there.
    """

    state: str = "connecting"
    start_offset: int | None = None
    end_offset: int = 0
    synced_offset: int = 0
    received_bytes: int = 0
    copied_bytes: int = 0
    record_count: int = 0
    connect_count: int = 0
    last_store_timestamp_ms: int | None = None
    late: LateRecords | None = None
    skipped: SkippedRecords | None = None
    trouble: str | None = None
