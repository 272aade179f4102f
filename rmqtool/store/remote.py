"""A store on a file system elsewhere (`s3://`, `hdfs://` and others), listed once and read in ranges, never written.

Arrow's file systems are asked first, fsspec's where Arrow has none for a scheme. Neither is needed for stores on this
machine's disks, so both are imported here only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

from rmqtool.errors import NotAStoreError, UnreadableError, UnsupportedError, UsageError, how_to_install
from rmqtool.quantities import JAVA_INT_MAX
from rmqtool.store.file_kinds import is_broker_directory
from rmqtool.store.ranged_source import Health, RangedSource, one_line, without_user
from rmqtool.store.view import Entry, EntryKind, StoreView

CONNECT_TIMEOUT_S: Final = 5.0
REQUEST_TIMEOUT_S: Final = 10.0
"""Without a byte."""
ATTEMPTS: Final = 3
RETRY_LIMIT_S: Final = 30
ARROW_SCHEMES: Final = frozenset({"hdfs", "viewfs", "gs", "gcs"})
"""Schemes besides s3 that Arrow opens by itself."""
_PATTERN: Final = re.compile(r"[*\[]")
S3_OPTIONS: Final = frozenset({"region", "scheme", "endpoint_override", "anonymous"})


@dataclass(frozen=True)
class RemotePlace:
    """A file or directory of a file system.

    Every request raises UnreadableError where it is not answered.

    Attributes:
        path: as the file system has it.
        label: how it is shown, without credentials.
    """

    filesystem: Any
    path: str
    label: str

    def kind(self) -> EntryKind | None:
        """Kind of the entry; None where there is none."""
        return _kind(_asked(self.label, lambda: self.filesystem.get_file_info([self.path])[0]))

    def names(self) -> list[str]:
        """Names in a directory; empty if it is not there."""
        from pyarrow import fs

        selector = fs.FileSelector(self.path, allow_not_found=True)
        listed = _asked(self.label, lambda: self.filesystem.get_file_info(selector))
        return sorted(info.path.rstrip("/").rpartition("/")[2] for info in listed)

    def split(self, count: int) -> tuple[RemotePlace, str]:
        """The place that many names further up, and the path from there to here."""
        parts = self.path.split("/")
        name = "/".join(parts[-count:])
        return RemotePlace(self.filesystem, "/".join(parts[:-count]), self.label[: -len(name) - 1]), name

    def depth(self) -> int:
        """Names in the path, without that of a bucket or root."""
        return len([part for part in self.path.split("/") if part]) - 1


def connect(url: str) -> RemotePlace:
    """The location that a URL names, without a request yet.

    Raises:
        UnsupportedError: the libraries for its scheme are not there.
        UsageError: it is not put together rightly.
        UnreadableError: its file system cannot be opened.
    """
    try:
        from pyarrow import fs
    except ImportError as error:
        raise UnsupportedError(f"{shown(url)}: needs pyarrow: {how_to_install('remote')}") from error
    split = urlsplit(url)
    if urlsplit(without_user(url)).netloc != split.netloc.rpartition("@")[2]:
        raise UsageError(f"{shown(url)}: a slash in a key or its secret is written %2F")
    scheme = split.scheme.lower()
    if scheme in ("s3", "s3a", "s3n"):
        return RemotePlace(_s3(fs, url), unquote(f"{split.hostname}{split.path}").strip("/"), shown(url))
    if scheme in ARROW_SCHEMES:
        if scheme in ("gs", "gcs") and "retry_limit_seconds" not in url:
            # Google's client would continue for a quarter of an hour.
            limited = f"{url}{'&' if '?' in url else '?'}retry_limit_seconds={RETRY_LIMIT_S}"
        else:
            limited = url
        filesystem, path = _asked(shown(url), lambda: fs.FileSystem.from_uri(limited))
        return RemotePlace(filesystem, path.rstrip("/"), shown(url))
    try:
        import fsspec
    except ImportError as error:
        raise UnsupportedError(f"{shown(url)}: needs fsspec: {how_to_install('remote')}") from error
    try:
        inner, path = _asked(shown(url), lambda: fsspec.core.url_to_fs(url))
    except UnreadableError as error:
        if isinstance(error.__cause__, ValueError | ImportError):  # no such scheme, or its library is not there
            raise UnsupportedError(str(error)) from error
        raise
    return RemotePlace(fs.PyFileSystem(fs.FSSpecHandler(inner)), path.rstrip("/"), shown(url))


def matching_urls(pattern: str) -> list[str]:
    """The existing URLs that match a pattern, in order; a `?` begins a URL's options and is not a wildcard.

    Raises:
        UnsupportedError, UsageError: see `connect`.
        UnreadableError: a directory cannot be listed.
    """
    split = urlsplit(pattern)
    names = split.path.split("/")
    number = next((at for at, name in enumerate(names) if _PATTERN.search(name)), None)
    if number is None:
        return [pattern]
    above = connect(urlunsplit(split._replace(path="/".join(names[:number]))))
    urls = []
    for name in above.names():
        if fnmatchcase(name, unquote(names[number])):
            url = urlunsplit(split._replace(path="/".join([*names[:number], quote(name), *names[number + 1 :]])))
            urls += matching_urls(url)
    is_last = not any(_PATTERN.search(name) for name in names[number + 1 :])
    return [url for url in urls if connect(url).kind() is not None] if is_last else urls


def open_remote(place: RemotePlace) -> RemoteView:
    """The view of a store elsewhere.

    Raises:
        NotAStoreError: nothing is there, or no directory.
        UnreadableError: it cannot be asked for.
    """
    kind = place.kind()
    if kind is not EntryKind.DIRECTORY:
        what = "no such directory" if kind is None else "not a directory"
        raise NotAStoreError(f"{place.label}: {what}")
    return RemoteView(place)


def view_of_files(view: StoreView, entries: Sequence[Entry]) -> StoreView:
    """The view of a store with some of its files alone, for a task that reads no others.

    A store elsewhere keeps its listing, which otherwise goes to every task; a directory of this machine has none.
    """
    if not isinstance(view, RemoteView):
        return view
    by_directory: dict[str, list[Entry]] = {}
    for entry in entries:
        by_directory.setdefault(entry.path.rpartition("/")[0], []).append(entry)
    return RemoteView(view.place, by_directory)


def without_listing(view: StoreView) -> StoreView:
    """The view of a store that is listed again where it is used next."""
    return RemoteView(view.place) if isinstance(view, RemoteView) else view


@dataclass(frozen=True)
class RemoteView:
    """A store on a remote file system. Listings are cached: a store elsewhere is an archive, not a broker's."""

    place: RemotePlace
    _listed: dict[str, list[Entry]] = field(default_factory=dict, repr=False)
    _health: Health = field(default_factory=Health, repr=False)

    @property
    def label(self) -> str:
        return self.place.label

    def list(self, path: str) -> list[Entry]:
        if path.startswith("/"):  # of the machine that the store is from
            return []
        if path not in self._listed and _base(path) not in self._listed:
            self._load(path)
        return list(self._listed.get(path, []))

    def stat(self, path: str) -> Entry | None:
        if not path:
            return Entry("", EntryKind.DIRECTORY)
        return next((entry for entry in self.list(path.rpartition("/")[0]) if entry.path == path), None)

    def open(self, path: str) -> RangedSource:
        entry = self.stat(path)
        if entry is None:
            raise UnreadableError(f"{path}: no such file")
        if not entry.is_file:
            raise UnreadableError(f"{path}: not a regular file")
        if entry.size > JAVA_INT_MAX:
            raise UnreadableError(f"{path}: {entry.size} bytes are said to be there, more than any file of a broker")
        whole = f"{self.place.path}/{path}"
        return RangedSource(path, entry.size, lambda: self.place.filesystem.open_input_file(whole), self._health)

    def _load(self, path: str) -> None:
        """List a directory; for a broker's top directory everything below it too, in as few requests as possible."""
        from pyarrow import fs

        base = _base(path)
        is_broker = bool(path) and is_broker_directory(base)
        selector = fs.FileSelector(f"{self.place.path}/{base}".rstrip("/"), recursive=is_broker, allow_not_found=True)
        label = f"{self.label}/{base}".rstrip("/")
        listed = _asked(label, lambda: self.place.filesystem.get_file_info(selector))
        entries: dict[str, Entry] = {}
        root = self.place.path.strip("/")
        for info in listed:
            name = info.path.strip("/").removeprefix(root).strip("/")
            kind = _kind(info)
            if kind is not None and name not in ("", base):
                size = info.size or 0 if kind is EntryKind.FILE else 0
                entries[name] = Entry(name, kind, size, info.mtime_ns or 0, size)
                # Some file systems list files only.
                parts, depth = name.split("/"), base.count("/") + 1 if base else 0
                for parent in ("/".join(parts[:count]) for count in range(depth + 1, len(parts))):
                    entries.setdefault(parent, Entry(parent, EntryKind.DIRECTORY))
        self._listed[base] = []
        for entry in sorted(entries.values(), key=lambda one: one.path):
            self._listed.setdefault(entry.path.rpartition("/")[0], []).append(entry)
            if is_broker and entry.is_directory:
                self._listed.setdefault(entry.path, [])
        self._listed.setdefault(path, [])


