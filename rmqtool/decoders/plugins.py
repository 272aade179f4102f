"""Decoders that other packages bring, as entry points of the group `rmqtool.decoders`."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from rmqtool.decoders.decoder import MakeDecoder
from rmqtool.errors import UnsupportedError, UsageError

GROUP: Final = "rmqtool.decoders"


def plugin_names() -> tuple[str, ...]:
    """Names of all decoders that installed packages bring."""
    return tuple(sorted({entry.name for entry in entry_points(group=GROUP)}))


def load_plugin(name: str) -> MakeDecoder | None:
    """Maker of a plugin's decoder; None where there is none of that name.

    Raises:
        UsageError: several packages bring one of that name.
        UnsupportedError: it cannot be loaded.
    """
    entries = {entry.value: entry for entry in entry_points(group=GROUP, name=name)}
    if not entries:
        return None
    if len(entries) > 1:
        owners = " and ".join(sorted(package_of(entry) for entry in entries.values()))
        raise UsageError(f"--decode: several packages bring a decoder {name!r}: {owners}")
    (entry,) = entries.values()
    try:
        make: Any = entry.load()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise UnsupportedError(f"decoder {name!r} of {package_of(entry)} cannot be loaded: {reason}") from error
    if not callable(make):
        raise UnsupportedError(f"decoder {name!r} of {package_of(entry)} is not a function that makes a decoder")
    checked: MakeDecoder = make
    return checked


def package_of(entry: EntryPoint) -> str:
    """The package that an entry point comes from, with its version."""
    if entry.dist is None:
        return entry.value
    return f"{entry.dist.metadata['Name']} {entry.dist.version}"
