"""The catalogue's findings about consume queues, their extensions and batch queues."""

from __future__ import annotations

from typing import Final

from rmqtool.verify.catalog.finding import ALL, REBUILD_QUEUES, RECOVER, FindingType, note, warning

_NOT_COMPARED: Final = ((ALL, "not noticed: units are not compared with the log at a start"),)
_ANEW: Final = "the queue is rebuilt from the commit log"

ENTRIES: Final[tuple[FindingType, ...]] = (
    warning(
        "consumequeue.ahead-of-log",
        "A queue has units for records behind the log's end.",
        ((ALL, "the queue is cut there at a start; new messages get the queue offsets once more"),),
        _ANEW,
        REBUILD_QUEUES,
        "apache/rocketmq#8239",
    ),
    warning(
        "consumequeue.bad-batch-unit",
        "A unit of a batch queue has senseless numbers or is not what its record says.",
        (("5.0.0 and later", "an invalid unit ends the queue at the next start; a wrong one is served"),),
        _ANEW,
        REBUILD_QUEUES,
    ),
    warning(
        "consumequeue.bad-extension",
        "A unit points to a place in the queue's extension where no unit for its record "
        "is, or the extension is damaged.",
        ((ALL, "filtering goes by what is read there; behind a damaged extension unit nothing is read"),),
        _ANEW,
        REBUILD_QUEUES,
    ),
    warning(
        "consumequeue.behind-log",
        "The newest messages of a queue are not in it yet: the broker was stopped before it dispatched them.",
        (
            ("4.5.0 to 4.9.8", "a start makes the units"),
            (
                "5.0.0 to 5.3.1",
                "a start after a crash makes them; after a clean stop (`abort` removed by hand) none of them is made",
            ),
            ("5.3.2 and later", "as before, but after a clean stop only the first one is left out"),
        ),
        "the missing units are made",
        RECOVER,
        "apache/rocketmq#405",
    ),
    note(
        "consumequeue.below-log",
        "Units for records that have expired: the log now begins behind them.",
        ((ALL, "hidden by the queue's minimum; the file goes once its last unit lies below the log"),),
        "nothing",
    ),
    warning(
        "consumequeue.dangling-unit",
        "A unit points to a place where no record begins.",
        (
            (
                ALL,
                (
                    "not noticed at a start; what stands there is served: the client loses the rest "
                    "of the pull, or messages "
                    "nearby are passed over"
                ),
            ),
        ),
        _ANEW,
        REBUILD_QUEUES,
        "apache/rocketmq#7355",
    ),
    note(
        "consumequeue.dead-unit",
        "A unit that a repair made unreadable on purpose, in the place of a lost message.",
        ((ALL, "the message is passed over, queue offsets go on"),),
        "nothing",
    ),
    warning(
        "consumequeue.filler-readable",
        "Filler units stand where a reader can meet them, since the log begins at 0.",
        ((ALL, "counted as messages of the queue; pulls there pass over real messages in the first log file"),),
        _ANEW,
        REBUILD_QUEUES,
    ),
    warning(
        "consumequeue.gap",
        "Invalid units inside a queue, with right ones behind them.",
        (
            (
                ALL,
                (
                    "in the last three files the queue ends there at the next start, later files are "
                    "unlinked and queue offsets "
                    "are given once more; in older files not noticed"
                ),
            ),
        ),
        _ANEW,
        REBUILD_QUEUES,
        "apache/rocketmq#9728",
    ),
    warning(
        "consumequeue.missing-file",
        "A file of a queue is missing whose messages are in the log.",
        (
            (
                ALL,
                "messages of a missing file cannot be read; one at the end is rebuilt only from where a start scans",
            ),
        ),
        _ANEW,
        REBUILD_QUEUES,
    ),
    warning(
        "consumequeue.missing-queue",
        "The log has messages of a queue that has no files.",
        (
            ("4.5.0 to 4.9.8, 5.3.2 to 5.3.4", "rebuilt if all queues are gone, else only from where a start scans"),
            ("5.0.0 to 5.3.1", "not rebuilt after a clean stop"),
            ("5.4.0 and later", "rebuilt from the last ten log files at most, with filler before"),
        ),
        _ANEW,
        REBUILD_QUEUES,
        "apache/rocketmq#8032",
    ),
    warning(
        "consumequeue.missing-unit",
        "A message of the log is in no queue: nobody can consume it.",
        ((ALL, "not noticed; rebuilt only where a start scans and no later unit is in the queue"),),
        _ANEW,
        REBUILD_QUEUES,
        "apache/rocketmq#467",
        "apache/rocketmq#678",
    ),
    warning(
        "consumequeue.order",
        "Physical offsets do not rise from unit to unit.",
        _NOT_COMPARED,
        _ANEW,
        REBUILD_QUEUES,
        "apache/rocketmq#1397",
    ),
    warning(
        "consumequeue.stale-unit",
        "Behind the queue's end lie units of an older state that were never cleared.",
        ((ALL, "accepted again when a start cuts the queue, for it reads the last file once more from its begin"),),
        "the file is zeroed from the queue's end on",
        REBUILD_QUEUES,
    ),
    warning(
        "consumequeue.stray-file",
        "Something among the files of a queue that is none, or a second file for the same offset.",
        (
            ("4.9.2", "the entry and all later ones are silently left out"),
            ("up to 5.0.0", "in a queue's own directory a file or directory stops the load"),
            ("5.1.0 and later", "a file stops the load, a directory is passed over"),
            (ALL, "above the queue's own directory it is passed over"),
            (
                ALL,
                "of two files for one offset (a name with more zeros in front) only one is read",
            ),
        ),
        "a file is moved away, a directory has to be moved by hand",
        RECOVER,
    ),
    warning(
        "consumequeue.unreadable-range",
        "The disk does not give a part of a queue's file.",
        ((ALL, "the broker's process is killed by the signal of a failed page (SIGBUS)"),),
        _ANEW,
        REBUILD_QUEUES,
    ),
    warning(
        "consumequeue.unsafe-name",
        "A topic's name, in a directory or a record, that is no name of a directory below the store.",
        ((ALL, "files outside of the store may be read or made"),),
        "nothing is made under such a name",
    ),
    warning(
        "consumequeue.wrong-file-size",
        "A file of a queue has another length than the rest, or none.",
        (
            ("4.9.2", "the file and all later ones of the queue are silently left out"),
            ("up to 5.1.2", "the store does not load"),
            ("5.1.3 and later", "an empty last file is deleted; else the store does not load"),
        ),
        _ANEW,
        REBUILD_QUEUES,
        "apache/rocketmq#1560",
        "apache/rocketmq#9728",
    ),
    warning(
        "consumequeue.wrong-position",
        "A unit stands at another place than its message's queue offset.",
        _NOT_COMPARED,
        "the queue is rebuilt from the commit log; consumers' offsets then mean other messages",
        REBUILD_QUEUES,
        "apache/rocketmq#7355",
    ),
    warning(
        "consumequeue.wrong-record",
        "A unit points to a record of another topic or queue.",
        _NOT_COMPARED,
        _ANEW,
        REBUILD_QUEUES,
    ),
    warning(
        "consumequeue.wrong-record-size",
        "A unit has another size than its record.",
        ((ALL, "served with that size: a client cannot read the message, or reads on into the next"),),
        _ANEW,
        REBUILD_QUEUES,
    ),
    warning(
        "consumequeue.wrong-tags-code",
        "A unit's tags code is not that of its record's tag, or its delivery time not that of its delay level.",
        (
            (ALL, "consumers that filter by tag miss the message; a delayed one is delivered at another time"),
            (
                "4.9.2 to 4.9.8",
                "written by these versions themselves for delayed messages, when a start after a crash makes units",
            ),
        ),
        _ANEW,
        REBUILD_QUEUES,
    ),
    warning(
        "consumequeue.zero-file",
        "A file of a queue is zero though messages should stand in it, or all files of a queue are zero and the log "
        "has no message of it: their pages never reached the disk.",
        (
            ("5.0.0 to 5.4.0", "can keep the store from loading, or empties the queue"),
            (ALL, "else the queue gets an entry that points nowhere, and queue offsets are given once more"),
        ),
        _ANEW,
        REBUILD_QUEUES,
        "apache/rocketmq#10108",
        "apache/rocketmq#9728",
    ),
)