def _base(path: str) -> str:
    """Directory to list for the content of a path: a broker's top directory, or the path itself."""
    top = path.partition("/")[0]
    return top if is_broker_directory(top) else path


def shown(url: str) -> str:
    """A URL without credentials and options."""
    url = without_user(url)
    try:
        split = urlsplit(url)
    except ValueError:
        return url
    return f"{split.scheme}://{split.netloc}{split.path}".rstrip("/")


def _s3(fs: Any, url: str) -> Any:
    split = urlsplit(url)
    query = dict(parse_qsl(split.query))
    if unknown := sorted(query.keys() - S3_OPTIONS):
        raise UsageError(f"{shown(url)}: unknown option {unknown[0]} (known: {', '.join(sorted(S3_OPTIONS))})")
    options: dict[str, Any] = {key: query[key] for key in ("region", "scheme", "endpoint_override") if key in query}
    if query.get("anonymous", "").lower() in ("true", "1"):
        options["anonymous"] = True
    if split.username is not None:
        options["access_key"], options["secret_key"] = unquote(split.username), unquote(split.password or "")
    if not split.hostname:
        raise UsageError(f"{shown(url)}: no bucket")
    return _asked(
        shown(url),
        lambda: fs.S3FileSystem(
            connect_timeout=CONNECT_TIMEOUT_S,
            request_timeout=REQUEST_TIMEOUT_S,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
            **options,
        ),
    )


def _asked(label: str, ask: Any) -> Any:
    """Result of a request to a file system; UnreadableError where it gives none."""
    try:
        return ask()
    except Exception as error:  # each library has errors of its own, and none is a reason to fall over
        raise UnreadableError(f"{label}: {one_line(error)}") from error


def _kind(info: Any) -> EntryKind | None:
    from pyarrow import fs

    kinds = {fs.FileType.File: EntryKind.FILE, fs.FileType.Directory: EntryKind.DIRECTORY}
    return None if info.type is fs.FileType.NotFound else kinds.get(info.type, EntryKind.SPECIAL)
