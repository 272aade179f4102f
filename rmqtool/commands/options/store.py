"""Options that several commands share, and the store that a person means by them."""

from __future__ import annotations

import functools
import inspect
import os
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from rmqtool.answer.opened_store import CommandLine, OpenedStore
from rmqtool.commands.messages import Messages
from rmqtool.commands.options.completion import decoders, versions, versions_or_all
from rmqtool.commands.options.help_groups import OUTPUT, STORE, option
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.settings import all_settings, nearest_setting, read_settings, unread_settings, value_problems
from rmqtool.engine.rules.versions import EXAMINED, NEWEST, rules_for
from rmqtool.errors import NotAStoreError, RefusedError, UsageError
from rmqtool.evidence.location import BundleLocation, shareable_settings
from rmqtool.formats.consumequeue import UNIT_SIZE
from rmqtool.memory import settle
from rmqtool.quantities import JAVA_INT_MAX
from rmqtool.report.bodies import BodyForm
from rmqtool.report.writers import ObjectFormat, OutputFormat
from rmqtool.store.config.broker_conf import BrokerConf, broker_conf, read_broker_conf, with_properties
from rmqtool.store.directory import Settings, Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.location import StoreLocation, local_path, store_location, survey_store
from rmqtool.store.log_owner import ForeignDirectory, foreign_directory
from rmqtool.store.probe_lock import LOCK_NAME, Lock, LockReport, LockStatus, lock_report
from rmqtool.store.view import DirectoryView
from rmqtool.times import parse_time


def refuse_bad_settings(conf: BrokerConf, rules: BrokerRules | None) -> None:
    """Refuse, as UsageError, to write by values that the broker would not take, or that no file can have."""
    for problem in value_problems(conf, rules):
        raise UsageError(f"{conf.path}: {problem}")


def refuse_unknown_settings(texts: Iterable[str], option: str = "--set") -> None:
    """Refuse, as UsageError with the nearest name, settings that no version has, each as KEY=VALUE."""
    for text in texts:
        name, equals, _ = text.partition("=")
        if equals and (name := name.strip()) and name not in all_settings():
            nearest = nearest_setting(name)
            meant = f"; did you mean {nearest}?" if nearest is not None else ""
            raise UsageError(f"{option} {text}: no broker version has a setting of this name{meant}")


TIME_FORMS: Final = "ISO 8601, ms, 2h (ago), 'yesterday 14:00' or now"
_STORE_HELP: Final = "Store root of the broker: the directory that holds commitlog/"
StorePath = Annotated[Path, typer.Argument(metavar="STORE", help=f"{_STORE_HELP}.", parser=local_path)]
ReadStore = Annotated[
    StoreLocation,
    typer.Argument(metavar="STORE", help=f"{_STORE_HELP}; or a URL: s3://, hdfs://, ...", parser=store_location),
]
CommitlogOption = Annotated[
    list[Path] | None, option("--commitlog DIR", "Commit log directory, if not STORE/commitlog; repeatable.", STORE)
]

IndexSlotsOption = Annotated[
    int | None,
    option("--index-slots N", "Hash slots of an index file (maxHashSlotNum).", STORE, min=1, max=JAVA_INT_MAX),
]
IndexEntriesOption = Annotated[
    int | None, option("--index-entries N", "Entries of an index file (maxIndexNum).", STORE, min=2, max=JAVA_INT_MAX)
]
LogFileSizeOption = Annotated[
    int | None,
    option(
        "--log-file-size BYTES", "Size of a commit log file (mappedFileSizeCommitLog).", STORE, min=1, max=JAVA_INT_MAX
    ),
]
QueueFileSizeOption = Annotated[
    int | None,
    option(
        "--queue-file-size BYTES",
        "Size of a consume queue file (mappedFileSizeConsumeQueue).",
        STORE,
        min=1,
        max=JAVA_INT_MAX,
    ),
]
BrokerConfOption = Annotated[
    Path | None, option("--broker-conf FILE", "The broker's properties file, for paths and file sizes.", STORE)
]

BrokerVersionOption = Annotated[
    str | None,
    option(
        "--broker-version X.Y.Z",
        "Use the rules of this broker version (default: inferred from the store).",
        STORE,
        autocompletion=versions,
    ),
]
VersionsOption = Annotated[
    str | None,
    option(
        "--broker-version X.Y.Z",
        "Use the rules of this broker version, or of each: all (default: inferred from the store).",
        STORE,
        autocompletion=versions_or_all,
    ),
]
FromVersionOption = Annotated[
    str | None,
    option(
        "--from X.Y.Z",
        "With --to: the version that the store comes from (default: inferred from the store).",
        autocompletion=versions,
    ),
]
ToVersionOption = Annotated[
    str | None,
    option(
        "--to X.Y.Z",
        f"What changes, and why, when a broker of this version starts on it (default with --from: {NEWEST}).",
        autocompletion=versions,
    ),
]
FormatOption = Annotated[OutputFormat, option("--format", "Output format.", OUTPUT)]
ObjectFormatOption = Annotated[ObjectFormat, option("--format", "Output format.", OUTPUT)]
"""Of a command that has no rows."""
BodyOption = Annotated[BodyForm, option("--body", "How to show bodies; they are decompressed.", OUTPUT)]
BodyLimitOption = Annotated[
    int, option("--body-limit BYTES", "Maximum number of bytes of a body to show.", OUTPUT, min=0, max=1 << 30)
]
DecodeOption = Annotated[
    list[str] | None,
    option(
        "--decode NAME[=ARG]",
        "Decode bodies: json, text, avro=FILE.avsc, protobuf=FILE.desc:TYPE, system, or a plugin; repeatable.",
        OUTPUT,
        autocompletion=decoders,
    ),
]
RawOption = Annotated[bool, option("--raw", "Show bodies as stored, and the property block as text.", OUTPUT)]


