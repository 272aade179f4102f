"""The catalog's findings about what a broker keeps beside log, queues and index: compaction, delays, timer."""

from __future__ import annotations

from typing import Final

from rmqtool.findings.finding import (
    REBUILD,
    REBUILD_COMPACTION,
    REBUILD_DELAYS,
    REBUILD_TIMER,
    FindingType,
    error,
    note,
    warning,
)

_FROM_5: Final = "5.0.0 and later"
_REBUILT_TIMER: Final = (
    "wheel, log and checkpoint are written again with the messages that were not delivered",
    REBUILD_TIMER,
)

_FROM_4_5: Final = "4.5.0 and later"
_FROM_MEMBER: Final = "copy the directory from another member of the group"
_REBUILT_DELAYS: Final = "each level continues at the first message that the commit log does not show as delivered"

_CONTROLLER: Final = "5.0.0 and later, in controller mode"
_EPOCHS_COPIED: Final = "restore the file from another copy of the store, or from its backup"
_FROM_5_1: Final = "5.1.0 and later"
_FROM_5_4: Final = "5.4.0 and later, where the table is used"
_INDEX_NOT_REPAIRED: Final = "rmqtool does not repair it; `search` finds messages without an index"
_NOT_REPAIRED_SIDE: Final = "rmqtool does not repair it; restore the directory from another copy of the store"
_REBUILT_COMPACTION: Final = (
    "log and queue are written again, from the commit log and what can be read of them",
    REBUILD_COMPACTION,
)

