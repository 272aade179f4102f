"""Allowed content of a broker's configuration files, and a walk that rebuilds each of them from nothing else.

Broker: `TopicConfigManager`, `SubscriptionGroupManager`, `ConsumerOffsetManager`, `ConsumerFilterManager`,
`QueueLevelConsumerManager`, `MessageRequestModeManager`, `TopicQueueMappingManager`, `ScheduleMessageService`,
`TimerMetrics`, `TransactionMetrics`, `CompactionPositionMgr`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, NamedTuple, TypeAlias

from rmqtool.store.relaxed_json import JsonError, parse_relaxed_json

_LONG: Final = 1 << 63
_NUMBER: Final = re.compile(r"[-+]?\d{1,19}", re.ASCII)
_WORDS: Final = frozenset(
    (
        "SimpleCQ", "BatchCQ", "RocksDBCQ", "DELETE", "COMPACTION", "SINGLE_TAG", "MULTI_TAG", "UNSPECIFIED", "NORMAL",
        "FIFO", "DELAY", "TRANSACTION", "MIXED", "LITE", "PRIORITY", "TAG", "SQL92", "PULL", "POP", "CUSTOMIZED",
        "EXPONENTIAL", "QUEUE", "GROUP", "true", "false",
    )
)  # fmt: skip
"""Words that brokers choose from."""


class Value(Enum):
    """Kind of a value."""

    NUMBER = auto()
    """A number, true, false or null."""
    WORD = auto()
    """One of the words that brokers choose from, or a number."""
    NAME = auto()
    """Names of a topic, group, broker or cluster, with other characters between them."""
    TEXT = auto()
    """Any text of a customer or a client."""


class Map(NamedTuple):
    """An object whose keys are data: numbers or names.

    Attributes:
        with_queue: whether a name is followed by `_` and the number of a queue.
    """

    values: Shape
    with_queue: bool = False


class Attributes(NamedTuple):
    """An object whose keys and values are words."""


Shape: TypeAlias = "Value | Map | Attributes | dict[str, Shape] | list[Shape]"
"""A dict has the fields of an object that are known, all others are left out; a list the shape of a list's items."""


def _numbers(names: str, **others: Shape) -> dict[str, Shape]:
    return {**dict.fromkeys(names.split(), Value.NUMBER), **others}


_VERSION: Final = _numbers("timestamp counter stateVersion")
_BY_QUEUE: Final = Map(Map(Value.NUMBER))
_METRICS: Final = Map(_numbers("count timeStamp"))
_SUBSCRIPTION: Final = _numbers("version", topic=Value.NAME, expressionType=Value.WORD, expression=Value.TEXT)
_RETRY_POLICY: Final[dict[str, Shape]] = {
    "type": Value.WORD,
    "exponentialRetryPolicy": _numbers("initial max multiplier"),
    "customizedRetryPolicy": _numbers("", next=[Value.NUMBER]),
}
_TOPIC: Final = _numbers(
    "readQueueNums writeQueueNums perm topicSysFlag order liteTopicExpiration",
    topicName=Value.NAME, topicFilterType=Value.WORD, attributes=Attributes(),
)  # fmt: skip
_GROUP: Final = _numbers(
    "consumeEnable consumeFromMinEnable consumeBroadcastEnable consumeMessageOrderly retryQueueNums retryMaxTimes "
    "brokerId whichBrokerWhenConsumeSlowly notifyConsumerIdsChangedEnable groupSysFlag consumeTimeoutMinute",
    groupName=Value.NAME, groupRetryPolicy=_RETRY_POLICY, subscriptionDataSet=[_SUBSCRIPTION],
    attributes=Attributes(),
)  # fmt: skip
_FILTER: Final = _numbers(
    "bornTime deadTime clientVersion",
    topic=Value.NAME, consumerGroup=Value.NAME, expressionType=Value.WORD, expression=Value.TEXT,
    bloomFilterData=_numbers("bitNum", bitPos=[Value.NUMBER]),
)  # fmt: skip
_ORDER: Final = _numbers(
    "popTime i l cm invisibleTime lastConsumeTimestamp commitOffsetBit",
    o=[Value.NUMBER], offsetList=[Value.NUMBER], ot=Map(Value.NUMBER),
    offsetNextVisibleTime=Map(Value.NUMBER), oc=Map(Value.NUMBER), offsetConsumedCount=Map(Value.NUMBER),
    a=Value.TEXT, attemptId=Value.TEXT,
)  # fmt: skip
_MAPPING: Final = _numbers(
    "totalQueues epoch dirty",
    topic=Value.NAME, bname=Value.NAME, scope=Value.NAME, currIdMap=Map(Value.NUMBER),
    hostedQueues=Map(
        [_numbers("gen queueId logicOffset startOffset endOffset timeOfStart timeOfEnd", bname=Value.NAME)]
    ),
)  # fmt: skip
_OFFSETS: Final[dict[str, Shape]] = {
    **dict.fromkeys(("offsetTable", "resetOffsetTable", "pullOffsetTable"), _BY_QUEUE),
    "groupTopicMap": Map([Value.NAME]),
    "dataVersion": _VERSION,
}
_SHAPES: Final[dict[str, Shape]] = {
    "topics.json": {"topicConfigTable": Map(_TOPIC), "dataVersion": _VERSION},
    "subscriptionGroup.json": {
        "subscriptionGroupTable": Map(_GROUP),
        "forbiddenTable": _BY_QUEUE,
        "dataVersion": _VERSION,
    },
    "consumerOffset.json": _OFFSETS,
    "lmqConsumerOffset.json": {**_OFFSETS, "lmqOffsetTable": Map(Value.NUMBER)},
    "consumerFilter.json": {"filterDataByTopic": Map({"topic": Value.NAME, "groupFilterData": Map(_FILTER)})},
    "consumerOrderInfo.json": _numbers("orderInfoCount", orderedConsumptionLevel=Value.WORD, table=Map(Map(_ORDER))),
    "messageRequestMode.json": {
        "messageRequestModeMap": Map(
            Map(_numbers("popShareQueueNum", topic=Value.NAME, consumerGroup=Value.NAME, mode=Value.WORD))
        )
    },
    "topicQueueMapping.json": {"topicQueueMappingInfoMap": Map(_MAPPING), "dataVersion": _VERSION},
    "delayOffset.json": {"offsetTable": Map(Value.NUMBER), "dataVersion": _VERSION},
    "timermetrics": {
        "timingCount": _METRICS,
        "timingDistribution": _METRICS,
        "timerDist": [Value.NUMBER],
        "dataVersion": _VERSION,
    },
    "transactionMetrics": {"transactionCount": _METRICS, "dataVersion": _VERSION},
    "position-checkpoint": _numbers("empty", queueOffsetMap=Map(Value.NUMBER, with_queue=True)),
}
_COPIES: Final = (".bak", ".tmp")
_ATTRIBUTES: Final = frozenset(("queue.type", "cleanup.policy", "message.type"))


