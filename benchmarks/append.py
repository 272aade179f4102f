"""How fast messages are put: from JSON lines and from columns, next to the real store's own put rate, in one run.

Run `python -m benchmarks.append`. The real store (5.5.0) needs Java 17 and Maven; each message is put on one thread.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

from benchmarks.results import machine, table, write_section
from benchmarks.scan import AS_INSTALLED
from benchmarks.stores import BOTH_COMPILERS
from rmqtool.engine.append.batch_append import MessageColumns
from rmqtool.engine.append.open_writer import new_store
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.rules.versions import rules_for
from tests.broker.broker import Judge

COMMAND = "python -m benchmarks.append"
VERSION = "5.5.0"
BODY_LENGTH = 1024
AT_ONCE = 4096
TOPICS, QUEUES, TAGS = 4, 4, 16
Spent = tuple[float, float]
"""Seconds by the clock, and of the processor."""


def body(number: int) -> bytes:
    """A body that is like no other one."""
    return number.to_bytes(8, "big") * (BODY_LENGTH // 8)


def text(number: int) -> bytes:
    """Encoded properties: a key, a unique key and a tag."""
    return b"KEYS\x01order-%09d\x02UNIQ_KEY\x017F000001%024d\x02TAGS\x01Tag%d\x02" % (number, number, number % TAGS)


def columns(count: int) -> Iterator[MessageColumns]:
    """All messages, some thousands at a time."""
    for first in range(0, count, AT_ONCE):
        numbers = range(first, min(count, first + AT_ONCE))
        yield MessageColumns(
            [f"Topic{number % TOPICS}" for number in numbers],
            [number // TOPICS % QUEUES for number in numbers],
            [body(number) for number in numbers],
            [text(number) for number in numbers],
        )


def write_lines(path: Path, count: int) -> None:
    """The same messages as rows of a dump."""
    with path.open("w", encoding="ascii") as file:
        for number in range(count):
            row = {
                "topic": f"Topic{number % TOPICS}",
                "queue_id": number // TOPICS % QUEUES,
                "flag": 0,
                "born_timestamp_ms": 1_700_000_000_000 + number,
                "properties_raw": text(number).decode("ascii"),
                "body": base64.b64encode(body(number)).decode("ascii"),
                "body_encoding": "base64",
            }
            file.write(json.dumps(row) + "\n")


def from_columns(folder: Path, count: int) -> Spent:
    """Many at a time; the time in which the messages are made does not count."""
    parts = columns(count)
    clock = processor = 0.0
    with ExitStack() as stack:
        part = next(parts, None)
        started, worked = time.perf_counter(), time.process_time()
        writer = stack.enter_context(new_store(folder, rules_for(VERSION), WriterConfig()))
        while part is not None:
            assert writer.put_columns(part) is not None
            clock, processor = clock + time.perf_counter() - started, processor + time.process_time() - worked
            part = next(parts, None)
            started, worked = time.perf_counter(), time.process_time()
    return clock + time.perf_counter() - started, processor + time.process_time() - worked


def from_lines(folder: Path, count: int) -> Spent:
    """`rmqtool append --from`, its start included."""
    lines = folder / "messages.jsonl"
    write_lines(lines, count)
    program = (
        "import sys, time; started = time.perf_counter()\n"
        "from rmqtool.commands.app import run\n"
        "code = run(sys.argv[1:]); assert code == 0, code\n"
        "print(time.perf_counter() - started, time.process_time(), file=sys.stderr)"
    )
    arguments = (
        "append",
        folder / "store",
        "--create",
        "--from",
        lines,
        "--broker-version",
        VERSION,
        "--format",
        "csv",
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        env=AS_INSTALLED,
    )
    clock, processor = map(float, done.stderr.split()[-2:])
    return clock, processor


def real_store(folder: Path, count: int) -> Spent:
    """The real store, which takes the same message again and again; nobody measures its processor time."""
    judge = Judge(VERSION, BOTH_COMPILERS)
    try:
        message = {"topic": "Topic0", "queueId": 0, "body": body(1), "propertiesText": text(1).decode("ascii")}
        with judge.open(folder) as store:
            return count / store.put_rate(message, count), math.inf
    finally:
        judge.close()


def best(measure: Callable[[Path, int], Spent], count: int, runs: int, folder: Path | None) -> tuple[float, float]:
    """Messages per second by the clock and of the processor, the best of several runs; each is a process of its own."""
    found = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory(dir=folder) as name, get_context("spawn").Pool(1) as process:
            found.append(process.apply(measure, (Path(name), count)))
    return count / min(clock for clock, _ in found), count / min(processor for _, processor in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=600_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None, help="where the stores lie while it runs")
    asked = parser.parse_args()
    facts = machine("numpy", "numba", "isal", "msgspec")
    measured = {
        "from columns": best(from_columns, asked.count, asked.runs, asked.folder),
        "`append --from` JSON lines": best(from_lines, asked.count // 2, asked.runs, asked.folder),
        f"real store {VERSION}, one thread": best(real_store, asked.count, asked.runs, asked.folder),
    }
    *_, (real, _) = measured.values()
    printed = table(
        [
            {
                "what": label,
                "÷ real store": f"{rate / real:.2f}",
                "messages/s": f"{rate:,.0f}",
                "messages per core second": f"{core_rate:,.0f}" if core_rate else "",
            }
            for label, (rate, core_rate) in measured.items()
        ]
    )
    print(printed)
    about = f"""{asked.count} messages of {BODY_LENGTH} bytes with distinct bodies, keys and unique keys; log, queues
and index are written, loading the compiled reader included. Half as many from JSON lines, with the program's start.
The real store's dispatcher works on another thread meanwhile.

"""
    write_section("append", COMMAND, facts, about + printed)


if __name__ == "__main__":
    main()
