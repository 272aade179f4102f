"""Check by names and permissions if the log is there, and which files of a store this user may not read."""

from __future__ import annotations

import os
import pwd
import shlex
from typing import Final

from rmqtool.answer.answer import NAMED_MAX, MissingLog
from rmqtool.engine.reading.log_presence import absent_directories, is_log_missing, log_holders, places_of_log
from rmqtool.store.directory import Store
from rmqtool.store.dledger_files import dledger_logs
from rmqtool.store.file_kinds import FileKind, is_file_of_tool
from rmqtool.store.view import DirectoryView, UnreadPlace

_LOG: Final = "commitlog"
_UNUSED: Final = frozenset({FileKind.RMQTOOL, FileKind.UNKNOWN})


def missing_log(store: Store) -> MissingLog | None:
    """The missing log, or the missing directory of it; None if nothing is missing."""
    if is_log_missing(store):
        what = f"there is no file of the commit log in {', '.join(places_of_log(store))}, but there were messages"
        harm = "its next start deletes the consume queues"
    elif absent := absent_directories(store):
        what = f"no file of the commit log is in {', '.join(absent)}, where a part of it belongs"
        harm = "it starts without the messages there"
    else:
        return None
    holders = log_holders(store)
    if holders:
        what = f"{what}; files with names of log files are in {', '.join(holders)}"
    setting = " (of DLedger: storePathDLedgerCommitLog of its properties file, --broker-conf FILE)"
    path = f"the path is right{setting if dledger_logs(store) else ''}"
    text = f"{what}: check that its disk is mounted and {path}, and do not start the broker: {harm}"
    options = ""  # that name the directories of the log; those that are where they are looked for count too
    if holders and isinstance(store.view, DirectoryView):
        known = (segment.path.rpartition("/")[0] for segment in store.loadable_log)
        paths = (store.view.root / path for path in dict.fromkeys((*known, *holders)))
        options = " ".join(f"--commitlog {shlex.quote(str(path))}" for path in paths)
    return MissingLog(text, options)


def unreadable_files(store: Store) -> tuple[UnreadPlace, ...]:
    """Paths that this user may not read, the log first; only those that a broker reads, not the journals of repairs."""
    problems = [place for place in store.problems if not is_file_of_tool(place.path)]
    if isinstance(store.view, DirectoryView):
        used = (of_kind for kind, of_kind in store.files.items() if kind not in _UNUSED)
        entries = (entry for of_kind in used for entry in of_kind if entry.is_file)
        root = store.view.root
        problems += [
            UnreadPlace(entry.path, "permission denied", is_denied=True)
            for entry in entries
            if os.path.lexists(root / entry.path)  # else a repair has removed it since
            and not os.access(root / entry.path, os.R_OK, effective_ids=_HAS_EFFECTIVE)
        ]
    return tuple(sorted(dict.fromkeys(problems), key=lambda place: (not place.path.startswith(_LOG), place.path)))


def denied_files(store: Store) -> tuple[UnreadPlace, ...]:
    """Paths that permissions keep from this user, which their owner can read."""
    return tuple(place for place in unreadable_files(store) if place.is_denied)


def reader_command(store: Store, command: str) -> str:
    """How to read files that this user may not, or how to handle a path that is not a file, as a sentence."""
    if store.nodes and not denied_files(store):
        return f"Move {', '.join(node.path for node in store.nodes[:NAMED_MAX])} out of the store"
    owners = sorted(store.owner_ids)
    if not isinstance(store.view, DirectoryView) or not owners:
        return ""
    try:
        owner = pwd.getpwuid(owners[0]).pw_name
    except KeyError:
        owner = f"#{owners[0]}"
    return f"Run as the files' owner: sudo -u {shlex.quote(owner)} {command}"


_HAS_EFFECTIVE: Final = os.access in os.supports_effective_ids
