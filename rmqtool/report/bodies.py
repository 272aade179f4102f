"""Message bodies as requested: decompressed and decoded within a limit, with a note on parts that are not shown."""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from rmqtool.errors import UnreadableError
from rmqtool.report.fields import BODY_ROW, DECODED_ROW

BODY_FIELDS: Final = tuple(field.name for field in BODY_ROW)
"""Fields of a message row where bodies are asked for."""
DECODED_FIELDS: Final = tuple(field.name for field in DECODED_ROW)
"""Fields of a message row, after those of the body, where bodies are decoded."""
UNDECODED_LIMIT: Final = 1024
"""Bytes of a body that are shown where it could not be decoded and nothing else is asked for."""
_TOO_LONG: Final = "longer than the limit, so not decoded"
BODY_LIMIT: Final = 1 << 20
"""Bytes of a body that are shown where nothing else is asked for."""
_STORED_SLACK: Final = 1 << 16
"""Compressed bytes beyond the limit that are worth reading: data that does not compress grows a little."""


class BodyForm(StrEnum):
    """Presentation of bodies."""

    NONE = "none"
    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"
    JSON = "json"
    REDACTED = "redacted"


class MessageFacts(NamedTuple):
    """Facts about a message for the decoder of its body."""

    topic: str
    queue_id: int
    queue_offset: int
    properties: Mapping[str, str]


class DecodedBody(NamedTuple):
    """A body as a decoder reads it, any JSON, or why it did not, as a sentence; with the name of the decoder."""

    value: Any
    decoder: str | None
    error: str | None


class BodyDecoder(Protocol):
    """Decodes bodies (`decoders` has the ones there are), and counts failures; never raises for a body."""

    failures: int

    def decode(self, body: bytes, message: MessageFacts) -> DecodedBody:
        """Decode a decompressed body."""

    def left_out(self, reason: str) -> DecodedBody:
        """A body that no decoder gets."""


