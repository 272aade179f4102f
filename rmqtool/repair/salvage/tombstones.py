"""Tombstones: records that replace lost ones, so that every queue keeps its offsets whoever builds it again.

Spec, "What a repair leaves". A tombstone is an ordinary record of the lost one's topic, queue and queue offset without
keys; a bridge, over what nobody can attribute, is a ROLLBACK record, which stands in no queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rmqtool.engine.append.encoder import RecordColumns, encode_blank, encode_records, record_size, topic_part
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.formats import properties, system_flag
from rmqtool.formats.queue_name import topic_text
from rmqtool.formats.record_crc import PROPERTY_SIZE
from rmqtool.formats.tombstone import TOMBSTONE, TOMBSTONE_TAG, TOMBSTONE_TOPIC
from rmqtool.repair.salvage.layout import Filling
from rmqtool.repair.salvage.lost_record import LostRecord

RESENT: Final = frozenset({properties.SCHEDULE_TOPIC, properties.HALF_TOPIC})
"""Topics whose messages the broker itself sends on to `REAL_TOPIC`, and is stuck at one that does not name it."""
_RESENT: Final = frozenset(map(str.encode, RESENT))
_HOST: Final = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
_SHORT_TOPIC: Final = b"-"
_TAG: Final = f"{properties.TAGS}\x01{TOMBSTONE_TAG}".encode()


@dataclass(frozen=True)
class TombstoneEncoder:
    """Makes the records of one store.

    Attributes:
        record_crc: whether the store writes whole-record CRCs, without which some brokers end the log.
    """

    rules: BrokerRules
    record_crc: bool = False

    def least(self, lost: LostRecord | None) -> int:
        """Bytes that the record that replaces a lost one takes at least; None asks for a bridge."""
        if lost is None:
            return self._size(_SHORT_TOPIC, b"")
        return self._size(lost.topic, self._required(lost))

    def records(self, fillings: Sequence[Filling], store_timestamp_ms: int) -> bytes:
        """The bytes of fillings that lie side by side; of a blank, the last one, those that count."""
        blank = fillings[-1] if fillings[-1].is_blank else None
        stand_ins = [filling for filling in fillings if not filling.is_blank]
        encoded = self._encoded(stand_ins, store_timestamp_ms) if stand_ins else b""
        return encoded if blank is None else encoded + encode_blank(blank.length)

    def _encoded(self, fillings: Sequence[Filling], time_ms: int) -> bytes:
        texts = [self._texts(filling) for filling in fillings]
        lost = [filling.lost for filling in fillings]
        times = [time_ms] * len(fillings)
        columns = RecordColumns(
            topics=[topic_part(topic, writes_v2=self.rules.reads_v2) for topic, _ in texts],
            bodies=[bytes(filling.length - self._size(*text)) for filling, text in zip(fillings, texts, strict=True)],
            properties=[block for _, block in texts],
            queue_ids=[record.queue_id if record is not None else 0 for record in lost],
            flags=[0] * len(fillings),
            queue_offsets=[record.queue_offset if record is not None else 0 for record in lost],
            sys_flags=[0 if record is not None else system_flag.TRANSACTION_ROLLBACK for record in lost],
            born_timestamps_ms=times,
            born_hosts=[_HOST] * len(fillings),
            store_timestamps_ms=times,
            store_hosts=[_HOST] * len(fillings),
            reconsume_times=[0] * len(fillings),
            prepared_transaction_offsets=[TOMBSTONE] * len(fillings),
            with_record_crc=[self.record_crc] * len(fillings),
        )
        return bytes(encode_records(columns, columns.sizes(), fillings[0].start))

    def _texts(self, filling: Filling) -> tuple[bytes, bytes]:
        """Topic and properties of the record for a filling, the tag among them where there is room."""
        if filling.lost is None:
            topic = TOMBSTONE_TOPIC.encode()
            return (topic if self._size(topic, b"") <= filling.length else _SHORT_TOPIC), b""
        topic, required = filling.lost.topic, self._required(filling.lost)
        block = self._joined(_TAG, required)
        return topic, block if self._size(topic, block) <= filling.length else required

    def _required(self, lost: LostRecord) -> bytes:
        """The properties that the record cannot do without."""
        if not lost.further and lost.batch_size is None and lost.topic not in _RESENT:
            return b""
        named: dict[str, str] = {}
        topic = topic_text(lost.topic)
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
        """Whether a separator follows the last property; a whole-record CRC after it needs one."""
        return self.rules.trailing_separator or self.record_crc

    def _joined(self, first: bytes, rest: bytes) -> bytes:
        if rest:
            return first + b"\x02" + rest
        return first + b"\x02" if self._ends_open else first

    def _size(self, topic: bytes, block: bytes) -> int:
        part = topic_part(topic, writes_v2=self.rules.reads_v2)
        crc = PROPERTY_SIZE if self.record_crc else 0
        return record_size(len(part), 0, len(block) + crc, 2 * len(_HOST))
