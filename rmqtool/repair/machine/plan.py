"""A repair before it happens: its steps, its losses, and the forecast of every broker afterwards.

A planner makes it, a person agrees to it, `apply` carries it out. Saved to a file it holds digests and no bytes: it is
planned again when it is to be applied, and must come out the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rmqtool.errors import RefusedError, UnreadableError, UsageError, WriteError
from rmqtool.findings.finding import Finding
from rmqtool.forecast.result import Floor
from rmqtool.repair.machine.steps import Create, Remove, Replace, Step, WriteRange, step_json
from rmqtool.report.text import counted
from rmqtool.store.file_kinds import FENCE_NAME, FileKind
from rmqtool.store.overlay import Overlay
from rmqtool.store.probe_lock import LOCK_NAME
from rmqtool.store.sink import check_path
from rmqtool.store.source import reason
from rmqtool.store.view import StoreView

if TYPE_CHECKING:
    from rmqtool.forecast.record_arrays import MovedRecords
    from rmqtool.store.directory import Settings

ABORT_NAME: Final = "abort"
OWN_DIRECTORY: Final = ".rmqtool"
SAVED_SIZE_MAX: Final = 1 << 30
"""Bytes of a saved plan that are read."""
_COMPARED: Final = ("command", "store_fingerprint", "broker_version", "steps", "loss")


@dataclass(frozen=True)
class Remaining:
    """A finding that is left, and why."""

    finding: Finding
    why: str
    command: str | None = None
    """Command for the remaining problem, without the store's path; None where there is no further one."""

    def as_json(self) -> dict[str, Any]:
        return {**self.finding.as_json(), "why": self.why}


@dataclass(frozen=True)
class Loss:
    """Messages that are given up: they pass the broker's check now, or queues and index still point to them."""

    messages: int = 0
    bytes: int = 0
    by_topic: Mapping[str, int] = field(default_factory=dict)
    without_log: int = 0
    """Number of the messages in files of the log that are missing or too short; see `gone`."""

    def __add__(self, other: Loss) -> Loss:
        topics = {name: self.by_topic.get(name, 0) + other.by_topic.get(name, 0) for name in self.by_topic}
        return Loss(
            self.messages + other.messages,
            self.bytes + other.bytes,
            {**other.by_topic, **topics},
            self.without_log + other.without_log,
        )


@dataclass(frozen=True)
class ForecastAfter:
    """Forecast of one broker version for the store as the plan leaves it."""

    starts: bool
    lost: int
    """Messages."""
    lost_by_topic: Mapping[str, int] = field(default_factory=dict)
    why_not: str | None = None
    """Why it does not start."""

    without_log: int = 0
    """Messages that only queues know: no file of the log has them."""

    deleted_by_topic: Mapping[str, int] = field(default_factory=dict)
    """Messages of deleted topics, which no start serves."""

    def as_json(self) -> dict[str, Any]:
        return {"starts": self.starts, "lost": self.lost, "messages_without_log": self.without_log}


