"""Generated stores in memory, damage to them, and what a salvage must have made of it.

What was intact is known without asking the program: records of the healthy store whose bytes nobody touched.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from rmqtool.engine.rules.topic_names import LMQ_PREFIX
from rmqtool.engine.rules.versions import EXAMINED, rules_for
from rmqtool.findings.finding import Finding, Severity
from rmqtool.fixtures.recipe import Recipe, make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.forecast.forecast import forecast_store
from rmqtool.forecast.options import ForecastOptions
from rmqtool.repair.derived.result import BuildOptions
from rmqtool.repair.machine.plan import Plan, view_over
from rmqtool.repair.salvage.plan import Salvage, SalvageOptions, plan_salvage
from rmqtool.store.directory import Settings, Store, survey
from tests.engine.memory_view import MemoryView
from tests.fuzz.tiny_recipes import TINY
from tests.repair.salvage.standing import Content, Standing, astray, content_of, gone
from tests.verify.stores import above_note, verified

Files = dict[str, bytes]
"""Brokers that differ in what they do at a start."""
KINDS: Final = (
    "flip",
    "record",
    "several",
    "page",
    "across",
    "zero file",
    "missing file",
    "empty file",
    "short file",
    "long file",
    "noise",
    "head",
)
"""What random damage is made of."""
TOLERATED: Final = {
    "commitlog.resurrected-tail": "the records are sound, and a person decides",
    "commitlog.store-time-regress": "nothing tells which time is right, and no broker minds",
    "commitlog.doubtful-header": "a field that no checksum covers, and nothing tells what is right",
    "commitlog.torn-record": "a last record that was cut inside its properties: brokers serve it, so it is kept",
    "transaction.bad-operation": "the tag, which no checksum covers, is damaged; the record is served, so it is kept",
}
"""Findings that a salvage may leave."""
_WHOLE: Final = ForecastOptions(count_whole_log=True)


@dataclass(frozen=True)
class Healthy:
    """A healthy store: its files, and what stands in them."""

    recipe: Recipe
    version: str
    files: Files
    content: Content

    @property
    def settings(self) -> Settings:
        return self.recipe.conf.settings()

    @cached_property
    def readers(self) -> tuple[str, ...]:
        """Versions that serve all of it while it is healthy."""
        forecasts = {each: forecast_store(self.undamaged, rules_for(each), _WHOLE) for each in EXAMINED}
        return tuple(each for each, found in forecasts.items() if found.starts and not found.lost.messages)

    @cached_property
    def undamaged(self) -> Store:
        return self.store(self.files)

    def store(self, files: Files) -> Store:
        return survey(MemoryView(files), self.settings)

    @property
    def log_files(self) -> list[str]:
        return [segment.path for segment in self.undamaged.commitlog]

    def file_of(self, physical_offset: int) -> tuple[str, int]:
        """Path and file position of a byte of the log."""
        segment = self.undamaged.segment_at(physical_offset)
        assert segment is not None
        return segment.path, physical_offset - segment.start

    def untouched(self, files: Files) -> Content:
        """The part of the content that damage has left alone."""
        records = {at: raw for at, raw in self.content.records.items() if self._has(files, at, raw)}
        standings = {each for each in self.content.standings if each.physical_offset in records}
        return Content(records, standings)

    def without_silenced(self, files: Files, intact: Content) -> Content:
        """Without light queues that a good record does not name any more: what follows moves up (docs/salvage.md)."""
        now = content_of(self.store(files), rules_for(self.version))
        silenced = {
            lost.topic
            for lost in lost_standings(self.content, intact)
            if lost.topic.startswith(LMQ_PREFIX) and lost.physical_offset in now.records and lost not in now.standings
        }
        return Content(intact.records, {each for each in intact.standings if each.topic not in silenced})

    def _has(self, files: Files, at: int, raw: bytes) -> bool:
        path, position = self.file_of(at)
        return files.get(path, b"")[position : position + len(raw)] == raw


@cache
def healthy(name: str, version: str) -> Healthy:
    """A recipe's store; shared, so not to be changed."""
    recipe = TINY.get(name) or RECIPES[name]
    return made(recipe, version)


