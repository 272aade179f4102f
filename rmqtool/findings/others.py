"""The catalog's findings about index, checkpoint, configuration and the store as a whole."""

from __future__ import annotations

from typing import Final

from rmqtool.findings.finding import (
    ALL,
    REBUILD_CHECKPOINT,
    REBUILD_INDEX,
    REBUILD_TOPICS,
    RECOVER,
    UNDO,
    FindingType,
    error,
    note,
    warning,
)

_REBUILT_INDEX: Final = "the index is rebuilt from the commit log", REBUILD_INDEX
_REBUILT_CHECKPOINT: Final = "the checkpoint is rebuilt from the commit log and the queues", REBUILD_CHECKPOINT

ENTRIES: Final[tuple[FindingType, ...]] = (
    warning(
        "checkpoint.ahead-of-log",
        "A time or offset of the checkpoint is after the last record of the commit log. A note where it is a time and "
        "records have expired: where the clock was set back, one of them may have been newer; else a warning.",
        (
            ("up to 5.4.0", "after a crash the scan starts too late, at the last file"),
            ("5.5.0 and later", "the same, by the offset of the queues"),
        ),
        *_REBUILT_CHECKPOINT,
        "apache/rocketmq#10666",
    ),
    warning(
        "checkpoint.ahead-of-queues",
        "The checkpoint counts records as dispatched that are not in the queues.",
        (
            (
                "up to 5.4.0",
                "after a crash the scan may start after the first missing unit, which is then never written",
            ),
            ("5.5.0 and later", "the same, by the offset of the queues"),
        ),
        *_REBUILT_CHECKPOINT,
        "apache/rocketmq#678",
        "apache/rocketmq#10073",
    ),
    warning(
        "checkpoint.bad-size",
        "The checkpoint is not 4096 bytes long.",
        "a short file is extended with zeros, of a long file the first part is used",
        *_REBUILT_CHECKPOINT,
    ),
    warning(
        "checkpoint.bad-time",
        "A field of the checkpoint is not a possible time or offset, a time is zero that a broker must have "
        "written, or bytes are not zero that always are.",
        (
            (
                ALL,
                (
                    "after a crash the scan starts at the first file for zero and negative times, "
                    "at the last file for times in the future"
                ),
            ),
            ("5.4.0 and later", "the scan starts at the earliest in the tenth file from the end"),
        ),
        *_REBUILT_CHECKPOINT,
        "apache/rocketmq#1153",
        "apache/rocketmq#7233",
    ),
    note(
        "checkpoint.zero-time",
        "A time of the checkpoint is zero though the commit log has messages. A broker that ran for less than a minute "
        "leaves it like this, and so does a lost write.",
        (
            (ALL, "after a crash the start deletes all index files and scans the log from its first file"),
            ("5.4.0 and later", "the start scans only the last ten files, so older index entries are lost for good"),
        ),
        "none needed after a clean stop; after a crash recover writes the checkpoint",
    ),
    warning(
        "checkpoint.missing",
        "There is no checkpoint though the commit log has messages.",
        (
            (ALL, "after a crash the start deletes all index files and scans the log from its first file"),
            ("5.4.0 and later", "the start scans only the last ten files, so older index entries are lost for good"),
        ),
        *_REBUILT_CHECKPOINT,
    ),
    error(
        "compaction.leftover-file",
        "A compaction left a file `*.delete`.",
        (("5.1.0 and later", "reads its name as an offset, and the store does not load"),),
        "the file is removed: a compacted file has replaced it",
        RECOVER,
    ),
    warning(
        "config.backup-better",
        "A configuration file is missing, empty or broken, and its backup `.bak` can be read.",
        (("up to 5.3.3", "reads the backup instead"), ("5.3.4 and later", "the same; deletes the broken file first")),
        "the backup is copied over the file; topics that have queues and that the backup lacks are added, and delay "
        "levels continue where the log shows that they were",
        RECOVER,
        "apache/rocketmq#7729",
        "apache/rocketmq#9705",
    ),
    note(
        "topic.deleted",
        "Messages of a deleted topic: the whole configuration does not have it, or its queues began again after them.",
        (
            ("up to 4.9.8", "keeps the records until they expire; a start enters those after the last unit again"),
            ("5.0.0 and later", "keeps the records until they expire; an abnormal start may enter them again"),
        ),
        "none needed; a topic that is not used again comes back with `rebuild --restore-deleted`",
    ),
    warning(
        "topic.may-be-deleted",
        "Messages of a topic that has no queue, where the configuration cannot be read that would tell whether it was "
        "deleted: it is damaged, or an older copy is read that does not have the topic.",
        ((ALL, "keeps the records until they expire; enters again only what a start enters after a kill"),),
        "a person decides: `rebuild --topic` with its name brings the topic back; without it the messages stay in the "
        "log until they expire. If it was deleted, and the copy that is read still names it, start the broker and "
        "delete it once more",
    ),
    warning(
        "config.queue-without-topic",
        "A queue belongs to a topic that is not in `topics.json` (or its backup where that is read), or in the "
        "database that replaces it. A note where a whole file lacks it: after a deletion, a start enters the messages "
        "again of which the units are gone; but not where a message is a minute newer than the file's last change.",
        "keeps the queue; clients get no route to the topic, and no message of it, until it is created",
        "recover adds the topic, with guesses, if the broker reads the backup: that may be older than the topic. Where "
        "the file is whole, none is needed after a deletion; `rebuild --topic` with its name adds it",
        REBUILD_TOPICS,
    ),
    error(
        "config.batch-queue-without-topic",
        "A batch queue belongs to a topic that is not in `topics.json`, or in the database that replaces it.",
        (("5.0.0 and later", "does not start: it expects no batch queues of a topic that it does not know"),),
        "the topic is added, with guesses",
        REBUILD_TOPICS,
    ),
    warning(
        "config.topic-misnamed",
        "An entry of `topics.json` has no `topicName`, or another one than its key.",
        (
            ("up to 4.9.8", "starts, and clients get no route to the topic"),
            ("5.0.0 and later", "does not start where the name is missing; else clients get no route to the topic"),
        ),
        "the entry gets its key as its name",
        REBUILD_TOPICS,
    ),
    warning(
        "config.topics-missing",
        "`topics.json` and its backup `.bak` are missing, and other files of the broker's configuration are there.",
        (
            (ALL, "starts, and clients get no message of the topics until they are created again"),
            ("5.0.0 and later", "does not start if a topic has batch queues"),
        ),
        "restore the file from another copy; else it is rebuilt from queues and messages, with guesses",
        REBUILD_TOPICS,
        "apache/rocketmq#9826",
        "apache/rocketmq#9984",
    ),
    warning(
        "config.unreadable",
        "A configuration file cannot be read, and it has no readable backup; or a database in RocksDB that replaces it "
        "cannot be read.",
        "starts without this configuration; does not start if there is a backup `.bak` that is not JSON",
        (
            "restore the file from another copy; without one, `rebuild --topics` rebuilds topics.json, with guesses, "
            "`rebuild --delay-offsets` rebuilds delayOffset.json, and `recover` removes others that keep a broker from "
            "starting"
        ),
        None,
        "apache/rocketmq#6096",
        "apache/rocketmq#3401",
    ),
    warning(
        "index.bad-entry",
        "An entry's hash or time is not that of its record, the entry is out of order, or its fields are impossible.",
        "not noticed; a lookup misses the message or finds a wrong one",
        *_REBUILT_INDEX,
    ),
    warning(
        "index.bad-header",
        "The header of an index file contradicts its entries, or the file is too short for the entries that it counts.",
        "lookups skip the file or stop early; new entries may overwrite old ones",
        *_REBUILT_INDEX,
        "apache/rocketmq#1919",
        "apache/rocketmq#1987",
    ),
    warning(
        "index.chain-loop",
        "A chain of entries leads to an entry that is not older.",
        "a lookup in this chain never ends, and the broker cannot be stopped cleanly",
        *_REBUILT_INDEX,
        "apache/rocketmq#8007",
    ),
    warning(
        "index.dangling-entry",
        "An entry points to an offset where no record starts.",
        "a lookup of the key fails or finds nothing",
        *_REBUILT_INDEX,
    ),
    warning(
        "index.directory",
        "A directory in `index/` has a number as its name, so that a broker opens it as an index file.",
        (
            ("up to 5.0.0", "does not load index files whose names come after it: keys in them are not found"),
            ("5.1.0 and later", "the broker does not start"),
        ),
        "move the directory away by hand",
    ),
    warning(
        "index.misnamed-file",
        "A file in `index/` has a number as its name, but not a time as brokers write it.",
        "extends it to the size of an index file and uses it as one; new keys go into it if its name is "
        "the last one, and lookups may stop at it",
        "the file is removed, and the index rebuilt if keys are missing",
        RECOVER,
    ),
    warning(
        "index.misordered-file",
        "An index file holds older records than a file with an earlier name: it is a copy, or has another file's name.",
        "lookups with a start time stop at it: keys in other files are not found, or found twice",
        *_REBUILT_INDEX,
    ),
    note(
        "index.absent",
        "Messages have keys, and nothing shows that there ever was an index: no file, no directory, and no time of it "
        "in the checkpoint.",
        "finds no message by key; a broker with messageIndexEnable=false makes no index",
        "none needed with messageIndexEnable=false; else rmqtool rebuild --index writes it",
    ),
    warning(
        "index.missing-file",
        "There is no index file though messages have keys, or the first index files are missing.",
        "rebuilds it only for records that a start after a crash scans",
        "the index is rebuilt, unless the broker is configured without one",
        REBUILD_INDEX,
        "apache/rocketmq#8007",
    ),
    warning(
        "index.missing-key",
        "The keys of messages are not in the index; one finding for each run of such messages.",
        "a start after a crash itself drops index files and does not rebuild all of them",
        *_REBUILT_INDEX,
        "apache/rocketmq#3868",
        "apache/rocketmq#8007",
    ),
    note("index.stray-file", "A file or directory in `index/` whose name is not a number.", "ignored", "none needed"),
    warning(
        "index.unknown-slot-count",
        "An index file has content, but nothing shows its number of hash slots, so it was not checked.",
        "uses it with the configured number of slots; keys are not found if the file has another number",
        "verify checks it with --index-slots or --broker-conf; rebuild replaces it",
        REBUILD_INDEX,
    ),
    note(
        "index.would-be-dropped",
        "An index file is newer than the index time of the checkpoint, and the store was not stopped cleanly.",
        "the next start deletes it and rebuilds it only for records that it scans",
        "recover marks the store as cleanly stopped, so that no index file is dropped",
        "apache/rocketmq#8007",
        "apache/rocketmq#4463",
    ),
    note(
        "index.wrong-file-size",
        "An index file is shorter or longer than a full one.",
        "extends it with zeros, or uses its first part: only entries that were cut off are lost",
        "none needed; lost entries are a finding of their own",
    ),
    warning(
        "index.wrong-slot",
        "A chain leads to an entry of another slot or skips an entry, or a slot does not point to its newest entry.",
        "lookups of keys in the slot miss messages",
        *_REBUILT_INDEX,
    ),
    warning(
        "index.zero-file",
        "An index file holds only zeros, beside other index files. A broker creates a file only to write an "
        "entry to it.",
        "a lookup with a start time stops at it: keys in older files are not found",
        "the file is removed, and the index rebuilt if keys are missing",
        RECOVER,
    ),
    warning(
        "store.abort-present",
        "The broker did not stop cleanly.",
        "the next start runs recovery: it scans the log, truncates it at the first damage and drops index files",
        "recover keeps what a start would lose",
        RECOVER,
    ),
    note(
        "store.lock-held",
        "A broker is using the store. What it is writing now was not checked.",
        "no other broker can start on it",
        "none needed",
    ),
    warning(
        "store.repair-unfinished",
        "A repair was interrupted. Until it is finished or rolled back, every broker refuses the store.",
        "does not load the store, on purpose",
        "run the repair again, or roll it back",
        UNDO,
    ),
    warning(
        "store.unreadable",
        "A directory or file could not be read, or a FIFO, socket, device, directory or link is where a file belongs; "
        "it was not checked.",
        "a broker of the same user fails to read it, or waits for a FIFO; `rmqtool forecast` says whether it starts",
        "correct the permissions or links, or move what is not a file out of the store",
    ),
)
