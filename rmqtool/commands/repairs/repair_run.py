"""What a planner gives, and one run of a repair command: what was asked for, and the store that it is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rmqtool.commands.messages import Messages
from rmqtool.commands.options.memory import thread_count
from rmqtool.commands.options.store import OpenedStore
from rmqtool.commands.repairs.repair_request import RepairRequest
from rmqtool.repair.delays import DelayTimes, delay_times
from rmqtool.repair.derived.request import BuildOptions
from rmqtool.repair.machine.plan import PlannedRepair
from rmqtool.repair.machine.session import Session
from rmqtool.scan.log_digest import LogDigest
from rmqtool.scan.runner import OnProgress
from rmqtool.store.directory import Store
from rmqtool.verdict.command_line import CommandLine

Planner = Callable[[Store, Path, OnProgress], PlannedRepair]
"""Makes a plan for a store; what is built lies in the given directory, which stays until the plan is applied."""


@dataclass(frozen=True)
class RepairRun:
    """One run of a repair command: what was asked for, and the store it is about."""

    request: RepairRequest
    opened: OpenedStore
    messages: Messages
    line: CommandLine
    """Makes further commands about the store."""
    flags: str | None = ""
    """The command's own options as they are typed; None where they cannot be repeated."""
    session: Session | None = None
    """Holds the store; None where it is only read."""
    digest: LogDigest | None = None
    """What planning sees of the log, so that checks and forecasts of the plan need not read it again."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The own options as a saved plan has them."""

    def with_store(self, store: Store) -> RepairRun:
        """The same run, about the store as it is now or with other sizes."""
        return replace(self, opened=replace(self.opened, store=store))

    @cached_property
    def delays(self) -> DelayTimes:
        """The delays of the delay levels."""
        return delay_times(self.opened.store, self.opened.rules, self.opened.conf)

    @property
    def build_options(self) -> BuildOptions:
        """What the broker's properties file says of dispatch; a thread for each core."""
        options = BuildOptions(threads=thread_count(), delays_ms=self.delays.delays_ms, digest=self.digest)
        if (conf := self.opened.conf) is None:
            return options
        return replace(
            options,
            multi_dispatch=conf.has_multi_dispatch is not False,
            lmq=conf.has_light_queues is not False,
            extension=conf.has_queue_extension,
            record_crc=bool(conf.has_record_crc),
        )
