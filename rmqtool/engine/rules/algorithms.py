"""Names of the algorithms in which broker versions differ; which version has which is said in `versions`."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from rmqtool.formats.properties import decode_properties, decode_properties_strict_pairs


class SizeMismatch(Enum):
    """What load does about a file of another length than configured (`MappedFileQueue#load`)."""

    FAIL_LOAD = "the whole store does not load"
    IGNORE_REST = "this file and all later ones of the directory are silently ignored"


class PropertyDecoder(Enum):
    """How a property block is taken apart (`MessageDecoder#string2messageProperties`)."""

    STRICT_PAIRS = "a segment counts if 0x01 splits it into exactly two parts"
    FIRST_SEPARATOR = "the first 0x01 of a segment splits it, empty names and values do not count"

    @property
    def decode(self) -> Callable[[bytes], dict[str, str]]:
        """What takes a block apart."""
        return decode_properties_strict_pairs if self is PropertyDecoder.STRICT_PAIRS else decode_properties


class BatchProperties(Enum):
    """How a whole batch's properties are handled when its parts are written (`CommitLog#asyncPutMessages`)."""

    DROPPED = "the parts keep their own properties only"
    GLUED = "appended to each part without a separator"
    SEPARATED = "appended to each part, a missing separator is put in between"


class MultiDispatch(Enum):
    """Which further queues a record can name in `INNER_MULTI_DISPATCH`."""

    NONE = "none"
    ANY_QUEUE = "any queue, with offsets filled in for all"
    LMQ_ONLY = "only names that start with %LMQ% get an offset"


class MinOffsetSearch(Enum):
    """How a queue's minimum is found in its first file (`ConsumeQueue#correctMinOffset`)."""

    LINEAR = "the first unit of the file that is not before the start of the log"
    BINARY = "last unit first, then a binary search after the previous minimum"


class TimeLookup(Enum):
    """How a time becomes a queue offset (`ConsumeQueue#getOffsetInQueueByTime`)."""

    NEAREST = "file by modification time, then the unit whose record is nearest"
    BOUNDARY = "file by the store times of its first and last record, then the lower or upper boundary"


class NormalStart(Enum):
    """The file in which recovery begins after a clean stop (`CommitLog#recoverNormally`)."""

    THIRD_FROM_END = "third file from the end"
    START_BELOW_QUEUES = "last file that begins at or below the queues' maximum"
    FIRST_RECORD_BELOW_DISPATCH = "last file whose first record passes the check and is at or below the dispatched end"


class NormalDispatch(Enum):
    """Which records a recovery after a clean stop dispatches."""

    NONE = "none"
    ABOVE_QUEUES = "those strictly above the queues' maximum"
    ABOVE_DISPATCH = "those strictly above the dispatched end"


class AbnormalStart(Enum):
    """The file in which recovery begins after a crash (`CommitLog#isMappedFileMatchedRecover`)."""

    MAGIC_AND_TIME = "magic and store time of its first record, against the checkpoint's least time less 3 s"
    CHECKED_AND_TIME = "first record passes the whole check, store time as before"
    CHECKED_AND_OFFSET = "first record passes the whole check, its place against the checkpoint's, else time"


class DispatchedEnd(Enum):
    """Up to where a start takes the log as dispatched (before side stores lower it)."""

    QUEUES = "the queues' maximum"
    QUEUES_OR_CHECKPOINT = "the queues' maximum after a clean stop, the checkpoint's queue offset after a crash"


class ReputStart(Enum):
    """Where dispatch continues after start (`DefaultMessageStore#start`)."""

    LOG_END = "recovered end of the log"
    QUEUES = "the queues' maximum, waiting until it has caught up"
    CONFIRMED = "the confirm offset, normally the recovered end of the log"
