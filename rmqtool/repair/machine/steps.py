"""The four kinds of steps that a repair is made of: write a range, replace, create, remove a file.

A path is that of the store view: relative to the store, absolute only for a commitlog that lies elsewhere. A step holds
the digests of what is there before and afterwards, so a plan can be saved without its bytes and checked when applied.
What the disk does not give of what is there before counts as zeros, which is what the journal keeps of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import Any, ClassVar, Literal

from rmqtool.errors import UnreadableError
from rmqtool.repair.machine.digest import BuiltFile, digest_of, digest_of_content
from rmqtool.store.sink import reported
from rmqtool.store.source import Content, FileSource
from rmqtool.store.view import StoreView


class _WithContent:
    content: Content

    @property
    def length(self) -> int:
        return self.content.length


@dataclass(frozen=True)
class WriteRange(_WithContent):
    """Overwrite bytes of a file that exists; bytes past its end make it longer."""

    path: str
    file_position: int
    content: Content
    before: str
    """Digest of the part of the range that the file has now."""
    after: str
    why: str

    action: ClassVar[Literal["write"]] = "write"

    @property
    def end(self) -> int:
        return self.file_position + self.content.length


@dataclass(frozen=True)
class Replace(_WithContent):
    """Give a file that exists another content; owner, mode and modification time stay."""

    path: str
    content: Content
    before: str
    after: str
    why: str
    rows: str | None = None
    """Digest of the rows it is made of, where their bytes differ each time: a database, or a timer by the hour."""

    action: ClassVar[Literal["replace"]] = "replace"
    file_position = 0


@dataclass(frozen=True)
class Create(_WithContent):
    """Make a file that is not there, and its directories."""

    path: str
    content: Content
    why: str
    mtime_ns: int | None = None
    """Modification time, for the broker reads those of log and queue files; None: when it is made."""
    rows: str | None = None
    """As in `Replace`."""

    action: ClassVar[Literal["create"]] = "create"
    file_position = 0
    before = None

    @property
    def known_digest(self) -> str | None:
        """Digest as from `after`; None where it would have to be read, and a reader may come to it."""
        return self.content.known_digest if isinstance(self.content, BuiltFile) else self.after

    @cached_property
    def after(self) -> str:
        """The digest of the content, which is read if nobody has read it yet."""
        return digest_of_content(self.content)


@dataclass(frozen=True)
class Remove:
    """Take a file away; its directory stays."""

    path: str
    length: int
    before: str
    why: str

    action: ClassVar[Literal["remove"]] = "remove"
    file_position = 0
    after = None


Step = WriteRange | Replace | Create | Remove


def write_range(view: StoreView, path: str, file_position: int, content: Content, why: str) -> WriteRange:
    """A step that overwrites a range, digests taken from the store as it is."""
    with closing(view.open(path)) as source:
        end = min(source.size, file_position + content.length)
        before = digest_of(source, file_position, end, salvaging=True)
    return WriteRange(path, file_position, content, before, digest_of_content(content), why)


def replace_file(view: StoreView, path: str, content: Content, why: str) -> Replace:
    """A step that replaces a file."""
    before, _ = _whole(view, path)
    return Replace(path, content, before, digest_of_content(content), why)


def create_file(view: StoreView, path: str, content: Content, why: str, mtime_ns: int | None = None) -> Create:
    """A step that makes a file.

    Raises:
        UnreadableError: something has this path already.
    """
    if view.stat(path) is not None:
        raise UnreadableError(f"{path}: already exists")
    return Create(path, content, why, mtime_ns)


def remove_file(view: StoreView, path: str, why: str) -> Remove:
    """A step that takes a file away."""
    before, size = _whole(view, path)
    return Remove(path, size, before, why)


def step_json(step: Step) -> dict[str, Any]:
    """A step as the JSON of a plan shows it."""
    rows = {} if isinstance(step, WriteRange | Remove) or step.rows is None else {"rows": step.rows}
    return {
        "action": step.action,
        "file": step.path,
        "file_position": step.file_position,
        "length": step.length,
        "before": step.before,
        "after": step.after,
        "why": step.why,
        **rows,
    }


def _whole(view: StoreView, path: str) -> tuple[str, int]:
    with closing(view.open(path)) as source:
        return digest_of(source, 0, source.size, salvaging=True), source.size


@contextmanager
def synced_meanwhile(steps: Iterable[Step]) -> Iterator[None]:
    """Sync the files that steps take whole, during the body.

    Raises:
        WriteError: the disk does not take one. Whoever syncs it later would not be told again.
    """
    contents = (step.content for step in steps if isinstance(step, Create | Replace))
    places = [content.place for content in contents if isinstance(content, BuiltFile)]
    over = Event()
    with ThreadPoolExecutor(1) as pool:
        syncing = pool.submit(_sync, places, over)
        try:
            yield
        except BaseException:
            over.set()
            raise
        syncing.result()


def _sync(places: Iterable[Path], over: Event) -> None:
    for place in places:
        if over.is_set():
            return
        with closing(FileSource.open(place)) as source, reported(place):
            os.fsync(source.descriptor)
