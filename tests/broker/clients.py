"""The same requests of clients to a whole broker and to ours, and the two stores side by side."""

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rmqtool.engine.append.client_settings import client_settings
from rmqtool.engine.append.front_door import open_front_door
from rmqtool.engine.append.message import Message, MessageBatch
from rmqtool.engine.append.open_writer import new_store
from rmqtool.engine.append.status import PutResult
from rmqtool.engine.append.store_writer import StoreWriter
from rmqtool.engine.append.writer_config import config_from
from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.reading.record import Record, read_record
from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.recipe import SMALL, TopicSpec, write_topics
from rmqtool.formats import properties as names
from rmqtool.formats.batch import BatchPart, join_batch
from rmqtool.formats.message_id import host_bytes
from rmqtool.formats.properties import encode_properties
from rmqtool.formats.remoting import ResponseCode
from rmqtool.store.config.broker_conf import BrokerConf, broker_conf
from rmqtool.store.directory import Store, survey
from rmqtool.store.view import open_directory
from tests.broker.broker import Answer, setting_texts
from tests.broker.whole import WholeBroker
from tests.broker.writing import differences

SEND_MESSAGE, SEND_BACK, END_TRANSACTION, SEND_BATCH = 10, 36, 37, 320
NEVER_MS = 6_000_000
CONFIG: dict[str, object] = {
    **SMALL,
    "messageDelayLevel": "10h 11h 12h 13h 14h",
    "broker.transactionCheckInterval": NEVER_MS,
    "broker.transactionTimeOut": NEVER_MS,
    "broker.transactionOpBatchInterval": 10_000,  # longer than all requests take, so that one record ends them all
}
TIME_MS = 1_700_000_000_000
COMMIT, ROLLBACK = 8, 12
WAIT_SECONDS = 120


def place_of(answer: Answer) -> int:
    """Physical offset of the message, or of a batch's first one, that an answer tells."""
    first: str = answer["fields"]["msgId"].partition(",")[0]
    return int(first[16:], 16)


@dataclass
class Send:
    """A message to a broker; `properties` as a client has them in its map."""

    topic: str = "orders"
    queue_id: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"hello"
    sys_flag: int = 0
    flag: int = 0
    reconsume_times: int = 0

    def message(self) -> Message:
        return Message(
            topic=self.topic, body=self.body, queue_id=self.queue_id, properties=self.properties, flag=self.flag,
            sys_flag=self.sys_flag, born_timestamp_ms=TIME_MS, reconsume_times=self.reconsume_times,
        )  # fmt: skip

    def to_real(self, broker: WholeBroker) -> Answer:
        return broker.remote(SEND_MESSAGE, self.fields(), self.body)

    def fields(self) -> dict[str, object]:
        text = encode_properties(self.properties, trailing_separator=True).decode()
        return {
            "producerGroup": "shop", "topic": self.topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
            "queueId": self.queue_id, "sysFlag": self.sys_flag, "bornTimestamp": TIME_MS, "flag": self.flag,
            "properties": text, "reconsumeTimes": self.reconsume_times, "unitMode": "false", "batch": "false",
        }  # fmt: skip


@dataclass
class SendBatch(Send):
    """Parts of one batch."""

    bodies: Sequence[bytes] = (b"one", b"two", b"three")

    def parts(self) -> list[BatchPart]:
        return [BatchPart(0, body, b"KEYS\x01k%d" % number) for number, body in enumerate(self.bodies)]

    def to_real(self, broker: WholeBroker) -> Answer:
        given = self.fields()
        fields = {letter: given[name] for letter, name in zip("abcdefghijk", given, strict=False)}
        return broker.remote(SEND_BATCH, {**fields, "m": "true"}, join_batch(self.parts()))


