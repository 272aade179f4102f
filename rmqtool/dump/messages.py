"""The messages of a batch as columns of `dump` rows; nothing but what a writer asks for is read or decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, assert_never

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.findings.finding import TOMBSTONE_FINDING
from rmqtool.formats import commitlog
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.message_id import host_text, offset_message_id
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.report import fields
from rmqtool.report.bodies import BodyChoice, BodyForm, MessageFacts, decoded_body, shown_bodies
from rmqtool.report.rows import RowBlock, message_fields
from rmqtool.scan.columns import Row
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.scan.walk import Batch


@dataclass(frozen=True)
class DumpedMessages:
    """Good messages of a batch, `rows` as it has them; each field is made as its source in `report.fields` says."""

    batch: Batch
    rows: Any
    rules: BrokerRules
    body_choice: BodyChoice
    _hosts_read: dict[fields.Host, list[bytes]] = field(init=False, repr=False, default_factory=dict)

    def block(self) -> RowBlock:
        holds_json = self.body_choice.form is BodyForm.JSON or self.body_choice.decoder is not None
        return RowBlock(len(self.rows), message_fields(self.body_choice), self.column, holds_json)

    def column(self, name: str) -> Sequence[Any]:
        match fields.MESSAGE_FIELDS[name].source:
            case fields.RowFact.TYPE:
                return [self.type] * len(self.rows)
            case fields.RowFact.FINDING:
                marked = self.numbers("prepared_transaction_offset")
                finding = self.finding
                return [TOMBSTONE_FINDING if finding is None and offset == TOMBSTONE else finding for offset in marked]
            case fields.Number(column):
                return self.numbers(column)
            case fields.Code(column, value_of):
                return _each_once(value_of, self.numbers(column))
            case fields.Constant(value):
                return [value] * len(self.rows)
            case fields.Topic():
                return _each_once(self.topic, self.numbers("topic_number"))
            case fields.Host() as host:
                return _each_once(host_text, self._hosts(host))
            case fields.MessageId(host):
                return list(map(offset_message_id, self._hosts(host), self.numbers("own_offset")))
            case fields.Property(key):
                return [values.get(key) for values in self.properties]
            case fields.Words(key):
                texts = [values.get(key, "") for values in self.properties]
                return [[k for k in text.split(" ") if k] if " " in text else [text] if text else [] for text in texts]
            case fields.Properties():
                return self.properties
            case fields.PropertyBlock():
                return [decode_java_utf8(raw) for raw in self._property_blocks]
            case fields.Body(part):
                at = self.body_choice.fields.index(part)
                return [values[at] for values in self._bodies]
            case fields.RowFact() | fields.Time() | fields.BodyContent() | fields.Meaning():
                raise fields.UnfilledFieldError(name, "rows of dump")
            case source:
                assert_never(source)

    def numbers(self, name: str) -> list[int]:
        """A column of the scan."""
        if isinstance(self.rows, list):
            at = Row._fields.index(name)
            return [row[at] for row in self.rows]
        values: list[int] = self.rows[name].tolist()
        return values

    def topic(self, number: int) -> str:
        return decode_java_utf8(self.batch.topics[number])

    @property
    def type(self) -> str:
        """That of all rows."""
        return "stale" if self._verdict == Verdict.STALE else "message"

    @property
    def finding(self) -> str | None:
        """Of all rows but those of tombstones."""
        return FINDING_IDS.get(self._verdict)

    @cached_property
    def _verdict(self) -> Verdict:
        return Verdict(self.numbers("verdict")[0])  # a walk gives good and stale rows in batches of their own

    @cached_property
    def _flags(self) -> list[int]:
        return self.numbers("sys_flag")

    @cached_property
    def _places(self) -> list[int]:
        return self.numbers("physical_offset")

    @cached_property
    def _property_blocks(self) -> list[bytes]:
        lengths = self.numbers("properties_length")
        starts = [size - length for size, length in zip(self.numbers("size"), lengths, strict=True)]
        return self.batch.read_many(self._places, starts, lengths)

    @cached_property
    def properties(self) -> list[dict[str, str]]:
        return list(map(self.rules.property_decoder.decode, self._property_blocks))

    def _hosts(self, host: fields.Host) -> list[bytes]:
        if host not in self._hosts_read:
            flags = self._flags
            starts = _each_once(lambda flag: host.position + commitlog.host_extra(flag, host.moved_by), flags)
            lengths = _each_once(lambda flag: commitlog.V4_HOST_SIZE + commitlog.host_extra(flag, host.v6_bit), flags)
            self._hosts_read[host] = self.batch.read_many(self._places, starts, lengths)
        return self._hosts_read[host]

    @cached_property
    def _bodies(self) -> list[tuple[Any, ...]]:
        lengths, choice = self.numbers("body_length"), self.body_choice
        compressions = self.column("compression")
        stored_max = _each_once(choice.stored_max, compressions)
        stored = self.batch.read_many(
            self._places,
            _each_once(commitlog.head_size, self._flags),
            [min(length, most) for length, most in zip(lengths, stored_max, strict=True)],
        )
        if choice.decoder is None:
            return list(shown_bodies(stored, lengths, compressions, choice))
        numbers = (self.numbers("queue_id"), self.numbers("queue_offset"))
        facts = map(MessageFacts, self.column("topic"), *numbers, self.properties)
        rows = zip(stored, lengths, compressions, facts, strict=True)
        return [decoded_body(*row, choice) for row in rows]


def _each_once(value_of: Callable[[Any], Any], codes: Iterable[Any]) -> list[Any]:
    codes = list(codes)
    values = {code: value_of(code) for code in set(codes)}
    return [values[code] for code in codes]
