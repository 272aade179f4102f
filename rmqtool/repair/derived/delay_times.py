"""With which delays the queues of delayed messages are written: the broker's, else those that the queues show.

The delivery time of a delayed message is in no record: dispatch computes it from `messageDelayLevel`.
"""

from __future__ import annotations

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
from rmqtool.repair.machine.steps import Remove, Step
from rmqtool.sides.delays import shown_delays
from rmqtool.store.config.broker_conf import BrokerConf
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind, kind_of

_QUEUES: Final = f"consumequeue/{SCHEDULE_TOPIC}/"


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
        """What a person should know of the delays, where steps write queues of delayed messages."""
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
                    f"the queue of delay level {level} shows a delay of {_text(shown)}; it is written with "
                    f"{_text(written)}, as messageDelayLevel says: its messages come at another time"
                )
            elif self.given is None and shown is None:
                notes.append(
                    f"delay level {level} is written with the default delay of {_text(written)}: nothing shows "
                    "messageDelayLevel; if the broker has another one, give it with --broker-conf FILE"
                )
            elif self.given is None and written != parse_delay_levels()[min(level, 18) - 1]:
                notes.append(f"delay level {level} is written with a delay of {_text(written)}, as its queue shows")
        return notes


def delay_times(store: Store, rules: BrokerRules, conf: BrokerConf | None) -> DelayTimes:
    """The delays of a store's levels, with what the broker's configuration says.

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


def _text(delay_ms: int | None) -> str:
    return f"{(delay_ms or 0) // 1000} s"
