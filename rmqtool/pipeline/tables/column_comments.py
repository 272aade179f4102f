"""What each column of the tables means: the comments of Spark's columns, which tables written from them keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_WHERE: Final = {
    "store": "the store, as it was named",
    "file": "path of the file in the store",
    "file_position": "bytes from the start of the file",
    "type": "what the row is",
    "topic": "topic",
    "queue_id": "number of the queue in its topic",
    "queue_offset": "position in the queue, in messages",
    "physical_offset": "position in the commit log, in bytes",
    "size": "bytes in the file",
    "store_timestamp_ms": "when the broker stored the message, in milliseconds since 1970 (UTC)",
    "store_time": "store_timestamp_ms as a time; null before 1970 and after 9999",
    "finding": "id of the damage; null if there is none",
}
_MESSAGES: Final = {
    **_WHERE,
    "type": "message, blank (end of a file), bad or stale (after the end of the log)",
    "verdict": "good, or what is wrong",
    "magic": "format of the record: v1 or v2",
    "body_crc": "CRC-32 of the stored body",
    "body_crc_ok": "whether the stored body has this CRC-32",
    "flag": "flag of the producer",
    "sys_flag": "bits of MessageSysFlag",
    "transaction": "none, prepared, commit or rollback",
    "compression": "of the stored body: null, zlib, lz4, zstd or unknown",
    "born_timestamp_ms": "when the producer made the message, in milliseconds since 1970 (UTC)",
    "born_time": "born_timestamp_ms as a time; null before 1970 and after 9999",
    "born_host": "address of the producer, ip:port",
    "store_host": "address of the broker, ip:port",
    "reconsume_times": "how often consumers sent the message back",
    "prepared_transaction_offset": "physical offset of the prepared message of a transaction",
    "body_length": "stored bytes of the body",
    "message_id": "the broker's id of the message",
    "tags": "tags",
    "keys": "keys by which the message is indexed",
    "unique_key": "the producer's id of the message",
    "properties": "properties by name",
    "properties_raw": "stored bytes of the properties",
    "body": "stored bytes of the body; a compressed body stays compressed",
    "body_decoded": "the body, decompressed; null if it is not what compression says, or longer than 16 MiB",
}
_QUEUES: Final = {
    **_WHERE,
    "type": "unit, batch-unit, bad, or of a database queue-end, queue-checkpoint or odd-row",
    "end": "of a stored end of a queue: min or max",
    "record_size": "bytes of the record in the commit log",
    "tags_code": "hash of the tags, or the position of an extension",
    "filler": "whether the unit only fills a gap",
    "extension_position": "position in the extension files",
    "batch_size": "messages in the batch",
    "compacted_offset": "brokers write -1",
}
_INDEX: Final = {
    **_WHERE,
    "type": "entry or bad",
    "number": "of the entry in its file, from 1",
    "slot": "slot of the entry's chain",
    "key_hash": "hash of topic and key",
    "time_delta_seconds": "store time after that of the file's first entry, in seconds",
    "previous_entry": "number of the entry before in the chain; 0 if there is none",
    "store_timestamp_ms": "store time out of header and entry, in milliseconds since 1970 (UTC), exact to a second",
}
_FINDINGS: Final = {
    **_WHERE,
    "id": "id of the finding",
    "severity": "error, warning or note",
    "length": "bytes that the finding is about",
    "count": "how many cases the row stands for",
    "message": "the finding in words",
    "expected": "what should be there",
    "found": "what is there",
    "candidate": "what may have happened to the bytes, as far as they tell",
    "repair": "command that repairs it, without the store's path",
    "upstream": "issues of RocketMQ about it, as owner/repository#number",
}
COMMENTS: Final = {"messages": _MESSAGES, "consumequeue": _QUEUES, "index": _INDEX, "findings": _FINDINGS}


def commented(schema: pa.Schema, table: str) -> StructType:
    """A schema as Spark has it, with the comments of a table's columns."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    def with_comment(field: Any) -> Any:
        metadata = {"comment": COMMENTS[table][field.name]}
        return StructField(field.name, field.dataType, field.nullable, metadata)

    return StructType([with_comment(field) for field in from_arrow_schema(schema).fields])
