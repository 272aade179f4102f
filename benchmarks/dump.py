"""How many rows `dump` writes a second, by form and filter, beside the walk, `json.dumps` of its rows, and Kafka.

Run `python -m benchmarks.dump`; `--folder` says where the logs lie for its time, `--megabytes` how large each is.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.kafka_dump import beside
from benchmarks.logs import TEXT, log_files, write_log
from benchmarks.results import machine, table, write_section
from benchmarks.scan import best, walk_all
from rmqtool.commands.app import run
from rmqtool.memory import keep_freed_memory
from rmqtool.report.rows import RowBlock
from rmqtool.report.writers import json_parts

COMMAND = "python -m benchmarks.dump"
BODY_LENGTHS = {"100 B": 100, "1 KiB": 1 << 10}
FIVE_FIELDS = "topic,queue_id,queue_offset,physical_offset,size"
JSON_LINES = ("--format", "jsonl")
FORMS: Mapping[str, Sequence[str]] = {
    "JSON lines": JSON_LINES,
    "JSON lines, `--body text`": (*JSON_LINES, "--body", "text"),
    "JSON lines, `--raw --body base64`": (*JSON_LINES, "--raw", "--body", "base64"),
    "JSON lines, `--reverse`": (*JSON_LINES, "--reverse"),
    "CSV of five fields": ("--format", "csv", "--fields", FIVE_FIELDS),
    "table": (),
}
FILTERS: Mapping[str, Sequence[str]] = {
    "`--tag` that no message has": ("--tag", "Tag9"),
    "`--key` that no message has": ("--key", "order-none"),
    "`--topic` that no message has": ("--topic", "none"),
}
CONTENT = base64.b64encode(TEXT)
"""Text, as most bodies are."""
ROW_COUNT = 10_000


def dump(log: Path, *options: str) -> None:
    with Path(os.devnull).open("w", encoding="utf-8") as sink, redirect_stdout(sink), redirect_stderr(sink):
        assert run(["dump", str(log), *options]) == 0


def first_rows(log: Path) -> list[Any]:
    stream = io.StringIO()
    with redirect_stdout(stream):
        assert run(["dump", str(log), *JSON_LINES, "--limit", str(ROW_COUNT)]) == 0
    return list(map(json.loads, stream.getvalue().splitlines()))


def dumping(folder: Path, log_size: int) -> list[dict[str, str]]:
    """The table: a row for each body length and form or filter, and one for delayed messages."""
    rows = []
    for label, body_length in BODY_LENGTHS.items():
        log = folder / label.replace(" ", "") / "commitlog"
        count = write_log(log, 1, log_size, body_length, content=CONTENT)
        rows += measured(log, count, label, {**FORMS, **FILTERS})
    log = folder / "delayed" / "commitlog"
    count = write_log(log, 1, log_size, 100, content=CONTENT, is_delayed=True)
    return rows + measured(log, count, "100 B, delayed", {"JSON lines": JSON_LINES})


def next_to_kafka(folder: Path, log_size: int) -> str:
    """A table of whole processes, ours and Kafka's; a sentence where that does not run."""
    log = folder / "whole" / "commitlog"
    count = write_log(log, 1, log_size, 1 << 10, content=CONTENT)
    pairs = beside(log, count, 1 << 10, folder)
    if isinstance(pairs, str):
        return f"`DumpLogSegments` {pairs}\n"
    encoding = encoding_alone(log) * count
    return table(
        [
            {
                "what": name,
                "messages": f"{count:,}",
                "`DumpLogSegments` ÷ `dump`, clock": f"{pair.theirs.seconds / pair.ours.seconds:.2f}",
                "processor": f"{pair.theirs.processor_seconds / pair.ours.processor_seconds:.2f}",
                "`dump` s, processor s": f"{pair.ours.seconds:.1f}, {pair.ours.processor_seconds:.1f}",
                "`DumpLogSegments` s, processor s": f"{pair.theirs.seconds:.1f}, {pair.theirs.processor_seconds:.1f}",
                "encoding alone, processor s": f"{encoding:.1f}" if name == "JSON lines" else "",
            }
            for name, pair in pairs.items()
        ]
    )


def encoding_alone(log: Path) -> float:
    """Processor seconds that the text of a row takes whose default fields are there already."""
    rows = first_rows(log)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    block = RowBlock(len(rows), tuple(columns), columns.__getitem__)
    (seconds,) = best(lambda: list(json_parts(block, b"\n", unicode=True)))
    return seconds / len(rows)


def measured(log: Path, count: int, label: str, cases: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """A row for each case; the walk, `json.dumps` and all cases take turns."""
    files, size = list(log_files(log)), sum(path.stat().st_size for path in log.iterdir())
    runs: list[Callable[[], object]] = [partial(dump, log, *options) for options in cases.values()]
    rows = first_rows(log)
    walk, encoding, *seconds = best(partial(walk_all, files, compiled=True), lambda: list(map(json.dumps, rows)), *runs)
    return [
        {
            "body": label,
            "what": name,
            "÷ walk alone": f"{second / walk:.1f}",
            "`json.dumps` of a row ÷ a row": f"{encoding / len(rows) * count / second:.2f}",
            "rows/s": f"{count / second:,.0f}",
            "GB/s": f"{size / second / 1e9:.2f}",
        }
        for name, second in zip(cases, seconds, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=None, help="where the generated logs lie while it runs")
    parser.add_argument("--megabytes", type=int, default=256, help="of each log")
    options = parser.parse_args()
    facts = machine("msgspec", "numba", "numpy")
    keep_freed_memory()  # as the command does
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        text = table(dumping(Path(name), options.megabytes << 20))
        kafka = next_to_kafka(Path(name), options.megabytes << 20)
    print(f"{text}\n{kafka}")
    about = f"""Logs of {options.megabytes} MiB in one file, from the page cache, with keys, tags and two more
properties; bodies are text. Processor time of a process that is warm, the command's start included and the
interpreter's not; what is written is encoded and dropped. `json.dumps` of a row makes the text of default fields out of
a dictionary that is there already.

"""
    peer = """
Whole processes beside Kafka's `DumpLogSegments` 3.7.1, which prints a segment of as many messages of the same body
length, 16 KiB in a batch: `--deep-iteration` prints no bodies, `--print-data-log` prints them as text. Kafka prints
offset, time, sizes, sequence and header keys; a row of ours has 26 fields, or five where it says so. Encoding alone is
what the text of our rows takes whose fields are there already: where that is more than half of what Kafka takes for
all, a dump of these fields cannot be twice as fast.

"""
    write_section("dump", COMMAND, facts, about + text + peer + kafka)


if __name__ == "__main__":
    main()
