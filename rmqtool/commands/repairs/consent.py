"""What a person is asked before a repair: file sizes that the store does not show, and consent to losses."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

import typer

from rmqtool.commands.messages import Messages
from rmqtool.errors import RefusedError, UnknownSizeError
from rmqtool.findings.finding import Finding
from rmqtool.repair.machine.plan import Plan
from rmqtool.store.directory import Store, survey, with_settings
from rmqtool.verdict.next_step import NextStep

Planned = TypeVar("Planned")
_QUESTIONS: Final = {
    "timer_log_file_size": "Bytes of a timer log file (mappedFileSizeTimerLog)",
    "compaction_log_file_size": "Bytes of a log file of compacted topics (compactionMappedFileSize)",
    "commitlog_file_size": "Bytes of a commit log file (mappedFileSizeCommitLog)",
    "consumequeue_file_size": "Bytes of a consume queue file (mappedFileSizeConsumeQueue)",
    "batch_file_size": "Bytes of a batch consume queue file (mapperFileSizeBatchConsumeQueue)",
    "index_slot_count": "Hash slots of an index file (maxHashSlotNum)",
    "index_entry_count": "Entries of an index file (maxIndexNum)",
}


def plan_with_sizes(
    store: Store, planner: Callable[[Store, Path], Planned], staging: Path, messages: Messages, *, may_ask: bool
) -> tuple[Store, Planned]:
    """The store with the sizes that a person gave, and the plan for it.

    Args:
        planner: makes the plan, with what it builds in the given directory.
        staging: an empty directory.
        may_ask: whether there is a person who can answer.

    Raises:
        UnknownSizeError: nobody can be asked for a size.
    """
    for number in count():
        directory = staging / f"plan-{number}"
        directory.mkdir()
        try:
            return store, planner(store, directory)
        except UnknownSizeError as error:
            if not may_ask:
                raise
            messages.warn(str(error))
            with messages.asking():
                answer = typer.prompt(_QUESTIONS[error.setting], default=error.default, type=int, err=True)
            if answer > 0:
                store = survey(store.view, with_settings(store.settings, **{error.setting: answer}))
    raise AssertionError  # each answer settles one size, and there are few


def stray_file_step(damage: Sequence[Finding], store: str) -> NextStep | None:
    """What a person must decide about a log file under a wrong name; None where there is none."""
    stray = next((finding for finding in damage if finding.id == "commitlog.stray-file"), None)
    if stray is None:
        return None
    command = None
    reason = f"{stray.file} is not part of the commit log under this name. "
    if stray.expected is not None:
        is_missing = not Path(store, stray.expected).exists()  # else an empty file has the right name
        reason += f"Its records belong to {stray.expected}, which is "
        reason += "missing: rename it" if is_missing else "empty: replace that file with it"
        keep = ["-n"] if is_missing else []
        command = shlex.join(["mv", *keep, f"{store}/{stray.file}", f"{store}/{stray.expected}"])
    else:
        reason += (
            "The commit log has no free offset for it: move it out of the store, and keep it until messages are served"
        )
    reason += f". Then run rmqtool recover {shlex.quote(store)} again"
    return NextStep(command, reason, needs_decision=True)


def demand_consent(plan: Plan, *, is_agreed: bool, accept_loss: bool) -> None:
    """Ask whether the plan is to be carried out, and its losses accepted.

    Raises:
        RefusedError: the person does not agree, or nobody can be asked.
    """
    asks = sys.stdin.isatty() and not is_agreed
    for number, what in (
        (
            plan.loss.without_log,
            "messages whose commit log files are missing or too short (is the disk of the commit log mounted?)",
        ),
        (plan.loss.messages - plan.loss.without_log, "messages that can be read now"),
        (plan.lowers_floor_by, "messages that consumers get today (at these queue offsets)"),
    ):
        if number <= 0 or accept_loss:
            continue
        if not asks:
            raise RefusedError(f"the plan discards {number} {what}; pass --accept-loss to agree")
        if not typer.confirm(f"Discard {number} {what}? (yes: the plan is applied; no: nothing is changed)", err=True):
            raise RefusedError("aborted; nothing was changed")
    if asks and not typer.confirm("Apply this plan? (yes: the store is changed; no: nothing is changed)", err=True):
        raise RefusedError("aborted; nothing was changed")
    if not asks and not is_agreed:
        raise RefusedError("confirmation required: pass --yes to apply, or --dry-run to preview")
