"""Presentation of a mirror's state and result: lines for a person, an object for a program, a file for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rmqtool.report.json_schemas import JsonObject
from rmqtool.report.metrics import Metric
from rmqtool.report.text import counted, escaped, labelled, size_text
from rmqtool.times import time_text

_METRICS: Final = (
    ("connected", "gauge", "connected", "Whether the master sends its log."),
    ("caught_up", "gauge", "caught_up", "Whether everything that the master has is copied."),
    ("lag_seconds", "gauge", "lag_seconds", "Age of the last record that was copied; 0 when caught up."),
    ("end_offset_bytes", "gauge", "end_offset", "Physical offset after the last record of the copy."),
    ("synced_offset_bytes", "gauge", "synced_offset", "Physical offset up to which the copy is on the disk."),
    ("received_bytes_total", "counter", "received_bytes", "Bytes received from the master."),
    ("copied_bytes_total", "counter", "copied_bytes", "Bytes appended to the copy."),
    ("copied_records_total", "counter", "copied_records", "Records appended to the copy."),
    ("connects_total", "counter", "connects", "Connections that were made."),
)


def mirror_lines(result: JsonObject, width: int) -> Iterator[str]:
    """The result for a person."""
    records, copied = counted(result["copied_records"], "record"), size_text(result["copied_bytes"])
    yield f"Copied {records} ({copied}) from {escaped(result['master'])}."
    yield ""
    yield from labelled("Store", escaped(result["store"]), width)
    yield from labelled("Commit log", f"{result['start_offset']} to {result['end_offset']}", width)
    if (last := result["last_store_timestamp_ms"]) is not None:
        yield from labelled("Last message", time_text(last), width)
    if (skipped := result["skipped_records"]) is not None:
        records = counted(skipped["records"], "record")
        text = f"{records} from {skipped['physical_offset']} on, stored at the end time or later"
        yield from labelled("Not copied", text, width)
    yield from labelled("Connections", str(result["connects"]), width)
    copied_files = ", ".join(map(escaped, result["config_files"]))
    yield from labelled("Configuration", copied_files or "not copied: pass --config-from DIR", width)
    if (problem := result["problem"]) is not None:
        yield from labelled("Stopped by", f"{problem['id']}: {escaped(problem['message'])}", width)
    if (command := result["next_step"]["command"]) is not None:
        yield ""
        yield f"Next: {escaped(command)}"


def mirror_metrics(values: JsonObject) -> Iterator[Metric]:
    """The state as metrics for Prometheus."""
    for name, kind, key, text in _METRICS:
        value = values[key]
        if value is not None:
            yield Metric(f"rmqtool_mirror_{name}", kind, text, float(value), {"master": str(values["master"])})
