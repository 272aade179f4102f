"""The steps of `recover` that concern timers and delay levels: what a broker would deliver twice, or never.

They are planned for the store as the other steps leave it: only complete queues show what waits.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path

from rmqtool.engine.rules.versions import BrokerRules
from rmqtool.errors import UnknownSizeError, UnsupportedError
from rmqtool.repair.delays import plan_delays
from rmqtool.repair.machine.plan import ABORT_NAME, Plan
from rmqtool.repair.machine.steps import Step
from rmqtool.repair.recover.log_steps import over_store
from rmqtool.repair.recover.plan import Recovery
from rmqtool.repair.timer import plan_timer
from rmqtool.scan.runner import OnProgress
from rmqtool.store.config_json import DELAY_OFFSETS
from rmqtool.store.directory import Store, survey
from rmqtool.verify.catalog.finding import REBUILD_DELAYS, REBUILD_TIMER
from rmqtool.verify.files.config_files import lost_configs, read_store_configs
from rmqtool.verify.files.delays import delay_findings
from rmqtool.verify.files.timers import timer_findings
from rmqtool.verify.survey.account import Account


def with_side_state(
    store: Store, rules: BrokerRules, recovery: Recovery, staging: Path, on_progress: OnProgress | None = None
) -> Recovery:
    """A recovery with the steps for timer and delay levels, where a check of them has findings.

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
    try:
        if any(finding.repair == REBUILD_TIMER for finding in timer_findings(after, rules, Account())):
            folder = staging / "timer"
            folder.mkdir()
            timer = plan_timer(after, rules, folder, on_progress=on_progress)
            steps += timer.steps
            notes += timer.notes
        if _are_delays_wrong(after, rules):
            delays = plan_delays(after, rules, on_progress)
            steps += delays.steps
            notes += delays.notes
    except (UnknownSizeError, UnsupportedError) as error:
        notes.append(f"not repaired: {error}")
    changed = {step.path for step in steps}
    kept = [step for step in recovery.steps if step.path not in changed]
    last = [step for step in kept if step.path == ABORT_NAME]
    steps = [step for step in kept if step not in last] + [over_store(store.view, step) for step in steps] + last
    return replace(recovery, steps=tuple(steps), notes=(*recovery.notes, *notes))


def _are_delays_wrong(store: Store, rules: BrokerRules) -> bool:
    findings = chain(lost_configs(store, read_store_configs(store)), delay_findings(store, rules))
    return any(finding.repair == REBUILD_DELAYS for finding in findings)
