"""Examples worked out by hand: for every declared format bytes and the fields that they mean.

Spaces in the hex are for the reader only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LOCALHOST = bytes([127, 0, 0, 1])


@dataclass(frozen=True)
class Example:
    """One structure: the name of its format, its bytes in hex, and what they mean."""

    format_name: str
    hex: str
    fields: dict[str, Any]

    @property
    def raw(self) -> bytes:
        return bytes.fromhex(self.hex)


MESSAGE_V1 = Example(
    "message-v1",
    """
    0000007d daa320a7 3610a686 00000001 00000000 0000000000000007 00000000000003e8 00000000
    0000018bcfe56800 7f000001 0000c350 0000018bcfe5687b 7f000001 00002a9f 00000000 0000000000000000
    00000005 68656c6c6f 09 546f70696354657374 0014 4b455953016b6579310254414753015461674102
    """,
    {
        "size": 125,
        "magic": -626843481,
        "body_crc": 907060870,
        "queue_id": 1,
        "flag": 0,
        "queue_offset": 7,
        "physical_offset": 1000,
        "sys_flag": 0,
        "born_timestamp_ms": 1700000000000,
        "born_host": {"address": LOCALHOST, "port": 50000},
        "store_timestamp_ms": 1700000000123,
        "store_host": {"address": LOCALHOST, "port": 10911},
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body_length": 5,
        "body": b"hello",
        "topic_length": 9,
        "topic": b"TopicTest",
        "properties_length": 20,
        "properties": b"KEYS\x01key1\x02TAGS\x01TagA\x02",
    },
)

EXAMPLES = (
    MESSAGE_V1,
    Example(
        # The record above with a topic length of two bytes: one byte longer, and nothing else moves.
        "message-v2",
        """
        0000007e daa320ab 3610a686 00000001 00000000 0000000000000007 00000000000003e8 00000000
        0000018bcfe56800 7f000001 0000c350 0000018bcfe5687b 7f000001 00002a9f 00000000 0000000000000000
        00000005 68656c6c6f 0009 546f70696354657374 0014 4b455953016b6579310254414753015461674102
        """,
        {**MESSAGE_V1.fields, "size": 126, "magic": -626843477},
    ),
    Example("blank", "00000064 cbd43194", {"size": 100, "magic": -875286124}),
    Example(
        "batch-part",
        "0000001c 00000000 00000000 ffffffff 00000002 6869 0004 61016202",
        {
            "size": 28,
            "magic": 0,
            "body_crc": 0,
            "flag": -1,
            "body_length": 2,
            "body": b"hi",
            "properties_length": 4,
            "properties": b"a\x01b\x02",
        },
    ),
    Example(
        "consumequeue-unit",
        "00000000000003e8 0000007d 000000000027a807",
        {"physical_offset": 1000, "record_size": 125, "tags_code": 2598919},
    ),
    Example(
        # Filler in front of a queue that begins inside a file.
        "consumequeue-unit",
        "0000000000000000 7fffffff 0000000000000000",
        {"physical_offset": 0, "record_size": 2147483647, "tags_code": 0},
    ),
    Example(
        # The tags code is the address of position 28 in the extension.
        "consumequeue-unit",
        "00000000000003e8 0000007d 800000000000001c",
        {"physical_offset": 1000, "record_size": 125, "tags_code": -9223372036854775780},
    ),
    Example(
        "consumequeue-ext-unit",
        "001c 000000000027a807 0000018bcfe5687b 0008 0102040810204080",
        {
            "size": 28,
            "tags_code": 2598919,
            "store_timestamp_ms": 1700000000123,
            "bitmap_length": 8,
            "filter_bitmap": bytes([1, 2, 4, 8, 16, 32, 64, 128]),
        },
    ),
    Example(
        "batchconsumequeue-unit",
        "00000000000003e8 0000007d 000000000027a807 0000018bcfe5687b 0000000000000014 000a ffffffff 00000000",
        {
            "physical_offset": 1000,
            "record_size": 125,
            "tags_code": 2598919,
            "store_timestamp_ms": 1700000000123,
            "base_queue_offset": 20,
            "batch_size": 10,
            "compacted_offset": -1,
            "reserved": 0,
        },
    ),
    Example(
        "rocksdb-unit-key",
        "00000009 01 546f70696354657374 01 00000002 01 0000000000000007",
        {
            "topic_length": 9,
            "after_length": b"\x01",
            "topic": b"TopicTest",
            "after_topic": b"\x01",
            "queue_id": 2,
            "after_queue": b"\x01",
            "queue_offset": 7,
        },
    ),
    Example(
        "rocksdb-unit",
        "00000000000003e8 0000007d 000000000027a807 0000018bcfe5687b",
        {
            "physical_offset": 1000,
            "record_size": 125,
            "tags_code": 2598919,
            "store_timestamp_ms": 1700000000123,
        },
    ),
    Example(
        "rocksdb-offset-key",
        "00000009 01 546f70696354657374 01 6d6178 01 00000002",
        {
            "topic_length": 9,
            "after_length": b"\x01",
            "topic": b"TopicTest",
            "after_topic": b"\x01",
            "end": b"max",
            "after_end": b"\x01",
            "queue_id": 2,
        },
    ),
    Example(
        "rocksdb-offset",
        "00000000000003e8 0000000000000007",
        {"physical_offset": 1000, "queue_offset": 7},
    ),
    Example("rocksdb-dispatched", "0000000000000465", {"physical_offset": 1125}),
    Example(
        "rocksdb-index-key",
        "000001a206fd6700 40544054406140554b40 0000000000000086",
        {"hour_ms": 1795413600000, "text": b"@T@T@a@UK@", "physical_offset": 134},
    ),
    Example("rocksdb-index", "000001a20701e488", {"store_timestamp_ms": 1795413894280}),
    Example("rocksdb-timer-key", "000001a2073bc7c0 554b", {"due_timestamp_ms": 1795417688000, "unique_key": b"UK"}),
    Example("rocksdb-timer", "00000154 00000000000004ec", {"record_size": 340, "physical_offset": 1260}),
    Example("rocksdb-transaction-key", "0000000000001599 405440545831", {"physical_offset": 5529, "text": b"@T@TX1"}),
    Example("rocksdb-transaction", "00000000 000000ca", {"check_count": 0, "record_size": 202}),
    Example(
        "rocksdb-pop-key",
        "000001a2073bc7c0 4740 5440 00000003 40 0000000000000007",
        {
            "revive_timestamp_ms": 1795417688000,
            "names": b"G@T@",
            "queue_id": 3,
            "after_queue_id": b"@",
            "queue_offset": 7,
        },
    ),
    Example(
        "rocksdb-config-key",
        "01 0003 02 0006 4f7264657273",
        {"prefix": 1, "table": 3, "record": 2, "name_length": 6, "name": b"Orders"},
    ),
    Example(
        "rocksdb-config-offset-key",
        "01 0001 02 0002 4731 01 0006 4f7264657273 01 00000001",
        {
            "prefix": 1,
            "table": 1,
            "record": 2,
            "group_length": 2,
            "group": b"G1",
            "after_group": b"\x01",
            "topic_length": 6,
            "topic": b"Orders",
            "after_topic": b"\x01",
            "queue_id": 1,
        },
    ),
    Example("rocksdb-config-offset", "0000000000000002", {"queue_offset": 2}),
    Example(
        "rocksdb-config-version",
        "0000000000000000 000001a207061f55 0000000000000003",
        {"state_version": 0, "timestamp": 1795414171477, "counter": 3},
    ),
    Example(
        "index-header",
        "0000018bcfe56800 0000018bcfe5687b 0000000000000000 00000000000003e8 00000001 00000003",
        {
            "begin_timestamp_ms": 1700000000000,
            "end_timestamp_ms": 1700000000123,
            "begin_physical_offset": 0,
            "end_physical_offset": 1000,
            "used_slot_count": 1,
            "next_entry_number": 3,
        },
    ),
    Example("index-slot", "00000002", {"newest_entry": 2}),
    Example(
        # TopicTest#key1, 70 seconds after the file's first record, behind entry 1 of the same slot.
        "index-entry",
        "62b4514c 00000000000003e8 00000046 00000001",
        {"key_hash": 1655984460, "physical_offset": 1000, "time_delta_seconds": 70, "previous_entry": 1},
    ),
    Example(
        "checkpoint",
        "0000018bcfe56801 0000018bcfe56802 0000018bcfe56803 0000000000000004 0000000000000005 0000000000000006",
        {
            "commitlog_timestamp_ms": 1700000000001,
            "consumequeue_timestamp_ms": 1700000000002,
            "index_timestamp_ms": 1700000000003,
            "master_flushed_offset": 4,
            "confirm_physical_offset": 5,
            "consumequeue_physical_offset": 6,
        },
    ),
    Example(
        # Due at 1795285289 s, nineteen units, the first at the log's start.
        "timerwheel-slot",
        "000000006b01e129 0000000000000000 0000000000000b60 00000013 00000000",
        {"due_tick": 1795285289, "first_position": 0, "last_position": 2912, "message_count": 19, "magic": 0},
    ),
    Example(
        # The second unit of a slot; due 2 s after it was written.
        "timerlog-unit",
        """
        00000034 0000000000000000 00000001 0000018bcfe56800 000007d0 0000000000000274 00000213 aba5d042
        0000000000000000
        """,
        {
            "size": 52,
            "previous_position": 0,
            "magic": 1,
            "write_timestamp_ms": 1700000000000,
            "delay_ms": 2000,
            "physical_offset": 628,
            "record_size": 531,
            "topic_hash": -1415196606,
            "reserved": 0,
        },
    ),
    Example(
        "timerlog-blank",
        "00000044 0000000000000000 cbd43194",
        {"size": 68, "previous_position": 0, "magic": -875286124},
    ),
    Example(
        "timercheck",
        """
        0000018bcfe56800 0000000000000c30 000000000000003d 000000000000003e 0000000000000000 0000018bcfe5687b
        0000000000000002
        """,
        {
            "read_timestamp_ms": 1700000000000,
            "flushed_position": 3120,
            "queue_offset": 61,
            "master_queue_offset": 62,
            "state_version": 0,
            "version_timestamp_ms": 1700000000123,
            "version_counter": 2,
        },
    ),
    Example(
        # The second entry, of 418 bytes of message.
        "dledger-entry",
        "00000001 000001d2 0000000000000001 0000000000000000 00000000000002b2 00000000 00000000 00000000 000001a2",
        {
            "magic": 1,
            "size": 466,
            "index": 1,
            "term": 0,
            "position": 690,
            "channel": 0,
            "chain_crc": 0,
            "body_crc": 0,
            "body_length": 418,
        },
    ),
    Example(
        "dledger-index-unit",
        "00000001 00000000000002b2 000001d2 0000000000000001 0000000000000000",
        {"magic": 1, "position": 690, "size": 466, "index": 1, "term": 0},
    ),
    Example("replication-report", "0000000040000000", {"physical_offset": 1 << 30}),
    Example("replication-transfer", "0000000040000000 00008000", {"physical_offset": 1 << 30, "body_length": 32768}),
    Example(
        "offset-message-id",
        "7F000001 00002A9F 00000000000003E8",
        {"address": LOCALHOST, "port": 10911, "physical_offset": 1000},
    ),
    Example(
        "client-unique-key",
        "0A010203 1F40 18B4AAC2 05F5E100 0007",
        {
            "address": bytes([10, 1, 2, 3]),
            "process_id": 8000,
            "class_loader_hash": 414493378,
            "month_milliseconds": 100_000_000,
            "counter": 7,
        },
    ),
)
