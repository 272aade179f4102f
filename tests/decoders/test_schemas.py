"""Avro and protobuf by schema: what producers write is decoded, hostile bodies and schemas neither hang nor crash."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.decoders.chain import DecoderChain, make_chain
from rmqtool.errors import UsageError
from rmqtool.report.bodies import MessageFacts

FACTS = MessageFacts("orders", 0, 0, {})
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "lines", "type": {"type": "array", "items": "string"}},
    ],
}
TREE = {"type": "record", "name": "Tree", "fields": [{"name": "left", "type": ["null", "Tree"]}]}
AFTER = {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}


def avro(folder: Path, schema: Any) -> DecoderChain:
    path = folder / "schema.avsc"
    path.write_text(json.dumps(schema), "utf-8")
    made = make_chain([f"avro={path}"])
    assert made is not None
    return made


def order_body() -> bytes:
    stream = io.BytesIO()
    import decimal

    order = {"id": 7, "price": decimal.Decimal("12.50"), "lines": ["a", "b"]}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(ORDER), order)
    return stream.getvalue()


def test_avro_is_decoded_by_its_schema(tmp_path: Path) -> None:
    decoded = avro(tmp_path, ORDER).decode(order_body(), FACTS)
    assert decoded == ({"id": 7, "price": "12.50", "lines": ["a", "b"]}, "avro", None)


def test_a_schema_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"order\.avsc: No such file or directory$"):
        make_chain([f"avro={tmp_path}/order.avsc"])
    with pytest.raises(UsageError, match="not an Avro schema"):
        avro(tmp_path, {"type": "nothing"})


@pytest.mark.parametrize("change", ["cut", "longer", "empty"])
def test_avro_that_does_not_fit_gives_a_reason(tmp_path: Path, change: str) -> None:
    body = {"cut": order_body()[:-3], "longer": order_body() + b"x", "empty": b""}[change]
    decoded = avro(tmp_path, ORDER).decode(body, FACTS)
    assert decoded.value is None
    assert decoded.error


def test_a_body_nested_a_million_times_is_refused_and_ends_nothing(tmp_path: Path) -> None:
    decoder = avro(tmp_path, TREE)
    assert decoder.decode(b"\x02\x00", FACTS).value == {"left": {"left": None}}
    assert "Recursion" in str(decoder.decode(b"\x02" * 1_000_000 + b"\0", FACTS).error)


@pytest.mark.parametrize("items", ["null", AFTER, {"type": "fixed", "name": "F", "size": 0}])
def test_a_schema_by_which_few_bytes_ask_for_all_memory_is_refused(tmp_path: Path, items: Any) -> None:
    with pytest.raises(UsageError, match="cannot be read safely"):
        avro(tmp_path, {"type": "map", "values": {"type": "array", "items": items}})


@given(body=st.binary(max_size=60))
def test_random_bodies_never_raise(tmp_path_factory: pytest.TempPathFactory, body: bytes) -> None:
    folder = tmp_path_factory.getbasetemp()
    for schema in (ORDER, TREE):
        json.dumps(avro(folder, schema).decode(body, FACTS).value)


def descriptor_set(folder: Path) -> tuple[Path, Any]:
    """A descriptor set as protoc writes it, and the class of its message type."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    field = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind) in enumerate({"id": field.TYPE_INT64, "note": field.TYPE_STRING}.items(), 1):
        message.field.add(name=name, number=number, type=kind, label=field.LABEL_OPTIONAL)
    message.field.add(
        name="sub", number=3, type=field.TYPE_MESSAGE, type_name=".shop.Order", label=field.LABEL_OPTIONAL
    )
    path = folder / "order.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return path, message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_protobuf_is_decoded_by_its_descriptor_set(tmp_path: Path) -> None:
    path, order = descriptor_set(tmp_path)
    decoder = make_chain([f"protobuf={path}:shop.Order"])
    assert decoder is not None
    body = order(id=1 << 40, note="ä").SerializeToString()
    assert decoder.decode(body, FACTS) == ({"id": str(1 << 40), "note": "ä"}, "protobuf", None)
    assert "no field of shop.Order" in str(decoder.decode(b"\x78\x01", FACTS).error)
    assert decoder.decode(b"\x08", FACTS).error
    nested = b""
    for _ in range(200):
        nested = b"\x1a" + _varint(len(nested)) + nested
    assert decoder.decode(nested, FACTS).error


@pytest.mark.parametrize("name", ["shop.Ordr", "Order"])
def test_an_unknown_message_type_is_refused_with_the_nearest(tmp_path: Path, name: str) -> None:
    path, _ = descriptor_set(tmp_path)
    with pytest.raises(UsageError, match=r"(did you mean|there are) shop\.Order"):
        make_chain([f"protobuf={path}:{name}"])


def test_a_file_that_is_no_descriptor_set_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xff")
    with pytest.raises(UsageError, match="not a descriptor set"):
        make_chain([f"protobuf={tmp_path / 'x'}:a.B"])


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])
