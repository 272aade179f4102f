"""Bodies of the records with which a broker remembers what pop consumers hold: check points and acknowledgements.

Each is a JSON object. Broker: `PopCheckPoint`, `AckMsg`, `BatchAckMsg`, `PopReviveService#consumeReviveMessage`.
"""

from __future__ import annotations

from typing import Final

REVIVE_TOPIC: Final = "rmq_sys_REVIVE_LOG_"
"""Prefix of the topic's name; the name of the cluster follows."""
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
CHECK_POINT: Final = "ck"
ACKNOWLEDGEMENT: Final = "ack"
BATCH_ACKNOWLEDGEMENT: Final = "bAck"
TAGS: Final = (CHECK_POINT, ACKNOWLEDGEMENT, BATCH_ACKNOWLEDGEMENT)
FIELD_DOCS: Final = (
    ("t", "topic", "all", "the topic whose messages a consumer received"),
    ("q", "queueId", "all", "queue of that topic"),
    ("c", "consumerGroup", "all", "the consumer's group; `cid` in a check point"),
    ("so", "startOffset", "all", "queue offset of the first message that the consumer received together"),
    ("pt", "popTime", "all", "milliseconds: when it received them"),
    ("bn", "brokerName", "all", "the broker whose messages they are"),
    ("it", "invisibleTime", "ck", "milliseconds after the pop time until the broker delivers them again"),
    ("n", "num", "ck", "number of messages"),
    (
        "d",
        "queueOffsetDiff",
        "ck",
        "queue offset of each message less that of the first one; none: one after the other",
    ),
    ("bm", "bitMap", "ck", "a bit for each message: acknowledged"),
    ("rp", "rePutTimes", "ck", "how often the broker has put off the delivery because it failed"),
    ("sp", "suspend", "ck", "the consumer gave the messages back; the next delivery counts as no retry"),
    ("ro", "reviveOffset", "ck", "queue offset of this record, which the broker sets when it reads the record"),
    ("reviveTime", "reviveTime", "ck", "milliseconds: `pt` and `it` added; no broker reads it"),
    ("ao", "ackOffset", "ack", "queue offset of the message that is acknowledged"),
    ("aol", "ackOffsetList", "bAck", "queue offsets of the messages that are acknowledged"),
)
"""Field, its name in the broker, the tags whose bodies have it, and what it means."""
