"""The catalog's findings about consumer groups: their offsets and settings, and what pop consumers hold."""

from __future__ import annotations

from typing import Final

from rmqtool.findings.finding import ALL, FindingType, error, note, warning

_FROM_5: Final = "5.0.0 and later"
_FROM_KV: Final = "5.4.0 and later, with `popConsumerKVServiceInit=true`"

ENTRIES: Final[tuple[FindingType, ...]] = (
    note(
        "config.consumer-offset-before-queue",
        "A consumer group's offset is before the first message that its queue still has.",
        "consumers continue at the first message that is there; messages before it are lost to the group",
        "none needed; keep the commit log longer than consumers may be away (`fileReservedTime`)",
    ),
    warning(
        "config.consumer-offset-beyond-queue",
        "A consumer group's offset is past the end of its queue.",
        "consumers start at another offset, by default at 0 or at the end: messages are repeated or skipped",
        "the queue is rebuilt if it is too short; else set the offset by hand or with recover --clamp-offsets",
        None,
        "apache/rocketmq#4215",
        "alibaba/rocketmq#351",
    ),
    note(
        "config.consumer-offset-without-group",
        "A consumer group has offsets, and `subscriptionGroup.json` does not contain the group.",
        "creates the group with default settings; with `autoCreateSubscriptionGroup=false` its consumers get no "
        "message (`SUBSCRIPTION_GROUP_NOT_EXIST`)",
        "create the group with `mqadmin updateSubGroup` if its settings matter, or if the broker creates no groups",
    ),
    warning(
        "config.consumer-offset-without-queue",
        "A consumer group has consumed messages of a queue of which nothing is left: no file, no message in the log.",
        "new messages of the queue start at offset 0 again; a consumer that was not connected when they came continues "
        "at the queue's end: it does not receive them",
        "remove the offset in `config/consumerOffset.json` while the broker is stopped, or set it with "
        "`mqadmin resetOffsetByTime`",
    ),
    note(
        "config.consumer-offset-without-topic",
        "A consumer group has an offset in a topic that has neither settings nor queues.",
        "keeps the offset; consumers of the topic get an error (`TOPIC_NOT_EXIST`)",
        "none needed, unless the topic was lost",
    ),
    warning(
        "config.consumer-offsets-missing",
        "`consumerOffset.json` and its backup `.bak` are missing, empty or broken, or contain no offset of a consumer "
        "group, and the configuration or retry queues show that there were groups. Without it, offsets in "
        "`lmqConsumerOffset.json` count, unless the broker's settings say that it does not read this file.",
        "tells a consumer offset 0 of a queue that still begins there, as long as its first messages are in memory: it "
        "gets all messages again; else no offset, and the consumer starts where its own setting says, by default at "
        "the end: it skips what it had not consumed",
        "restore the file from another copy while the broker is stopped; else set the groups to the time of the loss "
        "with `mqadmin resetOffsetByTime`",
    ),
    warning(
        "config.groups-missing",
        "`subscriptionGroup.json` and its backup `.bak` are missing or cannot be read, and consumer groups have "
        "offsets.",
        "creates a group with default settings when its consumers connect: retries, permission to consume and order "
        "are as in a new group; with `autoCreateSubscriptionGroup=false` they get no message",
        "restore the file from another copy; else create the groups with `mqadmin updateSubGroup`",
    ),
    warning(
        "config.ordered-message-beyond-queue",
        "`consumerOrderInfo.json` says that a consumer holds a message past the end of its queue, as after a crash "
        "with loss of messages.",
        ((_FROM_5, "delivers no message of this queue to the group until the time of the consumer is over"),),
        "none needed if the group can wait; else remove the entry while the broker is stopped",
    ),
    note(
        "config.two-offset-files",
        "`lmqConsumerOffset.json` and `consumerOffset.json` are there, and have other offsets for the same groups.",
        ((ALL, "reads only `lmqConsumerOffset.json` with `enableLmq=true`, else only `consumerOffset.json`"),),
        "copy the offsets into the other file before `enableLmq` is changed",
    ),
    warning(
        "pop.bad-record",
        "A record of a revive topic (`rmq_sys_REVIVE_LOG_*`) has the tag of a check point or an acknowledgement, but "
        "no such body.",
        ((_FROM_5, "delivers none of the messages again whose check points are in the same revive queue"),),
        "set the offset of group `CID_RMQ_SYS_REVIVE_GROUP` in this queue to the offset of the record in "
        "`config/consumerOffset.json` while the broker is stopped; messages of check points before it are then not "
        "delivered again",
    ),
    warning(
        "pop.expired-message",
        "Messages that a pop consumer received and did not acknowledge were deleted with the oldest files of the "
        "commit log.",
        ((_FROM_5, "does not deliver them again: they are lost to the consumer"),),
        "the messages are lost; keep the commit log longer than consumers may take (`fileReservedTime`)",
    ),
    error(
        "pop.not-loadable",
        "RocksDB does not open `kvStore/`, where a broker keeps what pop consumers hold.",
        ((_FROM_KV, "does not start; with the default settings it does not open this database"),),
        "rmqtool does not repair it, for only its rows say which messages were acknowledged; restore the directory "
        "from another copy of the store; without it, messages that consumers have not acknowledged do not come again",
    ),
    warning(
        "pop.odd-row",
        "Rows of `kvStore/` are no messages that a consumer holds: the value is not its JSON, or its key is another.",
        ((_FROM_KV, "delivers none of the messages again whose time is over after that of the row"),),
        "rmqtool does not repair it, for only its rows say which messages were acknowledged; restore the directory "
        "from another copy of the store",
    ),
)
"""The kinds of findings about consumers."""