@dataclass(frozen=True)
class BodyChoice:
    """Choice of the parts of bodies to show: as stored, compressed or not, with the property block as text (`raw`), or
    cut at `limit` bytes, decompressed; a decoder leaves a body itself out, unless its form is asked for.
    """

    form: BodyForm = BodyForm.NONE
    limit: int = BODY_LIMIT
    raw: bool = False
    decoder: BodyDecoder | None = None

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of a message row that show its body."""
        if self.decoder is not None:
            return (*BODY_FIELDS, *DECODED_FIELDS)
        return () if self.shown_form is BodyForm.NONE else BODY_FIELDS

    @property
    def shown_form(self) -> BodyForm:
        """Stored bodies for which no form is asked are base64, the one that every byte comes through."""
        return BodyForm.BASE64 if self.raw and self.form is BodyForm.NONE else self.form

    def stored_max(self, compression: str | None) -> int:
        """Bytes of a stored body that suffice, which is one more than is shown where it is stored as it is."""
        if self.form is BodyForm.REDACTED:
            return 0
        return self.limit + 1 if self.raw or compression is None else 2 * self.limit + _STORED_SLACK


class StoredBody(Protocol):
    """A record, as far as its body goes."""

    @property
    def body_length(self) -> int: ...
    @property
    def compression(self) -> str | None: ...

    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def properties(self) -> Mapping[str, str]: ...

    def body(self, length_max: int) -> bytes:
        """The first bytes of the stored body; UnreadableError where the disk does not give them."""


def body_fields(record: StoredBody, choice: BodyChoice) -> dict[str, Any]:
    """The fields of a row that show the body of one record, if bodies are asked for."""
    if not choice.fields:
        return {}
    values: tuple[Any, ...]
    try:
        length_max = choice.stored_max(record.compression)
        stored = record.body(length_max) if length_max else b""
        if choice.decoder is not None:
            facts = MessageFacts(record.topic, record.queue_id, record.queue_offset, record.properties)
            values = decoded_body(stored, record.body_length, record.compression, facts, choice)
        else:
            values = shown_body(stored, record.body_length, record.compression, choice)
    except UnreadableError as error:
        values = (None, str(choice.shown_form), False, str(error))
        values += choice.decoder.left_out(str(error)) if choice.decoder is not None else ()
    return dict(zip(choice.fields, values, strict=True))


def decoded_body(
    stored: bytes, body_length: int, compression: str | None, facts: MessageFacts, choice: BodyChoice
) -> tuple[Any, ...]:
    """The values of `shown_body`, then those of `DECODED_FIELDS`; of a body that is decoded, no form need be shown."""
    assert choice.decoder is not None
    try:
        content = _content(stored, compression, choice.limit)
        is_whole = len(content) <= choice.limit
        decoded = choice.decoder.decode(content, facts) if is_whole else choice.decoder.left_out(_TOO_LONG)
    except ValueError as error:
        decoded = choice.decoder.left_out(str(error))
    if choice.form is BodyForm.NONE:
        if decoded.error is None and decoded.decoder is not None:
            return (None, BodyForm.TEXT.value, False, None, *decoded)
        choice = replace(choice, form=BodyForm.TEXT, limit=min(choice.limit, UNDECODED_LIMIT))
        stored = stored if compression is not None else stored[: choice.limit + 1]
    return (*shown_body(stored, body_length, compression, choice), *decoded)


def shown_body(
    stored: bytes, body_length: int, compression: str | None, choice: BodyChoice
) -> tuple[Any, str, bool, str | None]:
    """Fields of a row for the body: `body`, its encoding, True if it was cut, and why it could not be shown. `stored`
    are its first bytes, `BodyChoice.stored_max` of them.
    """
    form = choice.shown_form
    if form is BodyForm.REDACTED:
        return f"{body_length} bytes", form.value, False, None
    cut = False
    try:
        content = _content(stored, None if choice.raw else compression, choice.limit)
        cut = len(content) > choice.limit
        return _encoded(content[: choice.limit], form, cut=cut), form.value, cut, None
    except ValueError as error:
        return None, form.value, cut, str(error)


def shown_bodies(
    stored: Sequence[bytes], lengths: Sequence[int], compressions: Sequence[str | None], choice: BodyChoice
) -> list[tuple[Any, str, bool, str | None]]:
    """The values of `shown_body` for many records; those that are shown whole as they are stored take no detour."""
    form, limit = choice.shown_form, choice.limit
    encode = _TEXT_FORMS.get(form)
    return [
        (encode(content), form.value, False, None)
        if encode is not None and len(content) <= limit and (compression is None or choice.raw)
        else shown_body(content, length, compression, choice)
        for content, length, compression in zip(stored, lengths, compressions, strict=True)
    ]


def _content(stored: bytes, compression: str | None, limit: int) -> bytes:
    """First bytes of a body, decompressed, one more than the limit if it has more; ValueError if it is no such body."""
    if compression is None:
        return stored
    from rmqtool.formats.compression import decompress

    return decompress(stored, compression, limit)


_TEXT_FORMS: Final[Mapping[BodyForm, Callable[[bytes], str]]] = {
    BodyForm.HEX: bytes.hex,
    BodyForm.BASE64: lambda content: b2a_base64(content, newline=False).decode("ascii"),
    BodyForm.TEXT: lambda content: content.decode("utf-8", "backslashreplace"),
}


def _encoded(content: bytes, form: BodyForm, *, cut: bool) -> Any:
    if form is BodyForm.TEXT and cut:  # in the middle of a character, maybe
        content = content[: len(content) - _split_character(content)]
    if form in _TEXT_FORMS:
        return _TEXT_FORMS[form](content)
    if cut:
        raise ValueError("longer than the limit, so not shown as JSON")
    try:
        return json.loads(content, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error


def refuse_constant(text: str) -> None:
    """Refuse `NaN` and the infinities, which Python's parser takes for numbers."""
    raise ValueError(f"{text} is not JSON")


def _split_character(content: bytes) -> int:
    """Bytes at the end that begin a UTF-8 character and do not finish it."""
    for back in range(1, min(4, len(content)) + 1):
        byte = content[-back]
        if byte >= 0xC0:
            return back if back < 2 + (byte >= 0xE0) + (byte >= 0xF0) else 0
        if byte < 0x80:
            return 0
    return 0
