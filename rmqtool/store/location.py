"""Where a store lies, as a person names it: a directory of this machine, or a URL of a file system elsewhere.

What a URL needs is imported once there is one.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rmqtool.errors import NotAStoreError, RmqtoolError, UsageError
from rmqtool.store.config.broker_conf import BrokerConf
from rmqtool.store.directory import Settings, Store, survey, with_settings
from rmqtool.store.file_kinds import is_broker_directory
from rmqtool.store.ranged_source import without_user
from rmqtool.store.view import StoreView, open_directory


def log_directories(store: Store) -> tuple[str, ...]:
    """Where the plain log lies: in directories that were named, else in `commitlog/`, else where its files are."""
    holding = tuple(dict.fromkeys(segment.path.rpartition("/")[0] for segment in store.commitlog))
    default = ("commitlog",) if "commitlog" in holding or not holding else holding
    of_dledger = store.settings.dledger_directories
    return tuple(path for path in store.settings.commitlog_directories if path not in of_dledger) or default


@dataclass(frozen=True)
class StoreLocation:
    """A place that is read.

    Attributes:
        path: None where it is not a directory of this machine.
        url: None where it is.
    """

    path: Path | None
    url: str | None = None

    def __str__(self) -> str:
        """The location as shown to people, without credentials."""
        return _shown(self.url) if self.url is not None else str(self.path)

    def view(self) -> StoreView:
        """The view of the directory there.

        Raises:
            NotAStoreError: there is none.
            UnreadableError: it may not be read.
            UnsupportedError: a library for the URL is not there.
        """
        if self.url is not None:
            from rmqtool.store.remote import connect, open_remote

            return open_remote(connect(self.url))
        assert self.path is not None
        return open_directory(self.path)


def store_location(text: str) -> StoreLocation:
    """The place that a word of a command line names.

    Raises:
        UsageError: it begins as a URL, and is none.
    """
    if not is_url(text):
        return StoreLocation(Path(text))
    from urllib.parse import unquote, urlsplit

    try:
        split = urlsplit(text)
    except ValueError as error:
        raise UsageError(f"{without_user(text)}: no URL: {error}") from error
    if split.scheme.lower() == "file":
        return StoreLocation(Path(unquote(split.path)))
    return StoreLocation(None, text)


def local_path(text: str) -> Path:
    """A path for a command that writes.

    Raises:
        UsageError: it is a URL.
    """
    if is_url(text):
        raise UsageError(
            f"{_shown(text)}: this command writes, but a store at a URL is read-only; copy the store to a disk first"
        )
    return Path(text)


def survey_store(
    place: Path | StoreLocation,
    commitlog: list[Path] | None = None,
    index_slots: int | None = None,
    conf: BrokerConf | None = None,
    sizes: Settings | None = None,
) -> Store:
    """The store at a path; a person's settings override those of the broker's properties file.

    Raises:
        NotAStoreError: there is none; the text says where one is, if it lies next door.
        UnreadableError: it may not be read.
        UsageError: the log of a store elsewhere is said to lie outside of it.
    """
    settings = conf.settings() if conf is not None else Settings()
    given: dict[str, object] = {
        name: getattr(sizes, name, None)
        for name in ("commitlog_file_size", "consumequeue_file_size", "index_entry_count")
    }
    given["index_slot_count"] = index_slots
    if isinstance(place, StoreLocation) and place.path is None:
        odd = [one for one in commitlog or () if one.is_absolute() or ".." in one.parts or ":" in str(one)]
        if odd:
            raise UsageError(f"--commitlog {odd[0]}: for a store at a URL this must be a directory inside the store")
        given["commitlog_directories"] = tuple(map(str, commitlog)) if commitlog else None
        return survey(place.view(), with_settings(settings, **given))
    path = place if isinstance(place, Path) else place.path
    assert path is not None
    # Of directories in the store a properties file may say so without naming the store's root.
    plain, of_dledger = (
        tuple(relative_to_store(Path(named), path) if named.startswith("/") else named for named in directories)
        for directories in (settings.commitlog_directories, settings.dledger_directories)
    )
    settings = replace(settings, commitlog_directories=plain, dledger_directories=of_dledger)
    if commitlog:
        given["commitlog_directories"] = tuple(relative_to_store(named, path) for named in commitlog)
    view = open_directory(path) if isinstance(place, Path) else place.view()
    for named in commitlog or ():
        open_directory(named)  # a mistyped path is an error, not a store without a log
    try:
        return survey(view, with_settings(settings, **given))
    except NotAStoreError as error:
        neighbor = _neighbor(path)
        if neighbor is None:
            raise
        raise NotAStoreError(f"{path}: not a RocketMQ store, but {neighbor} is one") from error


def relative_to_store(directory: Path, root: Path) -> str:
    """The view's path of a directory that a person named: relative if it lies in the store, absolute elsewhere."""
    place = directory if directory.is_absolute() else Path.cwd() / directory
    try:
        return str(place.resolve().relative_to(root.resolve()))
    except (ValueError, OSError, RuntimeError):  # elsewhere, or links in a circle
        return str(place)


def _neighbor(path: Path) -> Path | None:
    """The store next to a directory that is none: people name the log's directory, or the one above the store."""
    candidates = [path / "store"]
    whole = path if path.name else path.resolve()  # "." has no name
    if is_broker_directory(whole.name):  # anything else may lie in a directory that takes long to look at
        candidates.append(whole.parent)
    for candidate in candidates:
        with suppress(RmqtoolError, OSError):
            survey(open_directory(candidate))
            return candidate
    return None


def _shown(url: str) -> str:
    from rmqtool.store.remote import shown

    return shown(url)


_URL: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(text: str) -> bool:
    """True if a text names a location on a remote file system."""
    return _URL.match(text) is not None
