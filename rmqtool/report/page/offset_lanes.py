"""The parts of a store as lanes over the physical offsets of its log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rmqtool.report.json_schemas import JsonObject
from rmqtool.report.page.lane import Lane
from rmqtool.report.page.log_picture import LogPicture
from rmqtool.report.page.queue_bars import QueueBar, QueueBars
from rmqtool.report.page.timeline import IndexRange
from rmqtool.report.text import counted


def log_lane(log: LogPicture) -> Lane:
    """All of the log."""
    end = "not checked to its end" if log.end is None else f"records end at {log.end}"
    files = counted(len(log.files), "file")
    return Lane("Commit log", log.bars, f"{log.axis.start} to {log.axis.end}, {files}; {end}")


def start_lanes(log: LogPicture, forecasts: Sequence[JsonObject]) -> Iterator[Lane]:
    """What a start keeps of the log, reads of it, and discards; versions that do the same share a lane."""
    alike: dict[tuple[Any, ...], list[str]] = {}
    for forecast in forecasts:
        key = (forecast["starts"], forecast["scan_start_offset"], forecast["log_end_offset"])
        alike.setdefault(key, []).append(forecast["broker_version"])
    data_end = log.axis.end if log.end is None else log.end
    for (starts, scanned, end), versions in alike.items():
        label = f"Start of {', '.join(versions)}"
        if not starts or end is None:
            yield Lane(label, [], "no broker starts" if not starts else "does not read the log")
            continue
        read_from = min(end, end if scanned is None else scanned)
        ranges = [(log.axis.start, read_from, "kept"), (read_from, end, "read"), (end, data_end, "lost")]
        text = f"reads {read_from} to {end}"
        if end < data_end:
            text += f", discards {end} to {data_end}"
        yield Lane(label, log.axis.bars(ranges), text)


def index_lane(log: LogPicture, index: Sequence[IndexRange], file_count: int) -> Lane | None:
    """The records that the index files span; None without an index."""
    filled = [file for file in index if 0 <= file.begin <= file.end and file.end]
    if not filled:
        return None
    ranges = [(file.begin, file.end + 1, "index") for file in filled]
    text = f"{min(file.begin for file in filled)} to {max(file.end for file in filled)}"
    left_out = f", {len(index)} of {counted(file_count, 'file')} drawn" if len(index) < file_count else ""
    return Lane("Index", log.axis.bars(ranges), f"{text}{left_out}")


def checkpoint_lanes(log: LogPicture, checkpoint: JsonObject | None) -> Iterator[Lane]:
    """The physical offsets of the checkpoint, as far as a broker wrote any."""
    names = {
        "consumequeue_physical_offset": "Checkpoint: queues",
        "confirm_physical_offset": "Checkpoint: confirmed",
        "master_flushed_offset": "Checkpoint: master",
    }
    width = max(1, (log.axis.end - log.axis.start) // 400)
    for name, label in names.items():
        value = (checkpoint or {}).get(name) or 0
        if value > 0:
            is_inside = log.axis.start <= value <= log.axis.end
            bars = log.axis.bars([(value, value + width, "mark")])
            yield Lane(label, bars, str(value) + ("" if is_inside else ", outside the log"))


def queue_lanes(log: LogPicture, queues: QueueBars) -> Iterator[Lane]:
    """Queues, or topics where there are too many."""
    for bar in queues.rows()[0]:
        yield Lane(_label(bar), _bars(log, bar), _text(log, bar))


def _label(bar: QueueBar) -> str:
    return bar.topic if bar.queue_id is None else f"{bar.topic}/{bar.queue_id}"


def _bars(log: LogPicture, bar: QueueBar) -> list[Any]:
    if bar.begin is None or bar.end is None:
        return []
    end = log.axis.end if log.end is None else log.end
    return log.axis.bars([(bar.begin, min(bar.end, end), "queue"), (max(bar.begin, end), bar.end, "lost")])


def _text(log: LogPicture, bar: QueueBar) -> str:
    if bar.unreadable and bar.queues == bar.unreadable:
        return "cannot be read"
    text = counted(bar.messages, "message")
    if bar.queue_id is None:
        text += f" in {counted(bar.queues, 'queue')}"
    if bar.begin is None or bar.end is None:
        return text
    text += f", {bar.begin} to {bar.end}"
    if log.end is not None and bar.end > log.end:
        text += ", past the end of the log"
    return f"{text}, {bar.unreadable} not readable" if bar.unreadable else text
