"""One description of a field: each maker of rows follows it, and says so where it cannot."""

from __future__ import annotations

import json
import operator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rmqtool.browse import message_row as browsed
from rmqtool.dump import json_rows
from rmqtool.dump.json_rows import message_block
from rmqtool.dump.log import LogDump
from rmqtool.dump.messages import DumpedMessages
from rmqtool.dump.request import Request
from rmqtool.dump.target import TargetOptions, find_target
from rmqtool.engine.reading.record import Record, read_record
from rmqtool.engine.rules.versions import NEWEST
from rmqtool.formats.commitlog import MAGIC_V1
from rmqtool.pipeline.tables import message_columns
from rmqtool.pipeline.tables.message_columns import MessageBatches, SourceFile
from rmqtool.pipeline.tables.rows import batch_of
from rmqtool.report import rows as report_rows
from rmqtool.report.bodies import BodyChoice
from rmqtool.report.columns import MESSAGE_COLUMNS
from rmqtool.report.fields import (
    BODY_ROW,
    DECODED_ROW,
    INDEX_TABLE,
    MESSAGE_FIELDS,
    MESSAGE_ROW,
    MESSAGE_TYPES,
    PROPERTY_BLOCK,
    QUEUE_TABLE,
    TABLES,
    Body,
    BodyContent,
    Code,
    Computed,
    MessageField,
    Number,
    RowFact,
    Source,
    Time,
    Type,
    UnfilledFieldError,
    UnitField,
)
from rmqtool.report.json_schemas import schema_text
from rmqtool.report.rows import message_row, message_value
from rmqtool.report.writers import json_parts
from rmqtool.scan.log import ScanOptions
from rmqtool.scan.split import Split
from rmqtool.scan.walk import Batch
from rmqtool.store.location import StoreLocation
from rmqtool.store.view import open_directory
from tests.conftest import Unpacked
from tests.engine.reading.golden_answers import open_golden

SCHEMA_TYPES = {
    Type.INT32: "integer", Type.INT64: "integer", Type.BOOL: "boolean", Type.TEXT: "string", Type.TEXTS: "array",
    Type.MAP: "object", Type.BYTES: "string",
}  # fmt: skip


def added(monkeypatch: pytest.MonkeyPatch, source: Source, kind: Type) -> None:
    """A further field of every message's row and of the table."""
    field = MessageField("further", kind, "a further field", rows=MESSAGE_TYPES, source=source)
    monkeypatch.setitem(MESSAGE_FIELDS, field.name, field)
    monkeypatch.setitem(message_columns._FIELDS, field.name, field)
    monkeypatch.setattr(report_rows, "MESSAGE_FIELDS", (*report_rows.MESSAGE_FIELDS, field.name))


def batch_of_messages(store: Path, *, compiled: bool) -> Batch:
    entry = find_target(StoreLocation(store), TargetOptions()).entries[0]
    source = open_directory(store).open(entry.path)
    split = Split(source, 0, source.size, int(entry.name))
    return next(ScanOptions(compiled=compiled, log_bytes=source.size).walk(split).batches())


def dumped(store: Path, *, compiled: bool) -> DumpedMessages:
    batch = batch_of_messages(store, compiled=compiled)
    dump = LogDump(find_target(StoreLocation(store), TargetOptions()), Request(broker_version=NEWEST))
    return DumpedMessages(batch, batch.rows, dump.rules, BodyChoice())


def arrow_column(store: Path, kind: pa.DataType) -> pa.Array:
    batch = batch_of_messages(store, compiled=True)
    schema = pa.schema([pa.field("further", kind)])
    [made] = MessageBatches(schema, SourceFile("store", "file")).batches(batch, batch.as_array())
    return made.column(0)


@pytest.mark.parametrize(
    ("source", "kind", "arrow_type"),
    [
        (Number("reconsume_times"), Type.INT32, pa.int32()),
        (Code("flag", lambda flag: f"flag {flag}"), Type.TEXT, pa.string()),
    ],
    ids=["number", "code"],
)
def test_a_further_field_is_filled_by_every_maker(
    golden: Unpacked, monkeypatch: pytest.MonkeyPatch, source: Source, kind: Type, arrow_type: pa.DataType
) -> None:
    """The compiled writer, the plain one, Arrow and a decoded record say the same, and none of them null."""
    added(monkeypatch, source, kind)
    store = golden("5.5.0-clean-basic")
    messages = dumped(store, compiled=False)
    plain = list(messages.block().column("further"))
    block = message_block(dumped(store, compiled=True))
    assert block.json_parts is not None
    lines = b"".join(map(bytes, json_parts(block, b"\n", unicode=True))).splitlines()
    assert [json.loads(line)["further"] for line in lines] == plain == list(block.column("further"))
    assert arrow_column(store, arrow_type).to_pylist() == plain
    with open_golden(store, "5.5.0-clean-basic", "5.5.0") as reader:
        records = (read_record(reader.log, place) for place in messages.column("physical_offset"))
        assert [message_value(record, "further") for record in records if record is not None] == plain
    assert None not in plain