def made(recipe: Recipe, version: str) -> Healthy:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        make_store(recipe, root, version)
        files = {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    store = survey(MemoryView(files), recipe.conf.settings())
    return Healthy(recipe, version, files, content_of(store, rules_for(version)))


@dataclass(frozen=True)
class Salvaged:
    """A store in memory as a plan would leave it."""

    before: Store
    after: Store
    made: Salvage
    content: Content
    left: dict[str, int]
    """Findings above a note that remain."""
    findings: list[Finding]


def salvaged(
    store: Store, version: str, folder: Path, options: SalvageOptions | None = None, build: BuildOptions | None = None
) -> Salvaged:
    """Plan a salvage, and look at the store as it would be; nothing of it stays in the folder's way."""
    rules = rules_for(version)
    options = replace(options or SalvageOptions(threads=1), build=build or BuildOptions(compiled=False))
    staging = Path(tempfile.mkdtemp(dir=folder))
    made = plan_salvage(store, rules, staging, options)
    plan = Plan("salvage", "", rules.version, made.steps)
    plan.check(tuple({segment.path.rpartition("/")[0] for segment in store.commitlog}))
    settings = replace(store.settings, commitlog_file_size=store.commitlog_file_size)
    after = survey(view_over(store.view, plan.steps), settings)
    findings = verified(after, version)[1]
    return Salvaged(store, after, made, content_of(after, rules), dict(above_note(findings)), findings)


def flaws(
    found: Salvaged,
    intact: Content,
    version: str,
    folder: Path,
    *,
    excused: frozenset[int] = frozenset(),
    fits: Sequence[str] = EXAMINED,
) -> list[str]:
    """Everything in which a salvage falls short of what it promises; see `Healthy.untouched` for `intact`."""
    said: list[str] = []
    if lost := gone(intact, found.content, excused):
        said.append(f"records at {lost[:5]} are gone, {len(lost)} in all")
    if displaced := astray(intact, found.after, excused):
        said.append(f"{displaced[:5]} are not at their places, {len(displaced)} in all")
    if left := [each for each in found.findings if _matters(each, intact)]:
        said.append(f"findings that remain: {[(each.id, each.file, each.message) for each in left]}")
    again = salvaged(found.after, version, folder)
    if again.made.steps:
        said.append(f"a second run would {[(step.path, step.why) for step in again.made.steps]}")
    for each in fits:
        told = forecast_store(found.after, rules_for(each), _WHOLE)
        if not told.starts or told.lost.messages or told.unnoticed_damage:
            said.append(f"{each}: starts {told.starts} ({told.why_not}), loses {told.lost.messages}")
    named = {(each.topic_name, each.queue_id, each.queue_offset) for each in found.made.outcome.lost}
    if wrong := named & {each[:3] for each in intact.standings}:
        said.append(f"{sorted(wrong)[:5]} are said to be lost and are not")
    if twice := [place for place, count in found.content.claims.items() if count > 1]:
        said.append(f"two records claim {twice[:5]}")
    return said


def lost_standings(whole: Content, intact: Content) -> set[Standing]:
    """Messages that damage has hit."""
    return whole.standings - intact.standings


def _matters(found: Finding, intact: Content) -> bool:
    """Whether a finding should not remain; a queue that is none stands in a head that nothing puts right."""
    known = {each[:2] for each in intact.standings} | {(each.topic, None) for each in intact.standings}
    is_known = found.topic is None or (found.topic, found.queue_id) in known
    return found.severity is not Severity.NOTE and found.id not in TOLERATED and is_known


# Damage


def overwrite(files: Files, path: str, position: int, length: int, dice: random.Random | None = None) -> None:
    """Zeros, or whatever the dice say, in a file's bytes."""
    raw = files.get(path, b"")
    length = max(0, min(length, len(raw) - position))
    files[path] = raw[:position] + (dice.randbytes(length) if dice else bytes(length)) + raw[position + length :]


def flip(files: Files, path: str, bit: int) -> None:
    raw = bytearray(files[path])
    raw[bit // 8] ^= 1 << bit % 8
    files[path] = bytes(raw)


def without_queues(files: Files) -> None:
    for path in [path for path in files if path.startswith("consumequeue/")]:
        del files[path]


def random_damage(dice: random.Random, store: Healthy, files: Files) -> list[str]:
    """One to five kinds of damage to the log, at times with queues or checkpoint gone too; what was done."""
    done = [one_damage(dice, store, files) for _ in range(dice.choice((1, 1, 1, 2, 3, 5)))]
    if dice.random() < 0.3:
        done.append("no queues")
        without_queues(files)
    if dice.random() < 0.2:
        done.append("no checkpoint")
        files.pop("checkpoint", None)
    if dice.random() < 0.5 and "abort" not in files:
        done.append("abort")
        files["abort"] = b"4711"
    return done


def one_damage(dice: random.Random, store: Healthy, files: Files) -> str:
    at = dice.choice(sorted(store.content.records))
    size = len(store.content.records[at])
    path, position = store.file_of(at)
    left = [found for found in store.log_files if found in files]
    if path not in files:
        return "none"
    kind = dice.choice(KINDS)
    raw, noise = files[path], dice if dice.random() < 0.5 else None
    if kind == "flip":
        bit = 8 * position + dice.randrange(8 * size)
        if bit < 8 * len(raw):
            flip(files, path, bit)
    elif kind == "record":
        overwrite(files, path, position, size, noise)
    elif kind == "several":
        overwrite(files, path, position, size * dice.randrange(2, 6), noise)
    elif kind == "page":
        overwrite(files, path, position // 4096 * 4096, 4096)
    elif kind == "across":
        overwrite(files, path, max(0, len(raw) - dice.randrange(8, 5000)), 5000)
        if path != left[-1]:
            overwrite(files, left[left.index(path) + 1], 0, dice.randrange(3000))
    elif kind == "zero file":
        files[path] = bytes(len(raw))
    elif kind == "missing file" and len(left) > 2:
        del files[path]
    elif kind == "empty file" and len(left) > 1:
        files[path] = b""
    elif kind == "short file":
        files[path] = raw[: dice.randrange(len(raw) + 1)]
    elif kind == "long file":
        files[path] = raw + (bytes(100) if noise is None else noise.randbytes(5000))
    elif kind == "noise":
        overwrite(files, path, dice.randrange(len(raw) + 1), dice.randrange(1, 3000), dice)
    elif kind == "head":
        overwrite(files, path, position + dice.randrange(88), dice.choice((1, 2, 4)), noise)
    return f"{kind} at {at}"
