"""Files that a broker uses but that were not checked, and their reader: every result that omits them reports it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.store.databases.rocksdb import RocksFailure
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind


class ReadBy(StrEnum):
    """Command or program that reads files which were not checked."""

    VERIFY = "verify"
    DRIVER = "driver"
    """This command, once the library for RocksDB is installed."""
    SIZES = "sizes"
    """This command, once it is told the sizes that nothing in the store shows."""
    BROKER = "broker"
    """Nothing of rmqtool."""


@dataclass(frozen=True)
class UnreadFiles:
    """Files of one kind in one directory of the store.

    Attributes:
        path: the directory, or the file where it lies in the store's root.
        kind: as a person reads it.
        read_by: what would look at them.
    """

    path: str
    kind: str
    reason: str
    read_by: ReadBy = ReadBy.BROKER

    @property
    def text(self) -> str:
        """As a part of a sentence."""
        return f"{self.path} ({self.reason})"

    def as_json(self) -> dict[str, str]:
        return {"path": self.path, "kind": self.kind, "reason": self.reason}


@dataclass
class DatabaseCheck:
    """One check of a database that a broker has beside its queues.

    Attributes:
        failure: why not all of it was read, as a sentence; empty where it was, or a finding says so, or there is none.
        read_by: what would read it then.
    """

    directory: ClassVar[str]
    kind: ClassVar[FileKind]
    store: Store
    rules: BrokerRules
    failure: str = ""
    read_by: ReadBy = ReadBy.BROKER

    @property
    def left_out(self) -> tuple[UnreadFiles, ...]:
        """The database where it was not read to its end."""
        unread = UnreadFiles(self.directory, self.kind.value, self.failure, self.read_by)
        return (unread,) if self.failure else ()


def read_by_after(failure: RocksFailure | None) -> ReadBy:
    """Reader for a database in RocksDB that was not read to its end."""
    return ReadBy.DRIVER if failure is RocksFailure.NO_LIBRARY else ReadBy.BROKER
