"""How fast messages are put: from JSON lines and from columns, next to the real store's own put rate, in one run.

Run `python -m benchmarks.append`. The real store (5.5.0) needs Java 17 and Maven; each message is put on one thread.
"""

from __future__ import annotations

import argparse
import base64
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.results import machine, table, write_section
from rmqtool.engine.open_writer import new_store
from rmqtool.engine.put_columns import MessageColumns
from rmqtool.engine.versions import rules_for
from rmqtool.engine.writer_config import WriterConfig
from tests.broker.broker import Judge

COMMAND = "python -m benchmarks.append"
VERSION = "5.5.0"
BODY_LENGTH = 1024
AT_ONCE = 4096
TOPICS, QUEUES, TAGS = 4, 4, 16


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


def from_columns(folder: Path, count: int) -> tuple[float, float]:
    """Seconds by the clock and of the processor; the messages are made beforehand."""
    made = list(columns(count))
    started, worked = time.perf_counter(), time.process_time()
    with new_store(folder, rules_for(VERSION), WriterConfig()) as writer:
        for part in made:
            assert writer.put_columns(part) is not None
    return time.perf_counter() - started, time.process_time() - worked


def from_lines(folder: Path, count: int) -> tuple[float, float]:
    """Seconds by the clock and of the processor of `rmqtool append --from`, its start included."""
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
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, check=True
    )
    clock, processor = map(float, done.stderr.split()[-2:])
    return clock, processor


def real_rate(folder: Path, count: int) -> float:
    """Messages per second that the real store takes, the same message again and again."""
    judge = Judge(VERSION)
    try:
        message = {"topic": "Topic0", "queueId": 0, "body": body(1), "propertiesText": text(1).decode("ascii")}
        with judge.open(folder) as store:
            return store.put_rate(message, count)
    finally:
        judge.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=600_000)
    parser.add_argument("--folder", type=Path, default=None, help="where the stores lie while it runs")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        folder = Path(name)
        real = real_rate(folder / "real", asked.count)
        rows = []
        for label, (clock, processor) in {
            "from columns": from_columns(folder / "columns", asked.count),
            "`append --from` JSON lines": from_lines(folder, asked.count // 2),
        }.items():
            count = asked.count if "columns" in label else asked.count // 2
            rows.append(
                {
                    "what": label,
                    "÷ real store": f"{count / clock / real:.2f}",
                    "messages/s": f"{count / clock:,.0f}",
                    "messages per core second": f"{count / processor:,.0f}",
                }
            )
        rows.append(
            {
                "what": f"real store {VERSION}, one thread",
                "÷ real store": "1.00",
                "messages/s": f"{real:,.0f}",
                "messages per core second": "",
            }
        )
    printed = table(rows)
    print(printed)
    about = f"""{asked.count} messages of {BODY_LENGTH} bytes with distinct bodies, keys and unique keys; log, queues
and index are written. Half as many from JSON lines. The real store's dispatcher works on another thread meanwhile.

"""
    write_section("append", COMMAND, machine("numpy", "numba", "isal"), about + printed)


if __name__ == "__main__":
    main()
