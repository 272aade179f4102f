"""Plans `config/delayOffset.json` again: each level continues at the first message that was not delivered.

A message that was delivered is in the log under its own topic. A broker delivers a level in the order of its queue, so
one offset says all, unless a wrong offset made it leave messages out before.

The queues of delayed messages are written with the broker's delays, else with those that the queues show. The delivery
time of a delayed message is in no record: dispatch computes it from `messageDelayLevel`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import RefusedError, UnreadableError, UnsupportedError
from rmqtool.formats.properties import SCHEDULE_TOPIC
from rmqtool.formats.tags import DEFAULT_DELAY_LEVELS, parse_delay_levels
from rmqtool.repair.machine.plan import PlannedRepair
from rmqtool.repair.machine.steps import Remove, Step, create_file, replace_file
from rmqtool.scan.runner import OnProgress
from rmqtool.sides.delays import DelayLevel, delay_levels, shown_delays
from rmqtool.store.config.broker_conf import BrokerConf
from rmqtool.store.config.config_json import ConfigState, delay_offsets
from rmqtool.store.config.config_kinds import DELAY_OFFSETS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind, kind_of
from rmqtool.store.source import Literal

_QUEUES: Final = f"consumequeue/{SCHEDULE_TOPIC}/"

_WHY: Final = "each delay level continues at the first message that was not delivered"


def plan_delays(
    store: Store, rules: BrokerRules, on_progress: OnProgress | None = None, *, whole: bool = True
) -> PlannedRepair:
    """Find the delivered messages of each level; return a step where the file differs.

    Args:
        whole: look up all messages; else those from where a broker would deliver, which shows repeats only.

    Raises:
        UnsupportedError: the log is damaged, or messages are missing in the queues.
    """
    with open_reader(store, rules) as reader:
        levels = delay_levels(reader, whole=whole, on_progress=on_progress)
    config = read_config(store.view, DELAY_OFFSETS)
    offsets = {level.level: level.right for level in levels}
    is_read = config.state is ConfigState.READ
    is_missing_something = any(offsets.values()) or config.state is not ConfigState.ABSENT
    if not (delay_offsets(config) != offsets if is_read else is_missing_something):
        return PlannedRepair(notes=("the offsets of the delay levels match the commit log",))
    table = {str(level): queue_offset for level, queue_offset in sorted(offsets.items())}
    # As both of the brokers' JSON libraries read it.
    text = json.dumps({**(config.value or {}), "offsetTable": table}, ensure_ascii=False, separators=(",", ":"))
    content = Literal(text.encode("utf-8", "surrogateescape"))
    make = create_file if config.state is ConfigState.ABSENT else replace_file
    return PlannedRepair((make(store.view, DELAY_OFFSETS, content, _WHY),), tuple(map(_note, levels)))


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


@dataclass(frozen=True)
class DelayTimes:
    """The delays of a store's levels.

    Attributes:
        given: what the broker's configuration says, its default included; None where nothing says it.
    """

    store: Store
    rules: BrokerRules
    given: tuple[int, ...] | None

    @cached_property
    def shown(self) -> dict[int, int]:
        """Milliseconds by level, as the queues show them."""
        if not any(topic == SCHEDULE_TOPIC for topic, _ in self.store.queues) and self.store.queue_database is None:
            return {}
        with suppress(UnreadableError, UnsupportedError), open_reader(self.store, self.rules) as reader:
            return shown_delays(reader)
        return {}

    @cached_property
    def delays_ms(self) -> tuple[int, ...]:
        """Milliseconds of levels 1, 2, ..., with which units are written."""
        if self.given is not None:
            return self.given
        delays = list(parse_delay_levels())
        for level, delay_ms in sorted(self.shown.items()):
            delays += delays[-1:] * (level - len(delays))
            delays[level - 1] = delay_ms
        return tuple(delays)

    def notes(self, steps: Iterable[Step]) -> list[str]:
        """Notes for a person about the delays, where steps write queues of delayed messages."""
        paths = [step.path for step in steps if not isinstance(step, Remove)]
        numbers = {path.split("/")[2] for path in paths if path.startswith(_QUEUES)}
        levels = {int(number) + 1 for number in numbers if number.isascii() and number.isdigit()}
        if any(kind_of(path) is FileKind.CONSUMEQUEUE_ROCKSDB for path in paths):
            levels |= self.shown.keys()
        notes = []
        for level in sorted(levels):
            written = self.delays_ms[min(level, len(self.delays_ms)) - 1]
            shown = self.shown.get(level)
            if shown not in (None, written):
                notes.append(
                    f"the queue of delay level {level} shows a delay of {_seconds(shown)}; it is written with "
                    f"{_seconds(written)}, as messageDelayLevel says: its messages come at another time"
                )
            elif self.given is None and shown is None:
                notes.append(
                    f"delay level {level} is written with the default delay of {_seconds(written)}: nothing shows "
                    "messageDelayLevel; if the broker has another one, give it with --broker-conf FILE"
                )
            elif self.given is None and written != parse_delay_levels()[min(level, 18) - 1]:
                notes.append(f"delay level {level} is written with a delay of {_seconds(written)}, as its queue shows")
        return notes


def delay_times(store: Store, rules: BrokerRules, conf: BrokerConf | None) -> DelayTimes:
    """The delays of a store's levels, by the broker's configuration.

    Raises:
        RefusedError: it says what are no delays.
    """
    text = None if conf is None else conf.delay_levels
    if text is None and conf is not None and conf.is_whole:
        text = DEFAULT_DELAY_LEVELS
    try:
        return DelayTimes(store, rules, None if text is None else parse_delay_levels(text))
    except ValueError as error:
        raise RefusedError(
            f"{conf.path if conf is not None else store.view.label}: {error}; no broker starts with it"
        ) from error


def _seconds(delay_ms: int | None) -> str:
    return f"{(delay_ms or 0) // 1000} s"
