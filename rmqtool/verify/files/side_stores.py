"""What is checked beside log, queues, index and configuration, and what of it is left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rmqtool.engine.reading.unread_files import UnreadFiles, unread_files
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.verify.catalog.finding import Finding
from rmqtool.verify.files.compaction import COMPACTION_KINDS, compaction_findings
from rmqtool.verify.files.controller import CONTROLLER_KINDS, controller_findings
from rmqtool.verify.files.dledger import DLEDGER_KINDS, dledger_findings
from rmqtool.verify.files.tiered import TIERED_KINDS, tiered_findings, undecoded_tiered
from rmqtool.verify.files.timers import KINDS, is_timer_checked, timer_findings
from rmqtool.verify.survey.result import Account

_CHECKS: Final = (
    (KINDS, timer_findings),
    (COMPACTION_KINDS, compaction_findings),
    (DLEDGER_KINDS, dledger_findings),
    (CONTROLLER_KINDS, controller_findings),
    (TIERED_KINDS, tiered_findings),
)


def side_kinds(store: Store, rules: BrokerRules, *, timer: bool = True) -> frozenset[FileKind]:
    """Kinds of files that a full check looks at; a running broker changes them."""
    kinds = CONTROLLER_KINDS | TIERED_KINDS
    if timer and is_timer_checked(store, rules):
        kinds |= KINDS
    if store.second_database is not None and store.second_database.is_read:
        kinds |= {FileKind.CONSUMEQUEUE_ROCKSDB}
    if rules.compaction:
        kinds |= COMPACTION_KINDS
    return kinds | DLEDGER_KINDS if rules.dledger else kinds


def side_findings(store: Store, rules: BrokerRules, account: Account, kinds: frozenset[FileKind]) -> Iterator[Finding]:
    """Findings about files of these kinds, kind by kind."""
    for checked_kinds, check in _CHECKS:
        if kinds >= checked_kinds:
            yield from check(store, rules, account)


def left_out_files(store: Store, kinds: frozenset[FileKind]) -> Iterator[UnreadFiles]:
    """What is not looked at where files of these kinds are."""
    yield from unread_files(store, kinds)
    if kinds >= TIERED_KINDS:
        yield from undecoded_tiered(store)
