"""Structures of a store that are text: JSON objects and lines, declared with a text for each field.

`rmqtool formats` and the documentation page show them after the binary ones. What reads them is in `formats.pop`,
`formats.controller` and in `store`, for a broker reads and writes most of them with a library.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmqtool.formats.controller import EPOCHS, IDENTITY
from rmqtool.formats.pop import ACKNOWLEDGEMENT, BATCH_ACKNOWLEDGEMENT, CHECK_POINT, FIELD_DOCS
from rmqtool.formats.rocksdb.pop import VALUE_DOCS

JSON: Final = "json"
LINE: Final = "text"
_NAMES_ALSO: Final = "Brokers read it with the long names too"
_VERSION: Final = ("dataVersion", "`timestamp`, `counter` and `stateVersion` of the last change")
_BY_QUEUE: Final = "`topic@group` to queue id to the queue offset that the group consumes next"


@dataclass(frozen=True)
class TextFormat:
    """A structure of text, with what a person needs to know about it; `fields`: name and meaning."""

    name: str
    title: str
    source: str
    kind: str
    fields: tuple[tuple[str, str], ...]
    about: str = ""


def _of_pop(tag: str) -> tuple[tuple[str, str], ...]:
    rows = (row for row in FIELD_DOCS if row[2] in (tag, "all"))
    return tuple((short, doc if short == long else f"{doc} ({long})") for short, long, _, doc in rows)


TEXT_FORMATS: Final = (
    TextFormat(
        "pop-check-point", "Revive topic: check point", "PopCheckPoint", JSON, _of_pop(CHECK_POINT),
        "Body of a record in `rmq_sys_REVIVE_LOG_` + cluster whose tag is `ck`.",
    ),
    TextFormat(
        "pop-ack", "Revive topic: acknowledgement", "AckMsg", JSON, _of_pop(ACKNOWLEDGEMENT),
        f"Body of a record in `rmq_sys_REVIVE_LOG_` + cluster whose tag is `ack`. {_NAMES_ALSO}.",
    ),
    TextFormat(
        "pop-batch-ack", "Revive topic: acknowledgements", "BatchAckMsg", JSON, _of_pop(BATCH_ACKNOWLEDGEMENT),
        f"Body of a record in `rmq_sys_REVIVE_LOG_` + cluster whose tag is `bAck`. {_NAMES_ALSO}.",
    ),
    TextFormat(
        "rocksdb-pop", "RocksDB pop consumption: value", "PopConsumerRecord", JSON, VALUE_DOCS,
        "The value of a key `rocksdb-pop-key` in `kvStore/`.",
    ),
    TextFormat(
        "transaction-operation", "Body of an operation record", "TransactionalMessageBridge#makeOpMessageInner", LINE,
        (("queue_offsets", "of the half messages that ended: decimal, from 5.0 on several with a comma after each"),),
        "In topic `RMQ_SYS_TRANS_OP_HALF_TOPIC`; the tag is `d`.",
    ),
    TextFormat(
        "topics", "Configuration: topics", "TopicConfigManager", JSON,
        (
            ("topicConfigTable", "name to `readQueueNums`, `writeQueueNums`, `perm`, `attributes` and so on"),
            _VERSION,
        ),
        "`config/topics.json`",
    ),
    TextFormat(
        "subscription-groups", "Configuration: consumer groups", "SubscriptionGroupManager", JSON,
        (
            ("subscriptionGroupTable", "name to `consumeEnable`, `retryMaxTimes`, `retryQueueNums` and so on"),
            ("forbiddenTable", "from 5.0 on: group to topic to bits of what it may not do"),
            _VERSION,
        ),
        "`config/subscriptionGroup.json`",
    ),
    TextFormat(
        "consumer-offsets", "Configuration: consumer offsets", "ConsumerOffsetManager", JSON,
        (
            ("offsetTable", _BY_QUEUE),
            ("resetOffsetTable", "from 5.0 on: the same, for groups that are to be reset"),
            ("pullOffsetTable", "from 5.0 on: the same, how far groups have received"),
            _VERSION,
        ),
        "`config/consumerOffset.json`; with `enableLmq=true` `config/lmqConsumerOffset.json` instead",
    ),
    TextFormat(
        "consumer-order", "Pop consumption in order", "QueueLevelConsumerManager", JSON,
        (
            ("table", "`topic@group` to queue id to the fields below"),
            ("popTime", "milliseconds: when a consumer received the messages"),
            ("i", "milliseconds until they are delivered again (invisibleTime)"),
            ("o", "queue offsets: the first one, and what is to be added to it for each other (offsetList)"),
            ("ot", "queue offset to when this message is delivered again (offsetNextVisibleTime)"),
            ("oc", "queue offset to how often it was received (offsetConsumedCount)"),
            ("l", "milliseconds: when it was received last (lastConsumeTimestamp)"),
            ("cm", "a bit for each message: acknowledged (commitOffsetBit)"),
            ("a", "the client's number of its request (attemptId)"),
        ),
        "`config/consumerOrderInfo.json`: what pop consumers hold who receive in order.",
    ),
    TextFormat(
        "delay-offsets", "Offsets of the delay levels", "ScheduleMessageService", JSON,
        (("offsetTable", "delay level to the queue offset up to which it was delivered"), _VERSION),
        "`config/delayOffset.json`",
    ),
    TextFormat(
        "timer-metrics", "Statistics of the timer", "TimerMetrics", JSON,
        (("timingCount", "topic to `count` of its timers and `timeStamp`; statistics only"), _VERSION),
        "`config/timermetrics`",
    ),
    TextFormat(
        "compaction-positions", "Positions of compactions", "CompactionPositionMgr", JSON,
        (("queueOffsetMap", "`topic_queueId` to the queue offset up to which the queue was compacted"),),
        "`compaction/position-checkpoint`",
    ),
    TextFormat(
        "epochs", "Epochs of masters", "EpochFileCache", LINE,
        (
            ("count", "first line: number of epochs"),
            ("crc", "second line: CRC-32 of the lines after it without its top bit; 0: not checked"),
            ("epoch-offset", "each further line: number of a master's epoch, and physical offset where it starts"),
        ),
        f"`{EPOCHS}`, only in controller mode",
    ),
    TextFormat(
        "broker-identity", "Identity of a broker", "BrokerMetadata", LINE,
        (("cluster#broker#id", "names of the cluster and of the broker, and the number that a controller gave it"),),
        f"`{IDENTITY}`, only in controller mode",
    ),
    TextFormat(
        "tiered-metadata", "Metadata of a tiered store", "DefaultMetadataStore", JSON,
        (
            ("topicMetadataTable", "topic to `topicId`, `status`, `reserveTime` and `updateTimestamp`"),
            ("queueMetadataTable", "topic to queue id to `minOffset` and `maxOffset`, queue offsets"),
            ("commitLogFileSegmentTable", "`broker/topic/queue` to first byte to a segment of records, as below"),
            ("consumeQueueFileSegmentTable", "the same for segments of units"),
            ("indexFileSegmentTable", "the same for segments of the index"),
            ("path", "`broker/topic/queue` of the segment"),
            ("type", "0 for records, 1 for units, 2 for the index"),
            ("baseOffset", "place of its first byte"),
            ("status", "0 new, 1 sealed, 2 deleted"),
            ("size", "bytes that are surely written"),
            ("createTimestamp", "milliseconds: when the segment was made"),
            ("beginTimestamp", "milliseconds: store time of its first message"),
            ("endTimestamp", "milliseconds: store time of its last message"),
            ("sealTimestamp", "milliseconds: when it was sealed"),
        ),
        "`config/tieredStoreMetadata.json`",
    ),
)  # fmt: skip

TEXTS_BY_NAME: Final = {declared.name: declared for declared in TEXT_FORMATS}
