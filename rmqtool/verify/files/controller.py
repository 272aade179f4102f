"""Checks the text files of controller mode: epochs of masters, and the broker's identity in its group."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnreadableError
from rmqtool.formats.controller import EPOCHS, IDENTITY, identity_problem
from rmqtool.store.config.epochs import BACKUP, read_epochs, read_text_file
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.verify.catalog.finding import Finding
from rmqtool.verify.catalog.registry import finding
from rmqtool.verify.survey.result import Account

CONTROLLER_KINDS: Final = frozenset({FileKind.CONTROLLER})
"""Kinds of files that are looked at here."""


def controller_findings(store: Store, rules: BrokerRules, account: Account) -> Iterator[Finding]:
    """All findings about these files but the one that needs the end of the log."""
    del rules  # brokers before 5.0 do not read them
    paths = [entry.path for entry in store.files.get(FileKind.CONTROLLER, ())]
    for entry in store.files.get(FileKind.CONTROLLER, ()):
        account.file(entry.path, entry.size).checked += entry.size
    try:
        if {EPOCHS, BACKUP} & set(paths):
            yield from _epochs(store)
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


def _epochs(store: Store) -> Iterator[Finding]:
    files = read_epochs(store.view)
    if files.why_not is not None:
        path, _, text = files.why_not.partition(": ")
        yield finding("controller.epochs-not-parsed", path, text)
        return
    problem = "it is missing" if files.own is None else files.own.problem
    if problem is not None:
        backup = files.backup
        is_kept = backup is not None and backup.problem is None
        text = f"{problem}; its backup {'is good' if is_kept else 'is missing' if backup is None else 'is not'}"
        yield finding("controller.epochs-from-backup" if is_kept else "controller.epochs-lost", EPOCHS, text)
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
