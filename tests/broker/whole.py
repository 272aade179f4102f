"""A whole RocketMQ (name server, broker, client) on a store directory: what producers and consumers get."""

import base64
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.broker.broker import Answer, setting_texts
from tests.broker.program import JavaProgram
from tests.broker.versions import version_named

START_TIMEOUT_SECONDS = 600


class WholeBroker:
    """A running broker on one store directory. As a context manager it is stopped cleanly, then ended.

    `topics`: the topics that clients may use, name to `{"readQueueNums", "writeQueueNums", "attributes"}`, beside those
    of the store's own config/topics.json. `config` as for the judge. `port`: the broker's port where it matters,
    because a message id names the broker by address and port.
    """

    def __init__(
        self,
        version: str,
        directory: Path,
        config: Mapping[str, object] | None = None,
        topics: Mapping[str, Any] | None = None,
        *,
        port: int = 0,
    ) -> None:
        settings = setting_texts(config or {})
        directory.mkdir(parents=True, exist_ok=True)
        self.program = JavaProgram(version_named(version), "judge.WholeBroker")
        try:
            #: lastExit, address, nameServer, and min and max physical offset after the start
            self.started: Answer = self.program.ask(
                "start",
                START_TIMEOUT_SECONDS,
                directory=str(directory),
                config=settings,
                topics=dict(topics or {}),
                port=port,
            )
        except Exception:
            self.program.close()
            raise

    def await_route(self, topic: str) -> None:
        """Wait until the name server knows the topic: a broker tells it some time after its start."""
        self.program.ask("awaitRoute", 120, topic=topic)

    def consume(self, topic: str, count: int = 32) -> list[Answer]:
        """Per queue `{"queueId", "min", "max", "messages"}`, pulled by a real client from min on, `count` at a time."""
        queues: list[Answer] = self.program.ask("consume", 120, topic=topic, count=count)["queues"]
        for queue in queues:
            queue["messages"] = [_decoded(message) for message in queue["messages"]]
        return queues

    def bodies(self, topic: str) -> Counter[bytes]:
        """How often each body is delivered."""
        return Counter(message["body"] for queue in self.consume(topic) for message in queue["messages"])

    def bodies_until(self, topic: str, count: int, seconds: float) -> Counter[bytes]:
        """The same once so many different ones are delivered, or the time is over."""
        deadline = time.monotonic() + seconds
        while len(delivered := self.bodies(topic)) < count and time.monotonic() < deadline:
            time.sleep(0.3)
        return delivered

    def view(self, topic: str, message_id: str) -> Answer:
        """The message with this id: physical offset and broker address, or a unique key."""
        return _decoded(self.program.ask("view", topic=topic, messageId=message_id)["message"])

    def query(self, topic: str, key: str, count: int = 64) -> list[Answer]:
        """The messages that the client finds by a key of KEYS; a unique key is looked up with `view`."""
        return [
            _decoded(message) for message in self.program.ask("query", topic=topic, key=key, count=count)["messages"]
        ]

    def send(self, topic: str, queue_id: int, body: bytes, properties: Mapping[str, str] | None = None) -> Answer:
        """`{"status", "queueOffset", "uniqueKey", "messageId"}`."""
        text = base64.b64encode(body).decode()
        return self.program.ask("send", topic=topic, queueId=queue_id, body=text, properties=dict(properties or {}))

    def transact(self, topic: str, body: bytes, state: str) -> Answer:
        """Send a half message; `state` is what its producer does then: COMMIT_MESSAGE, ROLLBACK_MESSAGE, UNKNOW."""
        return self.program.ask("transact", topic=topic, body=base64.b64encode(body).decode(), state=state)

    def checks(self, topic: str, outcomes: Mapping[bytes, str] | None = None) -> dict[bytes, int]:
        """How often the producer was asked about each body; from now on it gives these answers."""
        states = {base64.b64encode(body).decode(): state for body, state in (outcomes or {}).items()}
        counts = self.program.ask("checks", topic=topic, outcomes=states)["checks"]
        return {base64.b64decode(body): count for body, count in counts.items()}

    def remote(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> Answer:
        """Any request to the broker: `{"code", "remark", "fields", "messages"}`."""
        texts = {name: str(value) for name, value in fields.items()}
        answer = self.program.ask("remote", 120, code=code, fields=texts, body=base64.b64encode(body).decode())
        return answer | {"messages": [_decoded(message) for message in answer["messages"]]}

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Note how far a group of consumers is."""
        self.program.ask("commit", group=group, topic=topic, queueId=queue_id, offset=queue_offset)

    def load_offsets(self) -> dict[str, dict[str, str]] | None:
        """The consumer offsets that the broker's own manager reads now: by `topic@group` and queue; None if none."""
        table: dict[str, dict[str, str]] | None = self.program.ask("loadOffsets")["table"]
        return table

    def kill(self) -> None:
        """End it as a crash would."""
        self.program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, trouble: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.program.running:
                self.program.ask("stop", 120)
        finally:
            self.program.close()


def _decoded(message: Answer) -> Answer:
    return message | {"body": base64.b64decode(message["body"])}
