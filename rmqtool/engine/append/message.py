"""Input of a put: a message, a classic batch (one record a part), or an inner batch (one record)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rmqtool.formats.batch import BatchPart
from rmqtool.formats.message_id import host_bytes

DEFAULT_BORN_HOST: Final = host_bytes("127.0.0.1:40000")
DEFAULT_STORE_HOST: Final = host_bytes("127.0.0.1:10911")


@dataclass(slots=True, kw_only=True)
class Message:
    """One message on its way into the store.

    Attributes:
        body: as it is stored, that is already compressed if `sys_flag` says so.
        properties: names to values; `properties_text` goes before it and is stored byte for byte.
        sys_flag: transaction type, compression; the host bits are set by the writer.
        born_host: 8 or 20 bytes, as in the record.
        store_timestamp_ms: None for the writer's clock.
        dumped_at: (physical offset, queue offset) at which a dump found it; None for a new message.
        is_internal: put by the broker itself: `WAIT` stays in the text, and the broker's map is `properties`, whatever
            the text says.
        is_final: stored as it is, neither delayed nor dispatched further (a record that was dumped from a log).
    """

    topic: str
    body: bytes = b""
    queue_id: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    properties_text: bytes | None = None
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: bytes = DEFAULT_BORN_HOST
    store_timestamp_ms: int | None = None
    store_host: bytes = DEFAULT_STORE_HOST
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    dumped_at: tuple[int, int] | None = None
    is_internal: bool = False
    is_final: bool = False


@dataclass(slots=True, kw_only=True)
class MessageBatch:
    """Several messages to one queue, sent as one.

    Attributes:
        shared: topic, queue, hosts, times, sysFlag and the batch's own properties; its body is not used.
        is_inner: kept as one record (topics with `queue.type=BatchCQ`, from 5.0.0 on).
    """

    shared: Message
    parts: list[BatchPart]
    is_inner: bool = False
