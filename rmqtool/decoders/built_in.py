"""The decoders that rmqtool has: JSON and text, which need no library, Avro and Protocol Buffers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, Final

from rmqtool.decoders.avro import make_avro
from rmqtool.decoders.decoder import Decode, MakeDecoder, read_schema_file
from rmqtool.errors import UnsupportedError, how_to_install
from rmqtool.report.bodies import MessageFacts, refuse_constant
from rmqtool.report.names import unknown_name

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


def _make_system(argument: str | None) -> Decode:
    if argument is not None:
        raise ValueError("takes no argument")
    return lambda _body, _message: ...  # those messages are decoded before all decoders


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; refuse a name that occurs twice, of which one value would be lost silently."""
    names = dict(pairs)
    if len(names) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the name {twice!r} stands twice in one object")
    return names


_FORM: Final = "protobuf=FILE.desc:package.Message"


def make_protobuf(argument: str | None) -> Decode:
    """A decoder by descriptor set and name of the message type.

    Raises:
        ValueError: no file, no descriptor set in it, or no such type.
        UnsupportedError: protobuf is missing.
    """
    if find_spec("google") is None or find_spec("google.protobuf") is None:
        raise UnsupportedError(f"protobuf is not installed: {how_to_install('decoders')}")
    name, _, type_name = (argument or "").rpartition(":")
    if not name or not type_name:
        raise ValueError(f"descriptor set and message type are missing: {_FORM}")
    from google.protobuf import json_format, message_factory, unknown_fields

    message_class = message_factory.GetMessageClass(_descriptor(name, type_name))

    def decode(body: bytes, message: MessageFacts) -> Any:
        del message
        parsed = message_class.FromString(body)
        if body and not parsed.ListFields() and len(unknown_fields.UnknownFieldSet(parsed)):
            raise ValueError(f"no field of {type_name} is in it")
        return json_format.MessageToDict(parsed, preserving_proto_field_name=True)

    return decode


def _descriptor(name: str, type_name: str) -> Any:
    """Descriptor of a message type; files come after those that they import."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(read_schema_file(name))
    except ValueError:
        raise
    except Exception as error:  # the library's DecodeError is an Exception of its own
        raise ValueError(f"{name}: not a descriptor set (protoc --descriptor_set_out --include_imports)") from error
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)
        return pool.FindMessageTypeByName(type_name)
    except KeyError as error:
        known = [f"{file.package}.{message.name}".lstrip(".") for file in files.file for message in file.message_type]
        if type_name not in known:
            raise ValueError(f"{name}: {unknown_name('message type', type_name, known)}") from error
        raise ValueError(f"{name}: a file that it imports is missing (protoc --include_imports)") from error
    except Exception as error:
        raise ValueError(f"{name}: not a usable descriptor set: {error}") from error


BUILT_IN: Final[Mapping[str, MakeDecoder]] = {
    "json": make_json,
    "text": make_text,
    "avro": make_avro,
    "protobuf": make_protobuf,
    "system": _make_system,
}
"""Decoders by name, each a maker; a plugin cannot replace one."""
