"""A case: a base, a version that is asked about it, and one to four faults that follow from its name."""

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.broker.broker import Judge
from tests.broker.files import copy_store, digest
from tests.judge import faults_derived, faults_log, faults_rocksdb, faults_small
from tests.judge.bases import SINCE, Base, Truth, numbers_of
from tests.judge.intact import intact_records
from tests.judge.target import Fault, Target
from tests.judge.tool import Answer, rmqtool
from tests.judge.unjudged import is_changed, is_early_end, log_before, log_now

CHANGES_WITH_FILES = (*faults_log.CHANGES, *faults_derived.CHANGES, *faults_small.CHANGES)
CHANGES = {False: CHANGES_WITH_FILES, True: (*CHANGES_WITH_FILES, *faults_rocksdb.CHANGES * 3)}
"""By whether the store has queues in RocksDB."""
MOST_FAULTS = 4
MOST_TRIES = 100
EDITS_OF_BYTES = ("log.field", "log.record", "log.block", "log.hole", "log.bytes", "log.blank", "log.torn",
                  "log.tail noise", "log.tail moved", "log.old")  # fmt: skip
ENDS_OF_A_LOG = ("log.file zeroed", "log.file missing", "log.file last missing", "log.file alone")
"""What takes the last records away, so that the log ends earlier."""
TELL_NO_SIZE = {"log.cut", "log.longer", "log.name wrong"}
"""What a file of the log no longer tells of its size, unless others do."""
MAKES_A_FILE = ("next file", "stray file", "stray empty file", "name twice", "abort.there")
PAGE = 4096
FULL = 0.75
"""How often a repair is told to look at all of the store."""


@dataclass(frozen=True)
class Disagreement:
    """What was expected, and what happened instead; the signature groups those of one cause."""

    signature: str
    text: str


@dataclass
class Case:
    """A damaged store in a folder of its own, and all that is known of it.

    Attributes:
        name: seed, writer's version, base, number and the version asked, with dots: the name repeats the case.
        store: the damaged store; no check changes it.
        full: whether repairs look at all of the store.
        read_without: what the broker says of the damaged store without a repair, and in short what it serves.
        aside: files that a person moved, where they are, their places, and the number of repairs before that.
        told: options with which rmqtool is told what it cannot know; more are added where it asks for them.
    """

    name: str
    base: Base
    truth: Truth
    judge: Judge
    folder: Path
    store: Path
    faults: list[Fault]
    full: bool = True
    read_without: dict[str, Any] = field(default_factory=dict)
    served_without: dict[tuple[str, int, int], int] = field(default_factory=dict)
    told: list[object] = field(default_factory=list)
    aside: list[tuple[Path, Path, int]] = field(default_factory=list)
    disagreements: list[Disagreement] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.intact = intact_records(self.base, self.truth, self.store)
        self.conf = self.folder / "broker.conf"
        text = self.base.plan.conf_text
        old = text.replace("mappedFileSizeCommitLog=", "mapedFileSizeCommitLog=")
        old = old.replace("mappedFileSizeConsumeQueue=", "mapedFileSizeConsumeQueue=")
        # Who starts a 4.4.0 gives the sizes by the names that it reads too.
        self.conf.write_text(text + old if self.version == "4.4.0" else text)

    @property
    def made(self) -> set[str]:
        """Files that a fault made beside the log's own."""
        return {fault.file for fault in self.faults if fault.name == "log.name twice"}

    @property
    def version(self) -> str:
        return self.judge.version

    @property
    def owed(self) -> list[tuple[tuple[str, int, int], int]]:
        """The messages that the log has for consumers: place and physical offset. Two may have one place."""
        return list(self.truth.served.items())

    @property
    def uncertain_losses(self) -> float:
        """How many messages more may count as lost."""
        return 0

    def takes(self, topic: str) -> bool:
        """Whether clients can send to a topic: by the length of its name, for the asked version."""
        return len(topic) <= 127 or numbers_of(self.version) >= SINCE["long"]

    @property
    def named_queues(self) -> list[tuple[str, int]]:
        """Queues that a broker is asked about where it does not list those that it has, in RocksDB."""
        return sorted(self.truth.queues) if self.base.plan.has_database else []

    def expected(self) -> dict[tuple[str, int, int], int]:
        """What must be served after a repair: all that is intact.

        After a repair that did not look at all of the store: what of it is served without the repair.
        """
        intact = {name: at for name, at in self.truth.served.items() if at in self.intact}
        return intact if self.full else {name: at for name, at in intact.items() if self.served_without.get(name) == at}

    def differs(self, signature: str, text: object) -> None:
        self.disagreements.append(Disagreement(signature, str(text)[:1500]))

    def ask(self, command: str, store: Path, *options: object, version: str | None = None) -> Answer:
        """Run a command on a store; a traceback is a disagreement."""
        answer = rmqtool(command, store, "--broker-version", version or self.version, *self.told, *options)
        if lacks_settings(answer) and not self.told:  # a person would say them now, and from now on
            if answer.code == 0:
                self.differs(f"C {command}: exit 0, and not all was looked at", answer.err)
            self.told = ["--broker-conf", self.conf]
            return self.ask(command, store, *options, version=version)
        if answer.code == 1:
            self.differs(f"{command}: traceback {answer.trouble}", answer.err)
        return answer

    @contextmanager
    def copied(self, store: Path, name: str) -> Iterator[Path]:
        """A copy of a store, for a broker or a repair."""
        path = copy_store(store, self.folder / name)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def lacks_settings(answer: Answer) -> bool:
    """Whether a command could not do all of its work, for nothing in the store tells a setting of the broker."""
    if answer.code == 4 and "--index-slots" in answer.err:
        return True
    if answer.code == 5 and answer.arguments[0] == "get" and "--broker-conf" in answer.err:
        return True  # a repair left one file of the log, and nothing else showed its size
    checked = (answer.json or {}).get("summary") or {} if answer.arguments[0] == "verify" else {}
    return checked.get("complete") is False and "--index-slots" in answer.err


