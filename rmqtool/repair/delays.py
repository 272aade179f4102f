"""Plans `config/delayOffset.json` again: each level continues at the first message that was not delivered.

A message that was delivered is in the log under its own topic. A broker delivers a level in the order of its queue, so
one offset says all, unless a wrong offset made it leave messages out before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.timers.delays import DelayLevel, delay_levels
from rmqtool.repair.machine.plan import PlannedRepair
from rmqtool.repair.machine.steps import create_file, replace_file
from rmqtool.scan.runner import OnProgress
from rmqtool.store.config.config_json import DELAY_OFFSETS, ConfigState, delay_offsets
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Store
from rmqtool.store.source import Literal

_WHY: Final = "each delay level continues at the first message that was not delivered"


def plan_delays(
    store: Store, rules: BrokerRules, on_progress: OnProgress | None = None, *, whole: bool = True
) -> PlannedRepair:
    """Find what was delivered of each level; a step where the file says something else.

    Args:
        whole: look up all messages; else those from where a broker would deliver, which shows repeats only.

    Raises:
        UnsupportedError: the log is damaged, or messages are missing in the queues.
        UnreadableError: a file may not be read.
    """
    with open_reader(store, rules) as reader:
        levels = delay_levels(reader, whole=whole, on_progress=on_progress)
    config = read_config(store.view, DELAY_OFFSETS)
    offsets = {level.level: level.right for level in levels}
    is_read = config.state is ConfigState.READ
    differs = delay_offsets(config) != offsets if is_read else any(offsets.values()) or _is_broken(config.state)
    if not differs:
        return PlannedRepair(notes=("the offsets of the delay levels match the commit log",))
    content = Literal(_text(config.value or {}, offsets))
    make = create_file if config.state is ConfigState.ABSENT else replace_file
    return PlannedRepair((make(store.view, DELAY_OFFSETS, content, _WHY),), tuple(map(_note, levels)))


def _is_broken(state: ConfigState) -> bool:
    return state is not ConfigState.ABSENT


def _note(level: DelayLevel) -> str:
    again, later = len(level.delivered_from(level.start)), len(level.delivered_from(level.right))
    text = f"delay level {level.level}: continues at {level.right}"
    if level.start == level.right:
        return f"{text} as before"
    text += f" and not at {level.start}"
    if again > later:
        text += f"; not delivered a second time: {again - later}"
    if level.missed:
        text += f"; never delivered without this: {level.missed}"
    if level.start > level.right and later:
        text += f"; delivered already and delivered again, because they come after it: {later}"
    return text


def _text(value: Mapping[Any, Any], queue_offsets: Mapping[int, int]) -> bytes:
    """The file as both of the brokers' JSON libraries read it."""
    table = {str(level): queue_offset for level, queue_offset in sorted(queue_offsets.items())}
    return json.dumps({**value, "offsetTable": table}, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogateescape"
    )
