"""What the sides of a store are for that has its consume queues in files and in RocksDB."""

from typing import NamedTuple


class QueueRoles(NamedTuple):
    """What the two sides are for where queues are written to files and to RocksDB; each is `file` or `rocksdb`.

    Attributes:
        reads: the side that pulls are answered from (combineCQPreferCQType).
        assigns: the side that gives new messages their queue offsets (combineAssignOffsetCQType).
        light_in_rocksdb: whether light queues are in RocksDB alone (combineCQUseRocksdbForLmq).
    """

    reads: str
    assigns: str
    light_in_rocksdb: bool = False
