"""The options of the data source, out of the texts that Spark hands over."""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rmqtool.errors import NotAStoreError, RmqtoolError, UnreadableError, UsageError
from rmqtool.pipeline.enums import OnStoreMissing, TableName
from rmqtool.pipeline.tables.log_splits import OPEN_BYTES, PART_BYTES, Splitting
from rmqtool.pipeline.tables.search import Search, parse_search
from rmqtool.scan.log import PROOF_BYTES
from rmqtool.scan.row_filter import RowFilter
from rmqtool.scan.runner import ThreadRunner
from rmqtool.store.directory import Settings, Store, survey
from rmqtool.store.location import is_url
from rmqtool.store.remote import connect, matching_urls, open_remote, shown
from rmqtool.store.view import open_directory

TABLES: Final = tuple(name.value for name in TableName)
MESSAGE_TABLES: Final = (TableName.MESSAGES.value, TableName.BUSINESS_MESSAGES.value)
DEFAULT_PROFILES: Final = {TableName.BUSINESS_MESSAGES.value: "business"}
"""Where it is not the one with the headers only."""
MODES: Final = ("permissive", "dropmalformed", "failfast")
PLANNING_THREADS: Final = 16
"""Stores that are listed at a time; a file system elsewhere lets each of them wait."""
LATEST: Final = -1
"""Instead of an offset: the end of the log."""
_SIZE: Final = re.compile(r"(\d{1,18})([kmgtp]?)b?")
_BRACES: Final = re.compile(r"\{([^{}]*,[^{}]*)\}")
NOT_A_STORE: Final = "store.not-a-store"
UNREADABLE: Final = "store.unreadable"
KNOWN: Final = frozenset(
    {
        *("path", "paths", "table", "profile", "columns", "topics", "queue_ids", "from_offset", "to_offset"),
        *("from_time_ms", "to_time_ms", "mode", "stale", "splits", "split_bytes", "proof_bytes"),
        *("commitlog", "index_slots", "broker_version", "pattern", "pattern_in", "ranges", "through"),
        *(
            "failondataloss",
            "maxbytespertrigger",
            "minpartitions",
            "opencostinbytes",
            "startingoffsets",
            "onstoremissing",
        ),
    }
)


@dataclass(frozen=True)
class UnreadStore:
    """A path of which no store, or not all of one, can be read: one row with a finding.

    Attributes:
        store: the path, as rows show it.
        path: what in the store cannot be read; empty for all of it.
    """

    store: str
    path: str
    finding: str
    message: str