@dataclass
class End:
    """The end of the half message that request `number` sent."""

    number: int
    kind: int = COMMIT
    group: str = "shop"

    def to_real(self, broker: WholeBroker, earlier: Sequence[Answer]) -> Answer:
        sent = earlier[self.number]["fields"]
        fields = {
            "producerGroup": self.group, "tranStateTableOffset": sent["queueOffset"],
            "commitLogOffset": place_of(earlier[self.number]), "commitOrRollback": self.kind,
            "fromTransactionCheck": "false", "msgId": sent["msgId"],
        }  # fmt: skip
        return broker.remote(END_TRANSACTION, fields)


@dataclass
class SendBack:
    """A message sent back by a consumer: that of request `number`, or what lies at a physical offset."""

    number: int | None
    group: str = "buyers"
    level: int = 0
    retries_max: int | None = None
    physical_offset: int = 0

    def to_real(self, broker: WholeBroker, earlier: Sequence[Answer]) -> Answer:
        fields: dict[str, object] = {
            "offset": self.offset(earlier), "group": self.group, "delayLevel": self.level, "originMsgId": "",
            "originTopic": "orders", "unitMode": "false",
        }  # fmt: skip
        if self.retries_max is not None:
            fields["maxReconsumeTimes"] = self.retries_max
        return broker.remote(SEND_BACK, fields)

    def offset(self, earlier: Sequence[Answer]) -> int:
        if self.number is None:
            return self.physical_offset
        return place_of(earlier[self.number])


Request = Send | End | SendBack


@dataclass
class BothAnswered:
    """What each request was answered, and the directories of the two stores."""

    real: list[Answer]
    ours: list[PutResult]
    real_store: Path
    our_store: Path

    def wrong_codes(self) -> list[tuple[int, int, ResponseCode | None, str | None]]:
        """Requests by number that were answered in two ways: the code of the broker, ours, and our reason."""
        pairs = enumerate(zip(self.real, self.ours, strict=True))
        return [
            (number, real["code"], ours.response, f"{ours.reason} / {real['remark']}")
            for number, (real, ours) in pairs
            if ours.response is None or real["code"] != ours.response.value
        ]

    def differences(self) -> Iterator[str]:
        """Where log, queues and index differ; an operation record was born when its broker says."""
        for store in (self.real_store, self.our_store):
            _forget_births(store)
        return differences(self.real_store, self.our_store)


def asked_both(
    version: str,
    path: Path,
    requests: Sequence[Request],
    config: Mapping[str, object] | None = None,
    topics: Mapping[str, Any] | None = None,
    ends: bool = False,
) -> BothAnswered:
    """Send the requests to a whole broker; then, with the times and addresses that it gave, to ours.

    Args:
        ends: some transaction ends, which a broker notes only after a while.
    """
    settings = {**CONFIG, **(config or {})}
    known = {"orders": {"readQueueNums": 4, "writeQueueNums": 4}} if topics is None else topics
    real: list[Answer] = []
    with WholeBroker(version, path / "real", settings, known) as broker:
        for request in requests:
            real.append(request.to_real(broker) if isinstance(request, Send) else request.to_real(broker, real))
        if ends:
            _wait_for_operations(path / "real", settings, version)
        address = broker.started["address"]
    ours = _ask_ours(version, path, requests, real, _conf(settings), known, address)
    return BothAnswered(real, ours, path / "real", path / "ours")


def _conf(settings: Mapping[str, object]) -> BrokerConf:
    """The settings as one file of a broker's would give them."""
    return broker_conf({name.removeprefix("broker."): text for name, text in setting_texts(settings).items()})


