"""Sends messages one after the other: the order of each queue is kept, and none is sent twice.

A broker may have stored a message whose answer never came, and a killed run may have sent more than its journal says.
In both cases the new queue is read: a message that is there is not sent again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from rmqtool.dump.waiting import DueTimes
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import AnswerError, ConnectionLostError, FrameError, RefusedError
from rmqtool.formats.remoting import STORED, ResponseCode, code_name
from rmqtool.remoting.requests import SentMessage, send_message
from rmqtool.replay.cluster import Cluster
from rmqtool.replay.journal import REFUSALS_MAX, ReplayJournal, TargetQueue, body_digest
from rmqtool.replay.outgoing import REPLAY, NotSent, Outgoing, Selection, UnsentReason, outgoing_messages
from rmqtool.store.directory import Store
from rmqtool.store.dledger_files import demand_plain_log

T = TypeVar("T")
PRODUCER_GROUP: Final = "rmqtool-replay"
PATIENCE_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 1.0
"""Time for a broker to put stored messages into its queues, before a message counts as missing."""
QUEUES_MAX: Final = 1 << 18
"""Queues of all topics that a run sends to: each is in memory and in the state file."""
_SAVED_EVERY_SECONDS: Final = 1.0
_PAUSES: Final = (0.1, 5.0)
_BUSY: Final = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR})
"""Answers after which a message is sent again; after the last one it may be stored all the same."""


@dataclass(frozen=True)
class SourceStore:
    """A store that is replayed, and its messages that wait."""

    store: Store
    rules: BrokerRules
    waiting: DueTimes


class Replay:
    """One run.

    Attributes:
        found: messages that an earlier run, or an answer that never came, had left in the new queues.
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
        self._cluster, self._journal, self._selection = cluster, journal, selection
        self._rate, self._patience_seconds = rate, patience_seconds
        self._there: dict[tuple[int, int], tuple[TargetQueue, int]] = {}
        self._next_save = self._next_send = time.monotonic()
        self.found = 0
        self.state = journal.state

    def run(self, stores: Sequence[SourceStore], on_progress: Callable[[int, int], None]) -> None:
        """Send the rest; the journal is right however this ends.

        Raises:
            RefusedError: a store is not the one that an earlier run has sent from.
            AnswerError, ConnectionLostError: no route, or a broker refuses, or is away or busy for too long.
            UnreadableError, WriteError: a store or the journal fails.
        """
        if self._journal.was_there and not self.state.is_complete:
            # An earlier run may have sent messages after its journal's last line.
            time.sleep(SETTLE_SECONDS)
            for queue in self.state.ends:
                self._there |= self._patiently(partial(self._look, queue), queue)
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
        state, queue = self.state, self._queue(message)
        sent_to = self._there.pop((state.store, message.physical_offset), None)
        if sent_to is not None:
            self.found += 1
            refusal = None
        else:
            if self._rate is not None:
                now = time.monotonic()
                if now < self._next_send:
                    time.sleep(self._next_send - now)
                self._next_send = max(now, self._next_send) + 1 / self._rate
            sent_to, refusal = self._deliver(message, queue)
        if refusal is not None:
            state.not_sent[UnsentReason.REFUSED] += 1
            if len(state.refusals) < REFUSALS_MAX:
                place = {"store": state.store, "physical_offset": message.physical_offset, "topic": message.topic}
                state.refusals.append({**place, "reason": refusal})
            return
        state.ends[sent_to[0]] = max(state.ends[sent_to[0]], sent_to[1] + 1)
        state.sent[message.topic] += 1
        state.last_record = message.physical_offset, body_digest(message.body)

    def _queue(self, message: Outgoing) -> TargetQueue:
        """The queue for a message: one and the same for all messages of its old queue, in every run."""
        topic = self._selection.renames.get(message.topic, message.topic)
        queues = self.state.queues.get(topic)
        if queues is None:
            queues = self._cluster.queues(topic)
            if (count := len(self.state.ends) + len(queues)) > QUEUES_MAX:
                raise AnswerError(
                    f"topic {topic}: with its {len(queues):,} queues this replay has {count:,}, more than "
                    f"{QUEUES_MAX:,}; replay fewer topics at a time, with --topic"
                )
            ends = {queue: self._patiently(partial(self._cluster.end, queue), queue) for queue in queues}
            self.state.queues[topic] = queues
            self.state.ends |= ends
            self._journal.save()  # a later run must know where to look for what is sent from now on
        return queues[message.queue_id % len(queues)]

    def _deliver(self, message: Outgoing, queue: TargetQueue) -> tuple[tuple[TargetQueue, int], str | None]:
        """Send a message until a broker has it; return its queue and offset, or the refusal."""
        key = f"{self._journal.id}:{self.state.store}:{message.physical_offset}"
        text = "".join(f"{name}\x01{value}\x02" for name, value in {**message.properties, REPLAY: key}.items())
        sent = SentMessage(
            queue.topic,
            queue.queue_id,
            message.body,
            text,
            message.flag,
            message.sys_flag,
            message.born_timestamp_ms,
            message.reconsume_times,
        )
        is_unsure = False

        def attempt() -> tuple[tuple[TargetQueue, int], str | None]:
            nonlocal is_unsure
            if is_unsure:
                time.sleep(SETTLE_SECONDS)
                place = self._look(queue).get((self.state.store, message.physical_offset))
                is_unsure = False
                if place is not None:
                    return place, None
            is_unsure = True
            try:
                answer = send_message(self._cluster.broker(queue), sent, PRODUCER_GROUP)
            except ConnectionLostError as error:
                is_unsure = error.was_sent
                raise
            except FrameError as error:
                return (queue, 0), str(error)
            if answer.code in STORED and answer.queue_offset is not None:
                return (queue, answer.queue_offset), None
            is_unsure = answer.code == ResponseCode.SYSTEM_ERROR
            words = f"{code_name(answer.code)}: {answer.remark}"
            if answer.code == ResponseCode.MESSAGE_ILLEGAL:
                return (queue, 0), words
            text = f"broker {queue.broker} refuses messages to topic {queue.topic}: {words}"
            raise AnswerError(text, answer.code)

        return self._patiently(attempt, queue)

    def _patiently(self, attempt: Callable[[], T], queue: TargetQueue) -> T:
        """Retry until it works, or a broker was away or busy for too long."""
        deadline, pause = time.monotonic() + self._patience_seconds, _PAUSES[0]
        while True:
            try:
                return attempt()
            except ConnectionLostError:
                self._cluster.drop(queue)
                if time.monotonic() > deadline:
                    raise
            except AnswerError as error:
                if error.code not in _BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _PAUSES[1])

    def _look(self, queue: TargetQueue) -> dict[tuple[int, int], tuple[TargetQueue, int]]:
        """Messages of this replay that a queue holds after the state's end, by store and physical offset."""
        places: dict[tuple[int, int], tuple[TargetQueue, int]] = {}
        for record in self._cluster.messages(queue, self.state.ends[queue]):
            replay_id, _, key = record.properties.get(REPLAY, "").partition(":")
            store, _, physical_offset = key.partition(":")
            if replay_id == self._journal.id and store.isdecimal() and physical_offset.isdecimal():
                places[int(store), int(physical_offset)] = queue, record.queue_offset
        return places
