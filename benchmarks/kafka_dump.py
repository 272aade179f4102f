"""Kafka's own `DumpLogSegments` over as many messages as a log of ours has, each as a whole process.

Needs Java 17 and Maven, which gets Kafka's artifacts; where something is missing, the reason stands for the figure.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.scan import Ran, run_process, run_program

HERE = Path(__file__).with_name("kafka")
BATCH_BYTES = 16 << 10
"""What a producer sends at once if nothing else is set."""
FIELDS = "queue_offset,born_timestamp_ms,body_length,keys,properties"
FORMS = {
    "JSON lines": (("--format", "jsonl"), ("--deep-iteration",)),
    "JSON lines, `--body text`": (("--format", "jsonl", "--body", "text"), ("--print-data-log",)),
    "JSON lines of five fields": (("--format", "jsonl", "--fields", FIELDS), ("--deep-iteration",)),
}
"""Options of our dump, and those of theirs: without and with bodies, and with no more fields than theirs prints."""


class Beside(NamedTuple):
    """What both took."""

    ours: Ran
    theirs: Ran


def beside(log: Path, count: int, body_length: int, folder: Path) -> dict[str, Beside] | str:
    """Each form of `FORMS` over the log, and over a segment of as many messages; a sentence where that does not run."""
    try:
        classpath = _classpath(folder)
        segment = folder / f"{0:020d}.log"
        program = (HERE / "WriteSegment.java", segment, count, body_length, BATCH_BYTES)
        _run(["java", "-cp", classpath, *map(str, program)])
    except (OSError, subprocess.CalledProcessError) as error:
        reason = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
        return f"did not start: {' '.join(reason.split())[:200]}"
    theirs = ("java", "-cp", classpath, "kafka.tools.DumpLogSegments", "--files", str(segment))
    measured = {
        name: Beside(
            min(run_process("-m", "rmqtool", "dump", str(log), *ours) for _ in range(2)),
            min(run_program(*theirs, *options) for _ in range(2)),
        )
        for name, (ours, options) in FORMS.items()
    }
    segment.unlink()
    return measured


def _classpath(folder: Path) -> str:
    file = folder / "classpath"
    _run(["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:build-classpath", f"-Dmdep.outputFile={file}"])
    return file.read_text("utf-8")


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, capture_output=True, text=True, check=True)
