"""The store time of a log file's first record, by which whole files are left out where a time is asked for."""

from __future__ import annotations

from rmqtool.errors import UnreadableError
from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.commitlog import STORE_TIMESTAMP_AT, SYS_FLAG_AT
from rmqtool.store.source import ByteSource, read_range


def first_store_time_ms(source: ByteSource) -> int | None:
    """Store time of the record at the start of a file; None where there is none, or the disk does not give it."""
    try:
        head = read_range(source, 0, commitlog.HEAD_SIZE_MAX)
    except UnreadableError:
        return None
    if head[4:8] not in (commitlog.MAGIC_BYTES[commitlog.MAGIC_V1], commitlog.MAGIC_BYTES[commitlog.MAGIC_V2]):
        return None
    sys_flag = int.from_bytes(head[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big")
    at = STORE_TIMESTAMP_AT + commitlog.host_extra(sys_flag, system_flag.BORN_HOST_V6)
    return int.from_bytes(head[at : at + 8], "big", signed=True) if len(head) >= at + 8 else None