ENTRIES: Final[tuple[FindingType, ...]] = (
    error(
        "compaction.bad-record",
        "A range in the log of a compacted topic is not a good record.",
        ((_FROM_5_1, "not noticed; a client drops the messages that it pulls together with the damage and after it"),),
        *_REBUILT_COMPACTION,
    ),
    warning(
        "compaction.missing-message",
        "Messages of the commit log are not in the log of their compacted topic.",
        ((_FROM_5_1, "does not serve them; only a start after a crash adds them, as far as it reads the commit log"),),
        *_REBUILT_COMPACTION,
    ),
    warning(
        "compaction.missing-unit",
        "A record of a compacted topic is in no queue.",
        ((_FROM_5_1, "does not serve it; a start cuts the log after the last record that is in the queue"),),
        *_REBUILT_COMPACTION,
    ),
    error(
        "compaction.unpaired-file",
        "A queue file of a compacted topic has no file of the same name in the topic's log.",
        ((_FROM_5_1, "the store does not load"),),
        *_REBUILT_COMPACTION,
    ),
    error(
        "compaction.wrong-file-size",
        "A file of a compacted topic has another length than the others.",
        ((_FROM_5_1, "pulls of the topic find no new message, forever"),),
        *_REBUILT_COMPACTION,
    ),
    warning(
        "compaction.wrong-unit",
        "A unit of the queue of a compacted topic leads to no record of its size and queue offset.",
        ((_FROM_5_1, "serves a wrong message, or none; a client drops those after it in the same pull"),),
        *_REBUILT_COMPACTION,
    ),
    warning(
        "config.delay-offset-ahead",
        "The offset of a delay level in `config/delayOffset.json` is past the end of its queue, or after messages that "
        "were not due yet.",
        "continues at that offset, or at the queue's end: never delivers the messages before it",
        _REBUILT_DELAYS,
        REBUILD_DELAYS,
        "apache/rocketmq#6096",
    ),
    note(
        "config.delay-offset-behind",
        "Messages after the offset of a delay level were delivered within the last minute before the commit log ends. "
        "A crash leaves it like this, for a broker writes `config/delayOffset.json` every ten seconds.",
        "delivers them a second time",
        "none needed; recover, or `rebuild --delay-offsets` alone, spares consumers the second delivery",
    ),
    warning(
        "config.delay-level-missing",
        "The queue of a delay level has messages to deliver, and `messageDelayLevel` has fewer levels. Only `forecast` "
        "tells it, of the configuration that it is given.",
        "delivers none of them until the setting has the level again",
        "give `messageDelayLevel` at least as many levels as before",
    ),
    warning(
        "config.delay-offset-outdated",
        "A delay level has no offset in `config/delayOffset.json`, or an old one: the commit log has messages after it "
        "that were delivered more than a minute before the log ends, or the broker was stopped cleanly, for which it "
        "writes the file.",
        "starts at that offset, or at the queue's first message: delivers messages a second time",
        _REBUILT_DELAYS,
        REBUILD_DELAYS,
        "apache/rocketmq#6096",
        "apache/rocketmq#3401",
    ),
    warning(
        "controller.epochs-ahead-of-log",
        "An epoch of a master in `epochFileCheckpoint` starts past the end of the commit log.",
        ((_CONTROLLER, "adds no epoch of its own to the file when it becomes master, until the log is longer"),),
        "the log lost its end: compare the store with the other brokers of the group before one becomes master",
    ),
    note(
        "controller.epochs-from-backup",
        "`epochFileCheckpoint` is missing, or its CRC or its number of entries is wrong; its backup `.bak` is good.",
        ((_CONTROLLER, "uses the backup"),),
        "none needed",
    ),
    warning(
        "controller.epochs-lost",
        "The CRC or the number of entries of `epochFileCheckpoint` is wrong, and there is no good backup `.bak`.",
        ((_CONTROLLER, "starts without epochs, so that it shares none with the other brokers of its group"),),
        _EPOCHS_COPIED,
    ),
    error(
        "controller.epochs-not-parsed",
        "`epochFileCheckpoint` is empty, or has something that is not a number where one has to be.",
        ((_CONTROLLER, "does not start, even if the backup `.bak` is good"),),
        _EPOCHS_COPIED,
    ),
    warning(
        "controller.epochs-wrong-order",
        "An epoch in `epochFileCheckpoint` is not higher, or starts earlier, than the one in the line before.",
        ((_CONTROLLER, "sorts the epochs by their numbers"),),
        _EPOCHS_COPIED,
    ),
    warning(
        "controller.identity-broken",
        "`brokerIdentity` does not have the form `cluster#broker#id`.",
        ((_CONTROLLER, "cannot read its own id in the group"),),
        "write the three values as the controller knows them",
    ),
    error(
        "dledger.bad-entry",
        "An entry of the log of DLedger has an impossible length, or is at another position than it says, or its "
        "message is not a good record.",
        (
            (
                "4.5.0 to 4.9.8",
                "a start that meets it in the last three files serves nothing after it, a bad message apart",
            ),
            (
                _FROM_5,
                (
                    "a start that meets it in the last three files serves nothing after it; after a bad message, what "
                    "follows the last entry that the group's checkpoint has as committed"
                ),
            ),
        ),
        _FROM_MEMBER,
    ),
    note(
        "dledger.continues-log",
        "The commit log is a plain one up to where a log of DLedger starts, as after DLedger was turned on.",
        ((_FROM_4_5, "reads both with enableDLegerCommitLog=true; else deletes the queue units of the later one"),),
        "keep enableDLegerCommitLog=true while the messages are needed",
    ),
    warning(
        "dledger.dropped-at-start",
        "The broker was killed, and a start that counts the messages of the last DLedger file without the headers of "
        "their entries takes the log to end before messages that the group's checkpoint, some seconds old at most, has "
        "as committed. It reads later messages again once a leader is elected.",
        (
            (
                "5.2.0 to 5.4.0",
                (
                    "drops the queue units of these messages: they are not served before another message is stored, "
                    "which may get the queue offset of one of them"
                ),
            ),
            (
                "5.5.0 and later",
                "does the same where the queue offset in the checkpoint, a minute old at most, is not before that end",
            ),
        ),
        "rebuild before the start: it removes `abort`, and a start after a clean stop drops none",
        REBUILD,
        "apache/rocketmq#7355",
    ),
    error(
        "dledger.missing-entries",
        "The log of DLedger ends before an entry that its index or the group's checkpoint knows.",
        ((_FROM_4_5, "fetches them from the leader if it is a follower; as the only member it has lost them"),),
        _FROM_MEMBER,
    ),
    warning(
        "dledger.not-enabled",
        "The log, or its end, is one of DLedger, and the broker's settings do not turn DLedger on.",
        ((_FROM_4_5, "starts without these messages, deletes their queue units, and uses their offsets again"),),
        "set enableDLegerCommitLog=true and the other settings of the group, or convert the store to a plain log",
    ),
    error(
        "dledger.unloadable-file",
        "A file in the directories of the log of DLedger or its index does not have the size of a full file, or its "
        "name is not a number.",
        ((_FROM_4_5, "ends its start when it loads the file"),),
        "move away a file that is not DLedger's; else copy the directory from another member of the group",
    ),
    error(
        "dledger.wrong-order",
        "The number of an entry in the log of DLedger does not follow that of the entry before it, or its term is "
        "earlier.",
        ((_FROM_4_5, "a start stops there if it is in the last three files; else not noticed"),),
        _FROM_MEMBER,
    ),
    warning(
        "dledger.wrong-unit",
        "The index of DLedger has no unit of an entry, or one that does not lead to it.",
        ((_FROM_4_5, "a start writes the units of the last three files again"),),
        _FROM_MEMBER,
    ),
    warning(
        "rocksdbstore.ahead-of-log",
        "The index in RocksDB reaches past the end of the commit log, as when the log was truncated.",
        ((_FROM_5_4, "does not index new messages until the commit log reaches that offset again"),),
        _INDEX_NOT_REPAIRED,
    ),
    note(
        "rocksdbstore.behind-log",
        "Messages with keys are after the last one in the index in RocksDB, as after a crash, or once "
        "`indexRocksDBEnable` was switched off.",
        ((_FROM_5_4, "a start after a crash indexes those in the last ten files of the commit log"),),
        "none needed after a crash",
    ),
    warning(
        "rocksdbstore.missing-row",
        "A key of a message is not in the index in RocksDB, though older and newer ones are.",
        ((_FROM_5_4, "does not find the message by that key"),),
        _INDEX_NOT_REPAIRED,
    ),
    warning(
        "rocksdbstore.not-loadable",
        "The RocksDB database `rocksdbstore/` cannot be opened: a file is missing, cut or overwritten.",
        ((_FROM_5_4, "starts all the same, with none of what the database had"),),
        _NOT_REPAIRED_SIDE,
    ),
    warning(
        "rocksdbstore.odd-row",
        "`rocksdbstore/` has keys or values that no broker writes.",
        ((_FROM_5_4, "does not read them, or fails at them"),),
        _NOT_REPAIRED_SIDE,
    ),
    warning(
        "rocksdbstore.unreadable",
        "A part of `rocksdbstore/` cannot be read.",
        ((_FROM_5_4, "starts; searches by key, timers or transactions fail at that part"),),
        _NOT_REPAIRED_SIDE,
    ),
    warning(
        "rocksdbstore.wrong-row",
        "A row of index, timers or transactions in RocksDB leads to no record, or to another one.",
        ((_FROM_5_4, "finds a wrong message, or none; a timer or a transaction of such a row is lost"),),
        _INDEX_NOT_REPAIRED,
    ),
    warning(
        "timer.bad-check",
        "`config/timercheck` is not 4096 bytes long, or counts more than the timer's log or queue holds.",
        ((_FROM_5, "continues at the wrong message: timers are delivered again, or never"),),
        *_REBUILT_TIMER,
        "apache/rocketmq#10668",
    ),
    warning(
        "timer.bad-slot",
        "A slot of the timer wheel names a time that belongs to another slot.",
        ((_FROM_5, "does not find the timers of that time"),),
        *_REBUILT_TIMER,
    ),
    error(
        "timer.bad-unit",
        "A range inside the timer log is not a unit.",
        (
            (
                _FROM_5,
                (
                    "a start cuts the log there if the range is in its last files, and takes the messages after it "
                    "again; delivery stops forever where a slot leads into the range"
                ),
            ),
        ),
        *_REBUILT_TIMER,
        "apache/rocketmq#11156",
    ),
    warning(
        "timer.broken-chain",
        "The units of one time do not lead back to its first unit.",
        ((_FROM_5, "does not deliver the timers before the break, or reads in a circle forever"),),
        *_REBUILT_TIMER,
    ),
    warning(
        "timer.expired-record",
        "The message of a waiting timer was deleted with the oldest files of the commit log.",
        ((_FROM_5, "delivers nothing when the time comes"),),
        "the message is lost; keep the commit log longer than the longest timer (`fileReservedTime`)",
        None,
        "apache/rocketmq#7480",
    ),
    warning(
        "timer.missing-file",
        "The timer's log or checkpoint is missing though messages came to its topic.",
        (
            (
                _FROM_5,
                (
                    "without the checkpoint, takes the messages of the topic again from the first one: timers are "
                    "delivered a second time; without the log, never delivers what waited"
                ),
            ),
        ),
        *_REBUILT_TIMER,
        "apache/rocketmq#9735",
    ),
    warning(
        "timer.check-behind",
        "`config/timercheck` is older than the timer log in both of its offsets, as after a kill.",
        ((_FROM_5, "takes messages of the log from the topic again: timers are delivered a second time"),),
        *_REBUILT_TIMER,
    ),
    warning(
        "timer.missing-unit",
        "The timer has read a message from its topic and the message is not due yet, but no unit leads to it.",
        ((_FROM_5, "never delivers the message"),),
        *_REBUILT_TIMER,
        "apache/rocketmq#10668",
    ),
    error(
        "timer.slot-ahead-of-log",
        "A slot of the timer wheel leads past the end of the timer log.",
        (
            (
                _FROM_5,
                (
                    "a start reads the units of that time again and sets the slot right (5.5.0, after a kill and after "
                    "a stop: 40 of 40); where it does not, delivery stops at that time: no later timer is delivered"
                ),
            ),
        ),
        *_REBUILT_TIMER,
        "apache/rocketmq#11156",
    ),
    warning(
        "timer.unreachable-unit",
        "The time of a unit is still to come, and no slot leads to it.",
        ((_FROM_5, "never delivers the message"),),
        *_REBUILT_TIMER,
        "apache/rocketmq#10668",
    ),
    warning(
        "timer.wrong-record",
        "A unit of the timer log does not match the message to which it leads.",
        ((_FROM_5, "delivers nothing, or another message, or at the wrong time"),),
        *_REBUILT_TIMER,
    ),
    error(
        "timer.wrong-file-size",
        "The timer wheel, or a file of the timer log, has a wrong length.",
        ((_FROM_5, "the broker does not start"),),
        *_REBUILT_TIMER,
    ),
    warning(
        "transaction.bad-operation",
        "A record of `RMQ_SYS_TRANS_OP_HALF_TOPIC` names no half message.",
        "asks the producer again about the half message that the record should end; a commit is delivered twice",
        "none; consumers have to expect the message twice",
    ),
    note(
        "transaction.committed-half",
        "The log has the message of a committed transaction, but no operation record that ends its half message. "
        "A broker of 5.0 or later that is killed loses the operation records of the last three seconds "
        "(`transactionOpBatchInterval`).",
        "asks the producer again, and delivers the message a second time when the producer commits again",
        "none; consumers have to expect the message twice",
    ),
    warning(
        "transaction.expired-half",
        "Half messages that the broker had not passed yet were deleted with the oldest files of the commit log.",
        "never asks the producer about them: the messages of transactions that were open are lost; where the operation "
        "records at which it continues were deleted too, asks about all half messages that are left, also about those "
        "that had ended: a commit is delivered twice",
        "the messages are lost; keep the commit log longer than a transaction may take (`fileReservedTime`)",
    ),
    warning(
        "transaction.operation-ahead",
        "An operation record ends a half message that is not in the queue yet, as when the log was restored from an "
        "older copy, or the queue of half messages started again.",
        "takes the half message that will come to that offset for ended: if the producer does not end it by itself, "
        "the broker never asks about it",
        "set the offset of group `CID_RMQ_SYS_TRANS` in `RMQ_SYS_TRANS_OP_HALF_TOPIC` to the end of that queue in "
        "`config/consumerOffset.json` while the broker is stopped",
    ),
)
