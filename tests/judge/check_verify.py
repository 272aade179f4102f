"""Check C: verify names every fault, and has nothing to say about a store without one."""

import re
from pathlib import Path
from typing import Any

from tests.judge.case import Case
from tests.judge.faults_rocksdb import AREA as ROCKSDB
from tests.judge.faults_rocksdb import content_of, rows_say_nothing
from tests.judge.faults_small import may_be_of_lost
from tests.judge.target import UNIT, Fault
from tests.judge.unjudged import (
    INDEX_HEADER,
    directory_says_nothing,
    entries_say_nothing,
    extension_says_nothing,
    says_nothing,
)

LEFT_BY_A_KILL = ("store.abort-present", "consumequeue.behind-log", "consumequeue.missing-unit", "index.missing-key",
                  "consumequeue.missing-queue", "consumequeue.missing-file", "index.missing-file")  # fmt: skip
"""What a killed broker leaves undone: its next start does it."""
LEFT_BY_RECOVERY = "consumequeue.wrong-tags-code"
"""4.9.2 to 4.9.8 dispatch in a recovery before they know the delay levels: delayed messages get their tag's code."""
CLASHED = ("index.bad-header", "index.wrong-slot")
"""What brokers leave in an index file that they began in the millisecond in which they began the one before it.

The two have one name and are one file: the second one overwrites the first, whose slots stay.
"""
NAMES_UNITS = ("commitlog.stale-tail", "commitlog.missing-end-blank")
"""Findings about the bytes after the last record of a file that name the units which lead there."""
UNREAD = ("consumequeue.extension missing", "consumequeue.extension zeroed")
"""What changes nothing in a file of an extension to which no unit leads."""
SEEN = ("error", "warning")
LAST_KEY = re.compile(r"physical offset (\d+)(?!.*physical offset)")
DEFAULT_SLOTS = 5_000_000
DEFAULT_ENTRIES = 20_000_000


def check_verify(case: Case) -> None:
    """Verify the damaged store, and compare with the faults that were written."""
    findings = _findings(case)
    if findings is None:
        return
    if not case.faults:
        clean = case.base.plan.runs[-1][1] == "clean"
        seen = {row["id"]: row["message"] for row in findings if row["severity"] in SEEN}
        left = set() if clean else set(LEFT_BY_A_KILL)
        if case.base.plan.version.startswith("4.9."):
            left.add(LEFT_BY_RECOVERY)
        slots = int(case.base.plan.config.get("maxHashSlotNum", DEFAULT_SLOTS))
        overwritten = overwritten_index_files(case.store / "index", list(case.truth.sizes), slots)
        keys_a_file = int(case.base.plan.config.get("maxIndexNum", DEFAULT_ENTRIES)) - 1
        was_killed = any(end != "clean" for _, end in case.base.plan.runs[:-1])
        begin = begin_of_index(case.store / "index") if was_killed else 0
        unexplained = {
            row["id"]
            for row in findings
            if not is_clash(row, overwritten, keys_a_file) and not is_dropped(row, begin, case.base.plan.log_file_size)
        }
        for name in sorted(seen.keys() & unexplained - left):
            case.differs(f"C a healthy store has {name}", seen[name])
        return
    names = {fault.name for fault in case.faults}
    files = [file for name in case.base.plan.log_directories for file in (case.store / name).glob("[0-9]*")]
    files = [file for file in files if file.name.isdigit() and file.is_file() and file.stat().st_size]
    files_end = max((int(file.name) for file in files), default=0) + case.base.plan.log_file_size
    for fault in case.faults:
        if fault.area != "commitlog" and not files:
            continue  # with what should the rest be compared?
        if fault.area in ("consumequeue", "index", ROCKSDB) and not case.intact:
            continue  # no record tells what should be there
        if fault.name == "checkpoint.field" and not case.intact and may_be_of_lost(fault.what, files_end):
            continue  # the last record may have had it
        if not case.intact and fault.name.endswith((" gone", " missing")) and fault.area != "commitlog":
            continue  # nothing says that there was anything
        if fault.name == "index.file missing" and names & {"log.file alone", "log.file first missing"}:
            continue  # it may have held keys of expired records only
        if fault.silent or any(names_file(row, fault.area, fault.file) for row in findings):
            continue
        if not says_nothing_of(case, fault):
            ids = sorted({row["id"] for row in findings})
            case.differs(f"C not found: {fault.name}", f"{fault}; findings: {ids}")


