"""The screen of `get`: the broker's status, then the messages; one alone is shown with all its fields."""

from __future__ import annotations

import textwrap
from typing import TextIO

from rmqtool.report.bodies import BODY_FIELDS, DECODED_FIELDS
from rmqtool.report.body_lines import decoded_lines, shows_body
from rmqtool.report.columns import cell_text
from rmqtool.report.json_schemas import JsonObject
from rmqtool.report.rows import MESSAGE_FIELDS
from rmqtool.report.tables import TableWriter
from rmqtool.report.text import escaped, field_lines

_BOLD, _RED, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"
_LABELS = {
    "queue_offset": "offset of that time",
    "next_begin_offset": "next offset",
    "min_offset": "minimum",
    "max_offset": "maximum",
}
_LATE = ("properties",)
_MARGIN = "    "
_WIDTH = 80
"""Columns of sentences in a pipe."""


def write_answer(answer: JsonObject, stream: TextIO, width: int | None, *, color: bool = False) -> None:
    """Write an answer as `get --format json` has it, for a person."""
    numbers = [f"{text} {answer[name]}" for name, text in _LABELS.items() if answer.get(name) is not None]
    numbers.append(f"from the {answer['source']}")
    status = f"{_BOLD}{answer['status']}{_PLAIN}" if color else answer["status"]
    stream.write(f"{status}  {', '.join(numbers)}\n")
    if answer["messages"]:
        stream.write("\n")
        if len(answer["messages"]) == 1 and answer["messages"][0]["type"] == "message":
            _write_fields(answer["messages"][0], stream, width, color=color)
        else:
            table = TableWriter(stream, width, color=color)
            for row in answer["messages"]:
                table.write(row)
            table.close()
    for disagreement in answer["disagreements"]:
        stream.write("\n")
        text = disagreement["message"][:1].upper() + disagreement["message"][1:]
        stream.writelines(f"{part}\n" for part in textwrap.wrap(escaped(text), width or _WIDTH, break_on_hyphens=False))
        if disagreement["command"] is not None:
            stream.write(f"Repair: {escaped(disagreement['command'])}\n")


def _write_fields(row: JsonObject, stream: TextIO, width: int | None, *, color: bool) -> None:
    """Fields one below the other, those that may be long at the end."""

    def write(name: str, text: str, *, bad: bool = False) -> None:
        for line in field_lines(name, text, name_width, width):
            label, value = line[:name_width], line[name_width:]
            stream.write(f"{label}{_RED}{value}{_PLAIN}\n" if bad else f"{line}\n")

    beside = {"type", "properties_raw", *BODY_FIELDS, *DECODED_FIELDS, *_LATE}
    shown = [name for name in row if name not in beside]
    name_width = max(map(len, (*shown, *MESSAGE_FIELDS)))
    for name in shown:
        text = cell_text(name, row[name])
        if not text:
            continue
        if name.endswith("_timestamp_ms"):
            text = f"{text} ({row[name]})"
        write(name, text, bad=color and (name == "finding" or (name == "body_crc_ok" and not row[name])))
    for name, value in row["properties"].items():
        write("property", f"{escaped(name)}: {escaped(value)}")
    if "properties_raw" in row:
        write("properties_raw", escaped(row["properties_raw"]))
    if "decoder" in row and (lines := decoded_lines(row)):
        stream.write(f"\n{escaped(lines[0])}\n")
        stream.writelines(f"{_MARGIN}{escaped(line)}\n" for line in lines[1:])
    if "body" not in row or not shows_body(row):
        return
    if row["body_error"] is not None:
        stream.write(f"\n(no body shown: {escaped(row['body_error'])})\n")
        return
    stream.write(f"\nbody ({row['body_encoding']}):\n")
    lines = row["body"].split("\n") if isinstance(row["body"], str) else [cell_text("body", row["body"])]
    stream.writelines(f"{_MARGIN}{escaped(line)}\n" for line in lines)
    if row["body_truncated"]:
        stream.write(f"{_MARGIN}(longer than the limit, cut here)\n")
