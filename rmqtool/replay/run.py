"""Sends the messages of stores one after the other: the order of each queue is kept, and none is sent twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rmqtool.dump.waiting import DueTimes
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import RefusedError
from rmqtool.replay.cluster import Cluster
from rmqtool.replay.journal import REFUSALS_MAX, ReplayJournal, body_digest
from rmqtool.replay.outgoing import REPLAY, NotSent, Outgoing, Selection, UnsentReason, outgoing_messages
from rmqtool.replay.sender import PATIENCE_SECONDS, Sender
from rmqtool.store.directory import Store
from rmqtool.store.dledger_files import demand_plain_log

_SAVED_EVERY_SECONDS: Final = 1.0


@dataclass(frozen=True)
class SourceStore:
    """A store that is replayed, and its messages that wait."""

    store: Store
    rules: BrokerRules
    waiting: DueTimes


class Replay:
    """One run.

    Attributes:
        state: how far the run is.
    """

    def __init__(
        self,
        cluster: Cluster,
        journal: ReplayJournal,
        selection: Selection,
        *,
        rate: float | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Prepare a run.

        Args:
            rate: messages a second at most; None for as fast as the brokers answer.
            patience_seconds: how long a broker may be away or busy before the run ends.
        """
        self._journal, self._selection = journal, selection
        self._sender = Sender(cluster, journal, rate=rate, patience_seconds=patience_seconds)
        self._next_save = time.monotonic()
        self.state = journal.state

    @property
    def found(self) -> int:
        """Messages that an earlier run, or an answer that never came, had left in the new queues."""
        return self._sender.found

    def run(self, stores: Sequence[SourceStore], on_progress: Callable[[int, int], None]) -> None:
        """Send the rest; the journal is right however this ends.

        Raises:
            RefusedError: a store is not the one that an earlier run has sent from.
            AnswerError, ConnectionLostError: no route, or a broker refuses, or is away or busy for too long.
            UnreadableError, WriteError: a store or the journal fails.
        """
        if self._journal.was_there and not self.state.is_complete:
            # An earlier run may have sent messages after its journal's last line.
            self._sender.find(self.state.ends)
        try:
            while self.state.store < len(stores):
                self._store(stores[self.state.store], on_progress)
                self.state.store += 1
                self.state.next_physical_offset, self.state.last_record = 0, None
                if self.state.store < len(stores):
                    self._journal.save()
            self.state.is_complete = True
        finally:
            self._journal.save()

    def _store(self, source: SourceStore, on_progress: Callable[[int, int], None]) -> None:
        state, last = self.state, self.state.last_record
        start = last[0] if last is not None else state.next_physical_offset
        demand_plain_log(source.store)
        log = source.store.commitlog
        begin, end = (log[0].start, log[-1].end) if log else (0, 0)
        now_ms = int(time.time() * 1000)
        for entry in outgoing_messages(source.store, source.rules, self._selection, source.waiting, now_ms, start):
            if last is not None:
                is_same = isinstance(entry, Outgoing) and (entry.physical_offset, body_digest(entry.body)) == last
                if not is_same:
                    raise RefusedError(
                        f"{source.store.view.label}: at {last[0]} the commit log does not hold the message that an "
                        "earlier run sent: this is another store, or it has changed since"
                    )
                last = None
            replay_id = entry.properties.get(REPLAY, "").partition(":")[0] if isinstance(entry, Outgoing) else None
            if entry.physical_offset < state.next_physical_offset or (replay_id == self._journal.id):
                continue
            if isinstance(entry, NotSent):
                state.not_sent[entry.reason] += 1
            else:
                self._send(entry)
            state.next_physical_offset = entry.end
            if time.monotonic() >= self._next_save:
                self._journal.save()
                self._next_save = time.monotonic() + _SAVED_EVERY_SECONDS
                on_progress(entry.end - begin, end - begin)

    def _send(self, message: Outgoing) -> None:
        """Send one message, and note that in the state; the journal has it after the next save."""
        state, sender = self.state, self._sender
        queue = sender.queue(self._selection.renames.get(message.topic, message.topic), message.queue_id)
        place, refusal = sender.send(message, f"{state.store}:{message.physical_offset}", queue)
        if refusal is not None:
            state.not_sent[UnsentReason.REFUSED] += 1
            if len(state.refusals) < REFUSALS_MAX:
                record = {"store": state.store, "physical_offset": message.physical_offset, "topic": message.topic}
                state.refusals.append({**record, "reason": refusal})
            return
        state.ends[place.queue] = max(state.ends[place.queue], place.queue_offset + 1)
        state.sent[message.topic] += 1
        state.last_record = message.physical_offset, body_digest(message.body)
