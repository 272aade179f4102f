"""Inputs with a schema: Avro and protobuf files that are edited or made to do harm, over bodies that fit and do not."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from google.protobuf import descriptor_pb2

from rmqtool.fixtures.recipe import Run, make_store
from rmqtool.fixtures.samples import Samples
from tests.campaign.doors.bounds import Input
from tests.campaign.doors.stores import MEMORY, VERSION, Files, files_below, write_files
from tests.campaign.doors.texts import edited_bytes, edited_json
from tests.fuzz.tiny_recipes import TINY

SCHEMA: Final = {
    "type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
         "default": "x"},
        {"name": "lines", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": ["null", "Order", "double"]}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 16}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "id2", "type": {"type": "string", "logicalType": "uuid"}, "aliases": ["x"]},
    ],
}  # fmt: skip
DEEP: Final = 3000
DEPTHS: Final = (50, 900, DEEP)


def _nested(kind: str, depth: int) -> Any:
    schema: Any = "int"
    for number in range(depth):
        if kind == "array":
            schema = {"type": "array", "items": schema}
        elif kind == "record":
            schema = {"type": "record", "name": f"r{number}", "fields": [{"name": "f", "type": schema}]}
        else:
            schema = {"type": schema}
    return schema


def _record(*types: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": f"f{n}", "type": kind} for n, kind in enumerate(types)]}


HOSTILE: Final[Sequence[Any]] = (
    *[_nested(kind, depth) for kind in ("array", "record", "type") for depth in (50, 900)],
    _record({"type": "fixed", "name": "F", "size": 1 << 62}),
    _record({"type": "fixed", "name": "F", "size": -1}),
    _record({"type": "fixed", "name": "F", "size": 0}),
    _record({"type": "array", "items": _record()}),
    _record({"type": "array", "items": "R"}),
    _record({"type": "array", "items": ["null"]}),
    _record({"type": "map", "values": "null"}),
    _record(*["null"] * 5000),
    _record("R"),
    _record(["null", "R"], ["null", "R"]),
    _record({"type": "bytes", "logicalType": "decimal", "precision": 1 << 31, "scale": 1 << 30}),
    _record({"type": "bytes", "logicalType": "decimal", "precision": 0, "scale": -5}),
    _record({"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-micros"}),
    _record({"type": "string", "logicalType": "uuid"}),
    {"type": "enum", "name": "E", "symbols": [f"s{n}" for n in range(50_000)]},
    {"type": "enum", "name": "E", "symbols": []},
    [f"int{n}" for n in range(100)],
    ["null"] * 2000,
    [],
    "absent",
    "bytes",
    {"type": "array", "items": {"type": "array", "items": {"type": "map", "values": "boolean"}}},
    {"type": "record", "name": "../x", "fields": []},
    {"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}] * 3},
)
BODIES: Final = (
    b"\x02" * 3000, b"\xfe\xff\xff\xff\x0f" + b"\0" * 20, b"\xff" * 40, b"\0" * 200, b"",
    b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x08\x01\x12\x03abc", b"\x1a\x80\x80\x80\x80\x08", b"\x0b" * 500, b"\x1a\x02\x1a\0" * 30,
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01" * 3,
    b"\x0e" + b"abc" * 9, b"\x02\x02\x02\x02" + b"\x04ab" * 20,
)  # fmt: skip


@cache
def bodies() -> Files:
    """A tiny store whose bodies ask decoders for much."""

    def messages(samples: Samples) -> Sequence[Run]:
        return [Run([samples.message("orders", number % 2, body=body) for number, body in enumerate(BODIES)])]

    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        store = Path(name) / "store"
        recipe = TINY["tiny"]
        settings = {**recipe.settings, "mappedFileSizeCommitLog": "8192"}
        make_store(replace(recipe, runs=messages, settings=settings), store, VERSION)
        return files_below(store)


@cache
def descriptors() -> bytes:
    """A descriptor set with each kind of field, and a type that lies in itself."""
    field = descriptor_pb2.FieldDescriptorProto
    base = descriptor_pb2.FileDescriptorProto(name="base.proto", package="shop", syntax="proto3")
    base.enum_type.add(name="Kind").value.add(name="A", number=0)
    file = descriptor_pb2.FileDescriptorProto(
        name="order.proto", package="shop", syntax="proto3", dependency=["base.proto"]
    )
    message = file.message_type.add(name="Order")
    for number, kind in enumerate((field.TYPE_INT64, field.TYPE_STRING, field.TYPE_BYTES, field.TYPE_DOUBLE), 1):
        message.field.add(name=f"f{number}", number=number, type=kind, label=field.LABEL_OPTIONAL)
    message.field.add(
        name="sub", number=9, type=field.TYPE_MESSAGE, type_name=".shop.Order", label=field.LABEL_REPEATED
    )
    message.field.add(name="kind", number=10, type=field.TYPE_ENUM, type_name=".shop.Kind", label=field.LABEL_REPEATED)
    return descriptor_pb2.FileDescriptorSet(file=[base, file]).SerializeToString()


def make_schema_input(chosen: random.Random, folder: Path) -> Input:
    """Bodies decoded by an Avro schema or a descriptor set that is edited, or made to do harm."""
    write_files(bodies(), folder / "store")
    if chosen.random() < 0.6:
        raw = json.dumps(SCHEMA).encode()
        if chosen.random() < 0.4:
            raw = json.dumps(chosen.choice(HOSTILE)).encode()
        if chosen.random() < 0.7:
            raw = edited_json(chosen, raw)
        if chosen.random() < 0.05:
            raw = b'{"type":"array","items":' * DEEP + b'"int"' + b"}" * DEEP
        decode = "avro=../out/schema"
    else:
        raw = edited_bytes(chosen, _hostile_descriptors(chosen) if chosen.random() < 0.4 else descriptors())
        decode = "protobuf=../out/schema:shop.Order"
    (folder / "out" / "schema").write_bytes(raw)
    line = chosen.choice((
        ["dump", "../store", "--body", "json", "--format", "jsonl"],
        ["dump", "../store", "--body", "text", "--format", "csv"],
        ["search", "../store", "a|1", "--in", "body", "--format", "jsonl"],
        ["get", "../store", "--topic", "orders", "--queue-id", "0", "--queue-offset", "0", "--count", "9",
         "--body", "json"],
    ))  # fmt: skip
    return Input([*line, "--decode", decode])


def _hostile_descriptors(chosen: random.Random) -> bytes:
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors())
    field = descriptor_pb2.FieldDescriptorProto
    message = files.file[1].message_type[0]
    how = chosen.randrange(8)
    if how == 0:
        for number in range(20, 20 + chosen.choice((10, 3000))):
            message.field.add(name=f"x{number}", number=number, type=field.TYPE_GROUP, type_name=".shop.Order", label=1)
    elif how == 1:
        inner = message
        for _ in range(chosen.choice((10, 80))):
            inner = inner.nested_type.add(name="N")
    elif how == 2:
        message.field[0].number = chosen.choice((0, -1, 1 << 29, 19_000, 2))
    elif how == 3:
        message.field[0].name = chosen.choice(("", "a" * 70_000, "\x1b[31m", "a.b", "f2"))
    elif how == 4:
        files.file[1].dependency.append(chosen.choice(("order.proto", "absent.proto", "/etc/passwd", "")))
    elif how == 5:
        message.options.map_entry = True
    elif how == 6:
        message.options.message_set_wire_format = True
        files.file[1].syntax = chosen.choice(("proto2", "editions", "", "proto9"))
    else:
        files.file.add().CopyFrom(files.file[1])
    return files.SerializeToString()
