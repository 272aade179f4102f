"""Keeps benchmarks/RESULTS.md: a section for each benchmark, with the command and the machine it was made on."""

from __future__ import annotations

import os
import platform
import re
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")
TITLE = """# Benchmark results

Ratios come first: they say more about the code than about the machine. Best of several runs each.
"""


def machine(*packages: str) -> str:
    """Cores, processor, cache, other work and versions, in one line."""
    cpu = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text("utf-8"))
    cache = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    facts = [
        f"{os.cpu_count()} cores of {cpu[1] if cpu else platform.machine()}",
        f"last-level cache {cache.read_text('ascii').strip()}" if cache.exists() else "",
        f"load average {os.getloadavg()[0]:.1f}",
        f"Python {platform.python_version()}",
        *(f"{name} {version(name)}" for name in packages),
    ]
    return ", ".join(fact for fact in facts if fact)


def write_section(name: str, command: str, facts: str, text: str) -> None:
    """Replace a benchmark's section, or add it; `facts` are those of `machine` before it began."""
    stamp = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    section = f"## {name}\n\n`{command}`, {stamp}; {facts}.\n\n{text.strip()}\n"
    before = RESULTS.read_text("utf-8") if RESULTS.exists() else TITLE
    heading, *sections = re.split(r"(?m)^(?=## )", before)
    kept = [each for each in sections if not each.startswith(f"## {name}\n")]
    parts = [heading, *sorted([*kept, section])]
    RESULTS.write_text("\n".join(part.strip() + "\n" for part in parts), "utf-8")


def table(rows: list[dict[str, str]]) -> str:
    """Rows as a Markdown table; the first row's names are the heading."""
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([row[name] for name in names] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
