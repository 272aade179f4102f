"""The README's table: messages that brokers lose on the golden stores by themselves, and after rmqtool.

"By themselves" is what real brokers of each version did with each store, out of the manifests. "After" is the forecast
of the same versions over the salvaged store; that forecasts are right, and that brokers serve what we salvaged, is held
by tests/forecast and tests/broker.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.forecast.forecast import forecast_store
from rmqtool.repair.salvage.plan import SalvageOptions, plan_salvage
from tests.forecast.golden_costs import WITHOUT_QUEUE, found_intact
from tests.forecast.golden_forecasts import simulation_of
from tests.golden_stores import Read, Record, crashed_names, damaged_names, manifest
from tests.repair.golden_repairs import options_of, planned_store, rules_of, store_of
from tests.verify.test_golden import damage_of

README = Path(__file__).resolve().parent.parent / "README.md"
HEAD = (
    "| Stores of real brokers | stores | starts | intact messages, all starts | lost by the broker alone "
    "| does not start | lost after rmqtool |"
)
KINDS = {
    "log": "damage inside the log",
    "log-": "files of the log missing, empty, short or stray",
    "cq-": "consume queues damaged or gone",
    "index-": "index damaged or gone",
    "checkpoint": "checkpoint damaged or gone",
    "crashed": "crashed, nothing damaged",
}


@dataclass
class Worth:
    stores: int = 0
    starts: int = 0
    intact: int = 0
    alone: int = 0
    not_started: int = 0
    after: int = 0
    wrong: list[str] = field(default_factory=list)

    def row(self, name: str) -> str:
        share = f" ({self.alone / self.intact:.1%})" if self.alone else ""
        cells = (self.stores, self.starts, f"{self.intact:,}", f"{self.alone:,}{share}", self.not_started, self.after)
        return f"| {name} | {' | '.join(map(str, cells))} |"


def kind_of(name: str) -> str:
    damage = damage_of(name) if "-damage-" in name else "crashed"
    return next((text for start, text in KINDS.items() if start != "log" and damage.startswith(start)), KINDS["log"])


@pytest.mark.slow
def test_what_it_is_worth(golden_copy: Callable[[str], Path], tmp_path: Path, pytestconfig: pytest.Config) -> None:
    found: defaultdict[str, Worth] = defaultdict(Worth)
    for name in [*crashed_names(), *damaged_names()]:
        if "rocksdb-cq" in name:
            continue  # no file of a queue to read or to forecast
        count(found[kind_of(name)], name, golden_copy(name), tmp_path / "staging")
    whole = Worth()
    for worth in found.values():
        for column, value in vars(worth).items():
            setattr(whole, column, getattr(whole, column) + value)
    rows = [found[kind].row(kind) for kind in KINDS.values()] + [whole.row("all")]
    assert whole.wrong == []
    check_table(rows, rewrite=pytestconfig.getoption("--rewrite"))


def count(worth: Worth, name: str, path: Path, staging: Path) -> None:
    intact = [found for found in found_intact(path, name) if found.sys_flag & 0xC not in WITHOUT_QUEUE]
    staging.mkdir()
    made = plan_salvage(store_of(path, name), rules_of(name), staging, SalvageOptions(options_of(name)))
    store = planned_store(path, name, made.steps) if made.steps else store_of(path, name)
    worth.stores += 1
    for version, read in manifest(name).reads.items():
        rules = rules_for(version)
        if "inner-batch" in name and not rules.inner_batch:
            continue  # it cannot read what another version wrote there, whatever the state of the store
        if "log-stray-directory" in name and not rules.skips_directories:
            continue  # no command removes a directory; the plan says so
        worth.starts += 1
        worth.intact += len(intact)
        worth.not_started += read.served is None
        worth.alone += len(intact) if read.served is None else lost(intact, read)
        simulated = simulation_of(path, name, version)
        after = forecast_store(store, rules, simulated.options)
        gone = after.lost.messages if after.starts else len(intact)
        worth.after += gone
        if gone:
            worth.wrong.append(f"{name} read by {version}: {gone}")
    shutil.rmtree(staging)


def lost(intact: list[Record], read: Read) -> int:
    """Intact messages that a real broker did not serve."""
    assert read.served is not None
    places = {row[2] for queue in read.served.queues for row in queue.messages if row[1] == "FOUND"}
    return sum(record.at not in places for record in intact)


def check_table(rows: list[str], *, rewrite: bool) -> None:
    lines = README.read_text("utf-8").splitlines()
    start = lines.index(HEAD) + 2
    end = next(number for number in range(start, len(lines)) if not lines[number].startswith("|"))
    if rewrite:
        lines[start:end] = rows
        README.write_text("\n".join(lines) + "\n", "utf-8")
    else:
        assert lines[start:end] == rows
