"""Lives one after another in a process, with the brokers of all versions in processes that stay."""

import json
import shutil
import subprocess
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from tests.judge.case import Disagreement
from tests.judge.lives.judged import LifeCase, judge_life
from tests.judge.lives.life import live
from tests.judge.lives.plan import LifePlan, plan_of
from tests.judge.worker import KEPT_A_SIGNATURE, Outcome, Worker, own_worker


def run_lives(worker: Worker, seed: int, numbers: Iterable[int], until: float = float("inf")) -> Iterator[Outcome]:
    """Live and judge lives of a seed."""
    for number in numbers:
        if time.time() > until:
            return
        yield run_life(worker, plan_of(seed, number))


def run_some_lives(seed: int, numbers: Iterable[int], until: float) -> list[dict[str, object]]:
    """Run lives in this process."""
    return [asdict(outcome) for outcome in run_lives(own_worker(), seed, numbers, until)]


def run_life(worker: Worker, plan: LifePlan) -> Outcome:
    """Live and judge one life, and keep it where somebody must look at it."""
    folder = worker.folder / plan.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began, told = time.time(), [str(plan)]
    try:
        life = live(plan, worker.judge_of, folder)
        told += [*life.told, *(f"rough: {what}" for what in life.rough)]
        case = judge_life(life, folder)
        told += [f"fault: {fault.name} {fault.file} {fault.what}" for fault in case.faults]
        disagreements = case.disagreements
        _keep(worker, case, told)
    except Exception:  # noqa: BLE001 - the judge's own fault, which shall not end the run
        text = traceback.format_exc()
        disagreements = [Disagreement(f"J {text.splitlines()[-1][:100]}", text)]
    shutil.rmtree(folder, ignore_errors=True)
    return Outcome(plan.name, told, time.time() - began, disagreements)


def _keep(worker: Worker, case: LifeCase, told: list[str]) -> None:
    fresh = [row for row in case.disagreements if worker.kept.get(row.signature, 0) < KEPT_A_SIGNATURE]
    if worker.keep_in is None or not fresh:
        return
    for row in fresh:
        worker.kept[row.signature] = worker.kept.get(row.signature, 0) + 1
    worker.keep_in.mkdir(parents=True, exist_ok=True)
    assert case.life is not None
    recipe = {
        "life": case.name,
        "acts": told,
        "asked": case.version,
        "told": [str(option) for option in case.told],
        "deleted": case.life.deleted,
        "disagreements": [asdict(row) for row in case.disagreements],
    }
    (worker.keep_in / f"{case.name}.json").write_text(json.dumps(recipe, indent=1, ensure_ascii=False))
    command = ["tar", "--sparse", "-cJf", str(worker.keep_in / f"{case.name}.tar.xz"), "-C", str(case.folder)]
    subprocess.run([*command, "store", case.conf.name], check=True, timeout=300)
