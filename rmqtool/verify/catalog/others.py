"""The catalogue's findings about index, checkpoint, configuration and the store as a whole."""

from __future__ import annotations

from typing import Final

from rmqtool.verify.catalog.finding import (
    ALL,
    REBUILD_CHECKPOINT,
    REBUILD_INDEX,
    REBUILD_QUEUES,
    RECOVER,
    UNDO,
    FindingType,
    error,
    note,
    warning,
)

_INDEX_ANEW: Final = "the index is rebuilt from the commit log"
_CHECKPOINT_ANEW: Final = "the checkpoint is rebuilt from the commit log and the queues"

ENTRIES: Final[tuple[FindingType, ...]] = (
    warning(
        "checkpoint.ahead-of-log",
        "A time or offset of the checkpoint lies behind the log's last record.",
        (
            ("up to 5.4.0", "after a crash the scan begins too late, at the last file"),
            ("5.5.0 and later", "the same by the queues' offset"),
        ),
        _CHECKPOINT_ANEW,
        REBUILD_CHECKPOINT,
        "apache/rocketmq#10666",
    ),
    warning(
        "checkpoint.ahead-of-queues",
        "The checkpoint says that records were dispatched which are not in the queues.",
        (
            ("up to 5.4.0", "after a crash the scan may begin behind the first missing unit, which is then never made"),
            ("5.5.0 and later", "the same by the queues' offset"),
        ),
        _CHECKPOINT_ANEW,
        REBUILD_CHECKPOINT,
        "apache/rocketmq#678",
        "apache/rocketmq#10073",
    ),
    warning(
        "checkpoint.bad-size",
        "The checkpoint has another length than 4096 bytes.",
        ((ALL, "a short one is extended with zeros, of a long one the beginning is used"),),
        _CHECKPOINT_ANEW,
        REBUILD_CHECKPOINT,
    ),
    warning(
        "checkpoint.bad-time",
        "A field of the checkpoint is no possible time or offset, a time is zero that a broker must have written, or "
        "bytes that are always zero are not.",
        (
            (
                ALL,
                (
                    "after a crash zero and negative times make the scan begin at the first file, "
                    "times to come at the last one"
                ),
            ),
            ("5.4.0 and later", "at the earliest in the tenth file from the end"),
        ),
        _CHECKPOINT_ANEW,
        REBUILD_CHECKPOINT,
        "apache/rocketmq#1153",
        "apache/rocketmq#7233",
    ),
    note(
        "checkpoint.zero-time",
        "A time of the checkpoint is zero though the log has messages: a broker that ran for less than a minute leaves "
        "it so, and so does a lost write.",
        (
            (ALL, "after a crash all index files are unlinked, and the log is scanned from its first file"),
            ("5.4.0 and later", "only from the tenth file from the end, so older index entries are gone for good"),
        ),
        "nothing after a clean stop; after a crash recover writes the checkpoint",
    ),
    warning(
        "checkpoint.missing",
        "There is no checkpoint though the log has messages.",
        (
            (ALL, "after a crash all index files are unlinked and the log is scanned from its first file"),
            ("5.4.0 and later", "only from the tenth file from the end, so older index entries are gone for good"),
        ),
        _CHECKPOINT_ANEW,
        REBUILD_CHECKPOINT,
    ),
    error(
        "compaction.leftover-file",
        "A file `*.delete` was left in a compaction log.",
        (("5.1.0 and later", "its name is parsed as an offset, and the store does not load"),),
        "the file is removed: it is the predecessor of a compacted one",
        RECOVER,
    ),
    warning(
        "config.backup-better",
        "A configuration file is absent, empty or broken, and its copy `.bak` can be read.",
        (
            ("up to 5.3.3", "the copy is read instead"),
            ("5.3.4 and later", "the same; the broken file is deleted first"),
        ),
        "the copy is put in its place by hand",
        None,
        "apache/rocketmq#7729",
        "apache/rocketmq#9705",
    ),
    warning(
        "config.consumer-offset-beyond-queue",
        "A consumer group's offset lies behind its queue's end.",
        (
            (
                ALL,
                (
                    "consumers are told to begin elsewhere, by default at 0 or at the end: messages "
                    "are repeated or left out"
                ),
            ),
        ),
        "the queue is rebuilt if it is too short; else the offset is set by hand",
        None,
        "apache/rocketmq#4215",
        "alibaba/rocketmq#351",
    ),
    note(
        "config.queue-without-topic",
        "A queue of a topic that `topics.json` does not know.",
        ((ALL, "the queue stays; the topic cannot be used until it is made"),),
        "nothing, unless the topic was lost",
    ),
    warning(
        "config.unreadable",
        "A configuration file cannot be read, and it has no copy that can.",
        ((ALL, "the broker does not start, or starts without what stood there"),),
        "restored from elsewhere",
        None,
        "apache/rocketmq#6096",
        "apache/rocketmq#3401",
    ),
    warning(
        "index.bad-entry",
        "An entry's hash or time is not that of its record, it is out of the log's order, or it says nonsense.",
        ((ALL, "not noticed; a lookup misses the message or finds a wrong one"),),
        _INDEX_ANEW,
        REBUILD_INDEX,
    ),
    warning(
        "index.bad-header",
        "The header of an index file contradicts its entries, or the file has no room for what it says.",
        ((ALL, "lookups pass the file over or stop early; new entries may overwrite old ones"),),
        _INDEX_ANEW,
        REBUILD_INDEX,
        "apache/rocketmq#1919",
        "apache/rocketmq#1987",
    ),
    warning(
        "index.chain-loop",
        "A chain of entries does not lead to ever older ones.",
        ((ALL, "a lookup that meets it never ends, and then the broker cannot be stopped cleanly"),),
        _INDEX_ANEW,
        REBUILD_INDEX,
        "apache/rocketmq#8007",
    ),
    warning(
        "index.dangling-entry",
        "An entry points to a place where no record begins.",
        ((ALL, "a lookup of the key fails or finds nothing"),),
        _INDEX_ANEW,
        REBUILD_INDEX,
    ),
    warning(
        "index.directory",
        "A directory in the index directory whose name is a number, so that a broker opens it as an index file.",
        (
            ("up to 5.0.0", "index files whose names come after it are not loaded: keys in them are not found"),
            ("5.1.0 and later", "the broker does not start"),
        ),
        "moved away by hand",
    ),
    warning(
        "index.misnamed-file",
        "A file in the index directory whose name is a number, but no time as brokers write it.",
        (
            (
                ALL,
                (
                    "lengthened to the size of an index file and used as one; new keys go into it if its name is the "
                    "last one, and lookups may stop at it"
                ),
            ),
        ),
        "the file is removed, and the index rebuilt if keys are missing",
        RECOVER,
    ),
    warning(
        "index.misordered-file",
        "An index file holds older records than one with an earlier name: it is a copy, or has another file's name.",
        ((ALL, "lookups that have a start time stop at it: keys in other files are not found, or found twice"),),
        _INDEX_ANEW,
        REBUILD_INDEX,
    ),
    warning(
        "index.missing-file",
        "There is no index file though messages have keys, or the files do not reach back to where they should begin.",
        ((ALL, "rebuilt only for records that a start after a crash scans"),),
        "the index is rebuilt, unless the broker is set to have none",
        REBUILD_INDEX,
        "apache/rocketmq#8007",
    ),
    warning(
        "index.missing-key",
        "Messages whose keys are not in the index; said once for each run of such messages.",
        ((ALL, "a start after a crash itself drops index files and does not make all of them anew"),),
        _INDEX_ANEW,
        REBUILD_INDEX,
        "apache/rocketmq#3868",
        "apache/rocketmq#8007",
    ),
    note(
        "index.stray-file",
        "A file or directory in the index directory whose name is no number.",
        ((ALL, "passed over"),),
        "nothing",
    ),
    warning(
        "index.unknown-slot-count",
        "An index file holds something, but nothing tells how many hash slots it has, so it was not checked.",
        ((ALL, "used with the number of slots that the broker is set to; keys are not found if the file has another"),),
        "verify with --index-slots or --broker-conf checks it; rebuild replaces it",
        REBUILD_INDEX,
    ),
    note(
        "index.would-be-dropped",
        "An index file that is newer than the checkpoint's index time, in a store that was not stopped cleanly.",
        ((ALL, "unlinked at the next start, and rebuilt only for records that this start scans"),),
        "recover leaves the store as after a clean stop, so nothing is dropped",
        "apache/rocketmq#8007",
        "apache/rocketmq#4463",
    ),
    note(
        "index.wrong-file-size",
        "An index file is shorter or longer than a full one.",
        ((ALL, "lengthened with zeros, or its first part is used: only entries that were cut off are lost"),),
        "nothing; entries that were cut off are a finding of their own",
    ),
    warning(
        "index.wrong-slot",
        "A chain leads to an entry of another slot, leaves one out, or a slot does not begin with its newest entry.",
        ((ALL, "lookups of keys in the slot miss messages"),),
        _INDEX_ANEW,
        REBUILD_INDEX,
    ),
    warning(
        "index.zero-file",
        "An index file of zeros beside others; a broker makes a further file only to put an entry into it.",
        ((ALL, "a lookup with a start time that meets it stops: keys in older files are not found"),),
        "the file is removed, and the index rebuilt if keys are missing",
        RECOVER,
    ),
    warning(
        "rocksdb.ahead-of-log",
        "Consume queues in RocksDB end behind the log, as far as it can be told without opening the database.",
        (("5.2.0 and later", "units behind the log's end are cut at a start"),),
        "looked at with the broker itself",
        REBUILD_QUEUES,
    ),
    warning(
        "store.abort-present",
        "The broker did not stop cleanly.",
        ((ALL, "the next start recovers: it scans the log, cuts it at the first damage and drops index files"),),
        "what a start would lose is kept",
        RECOVER,
    ),
    note(
        "store.lock-held",
        "A broker is using the store: what it is writing now was not judged.",
        ((ALL, "no other broker can start on it"),),
        "nothing",
    ),
    warning(
        "store.repair-unfinished",
        "A repair was interrupted; until it is finished or taken back every broker refuses the store.",
        ((ALL, "the store does not load, by intent"),),
        "the repair is run once more or taken back",
        UNDO,
    ),
    warning(
        "store.unreadable",
        "A directory or file could not be looked at, so it was not checked.",
        ((ALL, "a broker of the same user fails in the same way"),),
        "permissions or links are put right",
    ),
)
