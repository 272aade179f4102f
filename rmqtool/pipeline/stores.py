"""Stores read as the table `messages` by one thread of this process, without Spark.

`rmqtool.open` gives them to programs; `stats` and `search` of small logs run on them, since Spark takes longer to start
than they take to read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal

from rmqtool.errors import UnsupportedError, UsageError, how_to_install

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtool.store.directory import Store

LOG_BYTES_MAX: Final = 4 << 30
"""Bytes of log files, used or not, that one thread reads in less time than Spark takes to start and read them."""

Profile = Literal["headers", "properties", "full"]
Mode = Literal["permissive", "dropmalformed", "failfast"]


@dataclass(frozen=True)
class Stores:
    """One store or several; nothing stays open, and each call sees the stores as they are then.

    Attributes:
        options: of the data source: where the stores lie.
    """

    options: Mapping[str, str]

    def messages(
        self,
        columns: Sequence[str] | None = None,
        topics: Sequence[str] | None = None,
        from_offset: int | None = None,
        to_offset: int | None = None,
        from_time_ms: int | None = None,
        to_time_ms: int | None = None,
        *,
        queue_ids: Sequence[int] | None = None,
        profile: Profile = "headers",
        mode: Mode = "permissive",
        stale: bool = False,
    ) -> pa.RecordBatchReader:
        """Read messages, blanks and bad ranges of the commit logs, store by store in the order of the log.

        The reader reads as batches are asked for and holds one window of the log (4 MiB, or one longer record) at a
        time. It raises the errors of `rmqtool.errors` when a batch is asked for; damage is a row with a `finding`.

        Args:
            columns: names of the table `messages`, in the order wanted; None: those of the profile.
            topics: names or patterns (`*`, `?`, `[...]`); a bad range stays, for it may hide a message.
            from_offset, to_offset: physical offsets; the end is excluded.
            from_time_ms, to_time_ms: store times in milliseconds since the epoch; the end is excluded.
            queue_ids: ids of queues.
            profile: columns that are read if none are named; see `rmqtool.pipeline.tables.schemas`.
            mode: whether a row with a finding is kept, left out, or ends the reading with `DamageError`.
            stale: whether to read records after the end of the log too.

        Raises:
            UsageError: there is no such column, or a value does not fit.
            NotAStoreError, UnreadableError: a store has gone, or may not be read.
        """
        options = {**self.options, "profile": profile, "mode": mode, "stale": str(stale).lower()}
        lists: Mapping[str, Iterable[object] | None] = {"columns": columns, "topics": topics, "queue_ids": queue_ids}
        for name, values in lists.items():
            if values is not None:
                options[name] = _words(name, values)
        numbers = {"from_offset": from_offset, "to_offset": to_offset}
        numbers |= {"from_time_ms": from_time_ms, "to_time_ms": to_time_ms}
        options |= {name: str(number) for name, number in numbers.items() if number is not None}
        return read_messages(options)


def open_stores(path_or_url: str | os.PathLike[str], commitlog: Sequence[str]) -> Stores:
    """The stores at a path; see `rmqtool.open`."""
    options = {"paths": json.dumps([os.fspath(path_or_url)])}
    if commitlog:
        options["commitlog"] = _words("commitlog", commitlog)
    checked_stores(options)
    return Stores(options)


def read_messages(options: Mapping[str, str]) -> pa.RecordBatchReader:
    """The table `messages` that options of the data source name.

    Raises:
        UsageError: an option is wrong.
        NotAStoreError, UnreadableError: a path is no store, or may not be read.
    """
    require_pyarrow()
    import pyarrow as pa

    from rmqtool.pipeline.tables.options import SourceOptions
    from rmqtool.pipeline.tables.table import in_mode, parts, read_part, table_of

    # A file that is read whole has no seams to prove.
    parsed = SourceOptions.parse({**options, "splits": "1"})
    # All splits of a log that times are asked of are one task here, so that they are read in their order.
    splitting = replace(parsed.splitting, tasks_by_time=1)
    table = table_of(replace(parsed, splitting=splitting))
    planned = parts(table)

    def batches() -> Iterator[Any]:
        for part in planned:
            yield from in_mode(read_part(table, part), table.schema, parsed.mode)

    return pa.RecordBatchReader.from_batches(table.schema, batches())


def checked_stores(options: Mapping[str, str]) -> list[Store]:
    """The stores that the options name, looked at before anything starts for them.

    Raises:
        UsageError: an option is wrong.
        NotAStoreError, UnreadableError: a path is no store, or may not be read.
    """
    require_pyarrow()
    from rmqtool.pipeline.tables.options import SourceOptions

    parsed = SourceOptions.parse(options)  # here, where an error is still one line
    parsed.check_table()
    return parsed.stores()


def log_bytes(stores: Iterable[Store]) -> int:
    """Lengths of the log files of all stores, preallocated zeros included."""
    return sum(segment.size for store in stores for segment in store.commitlog)


def require_pyarrow() -> None:
    """Report a missing prerequisite in one line.

    Raises:
        UnsupportedError: pyarrow is not installed.
    """
    if find_spec("pyarrow") is None:
        raise UnsupportedError(f"pyarrow is not installed: {how_to_install('arrow')}")


def _words(name: str, values: Iterable[object]) -> str:
    """A list as one option; no column or topic has a comma in its name."""
    words = [str(value) for value in values]
    if isinstance(values, str) or not words or any("," in word or not word.strip() for word in words):
        raise UsageError(f"{name}: a list of names without commas is expected, not {values!r}")
    return ",".join(words)
