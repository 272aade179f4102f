"""`append` as a broker's client: sends messages, ends transactions, sends messages back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from rmqtool.engine.append.client_settings import client_settings
from rmqtool.engine.append.front_door import open_front_door
from rmqtool.engine.append.message import DEFAULT_STORE_HOST, Message, MessageBatch
from rmqtool.engine.append.status import PutResult
from rmqtool.engine.append.store_writer import StoreWriter
from rmqtool.errors import UsageError
from rmqtool.formats import properties as names
from rmqtool.formats import system_flag
from rmqtool.store.config.broker_conf import BrokerConf
from rmqtool.store.directory import Store

Put = Message | MessageBatch
_ENDS = {"commit": True, "rollback": False}


@dataclass(frozen=True, kw_only=True)
class ClientRequest:
    """Options besides the messages.

    Attributes:
        is_client: messages are sent as by a client, and checked as a broker checks them.
        transaction: prepared, commit or rollback; none for a plain message.
        half_offsets: physical offsets of the half messages to end.
        reconsumed: physical offsets of the messages to send back.
        level: delay level of these.
    """

    is_client: bool
    seed: int
    transaction: str
    producer_group: str
    half_offsets: tuple[int, ...]
    reconsumed: tuple[int, ...]
    group: str | None
    level: int
    retries_max: int | None
    store_host: bytes = DEFAULT_STORE_HOST

    def check(self, sources: int, queue_id: int) -> None:
        """Refuse what contradicts itself.

        Args:
            sources: how many of `--topic` and `--from` were given.

        Raises:
            UsageError: something does.
        """
        if sources + bool(self.half_offsets) + bool(self.reconsumed) != 1:
            raise UsageError(
                "use either --topic (one message, or --count messages) or --from FILE, or --half-offset, or --reconsume"
            )
        if self.half_offsets and self.transaction not in _ENDS:
            raise UsageError("--half-offset: say how the transaction ends: --transaction commit or rollback")
        if self.reconsumed and not self.group:
            raise UsageError("--reconsume: name the group of the consumer with --group")
        if queue_id < 0 and not self.is_client:
            raise UsageError("--queue-id: only a broker chooses a queue for a negative number; use --as-client")
        if self.is_client and sources and self.transaction in _ENDS:
            raise UsageError(f"--transaction {self.transaction}: name the half message with --half-offset")

    @property
    def asks_broker(self) -> bool:
        """Whether the store is asked by way of a broker's request processors."""
        return self.is_client or bool(self.half_offsets) or bool(self.reconsumed)

    def as_sent(self, messages: Iterable[Put]) -> Iterator[Put]:
        """The messages as a producer makes them of a prepared transaction; others as they are."""
        is_prepared = self.is_client and self.transaction == "prepared"
        for message in messages:
            if is_prepared and isinstance(message, Message):
                marks = {names.TRANSACTION_PREPARED: "true", names.PRODUCER_GROUP: self.producer_group}
                flag = message.sys_flag | system_flag.TRANSACTION_PREPARED
                yield replace(message, properties={**message.properties, **marks}, sys_flag=flag)
            else:
                yield message


def answers(
    request: ClientRequest,
    writer: StoreWriter,
    groups: Iterable[Sequence[Put]],
    root: Path,
    look: Callable[[], Store],
    conf: BrokerConf | None,
) -> Iterator[Sequence[PutResult]]:
    """Put the messages, group by group, or do what else was asked for; what became of each."""
    if not request.asks_broker:
        yield from map(writer.put_group, groups)
        return
    settings = client_settings(conf, request.store_host)
    door, ends = open_front_door(root, writer, look, settings, seed=request.seed)
    for group in groups:
        # A record that was dumped whole is stored as it was: no client sent it.
        yield [
            writer.put(message) if isinstance(message, Message) and message.is_final else door.send(message)
            for message in group
        ]
    for offset in request.reconsumed:
        yield [door.send_back(offset, request.group or "", request.level, request.retries_max)]
    if request.half_offsets:
        ended = (ends.end(offset, commit=_ENDS[request.transaction]) for offset in request.half_offsets)
        yield from chain(ended, (ends.write_operations() for _ in range(1)))