@dataclass(frozen=True)
class SourceOptions:
    """Options of the data source; names of options are those of the attributes or of `RowFilter`.

    Attributes:
        paths: of stores, absolute, or URLs; a pattern (`*`, `[...]`, `{a,b}`, and in paths `?`) names several.
        columns: of the table; empty: all that the profile has.
        mode: how a row that is not sound is handled: a row, nothing, or the end of the job.
        bytes_per_trigger: of all logs in one batch of a stream, up to a record more of each; None: all there are.
        starting_offsets: where a new stream begins: 0 at the start of each log, `LATEST` at its end, or an offset or
            `LATEST` by store.
        fails_on_data_loss: whether a stream ends with an error where records are gone that it has not read.
        on_store_missing: whether a stream waits for a store that is gone while it reads the others, leaves out what a
            batch of it had, or ends with an error.
        ranges: of physical offsets by store: only these are read, other paths are skipped. None: all.
        through: `log`, or `queues`: messages of chosen topics and queues are looked up in their queues.
        search: `pattern`, looked for in `pattern_in`: only what is found is a row.
    """

    paths: tuple[str, ...]
    table: str = "messages"
    profile: str = "headers"
    columns: tuple[str, ...] = ()
    row_filter: RowFilter = field(default_factory=lambda: RowFilter(stale=False))
    mode: str = "permissive"
    splitting: Splitting = field(default_factory=Splitting)
    settings: Settings = field(default_factory=Settings)
    broker_version: str | None = None
    bytes_per_trigger: int | None = None
    starting_offsets: int | Mapping[str, int] = 0
    fails_on_data_loss: bool = True
    on_store_missing: OnStoreMissing = OnStoreMissing.WAIT
    search: Search | None = None
    through: str = "log"
    ranges: Mapping[str, tuple[int, int]] | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SourceOptions:
        """The options out of texts.

        Raises:
            UsageError: one is unknown, or does not parse.
        """
        options = own_options(given)
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
            profile=options.get("profile", DEFAULT_PROFILES.get(options.get("table", "").lower(), "headers")),
            columns=_words(options, "columns"),
            row_filter=row_filter,
            mode=_one_of(options, "mode", MODES),
            splitting=Splitting(
                _number_of(options, "splits", least=1),
                _size_of(options, "split_bytes") or PART_BYTES,
                _size_of(options, "proof_bytes") or PROOF_BYTES,
                open_bytes=_size_of(options, "opencostinbytes") or OPEN_BYTES,
                minimum=_number_of(options, "minpartitions", least=1) or 1,
            ),
            settings=Settings(
                commitlog_directories=_words(options, "commitlog"),
                index_slot_count=_number_of(options, "index_slots", least=1),
            ),
            broker_version=options.get("broker_version"),
            bytes_per_trigger=_size_of(options, "maxbytespertrigger"),
            starting_offsets=_starting_offsets(options.get("startingoffsets", "earliest")),
            on_store_missing=OnStoreMissing(_one_of(options, "onstoremissing", tuple(OnStoreMissing))),
            fails_on_data_loss=_flag(options, "failondataloss", default=True),
            search=parse_search(options["pattern"], options.get("pattern_in", "body"))
            if "pattern" in options
            else None,
            through=_one_of(options, "through", ("log", "queues")),
            ranges=_ranges(options["ranges"]) if "ranges" in options else None,
        )

    def check_table(self) -> None:
        """Check that the options fit the table.

        Raises:
            UsageError: they do not.
        """
        row_filter = self.row_filter
        unfit = {
            "profile": self.profile != "headers",
            "pattern": self.search is not None,
            "stale": row_filter.stale,
            "through": self.through != "log",
            "from_offset": row_filter.from_physical_offset is not None,
            "to_offset": row_filter.to_physical_offset is not None,
            "from_time_ms": row_filter.from_ms is not None,
            "to_time_ms": row_filter.to_ms is not None,
            "topics": row_filter.topics is not None and self.table != "consumequeue",
            "queue_ids": row_filter.queue_ids is not None and self.table != "consumequeue",
        }
        given = [name for name, is_given in unfit.items() if is_given]
        if given and self.table not in MESSAGE_TABLES:
            raise UsageError(f"{', '.join(given)}: says nothing about the table {self.table}")

    def stores(self) -> list[Store]:
        """The stores at the paths; see `fleet`."""
        return [store for store in self.fleet() if isinstance(store, Store)]

    def fleet(self) -> list[Store | UnreadStore]:
        """Stores at the paths, each once; of a pattern, or of several paths, also those that cannot be
        read as a store.

        Raises:
            NotAStoreError, UnreadableError: the only path is none or may not be read, or no path of all is a store.
        """

        def surveyed_at(place: str) -> Store | NotAStoreError | UnreadableError:
            try:
                view = open_remote(connect(place)) if is_url(place) else open_directory(Path(place))
                return survey(view, self.settings)
            except (NotAStoreError, UnreadableError) as error:
                return error

        places: list[str] = []
        for pattern in (alternative for path in self.paths for alternative in alternatives(path)):
            if is_url(pattern):
                places += matching_urls(pattern)
            else:
                places += sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]  # noqa: PTH207
        places = list(dict.fromkeys(places))
        surveyed = list(ThreadRunner(PLANNING_THREADS).map(surveyed_at, places))
        if not any(isinstance(store, Store) for store in surveyed):
            if len(self.paths) == 1 and places == [self.paths[0]] and isinstance(surveyed[0], RmqtoolError):
                raise surveyed[0]
            raise NotAStoreError(f"no RocketMQ store at {', '.join(map(_shown, self.paths)) or 'no path'}")
        return [
            UnreadStore(_shown(place), "", NOT_A_STORE if isinstance(store, NotAStoreError) else UNREADABLE, str(store))
            if isinstance(store, RmqtoolError)
            else store
            for place, store in zip(places, surveyed, strict=True)
        ]


