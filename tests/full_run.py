"""Runs the whole suite, slow tests too, part by part, and writes what came of each into docs/test-full.md.

Called by `make test-full`; `make test-full PARTS="tests/verify tests/broker/test_golden.py"` runs some parts only and
leaves what the page says of the others, each with the commit that it was run on. Several may run side by side.
"""

from __future__ import annotations

import datetime as dt
import fcntl
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
IN_FILES = ("tests/broker", "tests/pipeline", "tests/repair")
"""Folders whose files are parts of their own, for each takes long."""
OUTCOMES = ("passed", "failures", "errors", "skipped")
HEAD = """# Slow tests: what was run, and on which commit

`make test-full` runs every test, the slow ones too, part by part, and writes this page. Each row says which commit its
part was run on. A part that has no row, or a row of an old commit, has not been run since.

"""
COLUMNS = ("Part", "Commit", "Date", "Minutes", *(name.capitalize() for name in OUTCOMES), "Where")


def parts() -> list[str]:
    """All parts: folders and files, relative to the project."""
    tests = ROOT / "tests"
    folders = sorted({path.parent for path in tests.rglob("test_*.py")})
    found = []
    for folder in folders:
        name = str(folder.relative_to(ROOT))
        split = folder == tests or name.startswith(IN_FILES)
        if split:
            found += [str(path.relative_to(ROOT)) for path in sorted(folder.glob("test_*.py"))]
        elif not any(folder.is_relative_to(ROOT / other) for other in found):
            found.append(name)
    return found


def commit() -> str:
    """The commit that is tested, marked if files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    changed = [line for line in git("status", "--porcelain").splitlines() if not line.endswith(PAGE.name)]
    return git("rev-parse", "--short", "HEAD") + (" and changes" if changed else "")


def counts(junit: Path) -> dict[str, int]:
    """Tests by outcome, out of pytest's report."""
    suites = ET.parse(junit).getroot().findall("testsuite")
    total = {
        name: sum(int(suite.get(name, 0)) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    }
    return {"passed": total["tests"] - total["failures"] - total["errors"] - total["skipped"], **total}


def run(part: str) -> int:
    """Run a part and write its row; pytest's exit code."""
    tested = commit()
    with TemporaryDirectory() as folder:
        junit = Path(folder) / "junit.xml"
        began = time.monotonic()
        code = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", f"--junit-xml={junit}", part], cwd=ROOT, check=False
        ).returncode
        if not junit.exists():
            return code or 1
        found = counts(junit)
    minutes = (time.monotonic() - began) / 60
    where = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    date = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d")
    write_row([f"`{part}`", tested, date, f"{minutes:.1f}", *(str(found[name]) for name in OUTCOMES), where])
    return code


def write_row(row: list[str]) -> None:
    """Put a part's row in the place of its last one; rows of parts that are no more go."""
    with PAGE.open("a+", encoding="utf-8") as page:
        fcntl.flock(page, fcntl.LOCK_EX)
        page.seek(0)
        rows = {
            fields[0]: fields
            for line in page.read().splitlines()
            if len(fields := [field.strip() for field in line.strip("|").split("|")]) == len(COLUMNS)
        }
        rows[row[0]] = row
        known = [rows[name] for name in (f"`{part}`" for part in parts()) if name in rows]
        page.truncate(0)
        page.write(text_of(known))


def text_of(rows: list[list[str]]) -> str:
    """The page."""
    totals = [sum(int(row[4 + at]) for row in rows) for at in range(len(OUTCOMES))]
    minutes = sum(float(row[3]) for row in rows)
    said = ", ".join(f"{count:,} {name}" for count, name in zip(totals, OUTCOMES, strict=True))
    lacking = [part for part in parts() if f"`{part}`" not in {row[0] for row in rows}]
    lines = ["| " + " | ".join(row) + " |" for row in (list(COLUMNS), ["---"] * len(COLUMNS), *rows)]
    text = HEAD + f"In all {said}; {minutes:.0f} minutes.\n\n" + "\n".join(lines) + "\n"
    if lacking:
        text += f"\nNot run yet: {', '.join(f'`{part}`' for part in lacking)}.\n"
    return text


def main() -> int:
    chosen = sys.argv[1:] or parts()
    unknown = [part for part in chosen if part not in parts()]
    if unknown:
        sys.stderr.write(f"no part of the suite: {', '.join(unknown)}; parts are {', '.join(parts())}\n")
        return 2
    codes = [run(part) for part in chosen]
    sys.stdout.write(f"wrote {PAGE.relative_to(ROOT)}\n")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
