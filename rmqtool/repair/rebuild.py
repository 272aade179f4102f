"""Plans `rebuild`: consume queues, index and checkpoint again from the log, whole or for chosen topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rmqtool.engine.reading.log_presence import may_hold_messages
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnsupportedError
from rmqtool.findings.account import Account
from rmqtool.findings.finding import Severity
from rmqtool.repair.derived.build import TAIL_FINDINGS, build
from rmqtool.repair.derived.database_build import build_database
from rmqtool.repair.derived.result import (
    BuildOptions,
    BuildRequest,
    BuildResult,
    abort_reason,
    abort_steps,
    checkpoint_steps,
)
from rmqtool.repair.machine.plan import PlannedRepair
from rmqtool.repair.remaining import READ_AGAIN_MAX
from rmqtool.scan.runner import OnProgress, Runner
from rmqtool.sides.dledger import dledger_findings
from rmqtool.store.directory import Store
from rmqtool.store.dledger_files import demand_plain_log, with_dledger_log
from rmqtool.store.file_kinds import FileKind

WHY = "rebuilt from the commit log"
ONLY_A_PART: Final = "only a part was rebuilt: rmqtool recover repairs the rest"


@dataclass(frozen=True)
class RebuildChoice:
    """Requested parts of a rebuild; with all False everything is built that the broker dispatches.

    Attributes:
        topics: only queues of these; None: of all.
    """

    queues: bool = False
    index: bool = False
    checkpoint: bool = False
    topics: frozenset[str] | None = None

    @property
    def is_whole(self) -> bool:
        """True if all that dispatch writes is requested."""
        parts = (self.queues, self.index, self.checkpoint)
        return self.topics is None and (all(parts[:2]) or not any(parts))

    def includes(self, part: str) -> bool:
        """True if "queues", "index" or "checkpoint" is built."""
        if self.queues or self.index or self.checkpoint:
            return bool(getattr(self, part))
        return self.topics is None or part == "queues"


def plan_rebuild(
    store: Store,
    rules: BrokerRules,
    choice: RebuildChoice,
    staging: Path,
    options: BuildOptions | None = None,
    on_progress: OnProgress | None = None,
    runner: Runner | None = None,
) -> PlannedRepair:
    """Build into the staging directory, and find the steps that bring it into the store.

    Args:
        runner: what reads the log, and writes queues and index; None: threads of this process.

    Raises:
        UnsupportedError: the log is damaged, or of a kind that is not read; nothing can be rebuilt from it.
    """
    options = options or BuildOptions()
    store = with_dledger_log(store) if rules.dledger else store
    require_log(store)
    if store.has_dledger_log:
        require_sound_entries(store, rules, store.commitlog[-1].path)
    with_queues, notes = choice.includes("queues"), list[str]()
    if with_queues and store.queue_kind == "mixed":
        with_queues = False
        notes.append(
            "the consume queues are in files and in RocksDB, and are not changed: the broker itself adds missing "
            "messages at a start with `abort` (mqadmin checkRocksdbCqWriteProgress compares the two)"
        )
    # Of a log that is too large to be read again, the plan's check does not look at keys.
    log_bytes = sum(segment.entry.allocated_bytes for segment in store.commitlog)
    options = replace(options, keeps_keys=log_bytes <= READ_AGAIN_MAX)
    in_database = store.queue_database is not None
    queue_filter = _chosen(choice) if with_queues and not in_database else None
    # An index that the broker does not make is built only on explicit request.
    with_index = choice.index or (choice.includes("index") and store.settings.makes_index is not False)
    built = build(store, rules, BuildRequest(queue_filter, with_index), staging, options, on_progress, runner)
    require_intact(built)
    again: Mapping[str, int] = built.again
    steps, notes = [*built.steps(WHY, WHY)], [*notes, *built.notes()]
    if with_queues and in_database:
        selects = None if choice.topics is None else _chosen(choice)
        database = build_database(store, rules, selects, None, staging, options, on_progress)
        require_intact(replace(built, bad=database.bad))
        steps += database.steps(WHY)
        again = database.again
        notes += database.notes
    stays = None
    is_due = steps or store.has_abort or store.first(FileKind.CHECKPOINT) is None
    if choice.checkpoint or (choice.is_whole and is_due):
        stays = abort_reason(store, rules) if store.has_abort else None
        if built.bad is not None and store.has_abort:
            stays = stays or "the end of the commit log is not clean: rmqtool recover truncates it"
        if not choice.is_whole and store.has_abort:
            stays = stays or ONLY_A_PART
        if stays is None:
            steps += checkpoint_steps(store, rules, built.last_record, built.log_end)
            steps += abort_steps(store)
    elif store.has_abort:
        stays = ONLY_A_PART
    return PlannedRepair(tuple(steps), tuple(notes), abort_stays=stays, again=again)


def require_log(store: Store) -> None:
    """Refuse a store whose log cannot be read as it is.

    Raises:
        UnsupportedError: there is none, or a file of it has another size.
    """
    demand_plain_log(store)
    if not store.commitlog:
        text = "the log is missing: check that its disk is mounted; nothing can be rebuilt from it"
        if not may_hold_messages(store):
            text = "there is no message, so there is nothing to rebuild"
        raise UnsupportedError(f"{store.view.label}: {text}")


def require_sound_entries(store: Store, rules: BrokerRules, last_path: str) -> None:
    """Refuse a log of DLedger that is damaged, but for bytes after its last entry, which DLedger removes.

    Args:
        last_path: of the last file with entries.

    Raises:
        UnsupportedError: it is.
    """
    findings = list(dledger_findings(store, rules, Account()))
    for finding in findings:
        is_at_end = finding.id == "dledger.bad-entry" and finding.file == last_path and len(findings) == 1
        if not is_at_end and finding.severity is Severity.ERROR:
            raise UnsupportedError(
                f"{store.view.label}: {finding.id} in {finding.file}: {finding.message}; nothing is written: copy the "
                "directory from another member of the group first"
            )


def require_intact(built: BuildResult) -> None:
    """Refuse to build from a log that has damage inside, with UnsupportedError."""
    if built.bad is not None and built.bad[2] not in TAIL_FINDINGS:
        place, length, what = built.bad
        raise UnsupportedError(
            f"the commit log is damaged at {place} ({what}, {length} bytes): nothing is rebuilt, because the messages "
            "after the damage would be missing; run rmqtool salvage first"
        )


def _chosen(choice: RebuildChoice) -> Callable[[str, int], bool]:
    topics = choice.topics
    if topics is None:
        return lambda _topic, _queue_id: True
    return lambda topic, _queue_id: topic in topics
