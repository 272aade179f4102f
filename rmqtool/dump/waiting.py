"""Messages that wait for their time, by where they are in the log: what `dump --pending` lists, for other rooms."""

from __future__ import annotations

from rmqtool.dump.listings import ListingDump
from rmqtool.dump.request import Request
from rmqtool.dump.target import DumpKind, Target
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.formats import properties
from rmqtool.store.directory import Store

DELAYED_TOPICS = frozenset({properties.SCHEDULE_TOPIC, properties.TIMER_TOPIC})
"""Topics in which messages wait; each record names the topic that it was sent to."""


class DueTimes(dict[int, int]):
    """Due time in ms by physical offset; and problems: what could not be read, as sentences."""

    problems: tuple[str, ...] = ()


def waiting_of(store: Store, rules: BrokerRules) -> DueTimes:
    """The messages that the store's broker would still deliver."""
    listing = ListingDump(Target(DumpKind.PENDING, store.view, (), store=store), Request(broker_version=rules.version))
    rows = (row for row in listing.rows() if not row["deletes"])
    waiting = DueTimes((row["physical_offset"], row["due_timestamp_ms"]) for row in rows)
    waiting.problems = tuple(listing.problems)
    return waiting
