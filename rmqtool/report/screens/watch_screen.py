"""Presentation of a watch: a line for each finding, alert and event, a summary, and metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rmqtool.report.json_schemas import JsonObject
from rmqtool.report.metrics import Metric
from rmqtool.report.text import counted, escaped, labelled, size_text
from rmqtool.times import time_text

_LAGS: Final = (
    ("log_end_bytes", "log_end_offset", "Physical offset after the last record of the log."),
    ("verified_offset_bytes", "verified_to", "Physical offset up to which the log is checked."),
    ("verify_lag_bytes", "verify_lag_bytes", "Bytes from there to the end of the log."),
    ("dispatch_lag_bytes", "dispatch_lag_bytes", "Bytes of the log whose records are in no queue yet."),
    ("index_lag_bytes", "index_lag_bytes", "Bytes of the log from the last index entry to the last queue unit."),
    ("flush_lag_seconds", "flush_lag_ms", "Store time of the last record less that of the last flushed one."),
    ("broker_running", "broker_runs", "Whether a broker holds the lock of the store."),
    ("readable", "is_readable", "Whether the last look could read what it wanted."),
    ("last_look_timestamp_seconds", "timestamp_ms", "When the store was last checked."),
)
_COUNTS: Final = (
    ("records_total", "records", "Records that were checked."),
    ("units_total", "units", "Queue units that were checked."),
    ("index_entries_total", "entries", "Index entries that were checked."),
    ("verified_bytes_total", "verified_bytes", "Bytes of the log that were checked."),
    ("skipped_bytes_total", "skipped_bytes", "Bytes of the log that were deleted before they were checked."),
    ("read_bytes_total", "read_bytes", "Bytes that this run has read."),
    ("alerts_total", "alerts", "Limits that were passed."),
    ("broker_starts_total", "restarts", "Starts of a broker that were seen."),
    ("webhook_dropped_total", "webhook_dropped", "Messages to the webhook that were given up."),
)


def row_text(row: JsonObject) -> str:
    """A finding, an alert or an event as one line."""
    when = time_text(row["timestamp_ms"])
    if row["type"] == "finding":
        at = "" if row["physical_offset"] is None else f" at physical offset {row['physical_offset']}"
        return escaped(f"{when} {row['severity'].upper()} {row['id']} {row['file']}{at}: {row['message']}")
    name = row["event"] if row["type"] == "event" else f"ALERT {row['alert']} {row['state']}"
    return escaped(f"{when} {name}: {row['message']}")


def summary_lines(summary: JsonObject, width: int) -> Iterator[str]:
    """Result of a run, for a person."""
    findings = summary["findings"]
    count = sum(findings.values())
    yield f"{counted(count, 'finding')}." if count else "No problems found in what was checked."
    yield ""
    yield from labelled("Store", escaped(summary["store"]), width)
    if summary["verified_from"] is None:
        yield from labelled("Checked", "nothing: the store has no commit log yet", width)
    else:
        checked, begin, end = summary["checked"], summary["verified_from"], summary["verified_to"]
        text = (
            f"{begin} to {end} of the log: {counted(checked['records'], 'record')}, "
            f"{counted(checked['units'], 'queue unit')}, "
            f"{checked['entries']} index {'entry' if checked['entries'] == 1 else 'entries'}"
        )
        yield from labelled("Checked", text, width)
    if summary["skipped_bytes"]:
        yield from labelled("Not checked", f"{size_text(summary['skipped_bytes'])} that were deleted before", width)
    for left_out in summary["not_looked_at"]:
        yield from labelled("Not looked at", f"{left_out['path']}: {left_out['reason']}", width)
    for label, name in (("Dispatch lag", "dispatch_lag_bytes"), ("Index lag", "index_lag_bytes")):
        if summary[name] is not None:
            yield from labelled(label, f"{summary[name]} bytes", width)
    if summary["flush_lag_ms"] is not None:
        yield from labelled("Flush lag", f"{summary['flush_lag_ms']} ms", width)
    yield from labelled("Findings", ", ".join(f"{name}: {number}" for name, number in findings.items()), width)
    yield from labelled("Alerts", ", ".join(summary["alerts_raised"]), width)
    if summary["next_step"]["command"] is not None:
        yield ""
        yield f"Next: {escaped(summary['next_step']['command'])}"


def watch_metrics(values: JsonObject) -> Iterator[Metric]:
    """The state as metrics for Prometheus."""
    labels = {"store": str(values["store"])}
    for name, key, text in _LAGS:
        value = values[key]
        if value is not None:
            divisor = 1000 if name.endswith("_seconds") else 1
            yield Metric(f"rmqtool_watch_{name}", "gauge", text, float(value) / divisor, labels)
    for name, key, text in _COUNTS:
        yield Metric(f"rmqtool_watch_{name}", "counter", text, float(values["counts"][key]), labels)
    text = "Findings that were reported, by id."
    for kind, count in values["findings"].items():
        yield Metric("rmqtool_watch_findings_total", "counter", text, float(count), {**labels, "id": kind})
    raised = "Whether a limit is passed, by alert."
    for name in ("dispatch-lag", "flush-lag", "index-lag"):
        is_raised = float(name in values["alerts_raised"])
        yield Metric("rmqtool_watch_alert", "gauge", raised, is_raised, {**labels, "alert": name})
