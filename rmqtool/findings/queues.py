"""The catalog's findings about consume queues, their extensions and batch queues."""

from __future__ import annotations

from typing import Final

from rmqtool.findings.finding import ALL, REBUILD_QUEUES, RECOVER, FindingType, note, warning

_NOT_COMPARED: Final = "not noticed: a start does not compare units with the log"
_REBUILT: Final = "the queue is rebuilt from the commit log", REBUILD_QUEUES

ENTRIES: Final[tuple[FindingType, ...]] = (
    warning(
        "consumequeue.ahead-of-log",
        "A queue has units for records past the end of the commit log.",
        "a start truncates the queue there; new messages get the same queue offsets again",
        *_REBUILT,
        "apache/rocketmq#8239",
    ),
    warning(
        "consumequeue.bad-batch-unit",
        "A unit of a batch queue has impossible values or does not match its record.",
        (("5.0.0 and later", "an invalid unit ends the queue at the next start; a wrong one is served"),),
        *_REBUILT,
    ),
    warning(
        "consumequeue.bad-extension",
        "A unit points to an address in the queue's extension that has no unit for its record, or the extension is "
        "damaged.",
        "filters by what it reads there; reads nothing after a damaged extension unit; a pull fails if it comes to an "
        "extension unit whose bitmap reaches past the end of its file",
        *_REBUILT,
    ),
    warning(
        "consumequeue.behind-log",
        "The newest messages of a queue are not in it yet: the broker stopped before it dispatched them.",
        (
            ("4.5.0 to 4.9.8", "a start writes the units"),
            (
                "5.0.0 to 5.3.1",
                (
                    "a start after a crash writes them; after a clean stop (`abort` removed by hand) it writes none "
                    "of them"
                ),
            ),
            ("5.3.2 and later", "as before, but after a clean stop only the first one is missing"),
        ),
        "the missing units are written",
        RECOVER,
        "apache/rocketmq#405",
    ),
    note(
        "consumequeue.below-log",
        "Units for records before the start of the commit log: its files have expired, or somebody removed them, which "
        "looks the same.",
        "hidden by the minimum offset of the queue; the file is deleted once its last unit is before the "
        "start of the log",
        "none needed if they have expired; else check that the disks of the commit log are mounted and the copy is "
        "complete",
    ),
    warning(
        "consumequeue.dangling-unit",
        "A unit points to an offset where no record starts.",
        "not noticed at a start; the bytes there are served: the client loses the rest of the pull, "
        "or skips neighboring messages",
        *_REBUILT,
        "apache/rocketmq#7355",
    ),
    note(
        "consumequeue.dead-unit",
        "A unit that a repair made unreadable on purpose, because its message is lost.",
        "skips the message; queue offsets continue",
        "none needed",
    ),
    warning(
        "consumequeue.filler-readable",
        "Consumers can read filler units, because the commit log starts at 0.",
        "counts them as messages of the queue; pulls there skip real messages in the first commit log file",
        *_REBUILT,
    ),
    warning(
        "consumequeue.gap",
        "Invalid units inside a queue, with valid ones after them.",
        "in the last three files: the next start ends the queue there, deletes later files and uses "
        "queue offsets again; in older files not noticed",
        *_REBUILT,
        "apache/rocketmq#9728",
    ),
    warning(
        "consumequeue.missing-file",
        "A file of a queue is missing, and its messages are in the commit log.",
        "messages of a missing file cannot be read; the last file is rebuilt only for records that a start scans",
        *_REBUILT,
    ),
    warning(
        "consumequeue.missing-queue",
        "The commit log has messages of a queue that has no files.",
        (
            (
                "4.5.0 to 4.9.8, 5.3.2 to 5.3.4",
                "rebuilt if all queues are gone, else only for records that a start scans",
            ),
            ("5.0.0 to 5.3.1", "not rebuilt after a clean stop"),
            ("5.4.0 and later", "rebuilt from at most the last ten commit log files, with filler units before"),
        ),
        *_REBUILT,
        "apache/rocketmq#8032",
    ),
    warning(
        "consumequeue.missing-unit",
        "A message of the commit log is in no queue: no consumer gets it.",
        "not noticed; rebuilt only if a start scans the record and no later unit is in the queue",
        *_REBUILT,
        "apache/rocketmq#467",
        "apache/rocketmq#678",
    ),
    warning(
        "consumequeue.order",
        "Physical offsets do not rise from unit to unit.",
        _NOT_COMPARED,
        *_REBUILT,
        "apache/rocketmq#1397",
    ),
    warning(
        "consumequeue.stale-unit",
        "After the end of the queue there are units of an older state that were never cleared.",
        "they come back when a start truncates the queue, because it then reads the last file again from its start",
        "the file is zeroed from the end of the queue",
        REBUILD_QUEUES,
    ),
    warning(
        "consumequeue.stray-file",
        "A directory of a queue holds something that is not a queue file, a second file for the same offset, or a file "
        "whose name has more digits and so does not sort by its number.",
        (
            ("4.9.2", "silently ignores this entry and all later ones"),
            ("up to 5.0.0", "in a queue's own directory, a file or directory keeps the store from loading"),
            ("5.1.0 and later", "a file keeps the store from loading, a directory is ignored"),
            (ALL, "above the queue's own directory it is ignored"),
            (ALL, "of two files for one offset (a name with more leading zeros) only one is read"),
        ),
        "a file is moved away; move a directory by hand",
        RECOVER,
    ),
    warning(
        "consumequeue.unreadable-range",
        "The disk cannot read a part of a queue's file.",
        "the kernel kills the broker when it reads the page (SIGBUS)",
        *_REBUILT,
    ),
    warning(
        "consumequeue.unsafe-name",
        "The name of a topic, in a directory or a record, cannot be the name of a directory in the store.",
        "may read or create files outside the store",
        "rmqtool creates nothing under such a name",
    ),
    warning(
        "consumequeue.wrong-file-size",
        "A file of a queue has another length than the rest, or length 0.",
        (
            ("4.9.2", "silently ignores this file and all later ones of the queue"),
            ("up to 5.1.2", "the store does not load"),
            ("5.1.3 and later", "deletes an empty last file; else the store does not load"),
        ),
        *_REBUILT,
        "apache/rocketmq#1560",
        "apache/rocketmq#9728",
    ),
    warning(
        "consumequeue.wrong-position",
        "A unit is not at its message's queue offset.",
        _NOT_COMPARED,
        "the queue is rebuilt from the commit log; consumer offsets then point to other messages",
        REBUILD_QUEUES,
        "apache/rocketmq#7355",
    ),
    warning(
        "consumequeue.wrong-record",
        "A unit points to a record of another topic or queue.",
        _NOT_COMPARED,
        f"{_REBUILT[0]}; a unit of a light queue stays if its record no longer shows which queues it named",
        REBUILD_QUEUES,
    ),
    warning(
        "consumequeue.wrong-record-size",
        "A unit has another size than its record.",
        "served with that size: a client cannot read the message, or reads into the next one",
        *_REBUILT,
    ),
    warning(
        "consumequeue.wrong-tags-code",
        "A unit's tags code is not that of its record's tag, or its delivery time is not that of its delay level.",
        (
            (ALL, "consumers that filter by tag miss the message; a delayed one is delivered at another time"),
            (
                "4.9.2 to 4.9.8",
                "these versions themselves write it for delayed messages when a start after a crash writes units",
            ),
        ),
        *_REBUILT,
    ),
    warning(
        "consumequeue.zero-file",
        "A file of a queue holds only zeros, because its pages never reached the disk: messages belong in it, or it "
        "follows the queue's last unit, or all files of the queue are like that and the commit log has no message of "
        "the queue.",
        (
            ("5.0.0 to 5.4.0", "may not load the store, or empties the queue"),
            (ALL, "otherwise the queue gets a unit that points nowhere, and queue offsets are used again"),
            ("4.9.7 and later", "after the last unit: new messages change their queue offset at the next start"),
        ),
        *_REBUILT,
        "apache/rocketmq#10108",
        "apache/rocketmq#9728",
    ),
)
