"""Writers and tables: every form says the same, tables fit 80 and 200 columns, and a million rows are never held."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rmqtool.commands.reading.verify_fleet import FIELDS as STORE_FIELDS
from rmqtool.commands.writing.append import FIELDS as PUT
from rmqtool.pipeline.jobs.stats import FIGURES as COUNTED
from rmqtool.pipeline.jobs.stats import KEYS, QUEUE_FIGURES
from rmqtool.pipeline.tables.search import SHOWN
from rmqtool.report.columns import TABLES, fitted
from rmqtool.report.file_rows import FIELDS
from rmqtool.report.hexview import HexField, hex_lines
from rmqtool.report.rows import MESSAGE_FIELDS, RowBlock, bad_row, blank_row
from rmqtool.report.tables import ENTRY_FIELDS, TableWriter
from rmqtool.report.text import columns_of, escaped
from rmqtool.report.writers import OutputFormat, row_writer

FIGURES = (*COUNTED, *QUEUE_FIGURES, *(name for names in KEYS.values() for name in names))
_OTHER_GROUPS = {"tags", "hour_timestamp_ms", "producer", "size_least"}
"""Columns of figures that never stand beside topic and queue."""


def message(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(MESSAGE_FIELDS, 0)
    row |= {"type": "message", "topic": "orders-of-the-eastern-region", "keys": ["a", "b"], "properties": {"TAGS": "t"}}
    row |= {"tags": "t", "transaction": "none", "compression": None, "store_timestamp_ms": 1_700_000_000_000}
    row |= {"unique_key": "7F00000100002A9F0000006800000107", "message_id": "0A" * 16, "born_host": "10.0.0.1:50000"}
    return row | changes


def written(rows: list[dict[str, Any]], **options: Any) -> str:
    stream = io.StringIO()
    writer = row_writer(options.pop("form", "table"), stream, MESSAGE_FIELDS, **options)
    for row in rows:
        writer.write(row)
    writer.close()
    return stream.getvalue()


@pytest.mark.parametrize("zone", ["UTC", "+08:00"])
@pytest.mark.parametrize("width", [60, 80, 81, 100, 119, 120, 200, 300])
def test_a_table_fits_its_terminal(width: int, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtool.report.columns.time_width", lambda: 24 if zone == "UTC" else 29)
    rows = [message(), message(topic="世界" * 20), bad_row(5, 60, "commitlog.bad-size"), blank_row(65, 8)]
    lines = written(rows, width=width).splitlines()
    assert len(lines) == 5
    assert all(columns_of(line) <= width for line in lines)
    assert ("message_id" in lines[0]) == (width == 300)
    assert ("store_timestamp_ms" in lines[0]) == (width >= 80)
    assert "tags" in lines[0] or width < 100


def test_a_pipe_gets_all_columns_and_no_text_is_cropped() -> None:
    rows = [message(topic="t" * 99, tags="g" * 50), message(keys=["k" * 300])]
    text = written(rows)
    for shown in (
        "t" * 99,
        "g" * 50,
        "k" * 300,
        "store_timestamp_ms",
        "7F00000100002A9F0000006800000107",
        "message_id",
    ):
        assert shown in text
    assert "…" not in text


BESIDE_FILES = (FIGURES, PUT, SHOWN, ENTRY_FIELDS, STORE_FIELDS)


def test_headings_are_the_names_of_fields() -> None:
    for columns in TABLES.values():
        known = {name for fields in (*FIELDS.values(), MESSAGE_FIELDS, *BESIDE_FILES) for name in fields}
        assert {column.field for column in columns} <= known
    heading = written([message()]).splitlines()[0].split()
    assert heading == [name for name in heading if name in MESSAGE_FIELDS]
    chosen = written([message()], fields=heading[3:6]).splitlines()[0].split()
    assert chosen == heading[3:6]


@pytest.mark.parametrize("kind", TABLES)
def test_every_kind_fits_60_and_80_columns(kind: str) -> None:
    for width in (60, 80):
        columns = fitted([column for column in TABLES[kind] if column.field not in _OTHER_GROUPS], width, 1)
        assert sum(column.width for column in columns) + len(columns) - 1 <= width
        assert all(column.width >= len(column.field) for column in columns)


def test_numbers_are_never_cropped() -> None:
    assert str((1 << 63) - 1) in written([message(physical_offset=(1 << 63) - 1)], width=80)


def test_color_is_only_there_when_asked_for() -> None:
    rows = [message(), bad_row(0, 1, "commitlog.hole")]
    assert "\x1b" not in written(rows, width=80)
    assert written(rows, width=80, color=True).count("\x1b[0m") == 2


FORMULAS = ("=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "＝1+1", "＋1", "－1", "＠A1", "'=1", "'")
PLAIN = ("", "a=1", " =1", "-1", "+5.25", "[1]", "订单", '"=1"')


@pytest.mark.parametrize("at_once", [False, True])
def test_no_cell_of_csv_is_a_formula(at_once: bool) -> None:
    texts = (*FORMULAS, *PLAIN)
    rows = [message(topic=text, flag=-1) for text in texts]
    cells: dict[str, list[str]] = {}
    for form in ("csv", "csv-raw"):
        stream = io.StringIO()
        writer = row_writer(form, stream, MESSAGE_FIELDS, ["topic", "flag"])
        if at_once:
            writer.write_block(RowBlock(len(rows), MESSAGE_FIELDS, lambda name: [row[name] for row in rows]))
        else:
            for row in rows:
                writer.write(row)
        table = list(csv.reader(io.StringIO(stream.getvalue())))[1:]
        assert {cell for _, cell in table} == {"-1"}
        cells[form] = [cell for cell, _ in table]
    assert cells["csv-raw"] == list(map(escaped, texts))
    assert cells["csv"] == [f"'{escaped(text)}" if text in FORMULAS else text for text in texts]
    assert [cell.removeprefix("'") for cell in cells["csv"]] == cells["csv-raw"]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), TEXTS, st.lists(TEXTS, max_size=2)
) | st.dictionaries(TEXTS, TEXTS, max_size=2)


@settings(suppress_health_check=[HealthCheck.too_slow])  # which is about the machine, not about the values
@given(
    values=st.lists(st.tuples(VALUES, VALUES, TEXTS), min_size=1, max_size=4),
    form=st.sampled_from([*OutputFormat]),
    fields=st.sampled_from([None, ["tags"], ["topic", "keys", "finding", "properties"], ["finding"]]),
    encoding=st.sampled_from(["utf-8", "latin-1"]),
)
@example(values=[(1, 2, "}, {"), (3, 4, '}, {"type": ')], form="jsonl", fields=None, encoding="utf-8")
def test_many_rows_at_once_are_written_like_rows_one_by_one(
    values: list[tuple[Any, Any, str]], form: str, fields: list[str] | None, encoding: str
) -> None:
    """Whatever texts a store holds: the rows are encoded by a library, and what it leaves as it is must be escaped."""
    rows = [
        message(properties={tags: tags}, tags=tags, keys=[tags], topic=tags, flag=flag, magic=magic)
        for flag, magic, tags in values
    ]
    block = RowBlock(len(rows), MESSAGE_FIELDS, lambda name: [row[name] for row in rows])
    outputs = []
    for at_once in (False, True):
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace", newline="")
        writer = row_writer(form, stream, MESSAGE_FIELDS, fields)
        if at_once:
            writer.write_block(block)
        for row in rows:
            writer.write(row)
        if not at_once:
            for row in rows:
                writer.write(row)
        writer.close()
        stream.flush()
        outputs.append(raw.getvalue())
    assert outputs[0] == outputs[1]


def test_the_head_of_a_block_is_its_first_rows() -> None:
    block = RowBlock(3, ("a", "b"), lambda name: [name + str(number) for number in range(3)])
    assert list(block.head(2).rows()) == [{"a": "a0", "b": "b0"}, {"a": "a1", "b": "b1"}]
    assert list(block.head(4).with_fields(["b", "c"]).rows())[2] == {"b": "b2", "c": None}


def test_a_row_without_any_chosen_field_is_left_out_of_json() -> None:
    rows = [message(), blank_row(65, 8)]
    assert [json.loads(line) for line in written(rows, form="jsonl", fields=["topic"]).splitlines()] == [
        {"topic": "orders-of-the-eastern-region"}
    ]


def test_json_is_ascii_where_the_stream_can_carry_no_more() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="latin-1")
    writer = row_writer("jsonl", stream, MESSAGE_FIELDS)
    writer.write(message(topic="世\x1b"))
    stream.flush()
    assert raw.getvalue().isascii()
    assert json.loads(raw.getvalue())["topic"] == "世\x1b"


def test_a_table_holds_no_rows() -> None:
    class Sink(io.TextIOBase):
        def write(self, text: str) -> int:
            return len(text)

    def rows() -> Iterator[dict[str, Any]]:
        for number in range(3000):
            yield message(physical_offset=number)

    writer = TableWriter(Sink(), 80)  # type: ignore[arg-type]
    writer.write(message())
    tracemalloc.start()
    for row in rows():
        writer.write(row)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize(("width", "step"), [(80, 8), (120, 16)])
def test_hex_lines_name_each_field_once_and_fit(width: int, step: int) -> None:
    parts = [
        HexField("born_timestamp_ms", 0, bytes(8), 8, "1700000000000 2023-11-14T22:13:20.000Z"),
        HexField("body", 8, bytes(range(40)), 100, ""),
        HexField("x" * 100, 48, b"a", 1, "y" * 300),
    ]
    lines = list(hex_lines(parts, width, start=0x1000))
    assert all(columns_of(line) <= width for line in lines)
    assert sum("body" in line and "left out" not in line for line in lines) == 1
    assert any("60 bytes of body left out" in line for line in lines)
    shown = "".join(line[12 : 12 + 3 * step - 1] for line in lines if "left out" not in line)
    assert bytes.fromhex(shown) == bytes(8) + bytes(range(40)) + b"a"
    assert any(line.split()[0] == "1008" for line in lines)
