"""Fuzzes forecast and the planning of salvage with the same mutated small stores as verify.

Whatever the bytes: both end, with a result or a clear error, and no plan gives up an intact record. Intact is what the
judge finds good before; afterwards it is there byte for byte, at its place, and in its queue.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.versions import EXAMINED, rules_for
from rmqtool.errors import RmqtoolError
from rmqtool.forecast.forecast import forecast_store
from rmqtool.forecast.options import ForecastOptions
from rmqtool.repair.derived.result import BuildOptions
from rmqtool.repair.machine.plan import Plan, view_over
from rmqtool.repair.salvage.plan import Salvage, SalvageOptions, plan_salvage
from rmqtool.repair.salvage.record_repair import RepairedRecord
from rmqtool.store.directory import Settings, Store, survey
from tests.engine.memory_view import MemoryView
from tests.fuzz.tiny_recipes import LOG_FILE_SIZE
from tests.fuzz.whole_stores import mutated
from tests.repair.salvage.standing import Content, Standing, content_of, units_of


@dataclass
class Tally:
    """What the stores came to."""

    inputs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.inputs += other.inputs
        self.outcomes += other.outcomes
        self.errors += other.errors


def check_store(seed: int) -> Tally:
    """Forecast a mutated store, and plan its salvage.

    Raises:
        AssertionError: an intact record is given up.
        Exception: whatever neither should have let through.
    """
    files, version = mutated(seed)
    chosen = random.Random(~seed)
    settings = Settings(commitlog_file_size=LOG_FILE_SIZE) if chosen.random() < 0.7 else None
    tally = Tally(1)
    try:
        store = survey(MemoryView(files), settings)
        _forecast(store, chosen.choice(EXAMINED), tally)
        with tempfile.TemporaryDirectory(dir=_MEMORY) as staging:
            _salvage(store, rules_for(version), Path(staging), chosen, tally)
    except RmqtoolError as error:
        tally.errors[type(error).__name__] += 1
    return tally


_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a directory of its own is made there


def _forecast(store: Store, version: str, tally: Tally) -> None:
    try:
        found = forecast_store(store, rules_for(version), ForecastOptions(count_whole_log=True))
    except RmqtoolError as error:
        tally.errors[f"forecast {type(error).__name__}"] += 1
        return
    tally.outcomes["starts" if found.starts else "does not start"] += 1


def _salvage(store: Store, rules: BrokerRules, staging: Path, chosen: random.Random, tally: Tally) -> None:
    mending = {how for how in (RepairedRecord.FLIPPED_BIT, RepairedRecord.AS_IS) if chosen.random() < 0.3}
    build = BuildOptions(compiled=False)
    made = plan_salvage(store, rules, staging, SalvageOptions(build, agreed=frozenset(mending), threads=1))
    plan = Plan("salvage", "", rules.version, made.steps)
    plan.check(tuple({segment.path.rpartition("/")[0] for segment in store.commitlog}))
    if made.recovery.damage:
        tally.outcomes["not mended"] += 1
        return
    tally.outcomes["mended" if made.steps else "nothing to do"] += 1
    after = survey(view_over(store.view, plan.steps), Settings(commitlog_file_size=store.commitlog_file_size))
    # Of the files at their right size: what lies behind that is none of the log.
    before, found = content_of(made.drafted_from, rules, build), content_of(after, rules, build)
    moved = {at for at, raw in before.records.items() if found.records.get(at) != raw}
    assert len(moved) <= made.outcome.repaired[RepairedRecord.HEAD], f"records at {sorted(moved)} are given up"
    lost = _displaced(before, found, after, moved, made)
    assert not lost, f"{lost[:5]} stand elsewhere"


def _displaced(before: Content, found: Content, after: Store, moved: set[int], made: Salvage) -> list[Standing]:
    """Messages that their queue does not have, though nothing else claims their place and their queue can be built."""
    units = set(units_of(after))
    claims = found.claims
    first = {name: files.segments[0].start // 20 for name, files in after.queues.items() if files.segments}
    return [
        each
        for each in before.standings
        if each not in units
        and each.physical_offset not in moved
        and claims[each[:3]] == 1
        and _is_sound(each, before, first)
        and not made.recovery.notes
    ]


def _is_sound(standing: Standing, before: Content, first: dict[tuple[str, int], int]) -> bool:
    """Whether a head says what a broker can have written, so that its queue has a place for it.

    A damaged head that nothing contradicts may say anything, and a queue in which it does goes by what it says.
    """
    queue = sorted(
        (each.physical_offset, each.queue_offset)
        for each in before.standings
        if (each.topic, each.queue_id) == (standing.topic, standing.queue_id)
    )
    offsets = [queue_offset for _, queue_offset in queue]
    rises_by_one = offsets == list(range(offsets[0], offsets[0] + len(offsets)))
    return rises_by_one and offsets[0] <= 20 and (standing.topic, standing.queue_id) in first
