"""`rmqtool rebuild`: queues, index and checkpoint again from the log. How they are built is decided in `repair`."""

from __future__ import annotations

import glob
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from rmqtool.commands.options.completion import topics
from rmqtool.commands.options.help_groups import option
from rmqtool.commands.options.spark import ConfOption, MasterOption, runner
from rmqtool.commands.options.topic_names import absent_topics
from rmqtool.commands.repairs.repair_command import repair_command
from rmqtool.commands.repairs.repair_plan import Planner, RepairRun
from rmqtool.engine.dispatch.derived_writer import BATCH_QUEUES, QUEUES
from rmqtool.errors import UsageError
from rmqtool.repair.compaction import plan_compaction
from rmqtool.repair.delays import plan_delays
from rmqtool.repair.machine.plan import PlannedRepair
from rmqtool.repair.rebuild import ONLY_A_PART, RebuildChoice, plan_rebuild, require_log
from rmqtool.repair.timer import plan_timer
from rmqtool.repair.topics import plan_topics, with_restored_topics
from rmqtool.scan.runner import OnProgress
from rmqtool.store.directory import Store

_ROOTS: Final = (QUEUES, BATCH_QUEUES)


@repair_command
def rebuild(
    repair: RepairRun,
    queues: Annotated[bool, option("--queues", "The consume queues.")] = False,
    index: Annotated[bool, option("--index", "The index.")] = False,
    checkpoint: Annotated[bool, option("--checkpoint", "The checkpoint.")] = False,
    timer: Annotated[
        bool, option("--timer", "Timer wheel, timer log and timercheck, with the messages that wait.")
    ] = False,
    delay_offsets: Annotated[
        bool, option("--delay-offsets", "config/delayOffset.json, from what was delivered.")
    ] = False,
    topics_json: Annotated[
        bool, option("--topics", "config/topics.json: topics with queues that are missing in it.")
    ] = False,
    compaction: Annotated[
        bool, option("--compaction", "Log and queues of compacted topics that do not match the commit log.")
    ] = False,
    topic: Annotated[
        list[str] | None, option("--topic T", "Only the queues of this topic; repeatable.", autocompletion=topics)
    ] = None,
    restore_deleted: Annotated[
        bool, option("--restore-deleted", "Bring topics back that were deleted, as far as the log has them.")
    ] = False,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> Planner:
    """Rebuild consume queues, index and checkpoint from the commit log: all of them, or what is named.

    Timer, delay offsets, topics.json and compacted topics are rebuilt only with their options, and alone. Only files
    that do not match the commit log are changed. A topic that was deleted stays deleted, unless --topic names it or
    --restore-deleted is given: then its queues come back, and its entry in topics.json with guessed settings. The plan
    comes first. The exit code of --dry-run is 3 if there is something to do.

    Example: rmqtool rebuild /home/rocketmq/store --queues --topic Orders --dry-run
    """
    choice = RebuildChoice(queues or restore_deleted, index, checkpoint, frozenset(topic) if topic else None)
    restored = None if restore_deleted else frozenset(topic or ())
    alone = {"timer": timer, "delay offsets": delay_offsets, "topics": topics_json, "compaction": compaction}
    chosen = [name for name, is_chosen in alone.items() if is_chosen]
    if chosen:
        if queues or index or checkpoint or topic or restore_deleted or master or len(chosen) > 1:
            flag = f"--{chosen[0].replace(' ', '-')}"
            raise UsageError(f"{flag}: rebuild the {chosen[0]} alone, after the consume queues")
        return partial(_plan_alone, repair, chosen[0])

    def plan(store: Store, staging: Path, on_progress: OnProgress) -> PlannedRepair:
        options = replace(repair.build_options, restored=restored)
        staging = staging if master is None else staging.resolve()  # other processes write into it too
        with runner(master, conf, repair.messages) as splits:
            planned = plan_rebuild(store, repair.opened.rules, choice, staging, options, on_progress, splits)
        planned = with_restored_topics(store, repair.opened.rules, planned, restored)
        for name in topic or ():
            if not any((staging / root / name).is_dir() for root in _ROOTS):  # the log has no message of it
                for text in absent_topics([store], [glob.escape(name)]):
                    raise UsageError(f"--topic: {text}")
        return planned

    return plan


def _plan_alone(repair: RepairRun, name: str, store: Store, staging: Path, on_progress: OnProgress) -> PlannedRepair:
    require_log(store)
    rules = repair.opened.rules
    if name == "timer":
        planned = plan_timer(store, rules, staging, on_progress=on_progress)
    elif name == "topics":
        planned = plan_topics(store, rules)
    elif name == "compaction":
        planned = plan_compaction(store, rules, staging)
    else:
        planned = plan_delays(store, rules, on_progress)
    return replace(planned, abort_stays=ONLY_A_PART if store.has_abort else None)
