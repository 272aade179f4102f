"""Protobuf bodies by their message type, out of a descriptor set as `protoc --descriptor_set_out` writes it.

Needs the library protobuf.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Final

from rmqtool.decoders.decoder import Decode, read_schema_file
from rmqtool.errors import UnsupportedError, how_to_install
from rmqtool.report.bodies import MessageFacts
from rmqtool.report.names import unknown_name

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
    """The descriptor of a message type; files come after those that they import."""
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
