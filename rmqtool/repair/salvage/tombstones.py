"""The records that stand in the place of lost ones, so that every queue keeps its offsets whoever builds it anew.

Spec, "What a repair leaves". A tombstone is an ordinary record of the lost one's topic, queue and queue offset without
keys; a bridge, over what nobody can attribute, is a ROLLBACK record, which stands in no queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmqtool.engine.encoder import RecordColumns, encode_blank, encode_records, record_size, topic_part
from rmqtool.engine.versions import BrokerRules
from rmqtool.formats import properties, system_flag
from rmqtool.formats.record_crc import PROPERTY_SIZE
from rmqtool.formats.tombstone import TOMBSTONE, TOMBSTONE_TAG, TOMBSTONE_TOPIC
from rmqtool.repair.salvage.layout import Piece
from rmqtool.repair.salvage.lost import LostRecord

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
RESENT: Final = frozenset({properties.SCHEDULE_TOPIC, HALF_TOPIC})
"""Topics whose messages the broker itself sends on to `REAL_TOPIC`, and is stuck at one that does not name it."""
_HOST: Final = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
_SHORT_TOPIC: Final = b"-"


@dataclass(frozen=True)
class StandIn:
    """Makes the records of one store.

    Attributes:
        record_crc: whether the store writes whole-record CRCs, without which some brokers end the log.
    """

    rules: BrokerRules
    record_crc: bool = False

    def least(self, lost: LostRecord | None) -> int:
        """Bytes that the record in the place of a lost one takes at least; None asks for a bridge."""
        if lost is None:
            return self._size(_SHORT_TOPIC, b"")
        return self._size(lost.topic, self._required(lost))

    def record(self, piece: Piece, store_timestamp_ms: int) -> bytes:
        """The bytes of a piece; of a blank those that count, behind which zeros follow."""
        if piece.is_blank:
            return encode_blank(piece.length)
        lost = piece.lost
        if lost is None:
            topic = TOMBSTONE_TOPIC.encode()
            topic = topic if self._size(topic, b"") <= piece.length else _SHORT_TOPIC
            return self._encoded(piece, topic, b"", 0, 0, system_flag.TRANSACTION_ROLLBACK, store_timestamp_ms)
        block = self._joined(f"{properties.TAGS}\x01{TOMBSTONE_TAG}".encode(), self._required(lost))
        if self._size(lost.topic, block) > piece.length:
            block = self._required(lost)
        return self._encoded(piece, lost.topic, block, lost.queue_id, lost.queue_offset, 0, store_timestamp_ms)

    def _required(self, lost: LostRecord) -> bytes:
        """The properties that the record cannot do without."""
        named: dict[str, str] = {}
        topic = lost.topic.decode("utf-8", "surrogateescape")
        if topic in RESENT:
            named |= {properties.REAL_TOPIC: TOMBSTONE_TOPIC, properties.REAL_QUEUE_ID: "0"}
        if topic == properties.SCHEDULE_TOPIC:
            named[properties.DELAY_LEVEL] = str(lost.queue_id + 1)
        if lost.batch_size is not None:
            named |= {properties.INNER_BASE: str(lost.queue_offset), properties.INNER_COUNT: str(lost.batch_size)}
        if lost.further:
            named[properties.MULTI_DISPATCH] = ",".join(name.decode("utf-8", "replace") for name, _ in lost.further)
            named[properties.MULTI_QUEUE_OFFSET] = ",".join(str(number) for _, number in lost.further)
        return properties.encode_properties(named, trailing_separator=self._ends_open)

    @property
    def _ends_open(self) -> bool:
        """Whether a separator follows the last property; a whole-record CRC behind it needs one."""
        return self.rules.trailing_separator or self.record_crc

    def _joined(self, first: bytes, rest: bytes) -> bytes:
        if rest:
            return first + b"\x02" + rest
        return first + b"\x02" if self._ends_open else first

    def _size(self, topic: bytes, block: bytes) -> int:
        part = topic_part(topic, writes_v2=self.rules.reads_v2)
        crc = PROPERTY_SIZE if self.record_crc else 0
        return record_size(len(part), 0, len(block) + crc, 2 * len(_HOST))

    def _encoded(
        self, piece: Piece, topic: bytes, block: bytes, queue_id: int, queue_offset: int, sys_flag: int, time_ms: int
    ) -> bytes:
        columns = RecordColumns(
            topics=[topic_part(topic, writes_v2=self.rules.reads_v2)],
            bodies=[bytes(piece.length - self._size(topic, block))],
            properties=[block],
            queue_ids=[queue_id],
            flags=[0],
            queue_offsets=[queue_offset],
            sys_flags=[sys_flag],
            born_timestamps_ms=[time_ms],
            born_hosts=[_HOST],
            store_timestamps_ms=[time_ms],
            store_hosts=[_HOST],
            reconsume_times=[0],
            prepared_transaction_offsets=[TOMBSTONE],
            with_record_crc=[self.record_crc],
        )
        return bytes(encode_records(columns, columns.sizes(), piece.start))
