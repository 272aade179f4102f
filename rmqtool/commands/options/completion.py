"""Completions of a shell after a tab: names from the store that is named already, and from our own lists.

A person waits for it, and cannot see an error: each function looks at names only, and gives nothing where that fails.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, Final

import typer

NAMES_MAX: Final = 1000
_QUEUES: Final = ("consumequeue", "batchconsumequeue")
Complete = Callable[[typer.Context, str], list[str]]


def _offered(names: Callable[[typer.Context], Iterable[str]]) -> Complete:
    """A function for `autocompletion`: the names that begin with the typed text, or none where they cannot be read."""

    @wraps(names)
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        with suppress(Exception):
            return sorted(name for name in names(ctx) if name.startswith(incomplete))
        return []

    complete.__annotations__ = {"ctx": typer.Context, "incomplete": str}
    del complete.__wrapped__  # Typer looks at the signature
    return complete


@_offered
def topics(ctx: typer.Context) -> Iterable[str]:
    """Topics that have queues in the store of the command line."""
    names: set[str] = set()
    for store in _stores(ctx):
        for directory in _QUEUES:
            with suppress(OSError), os.scandir(store / directory) as entries:
                for entry in entries:
                    if len(names) >= NAMES_MAX:
                        break
                    if entry.name.isprintable() and entry.is_dir():
                        names.add(entry.name)
    return names


@_offered
def versions(_: typer.Context) -> Iterable[str]:
    """Broker versions."""
    from rmqtool.engine.rules.versions import SUPPORTED

    return SUPPORTED


@_offered
def versions_or_all(_: typer.Context) -> Iterable[str]:
    """Broker versions, or all of them."""
    from rmqtool.engine.rules.versions import SUPPORTED

    return (*SUPPORTED, "all")


@_offered
def format_names(_: typer.Context) -> Iterable[str]:
    """Declared layouts."""
    from rmqtool.formats.catalog import BY_NAME
    from rmqtool.formats.text_formats import TEXTS_BY_NAME

    return (*BY_NAME, *TEXTS_BY_NAME)


@_offered
def schema_names(_: typer.Context) -> Iterable[str]:
    """Commands whose output has a schema."""
    from rmqtool.report.json_schemas import SCHEMAS

    return SCHEMAS


@_offered
def decoders(_: typer.Context) -> Iterable[str]:
    """Decoders of bodies, those of plugins too."""
    from rmqtool.decoders.built_in import BUILT_IN
    from rmqtool.decoders.plugins import plugin_names

    return (*BUILT_IN, *plugin_names())


@_offered
def recipes(_: typer.Context) -> Iterable[str]:
    """Recipes of healthy stores."""
    from rmqtool.fixtures.recipes import RECIPES

    return RECIPES


@_offered
def damages(_: typer.Context) -> Iterable[str]:
    """Kinds of damage."""
    from rmqtool.fixtures.damages.catalog import DAMAGES

    return DAMAGES


@_offered
def time_zones(_: typer.Context) -> Iterable[str]:
    """Names of time zones."""
    from zoneinfo import available_timezones

    return available_timezones()


def fields(ctx: typer.Context, incomplete: str) -> list[str]:
    """Fields of `dump`, after those that are named already."""
    with suppress(Exception):
        from rmqtool.dump.request import fields_of_kind
        from rmqtool.dump.target import DumpKind
        from rmqtool.report.bodies import BodyChoice

        kind = ctx.params.get("kind") or DumpKind.COMMITLOG
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in fields_of_kind(kind, BodyChoice()) if name.startswith(last)]
    return []


def _stores(ctx: typer.Context) -> Iterator[Path]:
    """Typed stores that are directories; one at a URL is not read.

    What stands before an option that has no value yet is not parsed, but left over.
    """
    values: list[Any] = [ctx.params.get(name) for name in ("store", "path", "stores")]
    for value in (*values, ctx.args):
        for one in value if isinstance(value, (list, tuple)) else [value]:
            path = one if isinstance(one, Path) else getattr(one, "path", one)
            if path and "://" not in str(path):
                yield Path(str(path))