def shape_of(path: str) -> Shape | None:
    """Allowed content of a configuration file; None for an unknown file."""
    name = path.rpartition("/")[2]
    return _SHAPES.get(next((name.removesuffix(end) for end in _COPIES if name.endswith(end)), name))


def names_in_config(path: str, raw: bytes) -> list[bytes]:
    """Names of topics, groups and brokers in a file, each as often as it is there; those around an `@` as one."""
    shape, names = shape_of(path), list[bytes]()
    if shape is None:
        return names

    def note(name: bytes) -> bytes:
        names.append(name)
        return name

    try:
        Rebuild(note, lambda text: text).text(raw, shape)
    except JsonError:
        return []
    return names


@dataclass(frozen=True)
class Rebuild:
    """Makes a configuration file again.

    Attributes:
        name: what is shown in place of a text that consists of names.
        letters: what is shown in place of any other text.
    """

    name: Callable[[bytes], bytes]
    letters: Callable[[bytes], bytes]

    def text(self, raw: bytes, shape: Shape) -> bytes:
        """The file's JSON, with the declared parts only, as compact as a broker's parser takes it.

        Raises:
            JsonError: it is no JSON of this shape.
        """
        try:
            value = parse_relaxed_json(raw.decode("utf-8", "replace"))
            return _written(self._value(value, shape)).encode("utf-8", "replace")
        except (ValueError, RecursionError) as error:
            raise JsonError("not the JSON of such a file") from error

    def _value(self, value: Any, shape: Shape) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float) and isinstance(shape, Value):
            return value if abs(value) <= _LONG else 0
        if isinstance(value, str) and isinstance(shape, Value):
            return self._string(value, shape)
        if isinstance(value, list) and isinstance(shape, list):
            return [self._value(one, shape[0]) for one in value]
        if isinstance(value, dict) and isinstance(shape, Map | Attributes | dict):
            return dict(self._members(value, shape))
        raise ValueError("a value of another shape")

    def _members(self, value: dict[Any, Any], shape: Map | Attributes | dict[str, Shape]) -> Iterator[tuple[Any, Any]]:
        for key, one in value.items():
            if isinstance(shape, Map):
                yield self._key(key, with_queue=shape.with_queue), self._value(one, shape.values)
            elif isinstance(shape, Attributes):
                yield key if key in _ATTRIBUTES else self._shown(str(key), self.letters), self._value(one, Value.WORD)
            elif key in shape:
                yield key, self._value(one, shape[key])

    def _key(self, key: str | int, *, with_queue: bool) -> str | int:
        if isinstance(key, int):
            return key if abs(key) <= _LONG else 0
        name, mark, number = key.rpartition("_")
        if with_queue and mark and _NUMBER.fullmatch(number):
            return f"{self._shown(name, self.name)}_{number}"
        return self._shown(key, self.name)

    def _string(self, text: str, shape: Value) -> str:
        if shape is Value.NAME:
            return self._shown(text, self.name)
        is_kept = shape is not Value.TEXT and (text in _WORDS or _NUMBER.fullmatch(text) is not None)
        return text if is_kept or not text else self._shown(text, self.letters)

    @staticmethod
    def _shown(text: str, show: Callable[[bytes], bytes]) -> str:
        return show(text.encode("utf-8", "replace")).decode("utf-8", "replace")


def _written(value: Any) -> str:
    """JSON with unquoted numbers as keys, as a broker writes its maps."""
    if isinstance(value, dict):
        members = (f"{key if isinstance(key, int) else json.dumps(key)}:{_written(one)}" for key, one in value.items())
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_written, value))}]"
    return json.dumps(value, ensure_ascii=False)
