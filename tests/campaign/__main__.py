"""Runs a campaign whole and says what it came to: `python -m tests.campaign kills`, or `all`.

Each works on copies of small stores in memory. What fails is printed with the call, the seed and the case.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=(*campaigns(1, 1, 1), "starts", "all"))
    parser.add_argument("--every", type=int, default=1, help="try one of so many calls")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100, help="processes, pairs or losses of power for each case")
    parser.add_argument("--cases", default="", help="only cases with this in their name")
    chosen = parser.parse_args()
    known = campaigns(chosen.every, chosen.seed, chosen.count)
    failures = 0
    with ready_commands():
        for name in (*known, "starts") if chosen.what == "all" else (chosen.what,):
            start = time.monotonic()
            tally = Tally()
            for case in [case for case in CASES.values() if chosen.cases in case.name and name != "starts"]:
                with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
                    tally.add(known[name](case, Path(folder)))
                sys.stderr.write(f"{name}: {case.name}: {tally.points.total()} points, {len(tally.failures)} failed\n")
            if name == "starts":
                with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
                    tally = start_pairs(Path(folder), chosen.count, chosen.seed)
            sys.stdout.write(f"{name}: {(time.monotonic() - start) / 60:.1f} minutes\n")
            sys.stdout.writelines(f"{line}\n" for line in tally.lines())
            sys.stdout.flush()
            failures += len(tally.failures)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
