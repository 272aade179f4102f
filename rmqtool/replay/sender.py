"""Sends messages to queues of a cluster, each until a broker has it, and finds those that are there already.

A broker may have stored a message whose answer never came, and a killed run may have sent more than its journal says.
In both cases the queue is read: a message that is there is not sent again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeVar

from rmqtool.errors import AnswerError, ConnectionLostError, FrameError
from rmqtool.formats.remoting import STORED, ResponseCode, code_name
from rmqtool.remoting.requests import SentMessage, send_message
from rmqtool.replay.cluster import Cluster
from rmqtool.replay.journal import ReplayJournal, TargetQueue
from rmqtool.replay.outgoing import REPLAY, Outgoing

T = TypeVar("T")
PRODUCER_GROUP: Final = "rmqtool-replay"
PATIENCE_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 1.0
"""Time for a broker to put stored messages into its queues, before a message counts as missing."""
QUEUES_MAX: Final = 1 << 18
"""Queues of all topics that a run sends to: each is in memory and in the state file."""
_PAUSES: Final = (0.1, 5.0)
_BUSY: Final = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR})
"""Answers after which a message is sent again; after the last one it may be stored all the same."""


class QueuePlace(NamedTuple):
    """Where a message is in the cluster."""

    queue: TargetQueue
    queue_offset: int


class Sender:
    """Sends the messages of one replay, each under a key of its own.

    Attributes:
        found: messages that an earlier run, or an answer that never came, had left in the queues.
    """

    def __init__(
        self,
        cluster: Cluster,
        journal: ReplayJournal,
        *,
        rate: float | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Prepare to send.

        Args:
            journal: knows the queues, and where in them to look for messages of an earlier run.
            rate: messages a second at most; None for as fast as the brokers answer.
            patience_seconds: how long a broker may be away or busy before it is an error.
        """
        self._cluster, self._journal = cluster, journal
        self._rate, self._patience_seconds = rate, patience_seconds
        self._next_send = time.monotonic()
        self._there: dict[str, QueuePlace] = {}
        self._ends = dict(journal.state.ends)
        self.found = 0

    def find(self, ends: Mapping[TargetQueue, int]) -> None:
        """Look for what earlier runs sent, in queues from an offset of each on."""
        time.sleep(SETTLE_SECONDS)
        for queue, queue_offset in ends.items():
            self._there |= self._patiently(partial(self._look, queue, queue_offset), queue)

    def queue(self, topic: str, queue_id: int) -> TargetQueue:
        """The queue for a message: one and the same for all messages of its old queue, in every run.

        Raises:
            AnswerError: the topic has no route, or there are too many queues.
        """
        state = self._journal.state
        queues = state.queues.get(topic)
        if queues is None:
            queues = self._cluster.queues(topic)
            if (count := len(state.ends) + len(queues)) > QUEUES_MAX:
                raise AnswerError(
                    f"topic {topic}: with its {len(queues):,} queues this replay has {count:,}, more than "
                    f"{QUEUES_MAX:,}; replay fewer topics at a time, with --topic"
                )
            ends = {queue: self._patiently(partial(self._cluster.end, queue), queue) for queue in queues}
            state.queues[topic] = queues
            state.ends |= ends
            self._ends |= ends
            self._journal.save()  # a later run must know where to look for what is sent from now on
        return queues[queue_id % len(queues)]

    def send(self, message: Outgoing, key: str, queue: TargetQueue) -> tuple[QueuePlace, str | None]:
        """Send a message until a broker has it; return its place, and the refusal if the broker does not take it.

        Raises:
            AnswerError, ConnectionLostError: a broker refuses, or is away or busy for too long.
        """
        place, refusal = self._there.pop(key, None), None
        if place is not None:
            self.found += 1
        else:
            if self._rate is not None:
                now = time.monotonic()
                if now < self._next_send:
                    time.sleep(self._next_send - now)
                self._next_send = max(now, self._next_send) + 1 / self._rate
            place, refusal = self._deliver(message, key, queue)
        if refusal is None:
            self._ends[place.queue] = max(self._ends.get(place.queue, 0), place.queue_offset + 1)
        return place, refusal

    def _deliver(self, message: Outgoing, key: str, queue: TargetQueue) -> tuple[QueuePlace, str | None]:
        stored = {**message.properties, REPLAY: f"{self._journal.id}:{key}"}
        text = "".join(f"{name}\x01{value}\x02" for name, value in stored.items())
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

        def attempt() -> tuple[QueuePlace, str | None]:
            nonlocal is_unsure
            if is_unsure:
                time.sleep(SETTLE_SECONDS)
                place = self._look(queue, self._ends[queue]).get(key)
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
                return QueuePlace(queue, 0), str(error)
            if answer.code in STORED and answer.queue_offset is not None:
                return QueuePlace(queue, answer.queue_offset), None
            is_unsure = answer.code == ResponseCode.SYSTEM_ERROR
            words = f"{code_name(answer.code)}: {answer.remark}"
            if answer.code == ResponseCode.MESSAGE_ILLEGAL:
                return QueuePlace(queue, 0), words
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

    def _look(self, queue: TargetQueue, queue_offset: int) -> dict[str, QueuePlace]:
        """Messages of this replay that a queue holds from an offset on, by their keys."""
        places: dict[str, QueuePlace] = {}
        for record in self._cluster.messages(queue, queue_offset):
            replay_id, _, key = record.properties.get(REPLAY, "").partition(":")
            if replay_id == self._journal.id:
                places[key] = QueuePlace(queue, record.queue_offset)
        return places
