"""Finishes a store of which only log and configuration are written: builds what brokers derive from the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import RmqtoolError
from rmqtool.repair.derived.result import BuildOptions
from rmqtool.repair.machine.apply import carry_out
from rmqtool.repair.machine.disk import Disk, Metadata
from rmqtool.repair.machine.fingerprint import fingerprint
from rmqtool.repair.machine.interrupt import held_interrupts
from rmqtool.repair.machine.plan import Plan
from rmqtool.repair.machine.root import Root
from rmqtool.repair.machine.session import Session
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.machine.undo import discard
from rmqtool.repair.rebuild import RebuildChoice, plan_rebuild
from rmqtool.scan.runner import OnProgress
from rmqtool.store.directory import Settings, survey
from rmqtool.store.view import open_directory

Finish = Callable[[Settings, BrokerRules, str], tuple[str, ...]]


@contextmanager
def new_store(
    output: Path, metadata: Metadata, options: BuildOptions, on_progress: OnProgress | None = None
) -> Iterator[Finish]:
    """A directory for a new store; removed again where anything fails.

    Gives a function that builds queues, index and checkpoint with settings, rules and the name of whoever asks, and
    returns notes.

    Args:
        output: is not there yet, or is empty.
        metadata: of the directory, as of that of another store.

    Raises:
        WriteError: the disk does not take it.
    """
    disk, is_new = Disk(), not output.exists()
    itself = Root.open(output.absolute().parent) / output.name
    disk.make_directory(itself, metadata)

    def finish(sizes: Settings, rules: BrokerRules, command: str) -> tuple[str, ...]:
        places = StorePaths(output)
        with held_interrupts() as interrupt, Session(places) as session, session.staging() as staging:
            store = survey(open_directory(output), sizes)
            built = plan_rebuild(store, rules, RebuildChoice(), staging, options, on_progress)
            plan = Plan(command, fingerprint(places), rules.version, built.steps)
            discard(carry_out(plan, session, interrupt).journal, places, session.disk, lower=True)
        return built.notes

    try:
        yield finish
    except BaseException as error:
        error.__dict__.pop("__notes__", None)  # they speak of the repair that builds queues, of which nothing is left
        with suppress(RmqtoolError):
            if is_new:
                disk.remove_tree(itself)
            else:
                for name in itself.names():
                    disk.remove_tree(itself / name)
        raise
