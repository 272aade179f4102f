"""A bundle where a store is expected: unpacked into a directory of its own, shown under the store's own path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rmqtool.store.location import StoreLocation
from rmqtool.store.view import DirectoryView, StoreView, open_directory

PATH_SETTING: Final = "storePath"
"""How the names of settings begin that lead to other directories: never followed on this machine."""
_NAMING: Final = re.compile(r"name|addr|ip\d|host|cluster|region|domain|topic|group|url|path|dir", re.IGNORECASE)
_SECRET: Final = re.compile(r"secret|password|passwd|token|credential|key|private", re.IGNORECASE)


@dataclass(frozen=True)
class BundleLocation(StoreLocation):
    """Where the store of a bundle was unpacked.

    Attributes:
        origin: the store's path on its own machine, which further commands are about.
        properties: of the broker's properties file; None where the bundle has none.
        broker_version: that was chosen when the bundle was made.
        commitlog: its directories that were named, relative to the store.
        sizes: file sizes that were named.
        answers: as they were recorded; None if the bundle gives the store's own.
        differences: between both; None where nothing can be computed from the bundle.
        files: of the store, by path.
    """

    origin: str = ""
    properties: Mapping[str, str] | None = None
    broker_version: str | None = None
    commitlog: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    answers: bytes | None = None
    differences: tuple[str, ...] | None = None
    files: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.origin

    def view(self) -> StoreView:
        assert self.path is not None
        return BundleView(open_directory(self.path).root, self.origin)


@dataclass(frozen=True)
class BundleView(DirectoryView):
    """The unpacked store under its own name."""

    origin: str = ""

    @property
    def label(self) -> str:
        return self.origin


def without_paths(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties without those that name directories."""
    return {name: value for name, value in properties.items() if not name.startswith(PATH_SETTING)}


def without_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties without directories, and with no value of those whose name tells of a secret."""
    return {name: "<redacted>" if _SECRET.search(name) else value for name, value in without_paths(properties).items()}


def without_names(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties with no value of those that name machines, brokers or clusters."""
    return {name: "<redacted>" if _NAMING.search(name) else value for name, value in properties.items()}
