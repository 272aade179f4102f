"""Inspect, verify and repair the store directory of an Apache RocketMQ broker, without a broker."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqtool.pipeline.stores import Stores

__version__ = "0.3.0"
__all__ = ["open"]


def open(  # noqa: A001 - fixed name
    path_or_url: str | PathLike[str] | Sequence[str | PathLike[str]], *, commitlog: Sequence[str] = ()
) -> Stores:
    """Open a store, or several, for reading in this process; docs/api.md.

    Args:
        path_or_url: of a store's root, or a list of them; a pattern such as `/archive/*/store` names several stores.
        commitlog: directories of the commit log, relative to the store or absolute, if it is not in `commitlog/`.

    Raises:
        rmqtool.errors.NotAStoreError: there is no store.
        rmqtool.errors.UnreadableError: it may not be read.
        rmqtool.errors.UnsupportedError: pyarrow, or a library for the URL, is not installed.
    """
    from rmqtool.pipeline.stores import open_stores

    return open_stores(path_or_url, commitlog)