@dataclass(frozen=True)
class StoreOptions:
    """Options about a store beside its path; `sizes` are file sizes."""

    commitlog: list[Path] | None = None
    index_slots: int | None = None
    broker_conf: Path | None = None
    broker_version: str | None = None
    sizes: Settings | None = None
    properties: tuple[str, ...] = ()
    """Settings that go before those of the broker's properties file, each as KEY=VALUE."""

    @property
    def given(self) -> frozenset[str]:
        """The fields of `Settings` that a person gave."""
        named = {**vars(self.sizes or Settings()), "index_slot_count": self.index_slots}
        sizes = {name for name, value in named.items() if name.endswith(("_size", "_count")) and value}
        return frozenset(sizes | ({"commitlog_directories"} if self.commitlog else set()))

    @property
    def are_empty(self) -> bool:
        """Whether a person said nothing."""
        return self == StoreOptions(sizes=self.sizes) and self.sizes in (None, Settings())


def tell_opened(opened: OpenedStore, messages: Messages) -> None:
    """Say what a person should know about how a store was opened."""
    store, conf = opened.store, opened.conf
    if opened.rules.note is not None:
        messages.warn(opened.rules.note)
    if (foreign := opened.foreign) is not None:
        messages.warn(f"{foreign.reason}: the files that are read in {foreign.path} are not this store's")
    if conf is not None:
        for problem in (*unread_settings(conf.properties, opened.rules), *value_problems(conf, opened.rules)):
            messages.warn(f"{conf.path}: {problem}")
        is_silent = conf.is_whole and conf.store_type is None
        if is_silent and store.files.get(FileKind.CONSUMEQUEUE_ROCKSDB) and store.settings.queue_kind == "file":
            messages.warn(
                f"{conf.path}: does not set storeType, so the broker keeps consume queues in files and does not "
                "read those in RocksDB; if it does read them, add storeType=defaultRocksDB"
            )
    for sentence in (*opened.evidence, f"broker rules: {opened.rules.version}, {opened.chosen}"):
        messages.note(sentence)


def open_store(place: Path | StoreLocation, options: StoreOptions, *, settles: bool = True) -> OpenedStore:
    """The store at a path, looked at as the options say; NotAStoreError where there is none, UnreadableError where it
    or the properties file may not be read.

    UsageError if the version is none, or `--max-memory` is too little for a store of so many files; where it settles,
    as the work comes after this, that is not said in the midst of it.
    """
    if isinstance(place, BundleLocation):
        options = replace(options, broker_version=options.broker_version or place.broker_version)
    refuse_bundle(place if isinstance(place, Path) else place.path)
    rules = rules_for(options.broker_version) if options.broker_version is not None else None
    refuse_unknown_settings(options.properties)
    reads, conf = read_settings(rules), None
    if isinstance(place, BundleLocation) and place.properties is not None:
        conf = broker_conf(shareable_settings(place.properties), reads=reads)
    if options.broker_conf is not None:
        conf = read_broker_conf(options.broker_conf, reads)
    if options.properties:
        conf = with_properties(conf, options.properties, reads)
    store = survey_store(place, options.commitlog, options.index_slots, conf, options.sizes)
    foreign = None
    if isinstance(store.view, DirectoryView):
        directories = store.settings.commitlog_directories
        foreign = foreign_directory(store.view.root, directories, conf, is_log_named=bool(options.commitlog))
    if rules is not None:
        chosen = "chosen with --broker-version"
        opened = OpenedStore(store, rules, chosen=chosen, conf=conf, given=options.given, foreign=foreign)
    else:
        from rmqtool.engine.reading.version_evidence import infer_version

        releases = infer_version(store, conf)
        rules = rules_for(NEWEST if releases is None else releases.rules)
        chosen = f"as the store fits {releases}"
        if releases is None:
            chosen = f"nothing in the store shows its broker version; using the rules of {NEWEST}, the newest one known"
        opened = OpenedStore(
            store,
            rules,
            inferred=None if releases is None else str(releases),
            evidence=() if releases is None else releases.evidence,
            chosen=chosen,
            conf=conf,
            is_version_known=releases is not None,
            given=options.given,
            foreign=foreign,
            fitting=EXAMINED if releases is None else releases.examined,
        ).at(rules)
    if settles:
        settle("this store", sum(map(len, opened.store.files.values())))
    return opened


