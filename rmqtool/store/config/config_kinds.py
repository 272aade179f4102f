"""What is known of each file of a broker's configuration, one row a file: its shape, who loads it, who writes it.

Another file is one more row: forecast, recover, extract, diff and evidence follow from it. Data only; what the entries
mean is in `config_json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from rmqtool.findings.finding import REBUILD_DELAYS, REBUILD_TIMER, REBUILD_TOPICS

TOPICS: Final = "config/topics.json"
CONSUMER_OFFSETS: Final = "config/consumerOffset.json"
LMQ_CONSUMER_OFFSETS: Final = "config/lmqConsumerOffset.json"
"""Read instead of the file of consumer offsets by a broker with `enableLmq=true`; has offsets of all queues."""
ORDERED_CONSUMPTION: Final = "config/consumerOrderInfo.json"
"""Messages that pop consumers who receive in order hold, which block their queues."""
GROUPS: Final = "config/subscriptionGroup.json"
CONSUMER_FILTERS: Final = "config/consumerFilter.json"
DELAY_OFFSETS: Final = "config/delayOffset.json"
TIMER_METRICS: Final = "config/timermetrics"
WORDS: Final = frozenset(
    (
        "SimpleCQ", "BatchCQ", "RocksDBCQ", "DELETE", "COMPACTION", "SINGLE_TAG", "MULTI_TAG", "UNSPECIFIED", "NORMAL",
        "FIFO", "DELAY", "TRANSACTION", "MIXED", "LITE", "PRIORITY", "TAG", "SQL92", "PULL", "POP", "CUSTOMIZED",
        "EXPONENTIAL", "QUEUE", "GROUP", "true", "false",
    )
)  # fmt: skip
"""What brokers choose from."""


class Value(Enum):
    """Kind of a value."""

    NUMBER = auto()
    """A number, true, false or null."""
    WORD = auto()
    """One of `WORDS`, or a number."""
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


class Join(Enum):
    """How `extract` makes one entry of those that several stores have under a key."""

    MOST_QUEUES = auto()
    FIRST = auto()
    """That of the first store."""
    HIGHEST_OFFSETS = auto()
    """Each queue's highest one; none where queue offsets are given out again."""


class Loading(NamedTuple):
    """How a broker loads a file before it starts (`BrokerController#initialize`, `ConfigManager#load`).

    Attributes:
        rule: name of the switch in `BrokerRules` that is on for the versions that load it; None: all do.
        is_required: whether a broker does not start if it needs the `.bak` and that is not JSON.
    """

    rule: str | None = None
    is_required: bool = True


class DatabaseNames(NamedTuple):
    """Where a broker can keep a file's content in RocksDB instead.

    Attributes:
        directory: of a database for this content alone.
        family: column family of the table in the common database; the one of the version is named after it.
    """

    directory: str
    family: str


