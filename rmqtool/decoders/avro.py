"""Avro bodies by their schema, without header, as a producer's `DatumWriter` writes them. Needs fastavro.

A schema that refers to itself lets a body nest as deeply as it is long, on which the library's compiled reader ends the
process, so its reader in Python takes those. Arrays whose items take no byte are refused: a body of ten bytes could ask
for all memory.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, Final

from rmqtool.decoders.decoder import Decode, read_schema_file
from rmqtool.errors import UnsupportedError, how_to_install
from rmqtool.report.bodies import MessageFacts

_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_RECORDS: Final = frozenset({"record", "error"})


def make_avro(argument: str | None) -> Decode:
    """A decoder by the schema in a file.

    Raises:
        ValueError: no file, or no schema in it.
        UnsupportedError: fastavro is missing.
    """
    if find_spec("fastavro") is None:
        raise UnsupportedError(f"fastavro is not installed: {how_to_install('decoders')}")
    if not argument:
        raise ValueError("the schema is missing: avro=FILE.avsc")
    import fastavro

    content = read_schema_file(argument)
    try:
        schema = fastavro.parse_schema(json.loads(content))
    except Exception as error:  # whatever the library thinks of a file
        raise ValueError(f"{argument}: not an Avro schema: {type(error).__name__}: {error}") from error
    named: dict[str, Any] = {}
    is_recursive = _inspect(schema, named, ())
    if any(_takes_nothing(items, named) for items in _array_items(schema)):
        raise ValueError(f"{argument}: an array of items that take no byte cannot be read safely")
    read: Callable[..., Any] = fastavro.schemaless_reader
    if is_recursive:
        from fastavro._read_py import schemaless_reader as read_in_python

        read = read_in_python

    def decode(body: bytes, message: MessageFacts) -> Any:
        del message
        stream = io.BytesIO(body)
        value = read(stream, schema, None)
        left = len(body) - stream.tell()
        if left:
            raise ValueError(f"{left} of {len(body)} bytes are left after the value")
        return value

    return decode


def _inspect(schema: Any, named: dict[str, Any], around: tuple[str, ...]) -> bool:
    """Record the named types; return True if one of them contains itself."""
    if isinstance(schema, str):
        return schema in around
    if isinstance(schema, list):
        in_branches = [_inspect(branch, named, around) for branch in schema]  # all of them, for the names
        return any(in_branches)
    if schema["type"] in _NAMED:
        named[schema["name"]] = schema
        around = (*around, schema["name"])
    in_parts = [_inspect(part, named, around) for part in _parts(schema)]
    return any(in_parts)


def _parts(schema: dict[str, Any]) -> list[Any]:
    kind = schema["type"]
    if kind in _RECORDS:
        return [field["type"] for field in schema["fields"]]
    if kind in ("array", "map"):
        return [schema["items" if kind == "array" else "values"]]
    return [] if isinstance(kind, str) else [kind]


def _array_items(schema: Any) -> Iterator[Any]:
    if isinstance(schema, list):
        for branch in schema:
            yield from _array_items(branch)
    elif isinstance(schema, dict):
        if schema["type"] == "array":
            yield schema["items"]
        for part in _parts(schema):
            yield from _array_items(part)


def _takes_nothing(schema: Any, named: dict[str, Any]) -> bool:
    """True if a value takes no byte; a type that contains itself takes some, or has no value at all."""
    if isinstance(schema, list):
        return False  # begins with the number of its branch
    if isinstance(schema, str):
        if schema not in named:
            return schema == "null"
        rest = {name: known for name, known in named.items() if name != schema}
        return _takes_nothing(named[schema], rest)
    if schema["type"] in _RECORDS:
        return all(_takes_nothing(field["type"], named) for field in schema["fields"])
    if schema["type"] == "fixed":
        return not schema["size"]
    return bool(schema["type"] == "null")
