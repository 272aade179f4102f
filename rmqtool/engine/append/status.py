"""What a put can end with, and what a broker answers the client then."""

from __future__ import annotations

from enum import Enum, StrEnum
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


class ClientAnswer(Enum):
    """What a broker answers a client (`ResponseCode`, `RemotingSysResponseCode`); the values are those on the wire."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    INVALID_PARAMETER = 29
    ILLEGAL_OPERATION = 604

    def name_in(self, _rules: BrokerRules) -> str:
        """The code's name, which no version changed."""
        return self.name


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
    PutStatus.PUT_OK: ClientAnswer.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ClientAnswer.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ClientAnswer.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ClientAnswer.SLAVE_NOT_AVAILABLE,
    PutStatus.MESSAGE_ILLEGAL: ClientAnswer.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ClientAnswer.MESSAGE_ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: ClientAnswer.SERVICE_NOT_AVAILABLE,
}
"""What `SendMessageProcessor#handlePutMessageResult` makes of a status; of every other one SYSTEM_ERROR."""


def response_to(status: PutStatus) -> ClientAnswer:
    """What a producer is answered when the store gives this status."""
    return _RESPONSES.get(status, ClientAnswer.SYSTEM_ERROR)


class PutResult(NamedTuple):
    """What became of one put. Without an append status nothing was written.

    Attributes:
        status: of the store; the response code of a request that was refused before the store was asked.
        queue_offset: of the message, or the first one of a batch.
        message_id: offset message id; those of a batch's parts joined by commas.
    """

    status: PutStatus | ClientAnswer
    append_status: AppendStatus | None = None
    physical_offset: int = -1
    size: int = 0
    queue_offset: int = -1
    store_timestamp_ms: int = 0
    message_id: str | None = None
    reason: str | None = None
    response: ClientAnswer | None = None
    """What the client is answered; None for a put without a client."""

    @property
    def is_written(self) -> bool:
        return self.append_status is AppendStatus.PUT_OK


def refused(response: ClientAnswer, reason: str) -> PutResult:
    """What a client is answered for whom nothing is put."""
    return PutResult(response, reason=reason, response=response)


def put_status(put: PutResult) -> PutStatus:
    """The status that the store gave."""
    assert isinstance(put.status, PutStatus), "the store gives no response codes"
    return put.status
