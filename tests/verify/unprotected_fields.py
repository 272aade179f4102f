"""The bytes of a store that nothing can judge: no checksum covers them, and nothing else says what they should be."""

from __future__ import annotations

from typing import Final, NamedTuple


class Unjudged(NamedTuple):
    """A field, which bits of it (all, unless said), and why a flip there is not seen."""

    file: str
    field: str
    bits: str
    why: str


_REST: Final = "all but the three key properties and the tag"

TABLE: Final = (
    Unjudged("commitlog", "flag", "all", "the application's own value"),
    Unjudged(
        "commitlog",
        "sys_flag",
        "all but those of transactions and hosts",
        "it says how to read the body, and verify does not try that",
    ),
    Unjudged("commitlog", "born_timestamp_ms", "all", "the producer's clock, which may be anything"),
    Unjudged("commitlog", "born_host", "all", "any host may produce"),
    Unjudged("commitlog", "store_host", "all", "after a fail-over the log holds records of several brokers"),
    Unjudged(
        "commitlog", "store_timestamp_ms", "within a second", "clocks step, and entries of the index hold seconds"
    ),
    Unjudged("commitlog", "store_timestamp_ms", "upwards, in the last record", "nothing follows that would be older"),
    Unjudged("commitlog", "reconsume_times", "all", "any number is possible"),
    Unjudged(
        "commitlog",
        "prepared_transaction_offset",
        "all up to the record's offset",
        "it may point to a file that has expired",
    ),
    Unjudged("commitlog", "queue_id, queue_offset", "of a half message or rollback", "it is in no queue"),
    Unjudged(
        "commitlog", "topic", "of a rollback, or a half message without key", "it is neither in a queue nor indexed"
    ),
    Unjudged("commitlog", "body_crc", "of an empty body", "no broker compares it"),
    Unjudged("commitlog", "body_length", "the sign, of an empty body", "brokers read a negative length as 0"),
    Unjudged("commitlog", "properties", _REST, "the application's text; only a whole-record CRC covers it"),
    Unjudged("commitlog", "blank", "after its first 8 bytes", "no broker writes there"),
    Unjudged("index", "begin_timestamp_ms", "within a second", "entries hold seconds"),
    Unjudged(
        "index", "end_timestamp_ms", "all that leave it above the start time", "only the seconds of the entries show it"
    ),
    Unjudged(
        "index",
        "used_slot_count",
        "all from the slots in use to the entries",
        "old releases count entries, and newer ones continue their files",
    ),
    Unjudged("index", "entry 0", "all", "never used"),
    Unjudged("index", "time_delta_seconds", "of the first entry", "counted from the start time of the file before"),
    Unjudged("checkpoint", "times and offsets", "all that leave it before the end of the log", "it may be of any age"),
)
