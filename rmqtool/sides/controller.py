"""Text files of controller mode: epochs of masters as a broker reads them, and the broker's identity in its group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from typing import Final, NamedTuple

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnreadableError
from rmqtool.findings.account import Account
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import finding
from rmqtool.formats.controller import EPOCHS, IDENTITY, Epochs, identity_problem, parse_epochs
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.source import read_range
from rmqtool.store.view import StoreView

SIZE_MAX: Final = 1 << 20
"""Bytes of such a file that are read: tens of thousands of epochs."""
BACKUP: Final = f"{EPOCHS}.bak"


class EpochFiles(NamedTuple):
    """The two files; None for one that is not there, or not asked."""

    own: Epochs | None
    backup: Epochs | None

    @property
    def used(self) -> Epochs:
        """The epochs that the broker uses."""
        return next((file for file in (self.own, self.backup) if file is not None and file.problem is None), Epochs())

    @property
    def why_not(self) -> str | None:
        """Why the broker does not start, as a sentence."""
        for path, file in ((EPOCHS, self.own), (BACKUP, self.backup)):
            if file is not None and file.prevents_start:
                return f"{path}: {file.problem}"
        return None


def read_epochs(view: StoreView) -> EpochFiles:
    """Both files, the backup only where the broker asks for it.

    Raises:
        UnreadableError: a file may not be read, or is too large.
    """
    raw = read_text_file(view, EPOCHS)
    own = None if raw is None else parse_epochs(raw)
    if own is not None and (own.problem is None or own.prevents_start):
        return EpochFiles(own, None)
    raw = read_text_file(view, BACKUP)
    return EpochFiles(own, None if raw is None else parse_epochs(raw))


def read_text_file(view: StoreView, path: str) -> bytes | None:
    """A small file; None where there is none.

    Raises:
        UnreadableError: it may not be read, or is too large.
    """
    if view.stat(path) is None:
        return None
    with closing(view.open(path)) as source:
        if source.size > SIZE_MAX:
            raise UnreadableError(f"{path}: {source.size} bytes, too large for such a file")
        return read_range(source, 0, source.size)


def controller_findings(store: Store, rules: BrokerRules, account: Account) -> Iterator[Finding]:
    """All findings about these files but the one that needs the end of the log."""
    del rules  # brokers before 5.0 do not read them
    entries = store.files.get(FileKind.CONTROLLER, ())
    for entry in entries:
        account.file(entry.path, entry.size).checked += entry.size
    try:
        if any(entry.path in (EPOCHS, BACKUP) for entry in entries):
            yield from _epoch_findings(read_epochs(store.view))
    except UnreadableError as error:
        yield finding("store.unreadable", EPOCHS, str(error))
    try:
        identity = read_text_file(store.view, IDENTITY)
    except UnreadableError as error:
        yield finding("store.unreadable", IDENTITY, str(error))
        return
    problem = identity_problem(identity) if identity is not None else None
    if problem is not None:
        yield finding("controller.identity-broken", IDENTITY, problem)


def _epoch_findings(files: EpochFiles) -> Iterator[Finding]:
    if files.why_not is not None:
        path, _, text = files.why_not.partition(": ")
        yield finding("controller.epochs-not-parsed", path, text)
        return
    problem = "it is missing" if files.own is None else files.own.problem
    if problem is not None:
        is_good = files.backup is not None and files.backup.problem is None
        text = f"{problem}; its backup {'is good' if is_good else 'is missing' if files.backup is None else 'is not'}"
        yield finding("controller.epochs-from-backup" if is_good else "controller.epochs-lost", EPOCHS, text)
    for (epoch, start), (next_epoch, next_start) in pairwise(files.used.entries):
        if next_epoch <= epoch or next_start < start:
            text = f"epoch {next_epoch} from {next_start} comes after epoch {epoch} from {start}"
            yield finding("controller.epochs-wrong-order", EPOCHS, text)


def epochs_ahead(store: Store, log_end: int) -> Iterator[Finding]:
    """The finding of epochs that start past the end of the log.

    Args:
        log_end: physical offset after its last record.
    """
    try:
        ahead = [(epoch, start) for epoch, start in read_epochs(store.view).used.entries if start > log_end]
    except UnreadableError:
        return  # said elsewhere
    if ahead:
        text = f"epoch {ahead[0][0]} starts at {ahead[0][1]}, the log ends at {log_end}"
        yield finding("controller.epochs-ahead-of-log", EPOCHS, text, count=len(ahead))