@pytest.mark.parametrize("source", [RowFact.STORE, Time("store_timestamp_ms"), BodyContent(), Body("other")])
def test_a_field_that_nobody_fills_is_an_error(
    golden: Unpacked, monkeypatch: pytest.MonkeyPatch, source: Source
) -> None:
    added(monkeypatch, source, Type.TEXT)
    store = golden("5.5.0-clean-basic")
    for compiled in (False, True):
        with pytest.raises((UnfilledFieldError, ValueError)):
            list(dumped(store, compiled=compiled).block().rows())
    block = message_block(dumped(store, compiled=True))
    with pytest.raises(UnfilledFieldError, match="further"):
        b"".join(map(bytes, json_parts(block, b"\n", unicode=True)))
    if source == Body("other"):
        with pytest.raises(UnfilledFieldError, match="further"):
            arrow_column(store, pa.string())


def test_a_source_that_no_maker_knows_is_an_error(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    added(monkeypatch, "a new kind of source", Type.TEXT)  # type: ignore[arg-type]
    store = golden("5.5.0-clean-basic")
    with pytest.raises(AssertionError):
        dumped(store, compiled=False).column("further")
    with pytest.raises(AssertionError):
        json_rows.JsonRows(dumped(store, compiled=True), ["further"], b"\n", unicode=True)._column("further")
    with pytest.raises(AssertionError):
        arrow_column(store, pa.string())


@pytest.mark.parametrize(
    ("table", "row_type"), [(QUEUE_TABLE, "unit"), (QUEUE_TABLE, "bad"), (INDEX_TABLE, "entry"), (INDEX_TABLE, "bad")]
)
def test_a_row_without_one_of_its_columns_is_an_error(table: tuple[UnitField, ...], row_type: str) -> None:
    columns: dict[str, Any] = {}
    for field in table:
        if field.is_in(row_type):
            names = field.source.columns if isinstance(field.source, Computed) else (field.source.column,)
            columns |= {name: "text" if field.type is Type.TEXT else np.array([1, 2]) for name in names}
    del columns["type"]
    batch = batch_of(table, row_type, 2, columns)
    assert [field.name for field in table if batch[field.name].null_count] == [
        field.name for field in table if not field.is_in(row_type)
    ]
    for name in columns:
        with pytest.raises(UnfilledFieldError, match=name):
            batch_of(table, row_type, 2, {other: value for other, value in columns.items() if other != name})


def test_a_further_column_of_units_is_one_line() -> None:
    end = Computed(("physical_offset", "record_size"), operator.add)
    field = UnitField("record_end", Type.INT64, "end of the record", rows=frozenset({"unit"}), source=end)
    columns = {"physical_offset": np.array([0, 90]), "record_size": np.array([90, 80], np.int32)}
    assert batch_of([field], "unit", 2, columns).to_pydict() == {"record_end": [90, 170]}
    assert batch_of([field], "bad", 1, {}).to_pydict() == {"record_end": [None]}


def test_a_field_that_a_decoded_record_has_not_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {field.name: None for field in MESSAGE_ROW} | {"keys": (), "properties": {}}
    values |= {"magic": MAGIC_V1, "sys_flag": 0}
    record: Any = SimpleNamespace(**values)
    assert [*message_row(record, BodyChoice(), physical_offset=0)] == [field.name for field in MESSAGE_ROW]
    added(monkeypatch, Number("further"), Type.INT32)
    with pytest.raises(AttributeError, match="further"):
        message_row(record, BodyChoice(), physical_offset=0)


def test_a_decoded_record_has_all_fields() -> None:
    names = {*dir(Record), *Record.__dataclass_fields__}
    columns = {
        field.source.column if isinstance(field.source, Number | Code) else field.name
        for field in MESSAGE_ROW
        if field.name not in ("type", "finding")
    }
    assert columns <= names
    assert {column.field for column in (*browsed.COLUMNS, *browsed.LOG_COLUMNS)} <= MESSAGE_FIELDS.keys()
    assert {column.field for column in MESSAGE_COLUMNS} - {"store", "file"} <= MESSAGE_FIELDS.keys()


def test_the_schema_file_lists_the_described_fields() -> None:
    text = schema_text("dump")
    assert text is not None
    schema = json.loads(text)["oneOf"][0]
    names = [field.name for field in (*MESSAGE_ROW, *BODY_ROW, *DECODED_ROW, PROPERTY_BLOCK)]
    assert [*schema["properties"]] == [*names, "bytes"]
    assert schema["required"] == [field.name for field in MESSAGE_ROW]
    for field in (*MESSAGE_ROW, *BODY_ROW, PROPERTY_BLOCK):
        values = schema["properties"][field.name]
        if "enum" in values:
            assert (None in values["enum"], field.type) == (field.nullable, Type.TEXT)
        elif field.name != "body":  # which is any JSON
            kinds = values["type"] if isinstance(values["type"], list) else [values["type"]]
            assert kinds == [SCHEMA_TYPES[field.type], *(["null"] if field.nullable else [])]


def test_every_table_describes_each_column_once() -> None:
    for fields in TABLES.values():
        assert len({field.name for field in fields}) == len(fields)
        assert all(field.comment for field in fields)