def own_options(given: Mapping[str, str]) -> dict[str, str]:
    """The options by their names in lower case; of those of a table in a catalog the ones that its definition gave.

    Spark adds the table's properties and its own to them.
    """
    options = {name.lower(): value for name, value in given.items()}
    if "provider" not in options:
        return options
    defined = {name.removeprefix("option."): value for name, value in options.items() if name.startswith("option.")}
    return {**defined, **({"path": options["path"]} if "path" in options else {})}


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    """`load` with one path gives an option, with several a list in JSON."""
    paths = json.loads(options["paths"]) if options.get("paths", "").startswith("[") else _words(options, "paths")
    named = [*([options["path"]] if options.get("path") else []), *paths]
    if not named:
        raise UsageError(
            "no path: load(path) names a store; a table of a catalog that is to have it is created without columns"
        )
    local = (path.removeprefix("file://").removeprefix("file:") for path in named)
    return tuple(path if is_url(path) else str(Path(path).absolute()) for path in local)


def alternatives(path: str) -> list[str]:
    """The paths that `{a,b}` in a path means, in order; a directory whose name has braces means itself."""
    braces = _BRACES.search(path)
    if braces is None:
        return [path]
    named = path[: braces.end()] + path[braces.end() :].partition("/")[0]
    if not is_url(path) and Path(named).exists():
        return [path]
    texts = [f"{path[: braces.start()]}{choice}{path[braces.end() :]}" for choice in braces[1].split(",")]
    return [alternative for text in texts for alternative in alternatives(text)]


def _shown(place: str) -> str:
    return shown(place) if is_url(place) else place


def _ranges(text: str) -> dict[str, tuple[int, int]]:
    try:
        return {str(store): (int(low), int(high)) for store, (low, high) in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"option ranges: {text[:80]!r} is not JSON such as {{STORE: [FROM, TO]}}") from error


def _words(options: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in options.get(name, "").split(",") if word.strip())


def _one_of(options: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    value = options.get(name, known[0]).lower()
    if value not in known:
        raise UsageError(f"option {name}: {value!r} is none of {', '.join(known)}")
    return value


def _flag(options: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    return _one_of(options, name, ("true", "false") if default else ("false", "true")) == "true"


def _number_of(options: Mapping[str, str], name: str, least: int | None = None) -> int | None:
    if not options.get(name):
        return None
    number = _number(name, options[name])
    if least is not None and number < least:
        raise UsageError(f"option {name}: {number} is less than {least}")
    return number


def _size_of(options: Mapping[str, str], name: str) -> int | None:
    """Bytes, with the suffixes that Spark takes: `512m`, `2g`."""
    if not options.get(name):
        return None
    given = _SIZE.fullmatch(options[name].strip().lower())
    if given is None or int(given[1]) == 0:
        raise UsageError(f"option {name}: {options[name]!r} is not a size such as 1048576, 512m or 2g")
    return int(given[1]) << 10 * " kmgtp".index(given[2] or " ")


def _starting_offsets(text: str) -> int | dict[str, int]:
    """As those of Spark's source for Kafka: -2 is the start of a log, -1 its end."""
    if text.lower() in ("earliest", "latest"):
        return 0 if text.lower() == "earliest" else LATEST
    try:
        offsets = {str(store): {-2: 0}.get(at, at) for store, at in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        offsets = {"": -3}
    if any(type(at) is not int or at < LATEST for at in offsets.values()):
        raise UsageError(
            f"option startingOffsets: {text[:80]!r} is neither earliest, latest nor JSON: {{STORE: OFFSET}}"
        )
    return offsets


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise UsageError(f"option {name}: {text!r} is not a number") from error
