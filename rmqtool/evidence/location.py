"""A bundle where a store is expected: unpacked into a directory of its own, shown under the store's own path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rmqtool.engine.rules.settings import all_settings
from rmqtool.store.location import StoreLocation
from rmqtool.store.view import DirectoryView, StoreView, open_directory

_NUMBER: Final = r"[+-]?[0-9]{1,19}"
_FORMS: Final = {"int": _NUMBER, "long": _NUMBER, "boolean": r"[Tt]rue|TRUE|[Ff]alse|FALSE"}
_SIDES: Final = r"default(RocksDB)?"
_TEXTS: Final = {
    "storeType": _SIDES,
    "combineAssignOffsetCQType": _SIDES,
    "combineCQPreferCQType": _SIDES,
    "combineCQLoadingCQTypes": rf"{_SIDES}([;,]{_SIDES})?",
    "configManagerVersion": r"[vV][0-9]",
    "dLegerSelfId": r"n[0-9]{1,3}",
    "messageDelayLevel": r"[0-9]{1,9}[smhd]( [0-9]{1,9}[smhd]){0,99}",
}
"""Allowed texts; those that name directories or machines are not in it."""


@dataclass(frozen=True)
class BundleLocation(StoreLocation):
    """Where the store of a bundle was unpacked.

    Attributes:
        origin: the store's path on its own machine, which further commands are about.
        properties: of the broker's properties file, that may be shared; None where the bundle has none.
        broker_version: that was chosen when the bundle was made.
        gives_own_answers: whether the bundle's files give the store's own answers.
        differences: between both; None where nothing can be computed from the bundle.
        files: of the store, by path.
    """

    origin: str = ""
    properties: Mapping[str, str] | None = None
    broker_version: str | None = None
    answers: bytes = b""
    gives_own_answers: bool = False
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


def shareable_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """The settings that may leave the machine: those that a broker's behavior depends on.

    Numbers, truth values and words that a setting may be. All else may be a secret, a name or a path: also what stands
    where a number belongs, and what no broker reads.
    """
    shareable = {}
    for name, value in properties.items():
        setting = all_settings().get(name)
        if setting is None or setting.effect == "none":
            continue
        form = _TEXTS.get(name) if setting.kind == "text" else _FORMS.get(setting.kind, setting.kind)
        if form is not None and re.fullmatch(rf"[ \t]*(?:{form})[ \t]*", value, re.ASCII):
            shareable[name] = value
    return shareable
