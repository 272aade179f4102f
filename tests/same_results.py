"""Compares what commands print when they read a log in different ways, byte for byte, over many stores.

`python -m tests.same_results --golden 326 --damaged 500 --judged 200 --seed 1` prints each difference, and ends with 1
where there is one. Judged stores are those of `tests.judge`; they need what the tests marked `broker` need.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from rmqtool.commands.messages import Messages
from rmqtool.engine.rules.versions import rules_for
from rmqtool.engine.segments.open_files import ReadCache
from rmqtool.errors import UsageError
from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import damage_store
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.forecast import forecast
from rmqtool.forecast.losses import LossCounter
from rmqtool.repair import plan_forecasts
from rmqtool.scan import compiled, log
from rmqtool.scan.row_cache import RowCache
from rmqtool.store import probe_lock
from tests.commands.transcripts import Ran, rmqtool
from tests.golden_stores import FOLDER, SUFFIX, settings, unpack
from tests.judge.bases import VERSIONS
from tests.judge.case import make_case
from tests.judge.worker import CASES_A_BASE, Worker, asked_version
from tests.little_memory import little_memory

COMMANDS = (
    ("verify",),
    ("forecast", "--broker-version", "all"),
    ("recover", "--dry-run"),
    ("recover", "--full", "--dry-run"),
    ("rebuild", "--dry-run"),
    ("salvage", "--dry-run"),
)
DAMAGE_VERSIONS = ("4.9.7", "5.5.0")


class Sample(NamedTuple):
    """A store, what is told of it, and what it is called."""

    name: str
    path: Path
    options: tuple[str, ...]


class Difference(NamedTuple):
    """A command that printed something else in another way of reading."""

    store: str
    command: str
    way: str
    expected: Ran
    got: Ran

    def __str__(self) -> str:
        for expected, got in zip(self.expected, self.got, strict=True):
            rows = zip(str(expected).splitlines(), str(got).splitlines(), strict=False)
            row = next((f"{a!r} != {b!r}" for a, b in rows if a != b), "")
            if expected != got:
                return f"{self.store}: {self.command}: {self.way}: {row or (expected, got)}"[:1000]
        return ""


@contextmanager
def plain() -> Iterator[None]:
    """The plain reader reads each byte as often as it is asked, in one thread."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(compiled, "is_available", lambda: False))
        stack.enter_context(patch.object(Messages, "plain_reading", lambda _self: None))
        stack.enter_context(patch.object(RowCache, "batches", lambda _self, walk, **_: walk.scanned()))
        stack.enter_context(patch.object(RowCache, "answers", lambda _self, _walk: False))
        stack.enter_context(patch.object(RowCache, "recall", lambda _self, _name, _made_of: None))
        stack.enter_context(patch.object(plan_forecasts, "ReadCache", lambda notes: ReadCache()))  # noqa: ARG005
        stack.enter_context(patch.object(forecast, "LossCounter", lambda simulation, *_: LossCounter(simulation)))
        stack.enter_context(patch.object(os, "cpu_count", lambda: 1))
        yield


@contextmanager
def fast(threads: int = 2, memory_max: int | None = None) -> Iterator[None]:
    """Kernels read however little there is, and what was read is kept, in memory or in a file."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(log, "COMPILED_FROM_BYTES", 0))
        stack.enter_context(patch.object(log, "KEPT_FROM_BYTES", 0))
        stack.enter_context(patch.object(os, "cpu_count", lambda: threads))
        if memory_max is not None:
            stack.enter_context(patch.object(RowCache.__init__, "__defaults__", (memory_max,)))
        yield


@contextmanager
def small() -> Iterator[None]:
    """So little memory that all goes to files that can."""
    with fast(1), little_memory():
        yield


WAYS: Mapping[str, Callable[[], object]] = {
    "kernels, two threads": fast,
    "kernels, one thread, cache in a file": functools.partial(fast, 1, 0),
    "kernels, one thread, little memory": small,
}


def differences(sample: Sample) -> Iterator[Difference]:
    """All of a store; the plain reader's word comes first."""
    for command in COMMANDS:
        line = (*command, *_options(command, sample.options), "--format", "json", sample.path)
        with plain():
            expected = rmqtool(*line)
        for name, way in WAYS.items():
            with way():  # type: ignore[attr-defined]
                got = rmqtool(*line)
            if got != expected:
                with plain():
                    again = rmqtool(*line)
                if _steady(got, expected, again) != _steady(expected, expected, again):
                    yield Difference(sample.name, " ".join(command), name, expected, got)


