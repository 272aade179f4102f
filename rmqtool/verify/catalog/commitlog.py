"""The catalogue's findings about the commitlog."""

from __future__ import annotations

from typing import Final

from rmqtool.verify.catalog.finding import ALL, RECOVER, SALVAGE, FindingType, error, note, warning

_ENDS_HERE: Final = (
    (
        "up to 5.3.1",
        (
            "a start whose scan covers the place ends the log there: the rest of the file is "
            "given up, later files are unlinked; "
            "after a clean stop the last three files are scanned, after a crash those from the checkpoint on"
        ),
    ),
    (
        "5.3.2 and later",
        (
            "the same where the scan covers the place; after a clean stop that is little more than the last file, so "
            "older damage stays unnoticed and is served"
        ),
    ),
    ("5.4.0 and later", "the scan never covers more than the last ten files"),
)
_BRIDGE: Final = "bridged with tombstones, so that everything behind it is kept"

ENTRIES: Final[tuple[FindingType, ...]] = (
    error(
        "commitlog.bad-lengths",
        "The lengths inside a record do not add up to its size, or lead out of it.",
        _ENDS_HERE,
        _BRIDGE,
        SALVAGE,
        "apache/rocketmq#467",
    ),
    error(
        "commitlog.bad-magic",
        "Where a record should begin stands neither a record nor a blank.",
        _ENDS_HERE,
        _BRIDGE,
        SALVAGE,
        "apache/rocketmq#289",
        "apache/rocketmq#6767",
    ),
    error(
        "commitlog.bad-property",
        "A property that dispatch reads as a number is none (DELAY in the schedule topic; INNER_NUM, INNER_BASE).",
        (
            (ALL, "a record in the schedule topic whose DELAY is no number ends the log as damage does"),
            ("5.0.0 and later", "so does one whose INNER_NUM or INNER_BASE is no number"),
        ),
        _BRIDGE,
        SALVAGE,
    ),
    error(
        "commitlog.bad-size",
        "A record's size is negative, too small, or leads out of its file.",
        (
            *_ENDS_HERE,
            ("up to 5.3.1", "a huge size with a right magic can end the broker for lack of memory"),
        ),
        _BRIDGE,
        SALVAGE,
    ),
    error(
        "commitlog.body-crc-mismatch",
        "The CRC of a record's body is not the stored one.",
        _ENDS_HERE,
        "bridged, or kept as it is; where one flipped bit explains it, the finding says which",
        SALVAGE,
        "apache/rocketmq#467",
        "apache/rocketmq#10911",
    ),
    error(
        "commitlog.doubtful-header",
        "A field of a record's header, its topic or its properties contradicts the log around it: the log lacks "
        "exactly one message of another place there, and a unit says the same, or the record has no unit yet and "
        "breaks its own queue's order. The bytes changed where no checksum covers them. A record that continues its "
        "queue in the log is never blamed, whatever units say.",
        ((ALL, "not noticed; a rebuild of the queues puts the message into the wrong place"),),
        "the field is set to what the log around it and the unit say; left as it is where nothing tells",
        SALVAGE,
        "apache/rocketmq#7437",
    ),
    error(
        "commitlog.empty-file",
        "A file of length 0 in the commitlog.",
        (
            ("4.9.2", "the file and all later ones are silently left out"),
            ("up to 5.1.2", "the store does not load"),
            ("5.1.3 and later", "deleted at load if it is the last one, else the store does not load"),
        ),
        "the file is removed if it is the last one",
        RECOVER,
        "apache/rocketmq#6904",
        "apache/rocketmq#3257",
    ),
    warning(
        "commitlog.file-after-end",
        "Three or more files of zeros lie after the one in which the log ends, or one lies apart from it: no broker "
        "leaves that, for it makes one file in advance.",
        (
            (
                "up to 5.3.1",
                "three or more: a clean start ends the log in one of them, and new messages are lost at the next start",
            ),
            ("4.9.7", "three or more that do not follow the log's last file: it waits for ever at a clean start"),
            ("5.3.2 and later, all versions after a crash, and up to two files", "they are unlinked at the start"),
        ),
        "the files are removed, so that every version continues at the end of the log",
        RECOVER,
    ),
    error(
        "commitlog.hole",
        "Zeros inside the log, with records behind them: pages that never reached the disk.",
        _ENDS_HERE,
        _BRIDGE,
        SALVAGE,
        "apache/rocketmq#7437",
    ),
    error(
        "commitlog.missing-end-blank",
        "A file that another one follows does not end in a record or blank that reaches its end.",
        ((ALL, "a start whose scan covers the place ends the log there and unlinks the later files"),),
        "a blank is written to the file's end",
        SALVAGE,
        "apache/rocketmq#1434",
    ),
    error(
        "commitlog.missing-file",
        "A file between two others is missing, or the files that the queues point into.",
        ((ALL, "a gap is only logged; messages in it cannot be read, and a scan that meets it goes on behind it"),),
        "the log's disk is mounted, or the file taken from a replica; else the queues' units into it are made dead",
        SALVAGE,
        "apache/rocketmq#2141",
    ),
    warning(
        "commitlog.missing-message",
        "Queue offsets that no record has, before records that are in no queue yet, though nothing is damaged there.",
        ((ALL, "not noticed; a record with a wrong topic or queue id is delivered there"),),
        "nothing tells which record it is; a replica may",
    ),
    error(
        "commitlog.not-readable-by-version",
        "A record of a version that the chosen broker does not know (magic V2).",
        (("up to 5.0.0", "the first such record ends the log"), ("5.1.0 and later", "read")),
        "the store is only to be started with a broker from 5.1.0 on",
    ),
    error(
        "commitlog.record-crc-mismatch",
        "The CRC over a whole record, which this store writes, is not the stored one though the body's is right.",
        (
            ("5.2.0 and later", "ends the log where forceVerifyPropCRC is on; else not noticed"),
            ("up to 5.1.4", "not noticed"),
        ),
        _BRIDGE,
        SALVAGE,
        "apache/rocketmq#9121",
        "apache/rocketmq#9852",
    ),
    error(
        "commitlog.self-offset-mismatch",
        "A record's own physical offset is not where it lies: it was copied, shifted, or is the rest of an older log.",
        (
            (ALL, "not noticed; the record is served as if it were right"),
            ("5.5.0 and later", "with checkCommitLogOffsetOnRecover an offset outside the file ends the log"),
        ),
        _BRIDGE,
        SALVAGE,
        "apache/rocketmq#10017",
    ),
    warning(
        "commitlog.stale-tail",
        "After the log's end lie whole records of an older log that was cut there, or copies of records that stand "
        "elsewhere in the log.",
        (
            (
                ALL,
                "not read as long as the new log does not end exactly where an old record begins; then they come back",
            ),
        ),
        "the file is zeroed from the log's end on",
        RECOVER,
        "apache/rocketmq#10017",
        "apache/rocketmq#10666",
    ),
    warning(
        "commitlog.store-time-regress",
        "A record is older than the one before it by more than clocks are set back, or the first one of its file has "
        "the time 0: the clock stepped, the field was damaged, or an old record came back.",
        (
            (ALL, "not noticed; lookup by time and expiry go by it"),
            (ALL, "a store time of 0 in a file's first record keeps recovery after a crash from beginning there"),
            ("5.3.4 and later", "after a clean stop as well"),
        ),
        "looked at by a person; a record that came back is cut off",
    ),
    error(
        "commitlog.stray-file",
        "Something in the commitlog's directory that is no file of the log, for which brokers are said below; or a "
        "file of the log under a wrong name: one that overlaps another file, or whose records agree on a place next to "
        "the other files, or whose name has other than 20 digits (brokers sort by name).",
        (
            ("4.9.2", "the entry and all later ones are silently left out"),
            ("up to 5.0.0", "a file or directory stops the load"),
            ("5.1.0 and later", "a file stops the load, a directory is passed over"),
        ),
        "it is moved away. A file with a wrong name is left to a person: the finding says at which physical offset its "
        "records begin, and which file lies there. Where none does, rename it to that offset (`expected`; the plan has "
        "the command); else move it out of the store and keep it",
        RECOVER,
        "apache/rocketmq#3257",
    ),
    note(
        "commitlog.tombstone",
        "A record that a repair put in the place of a lost one.",
        ((ALL, "an ordinary record"),),
        "nothing: it keeps the queue offsets of what follows",
    ),
    warning(
        "commitlog.torn-record",
        "The last record never arrived whole: power loss, or a replica that was cut off.",
        (
            (
                ALL,
                (
                    "cut off at the next start; cut inside its properties it passes the check and is "
                    "served without the rest"
                ),
            ),
        ),
        "the log is cut before it",
        RECOVER,
        "apache/rocketmq#467",
        "apache/rocketmq#7437",
    ),
    error(
        "commitlog.unreadable-range",
        "The disk does not give the bytes.",
        (
            (
                ALL,
                (
                    "the broker's process is killed by the signal of a failed page (SIGBUS), or an "
                    "error of the virtual machine"
                ),
            ),
        ),
        "copied from a replica, or bridged on another disk",
        SALVAGE,
    ),
    warning(
        "commitlog.queue-offset-repeated",
        "Two records of one queue have the same queue offset: old records came back, or a queue was rebuilt too short.",
        ((ALL, "not noticed; one of the two is served at another offset or not at all"),),
        "the queues are rebuilt; which record is right a person decides",
    ),
    error(
        "commitlog.wrong-file-size",
        "A file of another length than the rest, or a lone one of a length that nobody configures.",
        (
            ("4.9.2", "the file and all later ones are silently left out"),
            (ALL, "else the store does not load"),
        ),
        "the file gets its full length; messages that the queues have and the file lacks need --accept-loss",
        RECOVER,
        "apache/rocketmq#1560",
    ),
)
