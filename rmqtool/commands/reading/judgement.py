"""What every command that judges a store says alike: a verdict over findings, from the room `verdict`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from rmqtool.errors import UnknownSizeError
from rmqtool.repair.recover.log_steps import demand_shown_size
from rmqtool.sides.timer.loaded import timer_files
from rmqtool.sides.unread import UnreadFiles
from rmqtool.store.dledger_files import with_dledger_log
from rmqtool.store.file_kinds import FileKind
from rmqtool.verdict.command_line import CommandLine
from rmqtool.verdict.presence import missing_log, reader_command, unreadable_files
from rmqtool.verdict.start import start_failures
from rmqtool.verdict.tally import FindingTally
from rmqtool.verdict.verdict import Assessment

if TYPE_CHECKING:
    from rmqtool.engine.reading.named_sizes import UnreadSizes
    from rmqtool.engine.rules.broker_rules import BrokerRules
    from rmqtool.store.directory import Store


class JudgedStore(Protocol):
    """A store, and the broker whose rules apply to it."""

    @property
    def store(self) -> Store: ...

    @property
    def rules(self) -> BrokerRules: ...

    @property
    def possible_versions(self) -> tuple[str, ...]:
        """Versions of which one may start on the store."""

    @property
    def is_version_known(self) -> bool:
        """Whether a person or the files tell the version: a repair does not guess it."""

    @property
    def unread_sizes(self) -> UnreadSizes | None:
        """The settings that give the files their size, and that the version does not read."""


def assessment_of(
    opened: JudgedStore, line: CommandLine, command: str, tally: FindingTally, coverage: Iterable[UnreadFiles]
) -> Assessment:
    """What names, lengths and permissions of a store's files come to, and the findings about them.

    Args:
        command: the one that is running, which another user may have to run.
        coverage: what was not looked at.
    """
    store = opened.store
    is_decoded = bool(store.commitlog) or not store.files.get(FileKind.DLEDGER) or command == "verify"
    return Assessment(
        log_missing=missing_log(store),
        unreadable=tuple(map(str, unreadable_files(store))),
        reader=reader_command(store, line(command)),
        start_failures=start_failures(store, opened.rules, opened.possible_versions),
        damaged=tally.damaged,
        missing_files=tally.missing_files,
        inconsistent=tally.inconsistent(is_log_decoded=is_decoded),
        not_looked_at=tuple(coverage),
    )


def unknown_to_repair(
    opened: JudgedStore, *, queues: bool, index: bool, timer: bool = False, compaction: bool = False
) -> Iterator[str]:
    """What a repair has to know and nothing in the store shows, as sentences.

    Args:
        queues, index, timer, compaction: whether the repair writes them.
    """
    store = opened.store
    if not opened.is_version_known:
        yield "nothing in the store shows its broker version; add --broker-version X.Y.Z"
    if (unread := opened.unread_sizes) is not None:
        yield str(unread)
    try:
        demand_shown_size(store)
        # Late, for repairs bring numpy with them, which `info` must not wait for.
        if timer:
            from rmqtool.repair.timer import log_file_size

            log_file_size(store, timer_files(store).log_file_size)
        if compaction:
            from rmqtool.repair.compaction import compaction_sizes

            compaction_sizes(store)
        if not (queues or index):
            return
        from rmqtool.repair.derived.builder import dispatch_settings, index_shape_of, sizes_of
        from rmqtool.repair.derived.request import BuildOptions

        store = with_dledger_log(store) if opened.rules.dledger else store
        if queues and store.queue_database is None:  # units in RocksDB are in no file of a set size
            settings = dispatch_settings(store, opened.rules, BuildOptions())
            sizes_of(store, BuildOptions(), settings, demands=True)
        if index:
            index_shape_of(store, demands=True)
    except UnknownSizeError as error:
        yield str(error).removeprefix(f"{store.view.label}: ")
