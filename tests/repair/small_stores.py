"""A small store, plans that use every kind of step, and a disk that fails or ends the process at a chosen change."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqtool.repair.machine.disk import Disk
from rmqtool.repair.machine.fingerprint import fingerprint
from rmqtool.repair.machine.plan import Plan
from rmqtool.repair.machine.steps import Step, create_file, remove_file, replace_file, write_range
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.store.source import FilePart, Literal, Zeros
from rmqtool.store.view import DirectoryView
from tests.store_state import FileState, store_state

LOG = "commitlog/00000000000000000000"
NEXT_LOG = "commitlog/00000000000000262144"
QUEUE = "consumequeue/TopicA/0/00000000000000000000"
SHORT_QUEUE = "consumequeue/TopicA/1/00000000000000000000"
FILLER = "consumequeue/TopicA/0/00000000000000006000"
NEW_QUEUE = "consumequeue/TopicB/3/00000000000000000000"
INDEX = "index/20240101000000000"
YEAR_2020_NS = 1_577_836_800_000_000_000

MakePlan = Callable[[StorePaths, Path], Plan]


def small_store(root: Path, log: str = "commitlog") -> Path:
    """A store directory with content that is random but always the same, odd modes and old modification times."""
    dice = random.Random(7)
    contents = {
        f"{log}/00000000000000000000": dice.randbytes(200_000) + bytes(62_144),
        f"{log}/00000000000000262144": bytes(262_144),
        QUEUE: dice.randbytes(3000) + bytes(3000),
        SHORT_QUEUE: dice.randbytes(1000),
        FILLER: bytes(6000),
        INDEX: dice.randbytes(5000),
        "checkpoint": dice.randbytes(48) + bytes(4048),
        "abort": b"4711",
        "config/topics.json": b'{"topicConfigTable":{}}',
    }
    for number, (path, content) in enumerate(contents.items()):
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        place.chmod(0o640 if number % 2 else 0o600)
        os.utime(place, ns=(YEAR_2020_NS, YEAR_2020_NS + number * 1_000_000_007))
    (root / "lock").write_bytes(b"lock")
    for place in root.rglob("*/"):
        if place.is_dir():
            os.utime(place, ns=(YEAR_2020_NS, YEAR_2020_NS))
    return root


def plan_of(places: StorePaths, steps: list[Step], command: str = "recover") -> Plan:
    return Plan(command, fingerprint(places), "5.5.0", tuple(steps))


def recovery(places: StorePaths, staging: Path) -> Plan:
    """Ranges, a queue that is made, one that grows, a filler and `abort` that go."""
    del staging
    view = DirectoryView(places.root)
    return plan_of(
        places,
        [
            remove_file(view, "abort", "the store is complete"),
            write_range(view, LOG, 150_000, Zeros(112_144), "behind the log end"),
            write_range(view, LOG, 100, Literal(b"a record"), "a tombstone"),
            write_range(view, QUEUE, 3000, Literal(bytes(range(200))), "units that are missing"),
            write_range(view, SHORT_QUEUE, 900, Zeros(5100), "to full length"),
            remove_file(view, FILLER, "filler"),
            create_file(view, NEW_QUEUE, Literal(b"\7" * 6000), "a queue that is gone", YEAR_2020_NS + 5),
            replace_file(view, "checkpoint", Literal(b"\1" * 4096), "clean handoff"),
        ],
    )


def rebuilding(places: StorePaths, staging: Path) -> Plan:
    """Whole files that a planner has built, in the store's own staging directory and elsewhere."""
    view = DirectoryView(places.root)
    places.staging.mkdir(parents=True, exist_ok=True)
    (places.staging / "queue").write_bytes(b"\3" * 6000)
    (staging / "index").write_bytes(b"\4" * 9000)
    return plan_of(
        places,
        [
            replace_file(view, QUEUE, FilePart.whole(places.staging / "queue"), "rebuilt"),
            create_file(view, NEW_QUEUE, FilePart(staging / "index", 100, 6000), "rebuilt"),
            replace_file(view, INDEX, FilePart.whole(staging / "index"), "rebuilt"),
            remove_file(view, SHORT_QUEUE, "no record has this queue"),
            remove_file(view, "abort", "the store is complete"),
        ],
        "rebuild",
    )


def cutting(places: StorePaths, staging: Path) -> Plan:
    """Changes of the log alone, wherever it lies: a file that goes, one that is cut and one that is new."""
    del staging
    view = DirectoryView(places.root)
    log = places.log_directories[0]
    third = f"{log}/00000000000000524288"
    return plan_of(
        places,
        [
            write_range(view, f"{log}/00000000000000000000", 1000, Zeros(261_144), "cut at the damage"),
            replace_file(view, f"{log}/00000000000000262144", Literal(b"\5" * 262_144), "from a copy"),
            create_file(view, third, Zeros(262_144), "lost", YEAR_2020_NS),
            remove_file(view, QUEUE, "empty now"),
        ],
        "salvage",
    )


PLANS: dict[str, MakePlan] = {"recovery": recovery, "rebuilding": rebuilding, "cutting": cutting}


def files_of(root: Path) -> dict[str, FileState]:
    """Every file and directory but the store directory's own time and `lock`, which each broker writes again."""
    state = store_state(root)
    return {path: found for path, found in state.items() if path not in (".", "lock")}


class Counting:
    """Counts the changes of a disk; at the chosen one something happens instead."""

    def __init__(self, at: int | None = None, what: Callable[[], None] | None = None, *, again: bool = False) -> None:
        self.count = 0
        self.changes: list[str] = []
        self._at = at
        self._what = what
        self._again = again

    def __call__(self, change: str, place: Path) -> None:
        self.count += 1
        self.changes.append(f"{change} {place}")
        if self._what is not None and self._at is not None:
            hit = self.count >= self._at if self._again else self.count == self._at
            if hit:
                self._what()


def fail_with(number: int) -> Callable[[], None]:
    def fail() -> None:
        raise OSError(number, os.strerror(number))

    return fail


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_at(number: int, work: Callable[[Disk], object]) -> bool:
    """Do something in a process that is killed in front of its nth change; whether it was killed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking while another test's threads sleep
        child = os.fork()
    if child == 0:
        code = 1
        try:
            work(Disk(Counting(number, die)))
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the process failed instead of being killed"
    return os.WIFSIGNALED(status)


@contextmanager
def another_disk(than: Path) -> Iterator[Path | None]:
    """A directory on another file system; None where the machine has none that can be written."""
    for candidate in ("/dev/shm", "/var/tmp", "/tmp"):  # noqa: S108 - made below with a name of its own
        place = Path(candidate)
        if place.is_dir() and os.access(place, os.W_OK) and place.stat().st_dev != than.stat().st_dev:
            with tempfile.TemporaryDirectory(dir=place) as made:
                yield Path(made)
            return
    yield None