def _steady(ran: Ran, expected: Ran, again: Ran) -> Ran:
    """What a command printed, without digests that are others each time: of new databases, of a clock's time."""
    rows, once, twice = (each.out.splitlines() for each in (ran, expected, again))
    if not len(rows) == len(once) == len(twice):
        return ran
    kept = (
        "" if first != second and '"after": "' in first else row
        for row, first, second in zip(rows, once, twice, strict=True)
    )
    return ran._replace(out="\n".join(kept))


def golden(names: Sequence[str], folder: Path) -> Iterator[Sample]:
    """Golden stores, one after the other."""
    for name in names:
        store, sizes = unpack(name, folder), settings(name)
        conf = {
            "mappedFileSizeCommitLog": sizes.commitlog_file_size,
            "mappedFileSizeConsumeQueue": sizes.consumequeue_file_size,
            "maxHashSlotNum": sizes.index_slot_count,
            "maxIndexNum": sizes.index_entry_count,
        }
        yield Sample(name, store, ("--broker-conf", _conf(conf, folder)))
        shutil.rmtree(store)


def damaged(count: int, seed: int, folder: Path) -> Iterator[Sample]:
    """Stores of recipes with one kind of damage each, as many as have a place for it."""
    pairs = [
        (version, recipe, damage)
        for version in DAMAGE_VERSIONS
        for recipe in RECIPES
        for damage in DAMAGES
        if RECIPES[recipe].fits(rules_for(version))
    ]
    random.Random(seed).shuffle(pairs)
    for version, name, damage in pairs:
        if count == 0:
            return
        store, recipe = folder / "store", RECIPES[name]
        make_store(recipe, store, version)
        try:
            damage_store(DAMAGES[damage], store, seed, recipe.conf.settings())
        except UsageError:
            shutil.rmtree(store)
            continue
        conf = _conf(recipe.settings, folder)
        yield Sample(f"{damage} in {name} of {version}", store, ("--broker-conf", conf, "--broker-version", version))
        shutil.rmtree(store)
        count -= 1


def judged(count: int, seed: int, folder: Path) -> Iterator[Sample]:
    """Stores that real brokers wrote, with one to four faults each."""
    worker = Worker(folder, None)
    try:
        for number in range(-(-count // CASES_A_BASE)):
            base = worker.base(seed, VERSIONS[number % len(VERSIONS)], number)
            for case_number in range(min(CASES_A_BASE, count - number * CASES_A_BASE)):
                place = folder / "case"
                place.mkdir()
                version = asked_version(base, case_number)
                case = make_case(base, worker.judge_of(version), case_number, place)
                yield Sample(case.name, case.store, ("--broker-version", version, *map(str, case.told)))
                shutil.rmtree(place)
            shutil.rmtree(folder / base.plan.name)
    finally:
        worker.close()


def _options(command: Sequence[str], given: Sequence[str]) -> Iterator[str]:
    """What a command is told of a store, but for a version where it has its own."""
    for name, value in zip(given[::2], given[1::2], strict=True):
        if name not in command:
            yield from (name, value)


def _conf(properties: Mapping[str, object], folder: Path) -> str:
    path = folder / "broker.conf"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), "utf-8")
    return str(path)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.same_results", description=__doc__)
    parser.add_argument("--golden", type=int, default=0, help="how many golden stores; 326 are all")
    parser.add_argument("--damaged", type=int, default=0, help="how many damaged stores of recipes")
    parser.add_argument("--judged", type=int, default=0, help="how many stores of real brokers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=None, help="where the stores lie while it runs")
    asked = parser.parse_args()
    probe_lock.processes_mapping = lambda _directories: ()  # type: ignore[assignment]  # nobody else has these stores
    names = sorted(path.name.removesuffix(SUFFIX) for path in FOLDER.glob(f"*{SUFFIX}"))
    random.Random(asked.seed).shuffle(names)
    counts = Counter[str]()
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        folder = Path(name)
        kinds = {
            "golden": golden(names[: asked.golden], folder),
            "damaged": damaged(asked.damaged, asked.seed, folder),
            "judged": judged(asked.judged, asked.seed, folder),
        }
        for kind, samples in kinds.items():
            for sample in samples:
                counts[kind] += 1
                for each in differences(sample):
                    counts["differences"] += 1
                    sys.stdout.write(f"{each}\n")
                if sum(counts.values()) % 20 == 0:
                    sys.stdout.write(f"-- {dict(counts)}\n")
                sys.stdout.flush()
    sys.stdout.write(f"-- {dict(counts)}\n")
    return int(counts["differences"] > 0)


if __name__ == "__main__":
    sys.exit(main())
