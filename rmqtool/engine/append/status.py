"""What a put can end with, and which of these an offline writer can give."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from rmqtool.engine.rules.versions import BrokerRules


class PutStatus(StrEnum):
    """`PutMessageStatus`, by the names of 5.x; `name_in` gives those of an older broker."""

    PUT_OK = "PUT_OK"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"

    def name_in(self, rules: BrokerRules) -> str:
        """The status as the brokers of a version spell it."""
        return _OLD_NAMES.get(self, self) if rules.old_status_names else self


class AppendStatus(StrEnum):
    """`AppendMessageStatus`."""

    PUT_OK = "PUT_OK"
    END_OF_FILE = "END_OF_FILE"
    MESSAGE_SIZE_EXCEEDED = "MESSAGE_SIZE_EXCEEDED"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"


_OLD_NAMES: Final = {
    PutStatus.OS_PAGE_CACHE_BUSY: "OS_PAGECACHE_BUSY",
    PutStatus.CREATE_MAPPED_FILE_FAILED: "CREATE_MAPEDFILE_FAILED",
}


class PutResult(NamedTuple):
    """What became of one put. Without an append status nothing was written.

    Attributes:
        queue_offset: of the message, or the first one of a batch.
        message_id: offset message id; those of a batch's parts joined by commas.
    """

    status: PutStatus
    append_status: AppendStatus | None = None
    physical_offset: int = -1
    size: int = 0
    queue_offset: int = -1
    store_timestamp_ms: int = 0
    message_id: str | None = None
    reason: str | None = None

    @property
    def is_written(self) -> bool:
        return self.append_status is AppendStatus.PUT_OK
