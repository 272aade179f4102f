"""Looks at the index files one by one, and at their order; a file whose slot count nobody knows is not checked."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field

from rmqtool.engine.dispatch.index_writer import holds_no_entry
from rmqtool.errors import UnreadableError
from rmqtool.findings.account import Account
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import finding
from rmqtool.scan.log_digest import LogDigest
from rmqtool.store.directory import Store
from rmqtool.store.view import Entry
from rmqtool.verify.files.reach import misordered_files, zero_files
from rmqtool.verify.survey.index_map import IndexMap, IndexPass
from rmqtool.verify.survey.recall import seen_by


@dataclass
class IndexFiles:
    """What the index files show by themselves.

    Attributes:
        is_known: whether every file with an entry was checked.
        seen: what the look at each came to.
    """

    maps: list[IndexMap] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    is_known: bool = True
    seen: list[object] = field(default_factory=list)


def read_index(store: Store, account: Account, digest: LogDigest | None = None) -> IndexFiles:
    """Check the index files of a store.

    Args:
        digest: recalls what was seen of files that are the same.
    """
    index = IndexFiles()
    slots, room = store.index_slot_count, store.index_entry_count
    empty, ordered = [], []
    for entry in store.index_files:
        if not slots:
            empty += [entry.path] if _is_empty(store, entry, account, index) else []
            continue
        one = IndexPass(entry, slots, room, account)
        seen = seen_by(one, [entry.path], (entry.size, slots, room), store.view.open, digest)
        file = seen.result
        index.findings += seen.findings
        index.seen.append(seen)
        if file is not None:
            empty += [entry.path] if file.is_zero else []
            index.maps.append(file)
            is_right = not any(row.id == "index.bad-header" for row in seen.findings)
            if file.count and is_right and file.begin_timestamp_ms <= file.end_timestamp_ms:
                ordered.append(file)
    index.findings += misordered_files(ordered)
    # A broker makes the first file before it has any key for it.
    index.findings += zero_files(empty if len(empty) < len(store.index_files) else empty[1:])
    return index


def _is_empty(store: Store, entry: Entry, account: Account, index: IndexFiles) -> bool:
    """Whether a file has no entry, which needs no slot count; any other is a finding, and not checked."""
    part = account.file(entry.path, entry.size)
    try:
        with closing(store.view.open(entry.path)) as source:
            if holds_no_entry(source):
                part.zero_tail = entry.size
                return True
        text = f"{entry.size} bytes, and nothing shows the number of slots: the file was not checked"
        index.findings.append(finding("index.unknown-slot-count", entry.path, text, length=entry.size))
    except UnreadableError as error:
        index.findings.append(finding("store.unreadable", entry.path, str(error)))
    part.left_out = entry.size
    index.is_known = False
    return False
