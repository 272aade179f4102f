"""The property block of a record: `name 0x01 value 0x02 ...`, as every broker version writes and reads it.

Broker: `MessageDecoder#messageProperties2String`, `MessageDecoder#string2messageProperties`. All lengths of that
algorithm are characters of the decoded text; since both separators are ASCII, cutting the bytes first and decoding
afterwards gives the same result (tests/formats/test_properties.py).
"""

from collections.abc import Iterator, Mapping
from typing import Final

from rmqtool.formats.java_text import decode_java_utf8

NAME_END: Final = 0x01
VALUE_END: Final = 0x02
NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
UNIQUE_KEY: Final = "UNIQ_KEY"
DELAY_LEVEL: Final = "DELAY"
WAIT: Final = "WAIT"
"""Property that makes the sender wait for the disk and for replicas, or not."""
CLUSTER: Final = "CLUSTER"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
POP_CHECKPOINT: Final = "POP_CK"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
RETRY_TOPIC: Final = "RETRY_TOPIC"
DEAD_LETTER_ORIGIN: Final = "DLQ_ORIGIN_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
LITE_TOPIC: Final = "__LITE_TOPIC"
IMMUNITY_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_DELIVERY: Final = (TIMER_DELIVER_MS, "TIMER_DELAY_SEC", "TIMER_DELAY_MS")
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
INNER_COUNT: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
RECORD_CRC: Final = "__CRC32#"
PRODUCER_GROUP: Final = "PGROUP"
SHARDING_KEY: Final = "__SHARDINGKEY"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_DELETE_KEY: Final = "TIMER_DEL_UNIQKEY"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANSACTION_ID: Final = "__transactionId__"
OPERATION_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OPERATION_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"


def decode_properties(raw: bytes) -> dict[str, str]:
    """Decode a block as brokers from 4.9.1 on do.

    A repeated name keeps its last value; empty names and values are dropped.
    """
    properties: dict[str, str] = {}
    for segment in decode_java_utf8(raw).split(PROPERTY_SEPARATOR):
        name, _, value = segment.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def split_properties(raw: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The (name, value) pairs that count, in order, undecoded."""
    for segment in raw.split(b"\x02"):
        name, separator, value = segment.partition(b"\x01")
        if separator and name and value:
            yield name, value


def decode_properties_strict_pairs(raw: bytes) -> dict[str, str]:
    """Decode a block as brokers up to 4.9.0 do: a segment counts only if it splits on 0x01 into exactly two parts."""
    properties: dict[str, str] = {}
    for segment in decode_java_utf8(raw).split(PROPERTY_SEPARATOR):
        # Java's String.split drops trailing empty parts, so "name\x01" has one part.
        parts = segment.rstrip(NAME_VALUE_SEPARATOR).split(NAME_VALUE_SEPARATOR)
        if len(parts) == 2:
            properties[parts[0]] = parts[1]
    return properties


def encode_properties(properties: Mapping[str, str], *, trailing_separator: bool) -> bytes:
    """Encode in the order of the mapping (the broker's own order is that of a HashMap and means nothing).

    Args:
        trailing_separator: whether the last value is followed by 0x02 too; not so from 4.9.1 to 5.1.4.
    """
    text = PROPERTY_SEPARATOR.join(f"{name}{NAME_VALUE_SEPARATOR}{value}" for name, value in properties.items())
    if text and trailing_separator:
        text += PROPERTY_SEPARATOR
    return text.encode("utf-8", "replace")  # as Java does, which writes ? for half a surrogate pair
