"""Runs campaigns whole and says what they came to: `python -m tests.campaign kills errors`, or `all`.

Each works on copies of small stores in memory. What fails is printed with the call, the seed and the case.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.campaign.cases import CASES, Case
from tests.campaign.command import ready_commands
from tests.campaign.failing_disk import fail_everywhere, fill_disk, small_file_system
from tests.campaign.kills import kill_at_random, kill_everywhere
from tests.campaign.lost_writes import lose_power_everywhere
from tests.campaign.pairs import interrupt_everywhere, start_pairs
from tests.campaign.real_calls import kill_real_processes
from tests.campaign.tally import Tally
from tests.campaign.two_users import two_users

SIZES: Final = {"tmpfs": 600 << 10, "ext4": 4 << 20}
FREE_BYTES: Final = range(0, 160_000, 4096)
STARTS: Final = "starts"


def _full(case: Case, folder: Path) -> Tally:
    tally = Tally()
    for kind, size in SIZES.items():
        with tempfile.TemporaryDirectory() as name, small_file_system(Path(name), kind, size) as place:
            if place is None:
                raise SystemExit(f"may not mount a {kind} of its own here")
            tally.add(fill_disk(case, place, FREE_BYTES))
    return tally


def campaigns(every: int, seed: int, count: int) -> dict[str, Callable[[Case, Path], Tally]]:
    """What is done with each case, by name."""
    return {
        "kills": lambda case, folder: kill_everywhere(case, folder, every),
        "sigkill": lambda case, folder: kill_at_random(case, folder, count, seed),
        "strace": lambda case, folder: kill_real_processes(case, folder / "case", count, seed),
        "errors": lambda case, folder: fail_everywhere(case, folder, every, seed),
        "power": lambda case, folder: lose_power_everywhere(case, folder, seed, every=every, times=max(1, count // 20)),
        "full": _full,
        "pairs": lambda case, folder: interrupt_everywhere(case, folder, every),
        "users": lambda case, folder: two_users(case, folder, (0.2, 0.4, 0.6, 0.8, 0.95)),
    }


@dataclass(frozen=True)
class Task:
    """One campaign on one store; or all pairs that start at once."""

    campaign: str
    case: str
    every: int
    seed: int
    count: int

    def run(self) -> Tally:
        """What it came to; a campaign that breaks off is a failure like another."""
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            try:
                if self.campaign == STARTS:
                    return start_pairs(Path(folder), self.count, self.seed)
                return campaigns(self.every, self.seed, self.count)[self.campaign](CASES[self.case], Path(folder))
            except Exception:  # noqa: BLE001 - the others go on
                return Tally(failures=[f"{self.campaign}: {self.case}: broke off: {traceback.format_exc()}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="+", choices=(*campaigns(1, 1, 1), STARTS, "all"))
    parser.add_argument("--every", type=int, default=1, help="try one of so many calls")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100, help="processes, pairs or losses of power for each case")
    parser.add_argument("--cases", default="", help="only cases with this in their name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="stores that are attacked at once")
    chosen = parser.parse_args()
    names = (*campaigns(1, 1, 1), STARTS) if "all" in chosen.what else tuple(dict.fromkeys(chosen.what))
    cases = [name for name in CASES if chosen.cases in name]
    failures = 0
    with ready_commands(), ProcessPoolExecutor(chosen.jobs, multiprocessing.get_context("fork")) as pool:
        running = {
            name: [
                pool.submit(Task(name, case, chosen.every, chosen.seed, chosen.count).run)
                for case in (cases if name != STARTS else ["pairs"])
            ]
            for name in names
        }
        start = time.monotonic()
        for name, futures in running.items():
            tally = Tally()
            for future in futures:
                tally.add(future.result())
                sys.stderr.write(f"{name}: {tally.points.total()} points, {len(tally.failures)} failed\n")
            sys.stdout.write(f"{name}: {(time.monotonic() - start) / 60:.1f} minutes after the start\n")
            sys.stdout.writelines(f"{line}\n" for line in tally.lines())
            sys.stdout.flush()
            failures += len(tally.failures)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
