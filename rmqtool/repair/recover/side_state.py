"""The steps of `recover` that concern timers, delay levels and compacted topics: what comes twice, or never.

They are planned for the store as the other steps leave it: only complete queues show what waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnknownSizeError, UnsupportedError
from rmqtool.repair.compaction import plan_compaction
from rmqtool.repair.delays import plan_delays
from rmqtool.repair.machine.plan import ABORT_NAME, Plan
from rmqtool.repair.machine.planned_repair import PlannedRepair
from rmqtool.repair.machine.steps import Step
from rmqtool.repair.recover.log_steps import over_store
from rmqtool.repair.timer import plan_timer
from rmqtool.scan.runner import OnProgress
from rmqtool.store.config.config_json import DELAY_OFFSETS
from rmqtool.store.directory import Store, survey
from rmqtool.verify.catalog.finding import REBUILD_COMPACTION, REBUILD_DELAYS, REBUILD_TIMER
from rmqtool.verify.files.compaction import compaction_findings
from rmqtool.verify.files.config_files import lost_configs, read_store_configs
from rmqtool.verify.files.delays import delay_findings
from rmqtool.verify.files.timers import timer_findings
from rmqtool.verify.survey.account import Account

_Part = tuple[Callable[[Store, BrokerRules], bool], Callable[[Path], PlannedRepair]]
"""Whether something is wrong with it, and what plans its repair in a directory for what is built."""


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
    earlier = tuple(step for step in recovery.steps if step.path != DELAY_OFFSETS)  # its backup is read as well
    view = Plan("recover", "", rules.version, earlier).view_over(store.view)
    after = survey(view, store.settings) if earlier else store
    steps, notes = list[Step](), list[str]()
    parts: list[_Part] = [
        (_is_timer_wrong, partial(plan_timer, after, rules, on_progress=on_progress)),
        (_are_delays_wrong, lambda _folder: plan_delays(after, rules, on_progress)),
        (_are_compacted_topics_wrong, partial(plan_compaction, after, rules)),
    ]
    for is_wrong, plan in parts:
        try:
            if is_wrong(after, rules):
                folder = staging / is_wrong.__name__
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


def _is_timer_wrong(store: Store, rules: BrokerRules) -> bool:
    return any(finding.repair == REBUILD_TIMER for finding in timer_findings(store, rules, Account()))


def _are_delays_wrong(store: Store, rules: BrokerRules) -> bool:
    findings = chain(lost_configs(store, read_store_configs(store)), delay_findings(store, rules))
    return any(finding.repair == REBUILD_DELAYS for finding in findings)


def _are_compacted_topics_wrong(store: Store, rules: BrokerRules) -> bool:
    return any(finding.repair == REBUILD_COMPACTION for finding in compaction_findings(store, rules, Account()))
