"""The catalog's findings about the commit log."""

from __future__ import annotations

from typing import Final

from rmqtool.findings.finding import (
    ALL,
    MISSING_LOG_FILE,
    NOT_READABLE_BY_VERSION,
    RECOVER,
    SALVAGE,
    FindingType,
    error,
    note,
    warning,
)

_ENDS_HERE: Final = (
    (
        "up to 5.3.1",
        (
            "a start that scans this part ends the commit log here: it discards the rest of the file and deletes the "
            "later files; after a clean stop it scans the last three files, after a crash those from the checkpoint on"
        ),
    ),
    (
        "5.3.2 and later",
        (
            "the same, if the start scans this part; after a clean stop it scans little more than the last file, "
            "so older damage is not noticed and is served"
        ),
    ),
    ("5.4.0 and later", "a start never scans more than the last ten files"),
)
_BRIDGE: Final = "tombstones replace the damage, so that everything after it is kept", SALVAGE

ENTRIES: Final[tuple[FindingType, ...]] = (
    error(
        "commitlog.bad-lengths",
        "The lengths inside a record do not add up to its size, or point outside it.",
        _ENDS_HERE,
        *_BRIDGE,
        "apache/rocketmq#467",
    ),
    error(
        "commitlog.bad-magic",
        "Neither a record nor a blank starts where a record should start.",
        _ENDS_HERE,
        *_BRIDGE,
        "apache/rocketmq#289",
        "apache/rocketmq#6767",
    ),
    error(
        "commitlog.bad-property",
        "A property that dispatch reads as a number is not a number (DELAY in the schedule topic; INNER_NUM, "
        "INNER_BASE).",
        (
            (ALL, "a record in the schedule topic whose DELAY is not a number ends the commit log as damage does"),
            ("5.0.0 and later", "so does a record whose INNER_NUM or INNER_BASE is not a number"),
        ),
        *_BRIDGE,
    ),
    error(
        "commitlog.bad-size",
        "A record's size is negative, too small, or reaches past the end of its file.",
        (*_ENDS_HERE, ("up to 5.3.1", "a huge size with a valid magic can make the broker run out of memory and stop")),
        *_BRIDGE,
    ),
    error(
        "commitlog.body-crc-mismatch",
        "The CRC of a record's body does not match the stored CRC.",
        _ENDS_HERE,
        "a tombstone replaces the record, or the record is kept as it is; if one flipped bit explains the CRC, the "
        "finding names it",
        SALVAGE,
        "apache/rocketmq#467",
        "apache/rocketmq#10911",
    ),
    error(
        "commitlog.doubtful-header",
        "A field of a record's header, its topic or its properties contradicts the commit log around it, in bytes that "
        "no checksum covers. Either the log lacks exactly one message of another queue or queue offset there, and a "
        "unit confirms it; or the record has no unit yet and breaks the order of its own queue; or its transaction "
        "starts where no half message can be, and brokers write 0 there into a message of no transaction. A record "
        "that continues its queue in the log is never reported, whatever units contain.",
        "not noticed; a rebuild of the queues puts the message at the wrong queue offset or into the wrong queue",
        "the field is set to the value that the log around it and the unit show; without such evidence it stays",
        SALVAGE,
        "apache/rocketmq#7437",
    ),
    error(
        "commitlog.empty-file",
        "A commit log file has length 0.",
        (
            ("4.9.2", "silently ignores this file and all later ones"),
            ("up to 5.1.2", "the store does not load"),
            ("5.1.3 and later", "deletes the file at load if it is the last one; else the store does not load"),
        ),
        "the file is removed if it is the last one",
        RECOVER,
        "apache/rocketmq#6904",
        "apache/rocketmq#3257",
    ),
    warning(
        "commitlog.file-after-end",
        "Three or more files of zeros follow the file in which the commit log ends, or one is separated from it by a "
        "gap. No broker leaves that: it preallocates one file.",
        (
            (
                "up to 5.3.1",
                "three or more: a clean start ends the log in one of them, and new messages are lost at the next start",
            ),
            ("4.9.7", "three or more that do not directly follow the log's last file: a clean start waits forever"),
            ("5.3.2 and later, all versions after a crash, and up to two files", "the start deletes them"),
        ),
        "the files are removed, so that every version continues at the end of the log",
        RECOVER,
    ),
    error(
        "commitlog.hole",
        "Zeros inside the commit log, with records after them: pages that never reached the disk.",
        _ENDS_HERE,
        *_BRIDGE,
        "apache/rocketmq#7437",
    ),
    error(
        "commitlog.missing-end-blank",
        "A file that is not the last one does not end with a record or blank that reaches the end of the file.",
        "a start that scans this part ends the commit log here and deletes the later files",
        "a blank is written to the end of the file",
        SALVAGE,
        "apache/rocketmq#1434",
    ),
    error(
        MISSING_LOG_FILE,
        "A file between two others is missing, or files that the queues point to are missing.",
        "only logs the gap; messages in it cannot be read, and a scan continues after it",
        "mount the disk of the commit log, or copy the file from a replica; else salvage turns the queue "
        "units that point into the gap into dead units",
        SALVAGE,
        "apache/rocketmq#2141",
    ),
    warning(
        "commitlog.missing-message",
        "No record has these queue offsets, the records after them are in no queue yet, and nothing there is damaged.",
        "not noticed; consumers may get a record with a wrong topic or queue id there",
        "no evidence shows which record is wrong; compare with a replica",
    ),
    error(
        NOT_READABLE_BY_VERSION,
        "A record that the chosen broker does not read: of version 2 (magic V2), or with IPv6 hosts.",
        (
            ("up to 4.5.2", "the first such record ends the commit log"),
            ("4.6.0 to 5.0.0", "the first record of version 2 ends the commit log; IPv6 hosts are read"),
            ("5.1.0 and later", "read"),
        ),
        "start this store only with a broker that reads it: 5.1.0 or later; IPv6 hosts 4.6.0 or later",
    ),
    error(
        "commitlog.record-crc-mismatch",
        "The CRC of the whole record, which this store writes, does not match the stored CRC, though the body's "
        "CRC does.",
        (
            ("5.2.0 and later", "with forceVerifyPropCRC the record ends the commit log; else not noticed"),
            ("up to 5.1.4", "not noticed"),
        ),
        *_BRIDGE,
        "apache/rocketmq#9121",
        "apache/rocketmq#9852",
    ),
    error(
        "commitlog.self-offset-mismatch",
        "A record's stored physical offset is not its real one: it was copied or shifted, or is left from an "
        "older log.",
        (
            (ALL, "not noticed; the record is served"),
            ("5.5.0 and later", "with checkCommitLogOffsetOnRecover an offset outside the file ends the commit log"),
        ),
        *_BRIDGE,
        "apache/rocketmq#10017",
    ),
    warning(
        "commitlog.stale-tail",
        "After the end of the commit log there are whole records of an older log that was truncated here, or copies of "
        "records that are elsewhere in the log.",
        "not read, unless the new log ends exactly where an old record starts; then the old records come back",
        "the file is zeroed from the end of the commit log",
        RECOVER,
        "apache/rocketmq#10017",
        "apache/rocketmq#10666",
    ),
    warning(
        "commitlog.resurrected-tail",
        "The last records of the commit log are older than the record before them, by the broker's time and, if "
        "they come from a clock, by the producers' times: the log was truncated here, new records ended exactly where "
        "an old record starts, and the old records came back; or the clocks were set back. A warning where one of them "
        "has a queue offset that a record before them has too, which proves that they came back; else a note.",
        ((ALL, "a start reads on into the old records; they are in the log, are dispatched and served again"),),
        "a person decides: recover ends the commit log before them, and discards them. A note needs nothing: only "
        "another copy of the log tells whether they came back (`rmqtool diff`)",
        "recover --cut-at OFFSET",
        "apache/rocketmq#10666",
    ),
    warning(
        "commitlog.store-time-regress",
        "A record is older than the one before it by more than a clock correction explains, or the first record of a "
        "file has store time 0: the clock was set back, the field was damaged, or an old record came back. A warning "
        "where the time is 0 or one flipped bit explains it; else a note.",
        (
            (ALL, "not noticed; lookup by time and expiry use this time"),
            (ALL, "recovery after a crash never starts at a file whose first record has store time 0"),
            ("5.3.4 and later", "the same after a clean stop"),
        ),
        "none: nothing but lookup by time uses it, and a clock that was set back needs no repair",
    ),
    error(
        "commitlog.stray-file",
        "Something in `commitlog/` that is not a commit log file, for which the list below says what brokers do; or a "
        "commit log file with a wrong name: it overlaps another file, or its records belong to another offset next to "
        "the other files, or its name does not have 20 digits (brokers sort by name), or the log is this file of zeros "
        "and its size does not divide its name (5.3.1 and later put new messages into it and served none of them).",
        (
            ("4.9.2", "silently ignores this entry and all later ones"),
            ("up to 5.0.0", "a file or directory keeps the store from loading"),
            ("5.1.0 and later", "a file keeps the store from loading, a directory is ignored"),
        ),
        "a file is removed; move a directory away by hand. A person decides about a file with a wrong name: the "
        "finding says at which physical "
        "offset its records start, and which file is there. If none is, rename the file to that offset "
        "(`expected`; the plan has "
        "the command); else move it out of the store and keep it",
        RECOVER,
        "apache/rocketmq#3257",
    ),
    note(
        "commitlog.tombstone",
        "A record that a repair wrote to replace a lost one.",
        "an ordinary record",
        "none needed: it keeps the queue offsets of the messages after it",
    ),
    warning(
        "commitlog.torn-record",
        "The last record is incomplete: power loss, or a replica that lost its connection.",
        "the next start cuts it; a record that is torn inside its properties passes the check and "
        "is served without the rest",
        "the commit log is truncated before it; a record that brokers serve without the rest stays: a person decides "
        "whether `recover --cut-at-damage` truncates it (on a replica the master sends it again)",
        RECOVER,
        "apache/rocketmq#467",
        "apache/rocketmq#7437",
    ),
    error(
        "commitlog.unreadable-range",
        "The disk cannot read these bytes.",
        "the kernel kills the broker when it reads the page (SIGBUS), or the Java virtual machine reports an error",
        "copy the bytes from a replica, or salvage a copy of the store on another disk",
        SALVAGE,
    ),
    warning(
        "commitlog.queue-offset-repeated",
        "Two records of one queue have the same queue offset: old records came back, or a queue was rebuilt too short.",
        "not noticed; one of the two is served at another queue offset or not at all",
        "the queues are rebuilt; a person decides which record is right",
    ),
    error(
        "commitlog.wrong-file-size",
        "A file has another length than the rest, or the only file has an unlikely length.",
        (("4.9.2", "silently ignores this file and all later ones"), (ALL, "otherwise the store does not load")),
        "the file gets its full length; if the queues have messages that the file lacks, --accept-loss is required",
        RECOVER,
        "apache/rocketmq#1560",
    ),
)
