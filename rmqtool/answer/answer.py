"""The answer about a store: its verdict, the exit code, and the one next step, a command or what a person must decide.

A step names a command only where that accepts the store and has something to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rmqtool.answer.assessment import Assessment, StoreVerdict
from rmqtool.answer.exit_codes import ExitCode
from rmqtool.answer.opened_store import CommandLine, OpenedStore
from rmqtool.errors import UnknownSizeError, how_to_install
from rmqtool.repair.recover.log_steps import demand_shown_size
from rmqtool.sides.timer.loaded import timer_files
from rmqtool.sides.unread import ReadBy
from rmqtool.store.dledger_files import with_dledger_log
from rmqtool.store.unproven_sizes import SIZE_UNKNOWN


@dataclass(frozen=True)
class NextStep:
    """What to do next.

    Attributes:
        command: what to type; None where no command helps.
        needs_decision: whether only a person can say what to do.
    """

    command: str | None
    reason: str
    needs_decision: bool = False

    def as_json(self) -> dict[str, Any]:
        """What every command that judges a store has in its JSON."""
        step = {"command": self.command, "reason": self.reason}
        return {"next_step": step, "needs_decision": self.needs_decision}


@dataclass(frozen=True)
class Answer:
    """What a command says of a store in the end."""

    assessment: Assessment
    step: NextStep
    exit_code: ExitCode

    def as_json(self) -> dict[str, Any]:
        """What the JSON of every command that judges a store ends with."""
        return {**self.assessment.as_json(), **self.step.as_json()}


def blocked_step(assessment: Assessment) -> NextStep | None:
    """The step where nothing can be judged before a person has acted; None elsewhere."""
    if assessment.verdict is StoreVerdict.LOG_MISSING:
        if assessment.log_missing is not None and (options := assessment.log_missing.options):
            reason = f"if those files are this store's commit log, pass {options}; else mount its disk"
            return NextStep(None, reason, True)
        return NextStep(None, "mount the disk of the commit log, or correct its path, and look again", True)
    if assessment.verdict is StoreVerdict.NOT_READABLE:
        return NextStep(None, assessment.reader or "correct the permissions, and look again", True)
    return None


def undecoded_step(assessment: Assessment, line: CommandLine) -> NextStep:
    """What to do about files that are not looked at: install what reads them, convert them, or ask the broker."""
    readers = {files.read_by for files in assessment.not_looked_at}
    if ReadBy.SIZES in readers:
        return NextStep(None, SIZE_UNKNOWN, True)
    if ReadBy.VERIFY in readers:
        return NextStep(line("verify"), "check what this command does not look at:")
    if ReadBy.DRIVER in readers:
        return NextStep(None, f"to read the consume queues, {how_to_install('rocksdb')}; then run this again", True)
    return NextStep(None, "only the broker itself can check and recover what was not looked at", True)


def repair_step(line: CommandLine, command: str, reason: str, unknown: Sequence[str] = ()) -> NextStep:
    """A command that changes the store; one elsewhere has to be copied first.

    Args:
        unknown: what the command has to know and nothing in the store shows, as sentences.
    """
    if not line.is_local:
        return NextStep(None, f"copy the store to a disk, where rmqtool {command} repairs it", True)
    if unknown:
        return NextStep(None, f"{'; '.join((reason.rstrip(':'), *unknown))}. Then run: {line(command)}", True)
    return NextStep(line(command), reason)


def cut_step(line: CommandLine, command: str) -> NextStep:
    """The command that ends the log before records that came back."""
    return NextStep(line(command), "a person must decide whether the records that came back are discarded:", True)


def unknown_to_repair(
    opened: OpenedStore, *, queues: bool = False, index: bool = False, timer: bool = False, compaction: bool = False
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