def says_nothing_of(case: Case, fault: Fault) -> bool:
    """Whether no record that is intact tells of what the fault changed in a file of queues or index."""
    base, sizes = case.base, case.truth.sizes
    if fault.area == ROCKSDB:
        (folder, *_) = fault.file.split("/")
        before, after = (content_of(path / folder, case.folder / "rows") for path in (base.path, case.store))
        return rows_say_nothing(before, after, case.intact, max((at + size for at, size in sizes.items()), default=0))
    if fault.area == "index":
        slots = int(base.plan.config.get("maxHashSlotNum", DEFAULT_SLOTS))
        return entries_say_nothing(base.path / fault.file, case.store / fault.file, case.intact, sizes, slots)
    if fault.name in UNREAD:
        return extension_says_nothing(base.path, fault.file)
    if (base.path / fault.file).is_dir():
        return directory_says_nothing(base.path, case.store, fault.file, case.intact, sizes)
    return says_nothing(base.path, case.store, fault.file, case.intact, sizes)


def is_clash(row: dict[str, Any], overwritten: dict[str, range], keys_a_file: int) -> bool:
    """Whether a finding is about an overwritten index file, or about exactly the keys of the files that it replaced."""
    if row["id"] == "index.missing-key":
        is_between = any(row["physical_offset"] in gap for gap in overwritten.values())
        return is_between and row["count"] % keys_a_file == 0
    return row["id"] in CLASHED and row["file"] in overwritten


def is_dropped(row: dict[str, Any], begin: int, log_file_size: int) -> bool:
    """Whether a finding is about keys that a start after a kill left out.

    It drops index files that are newer than the checkpoint's index time, and enters again what it reads of the log: the
    index then begins at the first key of a later file of the log than the first one.
    """
    last = LAST_KEY.search(row["message"])
    return (
        row["id"] == "index.missing-key" and last is not None and int(last[1]) < begin // log_file_size * log_file_size
    )


def begin_of_index(index: Path) -> int:
    """The physical offset of the first record in an index; 0 without a file."""
    first = min(index.glob("[0-9]*"), default=None)
    return int.from_bytes(first.read_bytes()[16:24], "big") if first is not None else 0


def overwritten_index_files(index: Path, records: list[int], slots: int) -> dict[str, range]:
    """The index files that hold two, each with the offsets that are in neither.

    A whole file is missing before such a file; or its header is that of the first of the two, which a broker flushes
    when it begins the second, and its first entry is the second's and leads after the header's last record.
    """
    overwritten: dict[str, range] = {}
    end = -1
    for file in sorted(index.glob("[0-9]*")):
        content = file.read_bytes()
        entry = INDEX_HEADER + (slots * 4) + UNIT + 4  # the first one stays empty
        first, last, known = (int.from_bytes(content[at : at + 8], "big") for at in (16, 24, entry))
        if known > last or any(end < record < first for record in records):
            overwritten[f"index/{file.name}"] = range(max(0, end), first)
        end = last
    return overwritten


def _findings(case: Case) -> list[dict[str, Any]] | None:
    answer = case.ask("verify", case.store, "--format", "json", version=case.base.plan.version)
    if answer.json is None:
        if answer.code != 1:
            case.differs(f"C no verify: exit {answer.code} {answer.trouble}", answer.err)
        return None
    findings: list[dict[str, Any]] = answer.json["findings"]
    seen = any(row["severity"] in SEEN for row in findings)
    if answer.code == 0 and seen:
        case.differs("C exit 0 with findings", sorted({row["id"] for row in findings}))
    return findings


def names_file(row: dict[str, Any], area: str, file: str) -> bool:
    """Whether a finding is about a file, its directory, what lies in it, or any file of the same kind.

    What lies behind a log that ends too early is named in the files that point there.
    """
    name = row.get("file") or ""
    if name == file or file.startswith(f"{name}/") or name.startswith(f"{file}/") or row["id"].startswith(f"{area}."):
        return True
    if area == "consumequeue" and row["id"] in NAMES_UNITS:
        return f" {'/'.join(file.split('/')[1:3])} at queue offset " in row["message"]
    if area == ROCKSDB and row["id"].startswith("consumequeue."):
        return True
    return area == "commitlog" and row["severity"] in SEEN and row["id"] not in LEFT_BY_A_KILL
