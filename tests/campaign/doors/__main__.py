"""Runs hostile inputs through the doors of the tool: `python -m tests.campaign.doors --inputs 20000 --workers 2`.

Each failure prints the line that repeats it: `--only KIND:NUMBER --seed SEED`. With `--record FILE` a run that
was ended continues where it was.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Final

from tests.campaign.command import ready_commands
from tests.campaign.doors.bounds import become_reaper
from tests.campaign.doors.kinds import KINDS
from tests.campaign.doors.lying_server import lying_server
from tests.campaign.doors.remote_inputs import PORT
from tests.campaign.doors.runs import Batch, DoorTally, batches, keep_input, run_batch, warm
from tests.campaign.doors.stores import tiny

CHUNK: Final = 50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1000, help="over all kinds, by their shares")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kinds", default="", help="only these, by name, with commas between")
    parser.add_argument("--only", default="", metavar="KIND:NUMBER", help="one input, whose folder is kept")
    parser.add_argument("--verbose", action="store_true", help="with --only: show the stack of an error")
    parser.add_argument("--record", type=Path, help="what was run, for a run that continues")
    chosen = parser.parse_args()
    with ready_commands(), lying_server(tiny("tiny-crashed")) as port:
        os.environ[PORT] = str(port)
        warm()
        if chosen.only:
            become_reaper()
            kind, _, number = chosen.only.partition(":")
            return keep_input(kind, chosen.seed, int(number), verbose=chosen.verbose)
        kinds = chosen.kinds.split(",") if chosen.kinds else list(KINDS)
        known = _recorded(chosen.record)
        waiting = [batch for batch in batches(kinds, chosen.seed, chosen.inputs, CHUNK) if batch.name not in known]
        tallies = {kind: DoorTally() for kind in kinds}
        for name, content in known.items():
            if (kind := name.partition(":")[0]) in tallies:
                tallies[kind].add(DoorTally.from_json(content))
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(chosen.workers, context, initializer=become_reaper) as pool:
            running = {pool.submit(run_batch, batch): batch for batch in waiting}
            for future in as_completed(running):
                batch, tally = running[future], future.result()
                tallies[batch.kind].add(tally)
                _record(chosen.record, batch, tally)
                sys.stdout.writelines(f"FAILED {line}\n" for line in tally.failures)
                sys.stdout.flush()
    return _say(tallies)


def _say(tallies: dict[str, DoorTally]) -> int:
    total = DoorTally()
    for kind, tally in tallies.items():
        sys.stdout.write(f"{kind}: {tally.line()}\n")
        total.add(tally)
    sys.stdout.write(f"all: {total.line()}\n")
    return 1 if total.failures else 0


def _recorded(path: Path | None) -> dict[str, Any]:
    if path is None or not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return {row["batch"]: row for row in rows}


def _record(path: Path | None, batch: Batch, tally: DoorTally) -> None:
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"batch": batch.name, **tally.as_json()}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
