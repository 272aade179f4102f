"""Says what of a chunk of the log lies at a physical offset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rmqtool.formats import commitlog, system_flag
from rmqtool.scan.row_columns import RowColumns
from rmqtool.scan.rules import Verdict
from rmqtool.verify.survey.context import topic_text


class RowsLookup:
    """Looks up rows that lie one after the other.

    Attributes:
        good: which rows are good.
        messages: numbers of the rows that are good messages.
    """

    def __init__(self, rows: RowColumns, topics: Sequence[bytes]) -> None:
        self.rows = rows
        self.topics = topics
        self.begin = int(rows[0]["physical_offset"])
        self.end = int(rows[-1]["physical_offset"] + rows[-1]["size"])
        self._starts = rows["physical_offset"]
        self.good = rows["verdict"] == Verdict.GOOD
        self.messages = np.flatnonzero(self.good & (rows["magic"] != commitlog.MAGIC_BLANK))

    def index_at(self, physical_offset: int) -> int:
        """Number of the row that holds a physical offset."""
        return int(np.searchsorted(self._starts, physical_offset, side="right")) - 1

    def at(self, physical_offset: int) -> Any:
        """The row that holds a physical offset."""
        return self.rows[self.index_at(physical_offset)]

    def topic(self, row: Any) -> str:
        """Name of a message's topic."""
        return topic_text(self.topics[int(row["topic_number"])])

    def describe(self, row: Any) -> str:
        """A row in a few words."""
        if row["verdict"] == Verdict.STALE:
            return "a record of an older log behind the log's end"
        if row["verdict"] != Verdict.GOOD:
            return "a damaged range of the log"
        if row["magic"] == commitlog.MAGIC_BLANK:
            return "the blank at a file's end"
        kind = system_flag.transaction(int(row["sys_flag"]))
        label = "" if kind == "none" else f" of type {kind}"
        return f"a record{label} of {self.topic(row)}/{int(row['queue_id'])} at queue offset {int(row['queue_offset'])}"


def is_message(row: Any) -> bool:
    """Whether a row is a good message."""
    return bool(row["verdict"] == Verdict.GOOD and row["magic"] != commitlog.MAGIC_BLANK)