def refuse_bundle(path: Path | None) -> None:
    """Refuse, as NotAStoreError, a support bundle, which most commands cannot read."""
    if path is None or not path.is_file():
        return
    from rmqtool.evidence.bundle import is_bundle

    if is_bundle(path):
        raise NotAStoreError(f"{path}: a support bundle; only `rmqtool verify` and `rmqtool forecast` read it")


def command_line(place: Path | StoreLocation, options: StoreOptions) -> CommandLine:
    """Makes further commands about the store that these options open."""
    sizes = options.sizes or Settings()
    named = [
        *(("--commitlog", directory) for directory in options.commitlog or ()),
        ("--log-file-size", sizes.commitlog_file_size),
        ("--queue-file-size", sizes.consumequeue_file_size),
        ("--index-slots", options.index_slots),
        ("--index-entries", sizes.index_entry_count),
        ("--broker-conf", options.broker_conf),
        ("--broker-version", options.broker_version),
    ]
    words = [f"{name} {shlex.quote(str(value))}" for name, value in named if value is not None]
    is_local = isinstance(place, Path) or place.path is not None
    return CommandLine(shlex.quote(str(place)), " ".join(words), is_local)


def file_sizes(log_file: int | None, queue_file: int | None, index_entries: int | None) -> Settings:
    """What the options say of file sizes; a queue file holds whole units, as in the broker."""
    queue_file = -(-queue_file // UNIT_SIZE) * UNIT_SIZE if queue_file else None
    return Settings(commitlog_file_size=log_file, consumequeue_file_size=queue_file, index_entry_count=index_entries)


def lock_of(place: StoreLocation, store: Store, foreign: ForeignDirectory | None = None) -> LockReport:
    """Whether a broker uses a store, or the one to which its log belongs; of a store elsewhere that cannot be known."""
    if place.path is None or isinstance(place, BundleLocation):
        return LockReport(Lock(LOCK_NAME, LockStatus.UNKNOWN), (), ())
    directories = [place.path / named for named in store.settings.commitlog_directories]
    return lock_report(place.path, directories, foreign.owner if foreign is not None else None)


def timestamp_ms(text: str | None, option: str) -> int | None:
    """What was typed for an option that takes a time, in ms; None where nothing was, UsageError where it is no time."""
    return parse_time(text, option) if text is not None else None


def refuse_inside_store(target: Path, what: str, place: StoreLocation, log_directories: Iterable[str] = ()) -> None:
    """Refuse, as RefusedError, to write a file into a store, or its log, that is only read: it would stop a start."""
    if place.path is None:
        return
    roots = (place.path, *(place.path / named for named in log_directories))
    if any(Path(os.path.realpath(target)).is_relative_to(os.path.realpath(root)) for root in roots):
        raise RefusedError(f"{target}: {what} must be outside the store, because this command never writes to it")


def foreign_owner(store: Store) -> str | None:
    """A warning where the store belongs to another user, whose broker could not read what this one writes."""
    if not isinstance(store.view, DirectoryView):
        return None
    own = os.geteuid()
    others = sorted(owner for owner in store.owner_ids if owner != own)
    if not others:
        return None
    return f"the store's files belong to {', '.join(map(user_name, others))}, not to {user_name(own)} who runs this"


def user_name(user_id: int) -> str:
    """A user's name, the number where it has none."""
    import pwd

    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)


T = TypeVar("T")
STORE_OPTIONS: Final = "store_options"
"""The parameter that stands for them."""
FILE_SIZES: Final = ("log_file_size", "queue_file_size", "index_entries")


def _given(
    commitlog: CommitlogOption = None,
    log_file_size: LogFileSizeOption = None,
    queue_file_size: QueueFileSizeOption = None,
    index_slots: IndexSlotsOption = None,
    index_entries: IndexEntriesOption = None,
    broker_conf: BrokerConfOption = None,
    broker_version: BrokerVersionOption = None,
) -> StoreOptions:
    sizes = file_sizes(log_file_size, queue_file_size, index_entries)
    return StoreOptions(commitlog, index_slots, broker_conf, broker_version, sizes)


def with_store_options(*left_out: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Make a command with all these options, but those left out, of a function that takes `store_options`."""
    options = {
        name: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(_given, eval_str=True).parameters.items()
        if name not in left_out
    }

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(function)
        def command(*arguments: Any, **given: Any) -> T:
            store_options = _given(**{name: given.pop(name, None) for name in options})
            return function(*arguments, **given, **{STORE_OPTIONS: store_options})

        signature = inspect.signature(function, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for name, parameter in signature.parameters.items():
            if name == STORE_OPTIONS:
                parameters += options.values()
            else:
                is_behind = bool(parameters) and parameters[-1].kind is inspect.Parameter.KEYWORD_ONLY
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) if is_behind else parameter)
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return command

    return decorate