@dataclass(frozen=True)
class Plan:
    """Everything a person needs to agree to, and everything the machine needs to do it."""

    command: str
    store_fingerprint: str
    """Of the store that was planned on; see `fingerprint`."""
    broker_version: str
    steps: tuple[Step, ...]
    loss: Loss = Loss()
    kept_beyond_broker: Mapping[str, int] = field(default_factory=dict)
    """Messages, by topic, that are served afterwards and would have been lost by the broker's own start."""
    not_looked_at: tuple[str, ...] = ()
    forecast_after: Mapping[str, ForecastAfter] = field(default_factory=dict)
    abort_stays: str | None = None
    """Why `abort` is left; None where it is removed or not there."""
    copied_files: Mapping[str, int] = field(default_factory=dict)
    """Files with other names (hard links), and their sizes: a copy replaces each, and those names keep
    the old content.
    """
    remaining: tuple[Remaining, ...] = ()
    """Findings that a check of the repaired store still has, and why they are left."""
    forecast_now: ForecastAfter | None = None
    """Forecast of the chosen version for the store as it is; None if not made."""
    possible_versions: tuple[str, ...] = ()
    """Of those that were forecast, the ones of which one may start on the store; the chosen one first."""
    floor: Floor | None = None
    """Messages that consumers of the chosen version get before and after; None if not compared."""

    @property
    def is_empty(self) -> bool:
        return not self.steps

    @property
    def lowers_floor_by(self) -> int:
        """Messages that consumers get today and not afterwards, or at another queue offset, beyond those given up."""
        if self.floor is None or self.floor.taken_away + self.floor.moved <= 0:
            return 0
        return max(0, self.floor.taken_away + self.floor.moved - self.loss.messages)

    @property
    def disk_needed_bytes(self) -> int:
        """Room for the new files, and for copies of overwritten bytes; holes are counted as if filled."""
        return sum(self.copied_files.values()) + sum(
            step.length * (2 if isinstance(step, WriteRange) and step.path not in self.copied_files else 1)
            for step in self.steps
            if not isinstance(step, Remove)
        )

    def demand_harmless(self) -> None:
        """Refuse a plan after which the chosen broker would no longer start, or lose more than without it.

        Where the messages themselves were compared, `floor` tells more than two counts.

        Raises:
            RefusedError: it would.
        """
        now, after = self.forecast_now, self.forecast_after.get(self.broker_version)
        if now is None or after is None or not now.starts:
            return
        if not after.starts:
            raise RefusedError(
                f"a broker {self.broker_version} starts on this store now, but would not start after the repair "
                f"({after.why_not}); nothing was changed"
            )
        if self.floor is None and after.lost > now.lost:
            raise RefusedError(
                f"a broker {self.broker_version} would lose {counted(after.lost, 'message')} after the repair, "
                f"and {now.lost} without it; nothing was changed"
            )

    def check(self, log_directories: Sequence[str] = ()) -> None:
        """Refuse steps that contradict each other or lead out of the store.

        Args:
            log_directories: the commitlog's directories, of which absolute ones lie outside of the store.

        Raises:
            WriteError: a path leads elsewhere, or to what no repair may change.
            UsageError: the plan changes the same bytes twice.
        """
        ranges: dict[str, list[tuple[int, int]]] = {}
        whole: set[str] = set()
        for step in self.steps:
            check_step_path(step.path, log_directories)
            if isinstance(step, WriteRange):
                ranges.setdefault(step.path, []).append((step.file_position, step.end))
            elif step.path in whole:
                raise UsageError(f"{step.path}: the plan changes this file twice")
            else:
                whole.add(step.path)
        for path, path_ranges in ranges.items():
            if path in whole or any(second[0] < first[1] for first, second in pairwise(sorted(path_ranges))):
                raise UsageError(f"{path}: the plan changes the same bytes twice")

    def to_json(self) -> dict[str, Any]:
        """The plan as `--dry-run --format json` shows it and `--plan` saves it."""
        return {
            "command": self.command,
            "store_fingerprint": self.store_fingerprint,
            "broker_version": self.broker_version,
            "steps": [step_json(step) for step in self.steps],
            "loss": {
                "messages": self.loss.messages,
                "bytes": self.loss.bytes,
                "by_topic": dict(self.loss.by_topic),
                "without_log": self.loss.without_log,
            },
            "kept_beyond_broker": {
                "messages": sum(self.kept_beyond_broker.values()),
                "by_topic": dict(self.kept_beyond_broker),
            },
            "notes": list(self.not_looked_at),
            "floor": self.floor.as_json() if self.floor is not None else None,
            "forecast_now": self.forecast_now.as_json() if self.forecast_now is not None else None,
            "possible_versions": list(self.possible_versions),
            "forecast_after": {version: after.as_json() for version, after in self.forecast_after.items()},
            "abort_stays": self.abort_stays,
            "copied_files": list(self.copied_files),
            "remaining": [left.as_json() for left in self.remaining],
            "disk_needed_bytes": self.disk_needed_bytes,
        }


def view_over(base: StoreView, steps: Iterable[Step]) -> Overlay:
    """A store as steps leave it, without changing it."""
    view = Overlay(base)
    for step in steps:
        match step:
            case WriteRange():
                view.lay(step.path, step.file_position, step.content)
            case Replace():
                view.replace(step.path, step.content, partial(getattr, step, "after"))
            case Create():
                view.add(step.path, step.content, step.mtime_ns, partial(getattr, step, "known_digest"))
            case Remove():
                view.remove(step.path)
    return view


