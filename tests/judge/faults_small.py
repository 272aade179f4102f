"""Faults in the small files: checkpoint, abort, lock and configuration."""

import shutil
from collections.abc import Callable

from tests.judge.target import Fault, Target

FIELDS = 6
OFFSETS = (3, 4, 5)
MAY_BE_ZERO = (2, *OFFSETS)
"""The index time, which a broker sets when an index file is full, and the offsets."""
MARGIN = 3000
"""Milliseconds by which brokers distrust a checkpoint."""
LATEST_MS = 253_402_300_799_999
"""The end of the year 9999."""
Change = Callable[[Target], Fault | None]


def checkpoint(target: Target) -> Fault | None:
    """The checkpoint is missing, cut, zeroed, noise or an old one; or one of its fields is changed."""
    file = target.path / "checkpoint"
    if not file.is_file():
        return None
    size = file.stat().st_size
    way = target.draw.choice(("field", "field", "field", "missing", "cut", "longer", "zeroed", "noise", "old"))
    what: str | None = ""
    number = 0
    if way == "field":
        number = target.draw.randrange(FIELDS)
        what = target.change_number(file, 8 * number, 8)
        what = what and f"{number} {what}"
    elif way == "missing":
        file.unlink()
    elif way in ("cut", "longer"):
        new = target.draw.choice((0, 1, 8, 24, 4095)) if way == "cut" else size + target.draw.choice((1, 4096))
        with file.open("r+b") as sink:
            sink.truncate(new)
    elif way == "old":
        old = target.base.early and target.base.early / "checkpoint"
        if old is None or not old.is_file() or old.read_bytes() == file.read_bytes():
            return None
        shutil.copy2(old, file)
    else:
        changed = target.write(file, 0, bytes(48) if way == "zeroed" else target.draw.randbytes(48))
        what = "" if changed else None
    silent = way == "old" or (way == "field" and may_be(number, what, target.log_end()))
    return None if what is None else Fault(f"checkpoint.{way}", "checkpoint", "checkpoint", what, silent)


def may_be(number: int, what: str | None, log_end: int) -> bool:
    """Whether a field was changed to a number that a broker could have left: a checkpoint may be old by any span.

    Offsets and the index time are 0 until a broker writes them for the first time, and stay so where it never does. An
    offset that a killed broker left may be any up to the log's end.
    """
    old, _, new = (what or "").rpartition(": ")[2].partition(" -> ")
    lowest = 0 if number in MAY_BE_ZERO else 1
    highest = max(int(old or "0", 16) + MARGIN, log_end if number in OFFSETS else 0)
    return not old or lowest <= int(new, 16) <= highest or int(old, 16) == 0


def may_be_of_lost(what: str, files_end: int) -> bool:
    """Whether a field was changed to what a record that nobody can read any more may have left there.

    Args:
        what: number of the field, and the values before and after.
        files_end: end of the last file of the log.
    """
    number, new = int(what.partition(" ")[0]), int(what.rpartition(" ")[2], 16)
    return 0 < new <= (files_end if number in OFFSETS else LATEST_MS)


def abort(target: Target) -> Fault | None:
    """`abort` is there or missing against the truth."""
    file = target.path / "abort"
    if file.is_file():
        file.unlink()
        return Fault("abort.missing", "store", "abort", "", silent=True)
    file.write_bytes(b"")
    return Fault("abort.there", "store", "abort", "")


def lock(target: Target) -> Fault | None:
    """`lock` is missing or holds something else; a broker makes it when it starts."""
    file = target.path / "lock"
    if not file.is_file():
        return None
    if target.draw.random() < 0.5:
        file.unlink()
    else:
        file.write_bytes(b"busy")
    return Fault("lock.other", "store", "lock", "", silent=True)


def config(target: Target) -> Fault | None:
    """A configuration file is cut, empty, missing or no JSON."""
    files = sorted((target.path / "config").glob("*.json")) if (target.path / "config").is_dir() else []
    if target.base.plan.has_database:  # the judge's broker is told its topics, and the ends of these count
        files = [file for file in files if file.name != "topics.json"]
    file = target.pick(files, 2)
    if file is None:
        return None
    way = target.draw.choice(("missing", "empty", "cut", "noise", "zeroed", "beyond"))
    content = file.read_bytes()
    if way == "missing":
        file.unlink()
    elif way == "beyond":
        if b'"0": 1' not in content:
            return None
        file.write_bytes(content.replace(b'"0": 1', b'"0": 99999'))
    else:
        new = {"empty": b"", "cut": content[: len(content) // 2], "noise": target.draw.randbytes(40)}
        file.write_bytes(new.get(way, bytes(len(content))))
    return Fault(f"config.{way}", "config", target.relative(file), "", silent=way == "missing")


CHANGES: tuple[Change, ...] = (checkpoint, checkpoint, checkpoint, checkpoint, abort, lock, config)
