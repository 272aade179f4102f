"""Asks real brokers about random stores: `python -m tests.judge --stores 500`; see docs/development/judge.md."""

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.judge.bases import ANY, FILE, ROCKSDB, ROCKSDB_SINCE, VERSIONS, numbers_of
from tests.judge.kept import kept_base, parts_of
from tests.judge.lives.plan import plan_of
from tests.judge.lives.run import run_life, run_some_lives
from tests.judge.worker import CASES_A_BASE, Worker, run_cases, start

Outcomes = Future[list[dict[str, Any]]]
LIVES_A_JOB = 10
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - stores live for a second, and a disk would be the slowest part


def main() -> int:
    options = _options()
    scratch = Path(tempfile.mkdtemp(prefix="rmqtool-judge-", dir=options.scratch))
    try:
        if options.case:
            return _one(options, scratch)
        if options.life:
            return _one_life(options, scratch)
        if options.dledger:
            return _groups(options, scratch)
        return _many(options, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.judge", description=__doc__)
    parser.add_argument("--stores", type=int, default=200, help="store × version cases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--versions", nargs="+", default=list(VERSIONS), choices=VERSIONS, help="that write the bases")
    parser.add_argument("--queues", default=FILE, choices=(FILE, ROCKSDB, ANY), help="where bases have queues")
    parser.add_argument("--minutes", type=float, default=24 * 60.0, help="end after this time")
    parser.add_argument("--keep", type=Path, help="folder for packed disagreements and results.jsonl")
    parser.add_argument("--case", help="repeat this case alone: from --keep if it lies there, else by its seed")
    parser.add_argument("--lives", type=int, default=0, help="lives, in place of cases")
    parser.add_argument("--dledger", type=int, default=0, help="stores of DLedger, in place of cases")
    parser.add_argument("--first", type=int, default=0, help="number of the first of these")
    parser.add_argument("--life", help="repeat this life alone, by its name: life-SEED-NUMBER")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--scratch", type=Path, default=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None)
    options = parser.parse_args()
    if options.queues == ROCKSDB:
        options.versions = [version for version in options.versions if numbers_of(version) >= ROCKSDB_SINCE]
    return options


def _one(options: argparse.Namespace, scratch: Path) -> int:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    queues, seed, writer, number, case, version = parts_of(options.case)
    worker = Worker(scratch, None)
    archive = options.keep and options.keep / f"{options.case}.tar.xz"
    if archive and archive.exists():
        base = kept_base(options.case, archive, scratch / "kept")
    else:
        base = worker.base(seed, writer, number, queues)
    outcome = worker.case(base, case, version)
    worker.close()
    _show(asdict(outcome))
    return int(bool(outcome.disagreements))


def _one_life(options: argparse.Namespace, scratch: Path) -> int:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _, seed, number = options.life.split("-")
    worker = Worker(scratch, options.keep)
    outcome = run_life(worker, plan_of(int(seed), int(number)))
    worker.close()
    _show(asdict(outcome))
    return int(bool(outcome.disagreements))


def _groups(options: argparse.Namespace, scratch: Path) -> int:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    worker, groups = Worker(scratch, options.keep), Counter[str]()
    for number in range(options.first, options.first + options.dledger):
        outcome = worker.group_case(options.seed, number)
        groups.update({row.signature for row in outcome.disagreements})
        if outcome.disagreements:
            _show(asdict(outcome))
    worker.close()
    sys.stdout.write(f"-- {options.dledger} cases, {groups.total()} disagreements\n")
    return int(bool(groups))


def _many(options: argparse.Namespace, scratch: Path) -> int:
    until = time.time() + options.minutes * 60
    began, total, groups = time.time(), 0, Counter[str]()
    log = None
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        log = (options.keep / "results.jsonl").open("a")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, context, start, (scratch, options.keep)) as pool:
        submit = _submitted_lives if options.lives else _submitted_cases
        for job in as_completed(submit(options, pool, until)):
            for outcome in job.result():
                total += 1
                for signature in {row["signature"] for row in outcome["disagreements"]}:
                    groups[signature] += 1
                if outcome["disagreements"]:
                    _show(outcome)
                if log:
                    log.write(json.dumps(outcome, ensure_ascii=False) + "\n")
                    log.flush()
            seconds = time.time() - began
            sys.stdout.write(f"-- {total} cases, {groups.total()} disagreements, {total / seconds:.2f} cases/s\n")
            sys.stdout.flush()
    for signature, count in groups.most_common():
        sys.stdout.write(f"{count:6}  {signature}\n")
    return int(bool(groups))


def _submitted_cases(options: argparse.Namespace, pool: ProcessPoolExecutor, until: float) -> list[Outcomes]:
    jobs = []
    for number, count in enumerate(_shares(options.stores, len(options.versions))):
        version = options.versions[number % len(options.versions)]
        base = number // len(options.versions)
        arguments = (options.seed, version, base, list(range(count)), until, options.queues)
        jobs.append(pool.submit(run_cases, *arguments))
    return jobs


def _submitted_lives(options: argparse.Namespace, pool: ProcessPoolExecutor, until: float) -> list[Outcomes]:
    shares = [range(at, min(at + LIVES_A_JOB, options.lives)) for at in range(0, options.lives, LIVES_A_JOB)]
    return [pool.submit(run_some_lives, options.seed, share, until) for share in shares]


def _shares(stores: int, versions: int) -> list[int]:
    """Cases of each base: few where few are wanted, so that every version writes one."""
    most = max(1, min(CASES_A_BASE, -(-stores // versions)))
    return [min(most, stores - at) for at in range(0, stores, most)]


def _show(outcome: dict[str, Any]) -> None:
    sys.stdout.write(f"{outcome['name']}: {'; '.join(outcome['faults']) or 'no fault'}\n")
    for row in outcome["disagreements"]:
        sys.stdout.write(f"    {row['signature']}\n        {row['text'][:400]}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
