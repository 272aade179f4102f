"""A worker: real stores of all versions, one long-lived process each, and the cases of one base after another."""

import os
import random
import shutil
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rmqtool.store import probe_lock
from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.broker.program import JudgeError
from tests.judge.bases import FILE, VERSIONS, Base, plan_of, write_base
from tests.judge.case import Case, Disagreement, make_case
from tests.judge.check_append import check_append
from tests.judge.check_forecast import check_forecast
from tests.judge.check_repair import check_repair
from tests.judge.check_verify import check_verify
from tests.judge.groups.run import run_group_case
from tests.judge.kept import keep

SMALL_JAVA = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+SuppressFatalErrorMessage", "-XX:MaxDirectMemorySize=1g")
"""Many processes side by side, none of which lives long enough to earn what optimising costs."""
CASES_A_BASE = 25
CASES_A_PROCESS = 150
"""A real store leaves threads and mappings behind when it stops; a process that served many begins again."""
OWN_VERSION = 0.75
KEPT_A_SIGNATURE = 8


@dataclass(frozen=True)
class Outcome:
    """What came of a case."""

    name: str
    faults: list[str]
    seconds: float
    disagreements: list[Disagreement]


@dataclass
class Worker:
    """Judges that stay, and a folder for stores that do not."""

    folder: Path
    keep_in: Path | None
    judges: dict[str, Judge] = field(default_factory=dict)
    opened: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)

    def judge_of(self, version: str) -> Judge:
        if version not in self.judges:
            self.judges[version] = Judge(version, *SMALL_JAVA)
        self.opened[version] = self.opened.get(version, 0) + 1
        if self.opened[version] > CASES_A_PROCESS:
            self.opened[version] = 0
            self.judges[version].close()
            self.judges[version] = Judge(version, *SMALL_JAVA)
        return self.judges[version]

    def base(self, seed: int, version: str, number: int, queues: str = FILE) -> Base:
        plan = plan_of(seed, version, number, queues)
        folder = self.folder / plan.name
        shutil.rmtree(folder, ignore_errors=True)
        return write_base(plan, self.judge_of(version), folder)

    def cases(
        self, seed: int, version: str, number: int, chosen: list[int], until: float, queues: str = FILE
    ) -> Iterator[Outcome]:
        """Run cases of a base."""
        try:
            base = self.base(seed, version, number, queues)
        except (JudgeError, AssertionError) as trouble:
            yield Outcome(
                plan_of(seed, version, number, queues).name, [], 0, [Disagreement("J no base", str(trouble)[:2000])]
            )
            return
        for case in chosen:
            if time.time() > until:
                break
            yield self.case(base, case)
        for left in self.folder.glob(f"case-{base.plan.name}.*"):  # a broker that was left alone writes to the end
            shutil.rmtree(left, ignore_errors=True)
        shutil.rmtree(self.folder / base.plan.name, ignore_errors=True)

    def case(self, base: Base, number: int, version: str | None = None) -> Outcome:
        """Run a case, and keep it where somebody must look at it."""
        version = version or asked_version(base, number)
        folder = self.folder / f"case-{base.plan.name}.{number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        began = time.time()
        name, faults = f"{base.plan.name}.{number}.{version}", []
        try:
            case = make_case(base, self.judge_of(version), number, folder)
            faults = [f"{fault.name} {fault.file} {fault.what}" for fault in case.faults]
            check(case)
            outcome = Outcome(name, faults, time.time() - began, case.disagreements)
            self._keep(case)
        except Exception:  # noqa: BLE001 - the judge's own fault, which shall not end the run
            text = traceback.format_exc()
            outcome = Outcome(
                name, faults, time.time() - began, [Disagreement(f"J {text.splitlines()[-1][:100]}", text)]
            )
        shutil.rmtree(folder, ignore_errors=True)
        return outcome

    def group_case(self, seed: int, number: int) -> Outcome:
        """Run a case of DLedger; one that breaks off is a disagreement of the judge with itself."""
        began, name = time.time(), f"dledger-{seed}-{number}"
        folder = self.folder / name
        folder.mkdir()
        try:
            case = run_group_case(seed, number, self.judge_of, folder)
            if case.disagreements and self.keep_in is not None:
                copy_store(folder, self.keep_in / name)
            return Outcome(name, case.summary, time.time() - began, case.disagreements)
        except Exception:  # noqa: BLE001 - the judge's own fault, which shall not end the run
            text = traceback.format_exc()
            return Outcome(name, [], time.time() - began, [Disagreement(f"J {text.splitlines()[-1][:100]}", text)])
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # a broker that was left alone may still write there

    def _keep(self, case: Case) -> None:
        fresh = [row for row in case.disagreements if self.kept.get(row.signature, 0) < KEPT_A_SIGNATURE]
        if self.keep_in is None or not fresh:
            return
        for row in fresh:
            self.kept[row.signature] = self.kept.get(row.signature, 0) + 1
        keep(case, self.keep_in)

    def close(self) -> None:
        for judge in self.judges.values():
            judge.close()


def check(case: Case) -> None:
    """All checks of a case."""
    check_verify(case)
    check_forecast(case)
    repaired = check_repair(case)
    if repaired is not None:
        check_append(case, repaired)


def asked_version(base: Base, number: int) -> str:
    """Mostly the version that wrote the base, else a later one."""
    draw = random.Random(f"version {base.plan.name} {number}")
    own = base.plan.version
    later = VERSIONS[VERSIONS.index(own) + 1 :]
    if not later or draw.random() < OWN_VERSION:
        return own
    return random.Random(f"later {base.plan.name}").choice(later)


_WORKERS: list[Worker] = []


def start(folder: Path, keep_in: Path | None) -> None:
    """Begin in a process of its own; nothing is read from a terminal."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    own = folder / str(os.getpid())
    own.mkdir(parents=True)
    # No process but ours has these stores, and looking through all others takes longer than a repair.
    probe_lock.processes_mapping = lambda _directories: ()  # type: ignore[assignment]
    _WORKERS.append(Worker(own, keep_in))


def _end_with(parent: int) -> None:
    """End when the run was killed, and with us the brokers, which read to the end of their input."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def own_worker() -> Worker:
    """The worker that this process was started for."""
    return _WORKERS[0]


def run_cases(
    seed: int, version: str, number: int, chosen: list[int], until: float, queues: str
) -> list[dict[str, object]]:
    """Run cases of a base in this process."""
    return [asdict(outcome) for outcome in own_worker().cases(seed, version, number, chosen, until, queues)]
