"""Results of a put, and the broker's responses to the client."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.formats.remoting import ResponseCode


class PutStatus(StrEnum):
    """`PutMessageStatus`, by the names of 5.x; `status_name` gives those of an older broker."""

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
_RESPONSES: Final = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
}
"""Response to each status (`SendMessageProcessor#handlePutMessageResult`); SYSTEM_ERROR to every other one."""


def status_name(status: PutStatus | ResponseCode, rules: BrokerRules) -> str:
    """A status as the brokers of a version spell it."""
    if isinstance(status, ResponseCode):
        return status.name
    return _OLD_NAMES.get(status, status) if rules.old_status_names else status


class PutResult(NamedTuple):
    """Result of one put. Without an append status nothing was written.

    Attributes:
        status: of the store; the response code of a request that was refused before the store was asked.
        queue_offset: of the message, or the first one of a batch.
        message_id: offset message id; those of a batch's parts joined by commas.
    """

    status: PutStatus | ResponseCode
    append_status: AppendStatus | None = None
    physical_offset: int = -1
    size: int = 0
    queue_offset: int = -1
    store_timestamp_ms: int = 0
    message_id: str | None = None
    reason: str | None = None
    response: ResponseCode | None = None
    """Response to the client; None for a put without a client."""

    @property
    def is_written(self) -> bool:
        return self.append_status is AppendStatus.PUT_OK


def refused(response: ResponseCode, reason: str) -> PutResult:
    """Result of a refused request, for which nothing is put."""
    return PutResult(response, reason=reason, response=response)


def response_to(put: PutResult) -> ResponseCode:
    """Response to a producer for the store's result."""
    assert isinstance(put.status, PutStatus), "the store gives no response codes"
    return _RESPONSES.get(put.status, ResponseCode.SYSTEM_ERROR)