def make_case(base: Base, judge: Judge, number: int, folder: Path) -> Case:
    """Copy the base and damage it."""
    name = f"{base.plan.name}.{number}.{judge.version}"
    draw = random.Random(f"faults {name}")
    truth = base.truth(judge, folder)
    store = copy_store(base.path, folder / "store")
    target = Target(base, truth, store, draw)
    faults: list[Fault] = []
    wanted = 0 if number == 0 else draw.choice((1, 1, 1, 2, 2, 3, MOST_FAULTS))
    for _ in range(MOST_TRIES):
        if len(faults) == wanted:
            break
        before = log_now(target)
        fault = draw.choice(CHANGES[base.plan.has_database])(target)
        if fault is not None:
            faults.append(_seen(fault, target, before))
    faults = [_last(fault, store, base.path, faults) for fault in _together(faults, target)]
    case = Case(name, base, truth, judge, folder, store, faults)
    needs_conf = {"paths", "light", "crc", "ext"} & base.plan.features
    lengths = {file.stat().st_size for file in target.log_files()}
    no_size = TELL_NO_SIZE if base.plan.log_file_size in lengths else {*TELL_NO_SIZE, "log.next files"}
    needs_conf |= {fault.name for fault in faults if fault.name in no_size and len(lengths) < 2}
    if needs_conf or draw.random() < 0.4 or shows_no_size(base) or hides_database(target):
        case.told = ["--broker-conf", case.conf]
    case.full = draw.random() < FULL
    return case


def shows_no_size(base: Base) -> bool:
    """Whether the undamaged log is one file of a length that nobody would configure, which a person has to explain."""
    lengths = [file.stat().st_size for name in base.plan.log_directories for file in (base.path / name).iterdir()]
    return len(lengths) == 1 and lengths[0] % PAGE != 0


def hides_database(target: Target) -> bool:
    """Whether no file is left that tells of queues in RocksDB, which a person has to say."""
    return target.base.plan.has_database and target.database() is None


def _seen(fault: Fault, target: Target, before: dict[int, list[bytes]]) -> Fault:
    """The fault, silent where it changed bytes of the log and none of them is judged."""
    after = log_now(target)
    if fault.name in ENDS_OF_A_LOG and is_early_end(target, before, after):
        return replace(fault, silent=True)
    if not fault.name.startswith(EDITS_OF_BYTES) or is_changed(target, before, after):
        return replace(fault, silent=True) if is_early_end(target, before, after) else fault
    return replace(fault, silent=True)


def _together(faults: list[Fault], target: Target) -> list[Fault]:
    """The faults, those of the log's bytes silent where nothing of all of them together can be seen."""
    before, after = log_before(target), log_now(target)
    if is_changed(target, before, after) and not is_early_end(target, before, after):
        return faults
    edits = (*EDITS_OF_BYTES, *ENDS_OF_A_LOG)
    return [replace(fault, silent=fault.silent or fault.name.startswith(edits)) for fault in faults]


def _last(fault: Fault, store: Path, base: Path, faults: list[Fault]) -> Fault:
    """The fault, silent where a later one took away or replaced its file, or one that another had made."""
    later = faults[faults.index(fault) + 1 :] if fault in faults else []
    if any(other.file == fault.file and other.name == "checkpoint.old" for other in later):
        return replace(fault, silent=True)
    now, before = store / fault.file, base / fault.file
    if now.is_file() and before.is_file() and digest(now) == digest(before):  # a later fault restored it
        return replace(fault, silent=True)
    is_gone = not (store / fault.file).exists()
    is_extra = any(other.file == fault.file and other.name.endswith(MAKES_A_FILE) for other in faults)
    if is_gone and (
        fault.name.startswith((*EDITS_OF_BYTES, "log.file zeroed", "log.cut", "log.longer"))
        or (is_extra and not (base / fault.file).exists())
    ):
        return replace(fault, silent=True)
    return fault
