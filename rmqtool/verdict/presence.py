"""Whether the log is there at all, and what of a store this user may not read; names and permissions tell."""

from __future__ import annotations

import os
import pwd
import shlex
from typing import Final

from rmqtool.store.checkpoint_file import readable_checkpoint
from rmqtool.store.config.tiered import read_tiered
from rmqtool.store.directory import Store
from rmqtool.store.dledger_files import data_directories, dledger_logs
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.location import log_directories
from rmqtool.store.view import DirectoryView

DENIED: Final = "permission denied"
_LOG: Final = "commitlog"
_OWN: Final = (".rmqtool/", ".rmqtool:")
_UNUSED: Final = frozenset({FileKind.RMQTOOL, FileKind.UNKNOWN})


def missing_log(store: Store) -> str | None:
    """What is missing, as a sentence, where a store that had messages has no file of the log; None elsewhere."""
    logs = dledger_logs(store)
    if any(segment.size for segment in (*store.loadable_log, *(file for log in logs for file in log.data))):
        return None
    if not store.is_log_listed:
        return None
    was_written = _had_messages(store) or any(log.committed_index is not None for log in logs)
    if not (was_written or store.queues or store.batch_queues or store.index_files):
        return None
    plain = log_directories(store) if _LOG in store.directories or not logs else ()
    directories = ", ".join((*plain, *data_directories(store)))
    setting = "" if not logs else " (of DLedger: storePathDLedgerCommitLog of its properties file, --broker-conf FILE)"
    return (
        f"there is no file of the commit log in {directories}, but there were messages: check that its disk is mounted "
        f"and the path is right{setting}, and do not start the broker: its next start deletes the consume queues"
    )


def unreadable_files(store: Store) -> tuple[str, ...]:
    """What this user may not read, as sentences, the log first; of what a broker reads, and not what repairs keep."""
    problems = [problem for problem in store.problems if not problem.startswith(_OWN)]
    if isinstance(store.view, DirectoryView):
        used = (of_kind for kind, of_kind in store.files.items() if kind not in _UNUSED)
        entries = (entry for of_kind in used for entry in of_kind if entry.is_file)
        root = store.view.root
        problems += [
            f"{entry.path}: {DENIED}"
            for entry in entries
            if os.path.lexists(root / entry.path)  # else a repair has removed it since
            and not os.access(root / entry.path, os.R_OK, effective_ids=_HAS_EFFECTIVE)
        ]
    return tuple(sorted(dict.fromkeys(problems), key=lambda text: (not text.startswith(_LOG), text)))


def denied_files(store: Store) -> tuple[str, ...]:
    """What of it permissions keep from this user, which its owner can read."""
    return tuple(text for text in unreadable_files(store) if text.endswith(DENIED))


def reader_command(store: Store, command: str) -> str:
    """How to read what this user may not, as a sentence."""
    owners = sorted(store.owner_ids)
    if not isinstance(store.view, DirectoryView) or not owners:
        return ""
    owner = _user_name(owners[0])
    return f"Run as the files' owner: sudo -u {shlex.quote(owner)} {command}"


def _user_name(user_id: int) -> str:
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return f"#{user_id}"


def _had_messages(store: Store) -> bool:
    """Whether the checkpoint, or the metadata of a tiered store, knows of a message."""
    checkpoint = readable_checkpoint(store)
    is_known = checkpoint is not None and checkpoint.commitlog_timestamp_ms > 0
    return is_known or (FileKind.TIERED in store.files and read_tiered(store.view).is_used)


_HAS_EFFECTIVE: Final = os.access in os.supports_effective_ids