@dataclass(frozen=True)
class ConfigKind:
    """One file.

    Attributes:
        table: what it is about: the table that has an entry for each topic, group, queue or delay level.
        shape: all that an evidence bundle shows of it.
        loading: None where no start depends on it.
        by_topic: whether a key of the table is a topic, or has one before an `@`: `extract` takes those of its topics.
        join: None for a file that `extract` leaves out; it takes entries that are objects.
        is_compared: whether `diff` compares the entries, and not the bytes.
        rebuild: the command that builds it again.
        without_broker: whether a message store without a broker writes it, too.
    """

    path: str
    table: str
    shape: dict[str, Shape]
    loading: Loading | None = None
    database: DatabaseNames | None = None
    by_topic: bool = False
    join: Join | None = None
    is_compared: bool = False
    rebuild: str | None = None
    without_broker: bool = False


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
_REQUEST_MODE: Final = _numbers("popShareQueueNum", topic=Value.NAME, consumerGroup=Value.NAME, mode=Value.WORD)
_OFFSETS: Final[dict[str, Shape]] = {
    **dict.fromkeys(("offsetTable", "resetOffsetTable", "pullOffsetTable"), _BY_QUEUE),
    "groupTopicMap": Map([Value.NAME]),
    "dataVersion": _VERSION,
}
CONFIG_KINDS: Final = (
    ConfigKind(  # TopicConfigManager
        TOPICS, "topicConfigTable",
        {"topicConfigTable": Map(_TOPIC), "dataVersion": _VERSION},
        Loading(), DatabaseNames("config/topics", "topic"),
        by_topic=True, join=Join.MOST_QUEUES, is_compared=True, rebuild=REBUILD_TOPICS,
    ),
    ConfigKind(  # ConsumerOffsetManager
        CONSUMER_OFFSETS, "offsetTable",
        _OFFSETS,
        Loading(), DatabaseNames("config/consumerOffsets", "consumerOffset"),
        by_topic=True, join=Join.HIGHEST_OFFSETS, is_compared=True,
    ),
    ConfigKind(  # LmqConsumerOffsetManager
        LMQ_CONSUMER_OFFSETS, "lmqOffsetTable",
        {**_OFFSETS, "lmqOffsetTable": Map(Value.NUMBER)},
    ),
    ConfigKind(  # SubscriptionGroupManager
        GROUPS, "subscriptionGroupTable",
        {"subscriptionGroupTable": Map(_GROUP), "forbiddenTable": _BY_QUEUE, "dataVersion": _VERSION},
        Loading(), DatabaseNames("config/subscriptionGroups", "subscriptionGroup"),
        join=Join.FIRST, is_compared=True,
    ),
    ConfigKind(  # ScheduleMessageService
        DELAY_OFFSETS, "offsetTable",
        {"offsetTable": Map(Value.NUMBER), "dataVersion": _VERSION},
        Loading(),
        is_compared=True, rebuild=REBUILD_DELAYS, without_broker=True,
    ),
    ConfigKind(  # ConsumerFilterManager
        CONSUMER_FILTERS, "filterDataByTopic",
        {"filterDataByTopic": Map({"topic": Value.NAME, "groupFilterData": Map(_FILTER)})},
        Loading(),
    ),
    ConfigKind(  # QueueLevelConsumerManager
        ORDERED_CONSUMPTION, "table",
        _numbers("orderInfoCount", orderedConsumptionLevel=Value.WORD, table=Map(Map(_ORDER))),
        Loading("pop"),
    ),
    ConfigKind(  # TopicQueueMappingManager
        "config/topicQueueMapping.json", "topicQueueMappingInfoMap",
        {"topicQueueMappingInfoMap": Map(_MAPPING), "dataVersion": _VERSION},
        Loading("pop"),
    ),
    ConfigKind(  # MessageRequestModeManager
        "config/messageRequestMode.json", "messageRequestModeMap",
        {"messageRequestModeMap": Map(Map(_REQUEST_MODE))},
    ),
    ConfigKind(  # TimerMetrics
        TIMER_METRICS, "timingCount",
        {
            "timingCount": _METRICS,
            "timingDistribution": _METRICS,
            "timerDist": [Value.NUMBER],
            "dataVersion": _VERSION,
        },
        Loading("timer"),
        rebuild=REBUILD_TIMER, without_broker=True,
    ),
    ConfigKind(  # TransactionMetrics
        "config/transactionMetrics", "transactionCount",
        {"transactionCount": _METRICS, "dataVersion": _VERSION},
        Loading("loads_transaction_metrics", is_required=False),
    ),
    ConfigKind(  # CompactionPositionMgr
        "compaction/position-checkpoint", "queueOffsetMap",
        _numbers("empty", queueOffsetMap=Map(Value.NUMBER, with_queue=True)),
    ),
)  # fmt: skip
"""In the order in which brokers load them."""
STORED: Final = {kind.path: kind.database for kind in CONFIG_KINDS if kind.database is not None}
"""Files whose content a broker can keep in RocksDB instead."""
DATABASES: Final = ("config/rdb", "config/metadata", *(names.directory for names in STORED.values()))
"""Where these databases lie: `configManagerVersion=v2`, the common one, those of one file each. The first one that has
the content of a file counts."""
