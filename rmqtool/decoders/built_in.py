"""The decoders that need no library: JSON and text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from rmqtool.decoders.decoder import Decode, MakeDecoder
from rmqtool.report.bodies import MessageFacts, refuse_constant

_JSON_FORMS: Final = ("pretty", "compact")


def make_json(argument: str | None) -> Decode:
    """JSON as RFC 8259 has it, as a value; with `pretty` or `compact` as text in this form."""
    if argument not in (None, *_JSON_FORMS):
        raise ValueError(f"{argument!r} is not one of {', '.join(_JSON_FORMS)}")

    def decode(body: bytes, message: MessageFacts) -> Any:
        del message
        value = json.loads(body, parse_constant=refuse_constant, object_pairs_hook=_object)
        if argument is None:
            return value
        if argument == "pretty":
            return json.dumps(value, ensure_ascii=False, indent=2)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    return decode


def make_text(argument: str | None) -> Decode:
    """Text in a character set (UTF-8 where none is named); bytes that are none in it are an error."""
    charset = argument or "utf-8"
    try:
        with suppress(UnicodeError):
            b"a".decode(charset)  # of no bytes the name would not be looked up
    except LookupError as error:
        raise ValueError(f"there is no character set {charset!r}") from error

    def decode(body: bytes, message: MessageFacts) -> str:
        del message
        return body.decode(charset)

    return decode


def _make_avro(argument: str | None) -> Decode:
    from rmqtool.decoders.avro import make_avro

    return make_avro(argument)


def _make_protobuf(argument: str | None) -> Decode:
    from rmqtool.decoders.protobuf import make_protobuf

    return make_protobuf(argument)


def _make_system(argument: str | None) -> Decode:
    if argument is not None:
        raise ValueError("takes no argument")
    return lambda _body, _message: ...  # those messages are decoded before all decoders


BUILT_IN: Final[Mapping[str, MakeDecoder]] = {
    "json": make_json,
    "text": make_text,
    "avro": _make_avro,
    "protobuf": _make_protobuf,
    "system": _make_system,
}
"""Decoders by name, each a maker; a plugin cannot replace one."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; a name that stands in it twice would be lost silently."""
    names = dict(pairs)
    if len(names) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the name {twice!r} stands twice in one object")
    return names
