"""Stores read as tables by one thread of this process, without Spark.

`rmqtool.open` gives them to programs; `stats` and `search` of small logs run on them, since Spark takes longer to start
than they take to read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
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
class Fragment:
    """What one task reads of a table: a file of the log or a part of it, some files of queues, a store.

    It pickles, so that processes elsewhere may read it; see `Stores.fragments`.
    """

    table: Any
    part: Any

    def to_reader(self) -> pa.RecordBatchReader:
        """Read its rows; raises the errors of `rmqtool.errors` when a batch is asked for."""
        require_pyarrow()
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.table.schema, self._batches())

    def to_table(self) -> pa.Table:
        """Read all of its rows."""
        return self.to_reader().read_all()

    def _batches(self) -> Iterator[Any]:
        from rmqtool.pipeline.tables.table import in_mode, read_part

        yield from in_mode(read_part(self.table, self.part), self.table.schema, self.table.options.mode)


@dataclass(frozen=True)
class Stores:
    """One store or several; nothing stays open, and each call sees the stores as they are then.

    As a stream of Arrow (`__arrow_c_stream__`) it is the table of messages.

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
        from_time_ms: int | datetime | None = None,
        to_time_ms: int | datetime | None = None,
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
            from_time_ms, to_time_ms: store times in milliseconds since the epoch, or datetimes with a zone; the end is
                excluded.
            queue_ids: ids of queues.
            profile: columns that are read if none are named; see `rmqtool.pipeline.tables.schemas`.
            mode: whether a row with a finding is kept, left out, or ends the reading with `DamageError`.
            stale: whether to read records after the end of the log too.

        Raises:
            UsageError: there is no such column, or a value does not fit.
            NotAStoreError, UnreadableError: a store has gone, or may not be read.
        """
        numbers = {"from_offset": from_offset, "to_offset": to_offset}
        numbers |= {"from_time_ms": _milliseconds(from_time_ms), "to_time_ms": _milliseconds(to_time_ms)}
        lists = {"columns": columns, "topics": topics, "queue_ids": queue_ids}
        return read_messages(self._asked(lists, numbers, profile=profile, mode=mode, stale=str(stale).lower()))

    def business_messages(
        self,
        columns: Sequence[str] | None = None,
        topics: Sequence[str] | None = None,
        from_time_ms: int | datetime | None = None,
        to_time_ms: int | datetime | None = None,
        *,
        mode: Mode = "permissive",
    ) -> pa.RecordBatchReader:
        """Read the messages that consumers of their topics get, each record once; arguments as for `messages`.

        Half messages, delayed ones that wait, retries, dead letters and the broker's own are left out.
        """
        times = {"from_time_ms": _milliseconds(from_time_ms), "to_time_ms": _milliseconds(to_time_ms)}
        return read_messages(
            self._asked({"columns": columns, "topics": topics}, times, table="business_messages", mode=mode)
        )

    def consumequeue(
        self,
        columns: Sequence[str] | None = None,
        topics: Sequence[str] | None = None,
        *,
        queue_ids: Sequence[int] | None = None,
        mode: Mode = "permissive",
    ) -> pa.RecordBatchReader:
        """Read the units of consume queues, in files and in RocksDB; arguments and errors as for `messages`."""
        lists = {"columns": columns, "topics": topics, "queue_ids": queue_ids}
        return read_messages(self._asked(lists, {}, table="consumequeue", mode=mode))

    def index(self, columns: Sequence[str] | None = None, *, mode: Mode = "permissive") -> pa.RecordBatchReader:
        """Read the entries of index files; arguments and errors as for `messages`."""
        return read_messages(self._asked({"columns": columns}, {}, table="index", mode=mode))

    def findings(self, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """Check the stores, one after the other, and read the findings of `verify`; errors as for `messages`."""
        return read_messages(self._asked({"columns": columns}, {}, table="findings"))

    def count_rows(
        self,
        topics: Sequence[str] | None = None,
        from_time_ms: int | datetime | None = None,
        to_time_ms: int | datetime | None = None,
        *,
        queue_ids: Sequence[int] | None = None,
    ) -> int:
        """Count the messages; arguments and errors as for `messages`. No column but the types of rows is made."""
        reader = self.messages(["type"], topics, None, None, from_time_ms, to_time_ms, queue_ids=queue_ids)
        import pyarrow.compute as pc

        return sum(pc.sum(pc.equal(batch["type"], "message")).as_py() for batch in reader)

    def fragments(self, table: str = "messages", **options: str) -> list[Fragment]:
        """The parts of a table, which processes elsewhere may read, in the order of its rows.

        Args:
            options: of Spark's data source, such as `columns="topic,size"` or `split_bytes="64m"`.

        Raises:
            UsageError: there is no such table or option.
            NotAStoreError, UnreadableError: a store has gone, or may not be read.
        """
        require_pyarrow()
        from rmqtool.pipeline.tables.options import SourceOptions
        from rmqtool.pipeline.tables.table import parts, table_of

        named = table_of(SourceOptions.parse({**self.options, "table": table, **options}))
        return [Fragment(named, part) for part in parts(named)]

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.messages().__arrow_c_stream__(requested_schema)

    def _asked(
        self, lists: Mapping[str, Iterable[object] | None], numbers: Mapping[str, int | None], **options: str
    ) -> dict[str, str]:
        given = {name: _words(name, values) for name, values in lists.items() if values is not None}
        given |= {name: str(number) for name, number in numbers.items() if number is not None}
        return {**self.options, **options, **given}


def open_stores(
    paths_or_urls: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], commitlog: Sequence[str]
) -> Stores:
    """The stores at a path, or at several; see `rmqtool.open`."""
    paths = [paths_or_urls] if isinstance(paths_or_urls, str | os.PathLike) else paths_or_urls
    options = {"paths": json.dumps([os.fspath(path) for path in paths])}
    if commitlog:
        options["commitlog"] = _words("commitlog", commitlog)
    checked_stores(options)
    return Stores(options)


def read_messages(options: Mapping[str, str]) -> pa.RecordBatchReader:
    """The table that options of the data source name, read in the order of its rows.

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


def _milliseconds(moment: int | datetime | None) -> int | None:
    if not isinstance(moment, datetime):
        return moment
    if moment.tzinfo is None:
        raise UsageError(f"{moment}: a datetime without a zone may be any time; add tzinfo=UTC, for example")
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _words(name: str, values: Iterable[object]) -> str:
    """A list as one option; no column or topic has a comma in its name."""
    words = [str(value) for value in values]
    if isinstance(values, str) or not words or any("," in word or not word.strip() for word in words):
        raise UsageError(f"{name}: a list of names without commas is expected, not {values!r}")
    return ",".join(words)
