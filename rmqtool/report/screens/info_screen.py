"""The screen of `info`: the verdict first, the next step, then the content."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator
from operator import itemgetter
from shlex import quote
from typing import Final

from rmqtool.findings.finding import VERDICT_STYLES, StoreVerdict
from rmqtool.report.json_schemas import JsonObject
from rmqtool.report.text import ELLIPSIS, columns_of, counted, cropped, escaped, padded, size_text, styled
from rmqtool.times import time_text

LABEL: Final = 12
WIDTH_MIN: Final = 60
TOPICS_MAX: Final = 10
FILES_MAX: Final = 5
UNLISTED: Final = "cannot be read by this user, see the problems below"
EVIDENCE_WIDTH: Final = 100
"""Columns beyond which a sentence is hard to read."""


def summary_lines(
    store_info: JsonObject, width: int, *, color: bool = False, all_rows: bool = False, crops: bool = True
) -> Iterator[str]:
    """The lines of the screen, of the object of `info --format json`; all topics, files and problems where asked for,
    and names and lists of a table cut to the width (`crops`), but in a pipe.
    """
    screen = _Screen(max(width, WIDTH_MIN), color=color, rows_max=None if all_rows else TOPICS_MAX, crops=crops)
    yield escaped(str(store_info["store"]))
    yield from screen.verdict(store_info)
    yield ""
    yield from screen.next_step(store_info["next_step"])
    yield ""
    yield from screen.broker(store_info)
    yield from screen.log(store_info["commitlog"])
    yield from screen.queues(store_info["consumequeue"])
    yield from screen.index(store_info["index"])
    yield from screen.checkpoint(store_info["checkpoint"])
    yield from screen.files(store_info)
    yield from screen.listed("Problems", store_info["problems"], "problem")


class _Screen:
    """Lines of one width: a label on the left, text on the right that is wrapped and never cut."""

    def __init__(self, width: int, *, color: bool, rows_max: int | None, crops: bool) -> None:
        self._width = width
        self._row_width = width if crops else sys.maxsize
        self._colour = color
        self._rows_max = rows_max

    def verdict(self, store_info: JsonObject) -> Iterator[str]:
        """The verdict and the broker's last stop; where the verdict found nothing, the store's content comes first."""
        verdict = StoreVerdict(store_info["verdict"])
        title, text, stop_style = _verdict(store_info)
        sentences = [
            (verdict.words, store_info["headline"], VERDICT_STYLES.get(verdict, "bad")),
            (title, f"{title}: {text}", stop_style),
        ]
        if verdict in (StoreVerdict.NOT_FULLY_CHECKED, StoreVerdict.OK):
            sentences.reverse()
        for begin, sentence, style in sentences:
            for number, line in enumerate(self._wrapped(sentence, self._width)):
                head = styled(line[: len(begin)], style, color=self._colour)
                yield head + line[len(begin) :] if number == 0 else line

    def next_step(self, step: JsonObject) -> Iterator[str]:
        yield from self._lines("Next step", step["reason"])
        if step["command"] is not None:
            # Never broken by us: it is there to be copied.
            command = escaped(step["command"])
            indent = LABEL if LABEL + columns_of(command) <= self._width else 0
            yield " " * indent + styled(command, "bold", color=self._colour)

    def broker(self, store_info: JsonObject) -> Iterator[str]:
        version = store_info["broker_version"]
        if version["inferred"] is not None:
            text = f"{version['inferred']} (inferred: {'; '.join(version['evidence'])})"
        else:
            text = f"{version['rules']} ({version['chosen']})"
        yield from self._lines("Broker", text)
        holder = f" by process {store_info['lock_owner_pid']}" if store_info["lock_owner_pid"] is not None else ""
        yield from self._lines("Lock", f"{store_info['lock']}{holder}")
        yield from self._lines("Owner", store_info["owner"] or "unknown")
        if store_info["free_bytes"] is not None:
            yield from self._lines("Free space", size_text(store_info["free_bytes"]))
        if (repair := store_info["last_repair"]) is not None:
            began = f", {_time(repair['began_ms'])}" if repair["began_ms"] is not None else ""
            then = f"rmqtool undo {quote(str(store_info['store']))} rolls it back"
            if not repair["can_undo"]:
                then = "it cannot be rolled back, because files have changed since"
            text = f"{repair['number']} ({repair['command'] or 'killed'}{began}): {then}"
            yield from self._lines("Last repair", text)

    def log(self, log: JsonObject) -> Iterator[str]:
        if log["file_count"] is None:
            yield from self._lines("Commitlog", UNLISTED)
            return
        if not log["file_count"]:
            yield from self._lines("Commitlog", "no files")
            return
        yield from self._lines("Commitlog", f"{counted(log['file_count'], 'file')} of {size_text(log['file_size'])}")
        end = f"{log['max_offset']}"
        if log["max_offset_is"] != "exact":
            end = f"at least {end} ({log['max_offset_reason']})"
        yield from self._lines("", f"offsets {log['min_offset']} to {end}")
        for label, name in (("first", "first_store_timestamp_ms"), ("last", "last_store_timestamp_ms")):
            if log[name] is not None:
                yield from self._lines("", f"{label:<5} record stored {_time(log[name])}")

    def queues(self, queues: JsonObject) -> Iterator[str]:
        if queues["queue_count"] is None:
            in_database = queues["kind"] == "rocksdb"
            yield from self._lines("Queues", "in RocksDB, not read" if in_database else UNLISTED)
            return
        elsewhere = {"mixed": ", more in RocksDB, not read", "rocksdb": ", in RocksDB"}.get(queues["kind"], "")
        total = f"{counted(queues['topic_count'], 'topic')}, {counted(queues['queue_count'], 'queue')}{elsewhere}"
        yield from self._lines("Queues", total)
        topics: dict[str, list[tuple[int, str]]] = defaultdict(list)
        counts: Counter[str] = Counter()
        for queue in queues["queues"]:
            low, high = queue["min_queue_offset"], queue["max_queue_offset"]
            is_known = low is not None and high is not None
            topics[queue["topic"]].append((queue["queue_id"], f"{low}-{high}" if is_known else "unreadable"))
            counts[queue["topic"]] += max(0, high - low) if is_known else 0
        ordered = sorted(topics, key=lambda topic: (-counts[topic], topic))
        shown = ordered[: self._rows_max]
        if not shown:
            return
        widest = max(5, *(columns_of(escaped(topic)) for topic in shown))
        room_beside = self._row_width - LABEL - 22
        topic_width = min(widest, max(24, self._row_width // 3), max(8, room_beside - len("12: 0-345…")))
        room = room_beside - topic_width
        offsets = "queue: offsets" if room >= len("queue: offsets") else "offsets"
        titles = f"{'':<{LABEL}}{'topic':<{topic_width}}  {'messages':>10}  {'queues':>6}  {offsets}"
        yield styled(titles, "bold", color=self._colour)
        for topic in shown:
            texts = [f"{queue_id}: {text}" for queue_id, text in sorted(topics[topic], key=itemgetter(0))]
            ranges = [_as_many_as_fit(texts, room)] if self._rows_max is not None else _side_by_side(texts, room)
            name = padded(cropped(escaped(topic), topic_width), topic_width)
            begin = f"{'':<{LABEL}}{name}  {counts[topic]:>10}  {len(texts):>6}  "
            for number, line in enumerate(ranges):
                yield ((begin if number == 0 else " " * columns_of(begin)) + line).rstrip()
        yield from self._rest(len(ordered) - len(shown), "topic")

    def index(self, index: JsonObject) -> Iterator[str]:
        if index["file_count"] is None:
            yield from self._lines("Index", UNLISTED)
            return
        entries = "unknown" if index["entry_count"] is None else str(index["entry_count"])
        text = f"{counted(index['file_count'], 'file')}, entries: {entries}" if index["file_count"] else "no files"
        yield from self._lines("Index", text)

    def checkpoint(self, checkpoint: JsonObject | None) -> Iterator[str]:
        if checkpoint is None:
            yield from self._lines("Checkpoint", "none that can be read")
            return
        label = "Checkpoint"
        for name, value in checkpoint.items():
            if value or name in {"commitlog_timestamp_ms", "consumequeue_timestamp_ms", "index_timestamp_ms"}:
                shown = (_time(value) if value else "0") if name.endswith("_timestamp_ms") else str(value)
                words = name.removesuffix("_timestamp_ms").replace("_", " ")
                yield from self._lines(label, f"{words:<12}  {shown}")
                label = ""

    def files(self, store_info: JsonObject) -> Iterator[str]:
        if store_info["other_files"]:
            kinds = ", ".join(
                f"{row['kind']} ({counted(row['file_count'], 'file')})" for row in store_info["other_files"]
            )
            yield from self._lines("Not read", kinds)
        yield from self.listed("Unknown", store_info["unknown_files"], "file")

    def listed(self, label: str, texts: list[str], noun: str) -> Iterator[str]:
        limit = FILES_MAX if self._rows_max is not None else None
        for text in texts[:limit]:
            yield from self._lines(label, text)
            label = ""
        yield from self._rest(len(texts[limit:]) if limit else 0, noun)

    def _rest(self, count: int, noun: str) -> Iterator[str]:
        if count:
            yield from self._lines("", f"... and {counted(count, f'more {noun}')} (--verbose shows all)")

    def _lines(self, label: str, text: str) -> Iterator[str]:
        width = min(self._width, LABEL + EVIDENCE_WIDTH) - LABEL
        for line in self._wrapped(text, width) or [""]:
            yield f"{label:<{LABEL}}{line}"
            label = ""

    def _wrapped(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(escaped(text), width, break_on_hyphens=False, break_long_words=False)


def _verdict(store_info: JsonObject) -> tuple[str, str, str]:
    """Headline, its meaning, and its style."""
    process = f", process {store_info['abort_process_id']}" if store_info["abort_process_id"] is not None else ""
    if store_info["in_use"]:
        return "IN USE", "a broker is running on this store; these figures are already changing", "open"
    if store_info["unfinished_repair"]:
        return "REPAIR UNFINISHED", "a repair is unfinished; no broker starts", "bad"
    if store_info["shutdown"] == "abnormal":
        return "STOPPED ABNORMALLY", f"the broker crashed or was killed (the file abort is still there{process})", "bad"
    if store_info["shutdown"] == "never-started":
        return "NEVER STARTED", "no broker has written to this store yet", "open"
    if store_info["problems"]:
        return "STOPPED CLEANLY", "but there are problems, see below", "open"
    return "STOPPED CLEANLY", "the last broker shut down cleanly", "good"


def _time(timestamp_ms: int) -> str:
    return f"{time_text(timestamp_ms)} ({timestamp_ms})"


def _as_many_as_fit(texts: list[str], width: int) -> str:
    """Texts side by side, an ellipsis for those without room."""
    shown = ""
    for number, text in enumerate(texts):
        longer = f"{shown}  {text}" if shown else text
        if len(longer) + (0 if number == len(texts) - 1 else 3) > width:
            return f"{shown}  {ELLIPSIS}" if shown else cropped(text, width)
        shown = longer
    return shown


def _side_by_side(texts: list[str], width: int) -> list[str]:
    lines = [""]
    for text in texts:
        longer = f"{lines[-1]}  {text}" if lines[-1] else text
        if len(longer) > width and lines[-1]:
            lines.append(text)
        else:
            lines[-1] = longer
    return lines
