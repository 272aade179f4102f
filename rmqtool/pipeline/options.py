"""The options of the data source, out of the texts that Spark hands over."""

from __future__ import annotations

import glob
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rmqtool.errors import NotAStoreError, UsageError
from rmqtool.pipeline.enums import TableName
from rmqtool.pipeline.log_splits import PART_BYTES, Splitting
from rmqtool.pipeline.search import Search, parse_search
from rmqtool.scan.row_filter import RowFilter
from rmqtool.scan.split_start import PROOF_BYTES
from rmqtool.store.directory import Settings, Store, survey
from rmqtool.store.location import is_url
from rmqtool.store.remote import connect, open_remote
from rmqtool.store.view import open_directory

TABLES: Final = tuple(name.value for name in TableName)
MODES: Final = ("permissive", "dropmalformed", "failfast")
KNOWN: Final = frozenset(
    {
        *("path", "paths", "table", "profile", "columns", "topics", "queue_ids", "from_offset", "to_offset"),
        *("from_time_ms", "to_time_ms", "mode", "stale", "splits", "split_bytes", "proof_bytes", "pushdown"),
        *("commitlog", "index_slots", "broker_version", "bytes_per_trigger", "pattern", "pattern_in"),
    }
)


@dataclass(frozen=True)
class SourceOptions:
    """What a person asks of the data source; names of options are those of the attributes or of `RowFilter`.

    Attributes:
        paths: of stores, absolute, a pattern names several; or URLs.
        columns: of the table; empty: all that the profile has.
        mode: what becomes of what is no sound row: a row, nothing, or the end of the job.
        pushdown: whether a query's filters are asked for, which needs `spark.sql.python.filterPushdown.enabled`.
        bytes_per_trigger: of the log in one batch of a stream; None: all there are.
        search: `pattern`, looked for in `pattern_in`: only what is found is a row.
    """

    paths: tuple[str, ...]
    table: str = "messages"
    profile: str = "headers"
    columns: tuple[str, ...] = ()
    row_filter: RowFilter = field(default_factory=lambda: RowFilter(stale=False))
    mode: str = "permissive"
    splitting: Splitting = field(default_factory=Splitting)
    pushdown: bool = False
    settings: Settings = field(default_factory=Settings)
    broker_version: str | None = None
    bytes_per_trigger: int | None = None
    search: Search | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SourceOptions:
        """The options out of texts.

        Raises:
            UsageError: one is unknown, or does not parse.
        """
        options = {name.lower(): value for name, value in given.items()}
        unknown = sorted(options.keys() - KNOWN)
        if unknown:
            raise UsageError(f"no option {', '.join(unknown)}; there are {', '.join(sorted(KNOWN))}")
        queue_ids = _words(options, "queue_ids")
        row_filter = RowFilter(
            topics=_words(options, "topics") or None,
            queue_ids=frozenset(_number("queue_ids", text) for text in queue_ids) if queue_ids else None,
            from_physical_offset=_number_of(options, "from_offset"),
            to_physical_offset=_number_of(options, "to_offset"),
            from_ms=_number_of(options, "from_time_ms"),
            to_ms=_number_of(options, "to_time_ms"),
            stale=_flag(options, "stale"),
        )
        return cls(
            paths=_paths(options),
            table=_one_of(options, "table", TABLES),
            profile=options.get("profile", "headers"),
            columns=_words(options, "columns"),
            row_filter=row_filter,
            mode=_one_of(options, "mode", MODES),
            splitting=Splitting(
                _number_of(options, "splits", least=1),
                _number_of(options, "split_bytes", least=1) or PART_BYTES,
                _number_of(options, "proof_bytes", least=1) or PROOF_BYTES,
            ),
            pushdown=_flag(options, "pushdown"),
            settings=Settings(
                commitlog_directories=_words(options, "commitlog"),
                index_slot_count=_number_of(options, "index_slots", least=1),
            ),
            broker_version=options.get("broker_version"),
            bytes_per_trigger=_number_of(options, "bytes_per_trigger", least=1),
            search=parse_search(options["pattern"], options.get("pattern_in", "body"))
            if "pattern" in options
            else None,
        )

    def check_table(self) -> None:
        """Whether the options fit the table.

        Raises:
            UsageError: they do not.
        """
        row_filter = self.row_filter
        unfit = {
            "profile": self.profile != "headers",
            "pattern": self.search is not None,
            "stale": row_filter.stale,
            "from_offset": row_filter.from_physical_offset is not None,
            "to_offset": row_filter.to_physical_offset is not None,
            "from_time_ms": row_filter.from_ms is not None,
            "to_time_ms": row_filter.to_ms is not None,
            "topics": row_filter.topics is not None and self.table != "consumequeue",
            "queue_ids": row_filter.queue_ids is not None and self.table != "consumequeue",
        }
        given = [name for name, is_given in unfit.items() if is_given]
        if given and self.table != "messages":
            raise UsageError(f"{', '.join(given)}: says nothing about the table {self.table}")

    def stores(self) -> list[Store]:
        """The stores at the paths, each once; of a pattern what is no store is passed over.

        Raises:
            NotAStoreError: a path is none, or no path of all is one.
            UnreadableError: one may not be read.
        """
        stores_by_path: dict[str, Store] = {}
        for path in self.paths:
            is_pattern = glob.has_magic(path) and not is_url(path)
            for each in sorted(glob.glob(path)) if is_pattern else [path]:  # noqa: PTH207 - absolute patterns
                try:
                    view = open_remote(connect(each)) if is_url(each) else open_directory(Path(each))
                    stores_by_path.setdefault(each, survey(view, self.settings))
                except NotAStoreError:
                    if not is_pattern:
                        raise
        if not stores_by_path:
            raise NotAStoreError(f"no RocketMQ store at {', '.join(self.paths) or 'no path'}")
        return list(stores_by_path.values())


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    """`load` with one path gives an option, with several a list in JSON."""
    paths = json.loads(options["paths"]) if options.get("paths", "").startswith("[") else _words(options, "paths")
    named = [*([options["path"]] if options.get("path") else []), *paths]
    if not named:
        raise UsageError("no path: load(path) names a store")
    local = (path.removeprefix("file://") for path in named)
    return tuple(path if is_url(path) else str(Path(path).absolute()) for path in local)


def _words(options: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in options.get(name, "").split(",") if word.strip())


def _one_of(options: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    value = options.get(name, known[0]).lower()
    if value not in known:
        raise UsageError(f"option {name}: {value!r} is none of {', '.join(known)}")
    return value


def _flag(options: Mapping[str, str], name: str) -> bool:
    return _one_of(options, name, ("false", "true")) == "true"


def _number_of(options: Mapping[str, str], name: str, least: int | None = None) -> int | None:
    if not options.get(name):
        return None
    number = _number(name, options[name])
    if least is not None and number < least:
        raise UsageError(f"option {name}: {number} is less than {least}")
    return number


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise UsageError(f"option {name}: {text!r} is not a number") from error
