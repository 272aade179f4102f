"""Command lines that a person can type next, with the options without which the store is not opened rightly."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CommandLine:
    """Makes command lines about one store.

    Attributes:
        store: as it is typed.
        options: that the store needs to be opened rightly, as they are typed.
        is_local: whether commands that write accept it.
    """

    store: str
    options: str = ""
    is_local: bool = True

    def __call__(self, command: str) -> str:
        name, _, own = command.partition(" ")
        return " ".join(part for part in ("rmqtool", name, self.store, own, self.options) if part)
