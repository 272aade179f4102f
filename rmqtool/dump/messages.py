"""The messages of a batch as columns of `dump` rows; nothing but what a writer asks for is read or decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.formats import commitlog, properties, system_flag
from rmqtool.formats.commitlog import BORN_HOST_AT, STORE_HOST_AT
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.message_id import host_text, offset_message_id
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.report.bodies import BodyChoice, BodyForm, MessageFacts, decoded_body, shown_bodies
from rmqtool.report.rows import RowBlock, message_fields
from rmqtool.scan.columns import Row
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.scan.walk import Batch

TOMBSTONE_FINDING: Final = "commitlog.tombstone"
"""Of a record that replaces a lost message after a repair: a note, so the row is no bad range."""


@dataclass(frozen=True)
class DumpedMessages:
    """A field of a row is the attribute or the number of the scan that is called like it.

    Attributes:
        rows: good messages of the batch, as its rows come.
    """

    batch: Batch
    rows: Any
    rules: BrokerRules
    body_choice: BodyChoice

    def block(self) -> RowBlock:
        """The rows of all messages."""
        return RowBlock(len(self.rows), message_fields(self.body_choice), self.column, self._holds_json)

    def column(self, name: str) -> Sequence[Any]:
        """The values of a field."""
        if name in self.body_choice.fields:
            at = self.body_choice.fields.index(name)
            return [values[at] for values in self._bodies]
        if name in CODED:
            number, value_of = CODED[name]
            return _each_once(partial(value_of, self), self.numbers(number))
        return self.numbers(name) if name in NUMBERS else getattr(self, name)

    def numbers(self, name: str) -> list[int]:
        """A column of the scan."""
        if isinstance(self.rows, list):
            at = Row._fields.index(name)
            return [row[at] for row in self.rows]
        values: list[int] = self.rows[name].tolist()
        return values

    @property
    def type(self) -> list[str]:
        return ["stale" if self.verdict == Verdict.STALE else "message"] * len(self.rows)

    @property
    def finding(self) -> list[str | None]:
        finding = FINDING_IDS.get(self.verdict)
        marked = self.numbers("prepared_transaction_offset")
        return [TOMBSTONE_FINDING if finding is None and offset == TOMBSTONE else finding for offset in marked]

    @property
    def body_crc_ok(self) -> list[bool]:
        return [True] * len(self.rows)  # or the scan had called it bad

    @property
    def born_host(self) -> list[str]:
        return _each_once(host_text, self._hosts([BORN_HOST_AT] * len(self.rows), system_flag.BORN_HOST_V6))

    @property
    def store_host(self) -> list[str]:
        return _each_once(host_text, self._store_hosts)

    @property
    def message_id(self) -> list[str]:
        return list(map(offset_message_id, self._store_hosts, self.numbers("own_offset")))

    @cached_property
    def properties(self) -> list[dict[str, str]]:
        return list(map(self.rules.property_decoder.decode, self._properties_raw))

    @property
    def properties_raw(self) -> list[str]:
        return [decode_java_utf8(raw) for raw in self._properties_raw]

    @property
    def tags(self) -> list[str | None]:
        return [values.get(properties.TAGS) for values in self.properties]

    @property
    def keys(self) -> list[list[str]]:
        texts = [values.get(properties.KEYS, "") for values in self.properties]
        return [[key for key in text.split(" ") if key] if " " in text else [text] if text else [] for text in texts]

    @property
    def unique_key(self) -> list[str | None]:
        return [values.get(properties.UNIQUE_KEY) for values in self.properties]

    @cached_property
    def sys_flag(self) -> list[int]:
        return self.numbers("sys_flag")

    @cached_property
    def verdict(self) -> Verdict:
        return Verdict(self.numbers("verdict")[0])  # a walk gives good and stale rows in batches of their own

    @cached_property
    def _places(self) -> list[int]:
        return self.numbers("physical_offset")

    @cached_property
    def _properties_raw(self) -> list[bytes]:
        lengths = self.numbers("properties_length")
        starts = [size - length for size, length in zip(self.numbers("size"), lengths, strict=True)]
        return self.batch.read_many(self._places, starts, lengths)

    @cached_property
    def _store_hosts(self) -> list[bytes]:
        starts = _each_once(
            lambda flag: STORE_HOST_AT + commitlog.host_extra(flag, system_flag.BORN_HOST_V6), self.sys_flag
        )
        return self._hosts(starts, system_flag.STORE_HOST_V6)

    def _hosts(self, starts: list[int], bit: int) -> list[bytes]:
        lengths = _each_once(lambda flag: commitlog.V4_HOST_SIZE + commitlog.host_extra(flag, bit), self.sys_flag)
        return self.batch.read_many(self._places, starts, lengths)

    @property
    def _holds_json(self) -> bool:
        return self.body_choice.form is BodyForm.JSON or self.body_choice.decoder is not None

    @cached_property
    def _bodies(self) -> list[tuple[Any, ...]]:
        """The values of `BodyChoice.fields` for each message."""
        lengths, choice = self.numbers("body_length"), self.body_choice
        compressions = self.column("compression")
        stored = self.batch.read_many(
            self._places,
            _each_once(commitlog.head_size, self.sys_flag),
            [
                min(length, most)
                for length, most in zip(lengths, _each_once(choice.stored_max, compressions), strict=True)
            ],
        )
        if choice.decoder is None:
            return list(shown_bodies(stored, lengths, compressions, choice))
        numbers = (self.numbers("queue_id"), self.numbers("queue_offset"))
        facts = map(MessageFacts, self.column("topic"), *numbers, self.properties)
        rows = zip(stored, lengths, compressions, facts, strict=True)
        return [decoded_body(*row, choice) for row in rows]


CODED: Final[Mapping[str, tuple[str, Callable[[DumpedMessages, int], Any]]]] = {
    "magic": ("magic", lambda _, magic: commitlog.MAGIC_NAMES[magic]),
    "transaction": ("sys_flag", lambda _, flag: system_flag.transaction(flag)),
    "compression": ("sys_flag", lambda _, flag: system_flag.compression(flag)),
    "topic": ("topic_number", lambda messages, number: decode_java_utf8(messages.batch.topics[number])),
}
"""Fields with few different values: the scan's number that each follows from, and how."""
NUMBERS: Final = frozenset(Row._fields) - CODED.keys()


def _each_once(value_of: Callable[[Any], Any], codes: Iterable[Any]) -> list[Any]:
    """The value of each code, of which there are few different ones."""
    codes = list(codes)
    values = {code: value_of(code) for code in set(codes)}
    return [values[code] for code in codes]
