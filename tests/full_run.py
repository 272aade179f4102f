"""Runs the whole suite, slow tests too, and writes docs/test-full.md; called by `make test-full`."""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "test-full.md"


def commit() -> str:
    """The commit that was tested, marked if files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    changed = [line for line in git("status", "--porcelain").splitlines() if not line.endswith(PAGE.name)]
    return git("rev-parse", "HEAD") + (" with uncommitted changes" if changed else "")


def counts(junit: Path) -> dict[str, int]:
    """Tests by outcome, out of pytest's report."""
    suites = ET.parse(junit).getroot().findall("testsuite")
    total = {
        name: sum(int(suite.get(name, 0)) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    }
    return {"passed": total["tests"] - total["failures"] - total["errors"] - total["skipped"], **total}


def slowest(junit: Path, number: int) -> list[tuple[float, str]]:
    """The tests that took longest, with their seconds."""
    cases = ET.parse(junit).getroot().iter("testcase")
    timed = [(float(case.get("time", 0)), f"{case.get('classname')}.{case.get('name')}") for case in cases]
    return sorted(timed, reverse=True)[:number]


def page(junit: Path, seconds: float, tested: str) -> str:
    """The text of docs/test-full.md."""
    found = counts(junit)
    rows = [
        ("date", dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC")),
        ("commit", tested),
        ("machine", f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors"),
        ("Python", platform.python_version()),
        ("selection", f"`pytest {' '.join(sys.argv[1:])}`" if sys.argv[1:] else "everything"),
        ("duration", f"{seconds / 60:.1f} minutes"),
        *((name, str(found[name])) for name in ("passed", "failures", "errors", "skipped")),
    ]
    lines = ["# The last run of the whole suite", "", "Written by `make test-full`.", "", "| | |", "| --- | --- |"]
    lines += [f"| {name} | {value} |" for name, value in rows]
    lines += ["", "| Seconds | Slowest tests |", "| ---: | --- |"]
    lines += [f"| {took:.1f} | `{name.replace('|', '/')}` |" for took, name in slowest(junit, 10)]
    return "\n".join(lines) + "\n"


def main() -> int:
    tested = commit()
    with TemporaryDirectory() as folder:
        junit = Path(folder) / "junit.xml"
        began = time.monotonic()
        code = subprocess.run(
            [sys.executable, "-m", "pytest", f"--junit-xml={junit}", *sys.argv[1:]], cwd=ROOT, check=False
        ).returncode
        if not junit.exists():
            return code or 1
        PAGE.write_text(page(junit, time.monotonic() - began, tested), "utf-8")
    sys.stdout.write(f"wrote {PAGE.relative_to(ROOT)}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
