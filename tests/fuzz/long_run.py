"""Runs a fuzzer for as many inputs as one asks for: `python -m tests.fuzz.long_run records 10000000`.

Ends at the first input that fails, and says its seed. Prints what was run, for
docs/development/fuzz.md, also when stopped with ^C.
"""

from __future__ import annotations

import argparse
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final, TypeVar

from tests.campaign.command import ready_commands
from tests.fuzz import journals, records, salvaged_stores, whole_stores

Result = TypeVar("Result")

TURN_SECONDS_MAX: Final = 120
"""No single scan or store takes this long, even on a busy machine."""
CORPUS_TURNS: Final = 64


def fuzz_records(count: int, seed: int, tally: records.Tally | None = None) -> records.Tally:
    """At least `count` inputs of the record judge; a new corpus of records every so often."""
    tally = tally or records.Tally()
    corpus = records.Corpus(seed)
    turn = 0
    while tally.inputs < count:
        if turn % CORPUS_TURNS == 0:
            corpus = records.Corpus(seed + turn // CORPUS_TURNS)
        tally.add(_timed(lambda: records.check_batch(corpus, (seed << 32) + turn)))  # noqa: B023  called at once
        turn += 1
    return tally


def fuzz_stores(count: int, seed: int, tally: whole_stores.Tally | None = None) -> whole_stores.Tally:
    """`count` small stores through verify."""
    tally = tally or whole_stores.Tally()
    for turn in range(count):
        try:
            tally.add(_timed(lambda: whole_stores.check_store((seed << 32) + turn)))  # noqa: B023  called at once
        except Exception as error:
            raise AssertionError(f"whole_stores.check_store({(seed << 32) + turn}) fails") from error
    return tally


def fuzz_salvage(count: int, seed: int, tally: salvaged_stores.Tally | None = None) -> salvaged_stores.Tally:
    """`count` small stores through forecast and the planning of salvage."""
    tally = tally or salvaged_stores.Tally()
    for turn in range(count):
        try:
            tally.add(_timed(lambda: salvaged_stores.check_store((seed << 32) + turn)))  # noqa: B023  called at once
        except Exception as error:
            raise AssertionError(f"salvaged_stores.check_store({(seed << 32) + turn}) fails") from error
    return tally


def fuzz_journals(count: int, seed: int, tally: journals.Tally | None = None) -> journals.Tally:
    """`count` small stores with edited journals, and edited plan files, through the commands that meet them."""
    tally = tally or journals.Tally()
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a directory of its own is made there
    with tempfile.TemporaryDirectory(dir=memory) as folder, ready_commands(), journals.Yard(Path(folder)) as yard:
        for turn in range(count):
            tally.add(journals.check_input(yard, (seed << 32) + turn))
    return tally


def peak_memory_mib() -> int:
    """Most memory that this process has taken."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("records", "stores", "salvage", "journals"))
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    start, used = time.monotonic(), time.process_time()
    tally: records.Tally | whole_stores.Tally | salvaged_stores.Tally | journals.Tally
    with suppress(KeyboardInterrupt):  # what was done counts
        match chosen.what:
            case "records":
                fuzz_records(chosen.count, chosen.seed, tally := records.Tally())
            case "stores":
                fuzz_stores(chosen.count, chosen.seed, tally := whole_stores.Tally())
            case "journals":
                fuzz_journals(chosen.count, chosen.seed, tally := journals.Tally())
            case _:
                fuzz_salvage(chosen.count, chosen.seed, tally := salvaged_stores.Tally())
    minutes, cpu = (time.monotonic() - start) / 60, (time.process_time() - used) / 60
    counts: Counter[str]
    if isinstance(tally, records.Tally):
        counts = tally.verdicts
    elif isinstance(tally, whole_stores.Tally):
        counts = tally.findings + tally.errors
    elif isinstance(tally, journals.Tally):
        counts = tally.outcomes + tally.edits
    else:
        counts = tally.outcomes + tally.errors
    sys.stdout.write(f"{tally.inputs} {chosen.what}, seed {chosen.seed}: {minutes:.1f} minutes, {cpu:.1f} of them ")
    sys.stdout.write(f"on a processor; peak memory {peak_memory_mib()} MiB\n")
    if isinstance(tally, whole_stores.Tally):
        sys.stdout.write(f"on the disk: {tally.on_disk}; errors: {dict(tally.errors)}\n")
    if isinstance(tally, journals.Tally):
        sys.stdout.write(f"runs: {tally.runs}; repairs that were settled: {tally.settled}\n")
    sys.stdout.writelines(f"{count:>10} {name}\n" for name, count in counts.most_common())
    return 0


def _timed(work: Callable[[], Result]) -> Result:
    """The result of `work`, which is a failure if it takes far too long: a hang has a seed as well."""
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(TURN_SECONDS_MAX)
    try:
        return work()
    finally:
        signal.alarm(0)


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise AssertionError(f"no end after {TURN_SECONDS_MAX} s")


if __name__ == "__main__":
    sys.exit(main())
