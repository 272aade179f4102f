"""Where a store lies, as a person names it: a directory of this machine, or a URL of a file system elsewhere.

What a URL needs is imported once there is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rmqtool.errors import UsageError
from rmqtool.store.urls import is_url
from rmqtool.store.view import StoreView, open_directory


@dataclass(frozen=True)
class StorePlace:
    """A place that is read.

    Attributes:
        path: None where it is not a directory of this machine.
        url: None where it is.
    """

    path: Path | None
    url: str | None = None

    def __str__(self) -> str:
        """How it is shown, without credentials."""
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


def store_place(text: str) -> StorePlace:
    """The place that a word of a command line names."""
    if not is_url(text):
        return StorePlace(Path(text))
    from urllib.parse import unquote, urlsplit

    split = urlsplit(text)
    if split.scheme.lower() == "file":
        return StorePlace(Path(unquote(split.path)))
    return StorePlace(None, text)


def local_path(text: str) -> Path:
    """A path for a command that writes.

    Raises:
        UsageError: it is a URL.
    """
    if is_url(text):
        raise UsageError(f"{_shown(text)}: this command writes, and a store elsewhere is only read; copy it to a disk")
    return Path(text)


def _shown(url: str) -> str:
    from rmqtool.store.remote import shown

    return shown(url)
