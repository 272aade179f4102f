"""Runs the whole suite, slow tests too, part by part, and writes what came of each into docs/development/test-full.md.

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
PAGE = ROOT / "docs" / "development" / "test-full.md"
IN_FILES = ("tests/broker", "tests/pipeline", "tests/repair")
"""Folders whose files are parts of their own, for each takes long."""
OUTCOMES = ("passed", "failures", "errors", "skipped")
HEAD = """# Slow tests: what was run, and on which commit

`make test-full` runs every test, the slow ones too, part by part, and writes this page. Each row says which commit its
part was run on. A part with slow tests that has no row, or a row of an old commit, has not been run since.

"""
ONCE_IN_MAKE_TEST = {
    "`test_one_record` of `tests/repair/salvage/test_generated_damage.py`: first and last file, without queues":
    "the same damage in the middle file of a store without queues, and in all three with queues",
    "`test_more_than_a_record` there: a clean store without queues, a crashed one with queues":
    "each damage in a clean store with queues and in a crashed one without",
}  # fmt: skip
"""Tests that `make test` had, and what it has that holds the same."""
COLUMNS = ("Part", "Commit", "Date", "Minutes", *(name.capitalize() for name in OUTCOMES), "Where")


def parts() -> list[str]:
    """All parts: folders and files, relative to the project."""
    tests = ROOT / "tests"
    folders = sorted({path.parent for path in tests.rglob("test_*.py")})
    names: list[str] = []
    for folder in folders:
        name = str(folder.relative_to(ROOT))
        split = folder == tests or name.startswith(IN_FILES)
        if split:
            names += [str(path.relative_to(ROOT)) for path in sorted(folder.glob("test_*.py"))]
        elif not any(folder.is_relative_to(ROOT / other) for other in names):
            names.append(name)
    return names


def slow_files() -> dict[str, str]:
    """What each file that has slow tests shows, by its path: the first line of the file."""
    texts = {path: path.read_text("utf-8") for path in sorted((ROOT / "tests").rglob("test_*.py"))}
    return {
        path.relative_to(ROOT).as_posix(): text.partition('"""')[2].partition("\n")[0].removesuffix('"""')
        for path, text in texts.items()
        if "pytest.mark.slow" in text
    }


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
        outcomes = counts(junit)
    minutes = (time.monotonic() - began) / 60
    where = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    date = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d")
    write_page([f"`{part}`", tested, date, f"{minutes:.1f}", *(str(outcomes[name]) for name in OUTCOMES), where])
    return code


def write_page(*new_rows: list[str]) -> None:
    """Write the page with new rows in place of the last ones of their parts, without parts that are no more."""
    with PAGE.open("a+", encoding="utf-8") as page:
        fcntl.flock(page, fcntl.LOCK_EX)
        page.seek(0)
        rows = {
            fields[0]: fields
            for line in page.read().splitlines()
            if len(fields := [field.strip() for field in line.strip("|").split("|")]) == len(COLUMNS)
        }
        rows |= {row[0]: row for row in new_rows}
        known = [rows[name] for name in (f"`{part}`" for part in parts()) if name in rows]
        page.truncate(0)
        page.write(text_of(known))


def text_of(rows: list[list[str]]) -> str:
    """The page."""
    totals = [sum(int(row[4 + at]) for row in rows) for at in range(len(OUTCOMES))]
    minutes = sum(float(row[3]) for row in rows)
    total = ", ".join(f"{count:,} {name}" for count, name in zip(totals, OUTCOMES, strict=True))
    slow = slow_files()
    known = {row[0] for row in rows}
    lacking = [
        part for part in parts() if f"`{part}`" not in known and any(f"{name}/".startswith(f"{part}/") for name in slow)
    ]
    lines = ["| " + " | ".join(row) + " |" for row in (list(COLUMNS), ["---"] * len(COLUMNS), *rows)]
    text = HEAD + f"In all {total}; {minutes:.0f} minutes.\n\n" + "\n".join(lines) + "\n"
    if lacking:
        text += f"\nNot run yet: {', '.join(f'`{part}`' for part in lacking)}.\n"
    return text + "\n" + slow_text(slow)


def slow_text(slow: dict[str, str]) -> str:
    """The part of the page that says what slow tests there are."""
    lines = ["## What the slow tests show", "", "| File | Shows |", "| --- | --- |"]
    lines += [f"| `{name}` | {shown} |" for name, shown in slow.items()]
    lines += ["", "Of these, `make test` once ran some that repeat what it still holds:", ""]
    lines += ["| Slow now | `make test` holds |", "| --- | --- |"]
    lines += [f"| {name} | {held} |" for name, held in ONCE_IN_MAKE_TEST.items()]
    return "\n".join(lines) + "\n"


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