def check_step_path(path: str, log_directories: Sequence[str] = ()) -> None:
    """Refuse a path that leads out of the store, or to a file that no repair may touch, with WriteError."""
    directory, _, name = path.rpartition("/")
    if path.startswith("/"):
        if directory not in {named.rstrip("/") or "/" for named in log_directories}:
            raise WriteError(f"{path}: points outside the store")
        check_path(name)
    else:
        check_path(path)
    if path == LOCK_NAME or name == FENCE_NAME or path.split("/", maxsplit=1)[0] == OWN_DIRECTORY:
        raise WriteError(f"{path}: a repair may not change this file")


def read_saved(path: Path) -> dict[str, Any]:
    """A plan that `--plan` saved.

    Raises:
        UnreadableError: the file may not be read, or is no saved plan.
    """
    try:
        with path.open("rb") as file:
            text = file.read(SAVED_SIZE_MAX + 1)
    except OSError as error:
        raise UnreadableError(f"{path}: {reason(error)}") from error
    try:
        saved = json.loads(text) if len(text) <= SAVED_SIZE_MAX else None
    except (ValueError, RecursionError):
        saved = None
    if not isinstance(saved, dict) or any(name not in saved for name in _COMPARED):
        raise UnreadableError(f"{path}: not a saved plan")
    return saved


def demand_same(plan: Plan, saved: Mapping[str, Any]) -> None:
    """Refuse to apply a saved plan where planning again, just now, came to another one.

    Raises:
        RefusedError: it did; the text says what differs.
    """
    current = json.loads(json.dumps(plan.to_json()))
    for name in _COMPARED:
        if _comparable(saved[name]) != _comparable(current[name]):
            what = "the store is another one, or has changed" if name == "store_fingerprint" else f"{name} differ"
            raise RefusedError(f"the saved plan does not fit: {what}; make the plan again")


def _comparable(value: Any) -> Any:
    """A plan's part without what differs each time: the bytes of a database or timer that has the same rows."""
    if not isinstance(value, list):
        return value
    return [
        {key: step[key] for key in step if key not in ("length", "after")}
        if isinstance(step, dict) and step.get("rows") is not None
        else step
        for step in value
    ]


@dataclass(frozen=True)
class PlannedRepair:
    """Steps, with notes for a person.

    Attributes:
        notes: sentences about what was left alone, or decided.
        findings: all that the planner's own check found, notes too, if it made one.
        damage: what keeps the plan from changing anything.
        abort_stays: why `abort` is left; None where it is removed or not there.
        begin: physical offset from which on the store was looked at; None where all of it was.
        left_out: sentences about what lies before that.
        looked_at: kinds of files beside log, queues and index that were checked too.
        details: what only this command says of its plan, beside what every plan has.
        again: where in the log topics begin again, as the planner's build tells, by topic.
        corrects_log: whether each record that the plan changes in the log was found damaged.
        explained: kinds of findings and files of which a check of the planned store says that nothing is wrong.
        restored: deleted topics that a person wants back; None: all of them.
        is_chosen: whether a person chose each change, and may agree to one that leaves a broker worse off.
        settings: of the store as the plan leaves it, where they are not those with which it was opened.
        moved: where the records of the log lie before and after the plan, where it gives all of them new places.
        keep: saves what the plan takes away, in the given directory of the tool's own, right before it is carried out.
    """

    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    damage: tuple[Finding, ...] = ()
    loss: Loss = Loss()
    abort_stays: str | None = None
    begin: int | None = None
    left_out: tuple[str, ...] = ()
    looked_at: frozenset[FileKind] = frozenset()
    details: Mapping[str, Any] = field(default_factory=dict)
    is_chosen: bool = False
    settings: Settings | None = None
    again: Mapping[str, int] = field(default_factory=dict)
    corrects_log: bool = False
    explained: frozenset[tuple[str, str]] = frozenset()
    restored: frozenset[str] | None = frozenset()
    moved: MovedRecords | None = None
    keep: Callable[[Path], None] | None = None
