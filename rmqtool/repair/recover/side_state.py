"""The steps of `recover` that concern timers, delay levels, compacted topics and configuration that was lost.

They are planned for the store as the other steps leave it: only complete queues show what waits. Of two copies of a
state, the backup that a broker would read and what log and queues show, the one that repeats or loses less is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnknownSizeError, UnsupportedError
from rmqtool.findings.account import Account
from rmqtool.findings.finding import REBUILD_COMPACTION, REBUILD_DELAYS, REBUILD_TIMER, Finding
from rmqtool.forecast.load import blocking_configs
from rmqtool.repair.compaction import plan_compaction
from rmqtool.repair.delays import plan_delays
from rmqtool.repair.machine.plan import ABORT_NAME, PlannedRepair, view_over
from rmqtool.repair.machine.steps import Step, remove_file
from rmqtool.repair.recover.log_steps import over_store
from rmqtool.repair.timer import plan_timer
from rmqtool.repair.topics import plan_topics
from rmqtool.scan.runner import OnProgress
from rmqtool.sides.compaction import compaction_findings
from rmqtool.sides.delays import REPEATS, delay_findings
from rmqtool.sides.timer.check import timer_findings
from rmqtool.store.config.config_json import DELAY_OFFSETS, TIMER_METRICS, TOPICS
from rmqtool.store.config.read_config import StoreConfigs, read_config
from rmqtool.store.directory import Store, survey
from rmqtool.verify.files.lost_configs import lost_configs, topics_without_entry


def with_side_state(
    store: Store, rules: BrokerRules, recovery: PlannedRepair, staging: Path, on_progress: OnProgress | None = None
) -> PlannedRepair:
    """A recovery with the steps for timer, delay levels and compacted topics, where a check of them has findings.

    Args:
        staging: a directory that must stay until the plan is applied.

    Raises:
        UnreadableError, WriteError: a file of the store, or the staging directory, fails.
    """
    if recovery.damage or not store.commitlog:
        return recovery
    # Their backups are read as well.
    earlier = tuple(step for step in recovery.steps if step.path not in (DELAY_OFFSETS, TOPICS))
    view = view_over(store.view, earlier)
    after = survey(view, store.settings) if earlier else store

    def asks(findings: Iterable[Finding], command: str) -> bool:
        return any(finding.repair == command for finding in findings)

    def are_delays_wrong() -> bool:
        return asks(chain(lost_configs(after, rules), delay_findings(after, rules)), REBUILD_DELAYS)

    def is_repeated() -> bool:
        """Whether delay levels deliver some messages a second time, and that is all."""
        return not are_delays_wrong() and any(finding.id == REPEATS for finding in delay_findings(after, rules))

    def lacks_backup_topics() -> bool:
        """Whether a broker reads the topics from a backup, and topics have queues that it does not contain."""
        config = read_config(after.view, TOPICS)
        return config.is_backup and bool(topics_without_entry(after, config))

    # By the name of a folder for what is built: whether something is wrong, and what plans its repair.
    parts: dict[str, tuple[Callable[[], bool], Callable[[Path], PlannedRepair]]] = {
        "timer": (
            lambda: asks(timer_findings(after, rules, Account()), REBUILD_TIMER),
            partial(plan_timer, after, rules, on_progress=on_progress),
        ),
        "delays": (are_delays_wrong, lambda _folder: plan_delays(after, rules, on_progress)),
        "repeats": (is_repeated, lambda _folder: plan_delays(after, rules, on_progress, whole=False)),
        "compaction": (
            lambda: asks(compaction_findings(after, rules, Account()), REBUILD_COMPACTION),
            partial(plan_compaction, after, rules),
        ),
        "topics": (lacks_backup_topics, lambda _folder: plan_topics(after, rules)),
        "blocked": (lambda: bool(_blocking(after, rules)), lambda _folder: _unblocked(after, rules)),
    }
    steps, notes = list[Step](), list[str]()
    for name, (is_wrong, plan) in parts.items():
        try:
            if is_wrong():
                folder = staging / name
                folder.mkdir()
                planned = plan(folder)
                steps += planned.steps
                notes += planned.notes
        except (UnknownSizeError, UnsupportedError) as error:
            notes.append(f"not repaired: {error}")
    changed = {step.path for step in steps}
    kept = [step for step in recovery.steps if step.path not in changed]
    last = [step for step in kept if step.path == ABORT_NAME]
    steps = [step for step in kept if step not in last] + [over_store(store.view, step) for step in steps] + last
    return replace(recovery, steps=tuple(steps), notes=(*recovery.notes, *notes))


def _blocking(store: Store, rules: BrokerRules) -> list[str]:
    """Configuration files that keep a broker from starting, and that nothing rebuilds."""
    blocking = blocking_configs(store, rules, StoreConfigs(store.view))
    return [path for path in blocking if path not in (DELAY_OFFSETS, TOPICS, TIMER_METRICS)]


def _unblocked(store: Store, rules: BrokerRules) -> PlannedRepair:
    """The steps that remove a file and its copy where a broker does not start because it can read neither."""
    paths = _blocking(store, rules)
    copies = [copy for path in paths for copy in (path, f"{path}.bak") if store.view.stat(copy) is not None]
    why = "a broker cannot read it, and does not start while a backup is there that is not JSON"
    notes = tuple(
        f"{path}: neither it nor its backup can be read; without both a broker starts, with defaults. Restore the file "
        "from another copy instead if there is one"
        for path in paths
    )
    return PlannedRepair(tuple(remove_file(store.view, copy, why) for copy in copies), notes)
