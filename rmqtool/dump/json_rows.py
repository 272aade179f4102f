"""Messages as JSON lines from the bytes of a batch: the compiled writer takes what is plain, the other one the rest.

Both write the same bytes (tests/dump/test_json_rows.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, assert_never

import numpy as np
from numpy.typing import NDArray

from rmqtool.dump import json_kinds
from rmqtool.dump.messages import DumpedMessages
from rmqtool.engine.rules.broker_rules import PropertyDecoder
from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.system_flag import HOSTS_V6
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.report import fields
from rmqtool.report.bodies import BODY_FIELDS, BodyForm
from rmqtool.report.rows import Buffer, RowBlock, message_fields
from rmqtool.report.writers import json_parts, json_text
from rmqtool.scan.compiled import load_kernel

KERNEL: Final = "rmqtool.dump.json_kernel"
OUT_BYTES: Final = 1 << 20
"""Bytes of text that are made at once; a row that may become longer is left to the plain writer."""
_SHORT: Final = 96
"""Bytes that suffice for a number, a host, a message id, null, and what is around a text."""
_CHARACTERS: Final = 0x20000
"""Characters of which the kernel is told whether they are printable; later ones are rare."""
_BODIES: Final = {BodyForm.TEXT: json_kinds.BODY_TEXT, BodyForm.BASE64: json_kinds.BASE64, BodyForm.HEX: json_kinds.HEX}


def can_write(messages: DumpedMessages) -> bool:
    """True if the compiled writer knows the form of these messages, and has their bytes."""
    form = messages.body_choice.shown_form
    return (
        not isinstance(messages.rows, list)
        and messages.batch.is_at_hand
        and messages.rules.property_decoder is PropertyDecoder.FIRST_SEPARATOR
        and messages.body_choice.decoder is None
        and (form is BodyForm.NONE or form in _BODIES)
    )


def message_block(messages: DumpedMessages) -> RowBlock:
    """The rows of all messages; the compiled writer makes their JSON where it can."""

    def parts(fields: Sequence[str], separator: bytes, unicode: bool) -> Iterator[Buffer]:
        return JsonRows(messages, fields, separator, unicode).parts()

    return replace(messages.block(), json_parts=parts if can_write(messages) else None)


@dataclass
class JsonRows:
    """The rows of messages, many at once; a separator and a line end follow each but the last, and all that is not
    ASCII is escaped unless the stream carries `unicode`.
    """

    messages: DumpedMessages
    fields: Sequence[str]
    separator: bytes
    unicode: bool

    def __post_init__(self) -> None:
        messages, rows = self.messages, self.messages.rows
        self._kernel = load_kernel(KERNEL)
        self._starts = rows["physical_offset"] - messages.batch.split.physical_offset - messages.batch.window.start
        self._left = (rows["sys_flag"] & HOSTS_V6 != 0) | (rows["prepared_transaction_offset"] == TOMBSTONE)
        if not set(BODY_FIELDS).isdisjoint(self.fields):
            self._left |= rows["body_length"] > messages.body_choice.limit
            if not messages.body_choice.raw:
                self._left |= rows["sys_flag"] & system_flag.COMPRESSED != 0
        self._room = np.zeros(len(rows), np.int64)
        self._choices = [b""]

    def parts(self) -> Iterator[Buffer]:
        kinds, literals, first, second = self._columns()
        told = (*_one_after_another(literals), *_one_after_another(self._choices), _printable(unicode=self.unicode))
        source = np.frombuffer(self.messages.batch.window.storage, np.uint8)
        self._left |= self._room > OUT_BYTES
        out = np.empty(min(OUT_BYTES, int(self._room[~self._left].sum())), np.uint8)
        ends = np.zeros(len(self._left), np.int64)
        names, lengths = np.empty((2, json_kinds.PROPERTIES_MAX), np.int64)
        begin, count = 0, len(ends)
        while begin < count:
            stop, length = self._kernel.put_rows(
                source, kinds, first, second, *told, self._room, self._left, ends, begin, out, names, lengths
            )
            if self._left[begin:stop].any():
                text = self._with_left_rows(out[:length].tobytes(), ends, begin, stop)
                yield text if stop < count else text.removesuffix(self.separator)
            else:
                yield out[: length if stop < count else length - len(self.separator)].data
            begin = stop

    def _with_left_rows(self, text: bytes, ends: NDArray[np.int64], begin: int, stop: int) -> bytes:
        """The text of some rows together with those that were left."""
        numbers = np.flatnonzero(self._left[begin:stop]) + begin
        block = replace(self.messages, rows=self.messages.rows[numbers]).block().with_fields(self.fields)
        lines = b"".join(json_parts(block, self.separator, unicode=self.unicode))
        parts: list[bytes] = []
        at = 0
        for end, line in zip(ends[numbers].tolist(), lines.split(self.separator), strict=True):
            parts += (text[at:end], line, self.separator)
            at = end
        return b"".join((*parts, text[at:]))

    def _columns(self) -> tuple[NDArray[np.int64], list[bytes], NDArray[np.int64], NDArray[np.int64]]:
        """Fields for the kernel: kinds, texts before each and after the last, numbers by row."""
        kinds: list[int] = []
        literals, literal = [], "{"
        numbers = np.empty((2, len(self.fields), len(self._room)), np.int64)
        for field, name in enumerate(self.fields):
            literal += f"{', ' if field else ''}{json_text(name)}: "
            column = self._column(name)
            if isinstance(column, str):
                literal += column
                continue
            kind, numbers[0, len(kinds)], numbers[1, len(kinds)] = column
            kinds.append(kind)
            literals.append(literal.encode())
            literal = ""
        literals.append(f"{literal}}}".encode() + self.separator)
        self._room += sum(map(len, literals)) + _SHORT * len(kinds)
        return np.array(kinds, np.int64), literals, numbers[0], numbers[1]

    def _column(self, name: str) -> tuple[int, Any, Any] | str:
        """Kind of a field for the kernel, and its numbers; JSON where it is equal in all rows that are not left."""
        messages, rows, starts = self.messages, self.messages.rows, self._starts
        if name not in message_fields(messages.body_choice):
            return "null"  # see `RowBlock.with_fields`
        match fields.MESSAGE_FIELDS[name].source:
            case fields.RowFact.TYPE:
                return json_text(messages.type)
            case fields.RowFact.FINDING:
                return json_text(messages.finding)
            case fields.Constant(value):
                return json_text(value)
            case fields.Code(column, value_of):
                return self._choice(rows[column], value_of)
            case fields.Topic():
                return self._choice(rows["topic_number"], messages.topic)
            case fields.Number(column):
                return json_kinds.NUMBER, rows[column], 0
            case fields.Host(position):
                return json_kinds.HOST, starts + position, 0
            case fields.MessageId(host):
                return json_kinds.MESSAGE_ID, starts + host.position, rows["own_offset"]
            case fields.Property(_, column):
                return self._text(json_kinds.TEXT, starts + rows[f"{column}_position"], rows[f"{column}_length"])
            case fields.Words(_, column):
                lengths = np.maximum(rows[f"{column}_length"], 0)
                return self._text(json_kinds.KEYS, starts + rows[f"{column}_position"], lengths)
            case fields.Properties() | fields.PropertyBlock() as source:
                kind = json_kinds.PROPERTIES if isinstance(source, fields.Properties) else json_kinds.TEXT
                return self._text(kind, starts + rows["size"] - rows["properties_length"], rows["properties_length"])
            case fields.Body("body"):
                kind = _BODIES[messages.body_choice.shown_form]
                return self._text(kind, starts + commitlog.HEAD_SIZE, rows["body_length"])
            case fields.Body("body_encoding"):
                return json_text(messages.body_choice.shown_form.value)
            case fields.Body("body_truncated"):
                return "false"  # longer ones are left, as are those with an error
            case fields.Body("body_error"):
                return "null"
            case fields.RowFact() | fields.Time() | fields.Body() | fields.BodyContent() | fields.Meaning():
                raise fields.UnfilledFieldError(name, "rows of the compiled writer")
            case unknown:
                assert_never(unknown)

    def _text(self, kind: int, starts: NDArray[Any], lengths: NDArray[Any]) -> tuple[int, Any, Any]:
        self._room += json_kinds.LONGEST_ESCAPE * np.maximum(lengths, 0)
        return kind, starts, lengths

    def _choice(self, codes: NDArray[Any], value_of: Callable[[int], Any]) -> tuple[int, Any, Any] | str:
        """A field whose value follows from one of the scan's numbers."""
        if (codes == codes[0]).all():
            return json_text(value_of(int(codes[0])), unicode=self.unicode)
        different, places = np.unique(codes, return_inverse=True)
        texts = [json_text(value_of(code), unicode=self.unicode).encode() for code in different.tolist()]
        self._room += max(map(len, texts))
        self._choices += texts
        return json_kinds.CHOICE, places + (len(self._choices) - len(texts)), 0


def _one_after_another(texts: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Texts as one, and the end of each."""
    return np.frombuffer(b"".join(texts), np.uint8), np.cumsum([len(text) for text in texts])


@cache
def _printable(*, unicode: bool) -> NDArray[np.bool_]:
    """Mask of the characters that are in JSON as they are."""
    if not unicode:
        return np.zeros(_CHARACTERS, np.bool_)
    return np.fromiter((chr(code).isprintable() for code in range(_CHARACTERS)), np.bool_, _CHARACTERS)
