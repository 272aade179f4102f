"""The numbers of the remoting protocol: codes of requests and responses.

Broker: `RequestCode`, `ResponseCode`, `RemotingSysResponseCode`, `PermName`, `PullSysFlag`.
"""

from enum import IntEnum
from typing import Final


class RequestCode(IntEnum):
    """Requests that rmqtool sends."""

    PULL_MESSAGE = 11
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_ROUTEINFO_BY_TOPIC = 105
    SEND_MESSAGE_V2 = 310


class ResponseCode(IntEnum):
    """Answers that mean something of their own to those who ask or answer; any other one is an error."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    INVALID_PARAMETER = 29
    ILLEGAL_OPERATION = 604


STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
"""Answers to a message that the broker has stored, though perhaps not yet on its disk or on a slave."""

READABLE: Final = 4
WRITABLE: Final = 2
"""Bits of a queue's permission."""

PULL_SUBSCRIPTION: Final = 4
"""The flag of a pull that brings its own subscription, so that the consumer group need not be registered."""


def code_name(code: int) -> str:
    """The broker's name of an answer's code, or the number where it has none here."""
    try:
        return ResponseCode(code).name
    except ValueError:
        return f"code {code}"