def _wait_for_operations(path: Path, settings: Mapping[str, object], version: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if any(record.topic == names.OPERATION_TOPIC for record in _records(path, _conf(settings), version)):
            return
        time.sleep(0.5)
    raise AssertionError("the broker wrote no operation record")


class _Queue(random.Random):
    """Chooses the queue that the real broker chose."""

    chosen = 0

    def randrange(self, *_arguments: Any, **_named: Any) -> int:
        return self.chosen


class _Times:
    """The time that the real broker gave the record at the end of our log."""

    def __init__(self, records: Mapping[int, Record]) -> None:
        self._records = records
        self._last = TIME_MS
        self.writer: StoreWriter | None = None

    def __call__(self) -> int:
        record = self._records.get(self.writer.log_end) if self.writer is not None else None
        self._last = record.store_timestamp_ms if record is not None else self._last
        return self._last


def _ask_ours(
    version: str,
    path: Path,
    requests: Sequence[Request],
    real: Sequence[Answer],
    conf: BrokerConf,
    topics: Mapping[str, Any],
    address: str,
) -> list[PutResult]:
    rules = rules_for(version)
    theirs = {record.physical_offset: record for record in _records(path / "real", conf, version)}
    clock = _Times(theirs)

    def look() -> Store:
        return survey(open_directory(path / "ours"), conf.settings())

    ours = []
    batched = frozenset(name for name, topic in topics.items() if "queue.type" in _attributes(topic))
    config = replace(config_from(conf), batch_topics=batched if rules.batch_queues else frozenset())
    with new_store(path / "ours", rules, config, clock) as writer:
        clock.writer = writer
        _write_topics(path / "ours", topics, with_attributes=rules.batch_queues)
        settings = client_settings(conf, host_bytes(address))
        door, ends = open_front_door(path / "ours", writer, look, settings, clock)
        queue = door._chance = _Queue()
        for number, request in enumerate(requests):
            record = theirs.get(writer.log_end)
            queue.chosen = int(real[number]["fields"].get("queueId", 0))
            ours.append(_ask_one(request, door, ends, real, record))
        ends.write_operations()
    return ours


def _write_topics(store: Path, topics: Mapping[str, Any], *, with_attributes: bool) -> None:
    specs = {name: TopicSpec(topic["writeQueueNums"], _attributes(topic)) for name, topic in topics.items()}
    write_topics(store, specs, with_attributes=with_attributes)
    file = store / "config/topics.json"
    value = json.loads(file.read_text())
    for name, entry in value["topicConfigTable"].items():
        entry.update({key: topics[name][key] for key in ("perm", "order") if key in topics[name]})
    file.write_text(json.dumps(value))


def _attributes(topic: Mapping[str, Any]) -> dict[str, str]:
    """A broker wants a sign before the name of each attribute that it is to add."""
    return {name.removeprefix("+"): value for name, value in topic.get("attributes", {}).items()}


def _ask_one(request: Request, door: Any, ends: Any, real: Sequence[Answer], record: Record | None) -> PutResult:
    if isinstance(request, End):
        offset = place_of(real[request.number])
        ended = ends.end(offset, commit=request.kind == COMMIT, group=request.group)
        # What is rolled back has an operation record only, which may come later.
        return ended[0] if ended else PutResult(ResponseCode.SUCCESS, response=ResponseCode.SUCCESS)
    if isinstance(request, SendBack):
        return door.send_back(request.offset(real), request.group, request.level, request.retries_max)
    message = request.message()
    if record is not None:
        message.born_host, message.store_host = record.born_address, record.store_address
    if isinstance(request, SendBatch):
        return door.send(MessageBatch(shared=message, parts=request.parts()))
    return door.send(message)


def _records(path: Path, conf: BrokerConf, version: str) -> Iterator[Record]:
    """The records of a stopped store, in log order."""
    with open_reader(survey(open_directory(path), conf.settings()), rules_for(version)) as reader:
        for segment in reader.log.segments:
            at = segment.start
            while at < segment.end and (record := read_record(reader.log, at)) is not None and record.size > 8:
                yield record
                at += record.size


def _forget_births(path: Path) -> None:
    """Zero the born times of operation records: a broker takes the time once more before it stores them."""
    for record in list(_records(path, _conf(CONFIG), "5.5.0")):
        if record.topic == names.OPERATION_TOPIC:
            with (path / record.place.path).open("r+b") as file:
                file.seek(record.place.file_position + 40)
                file.write(bytes(8))
