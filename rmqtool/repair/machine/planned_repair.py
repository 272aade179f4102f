"""What a planner comes to: the steps of a repair, and what a person should know beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqtool.findings.finding import Finding
from rmqtool.forecast.record_arrays import MovedRecords
from rmqtool.repair.machine.plan import Loss
from rmqtool.repair.machine.steps import Step
from rmqtool.store.directory import Settings
from rmqtool.store.file_kinds import FileKind


@dataclass(frozen=True)
class PlannedRepair:
    """Steps, and what a person should know beside them.

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
    loss: Loss = Loss()  # noqa: RUF009 - Loss is frozen
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
