"""`rmqtool fixture`: generated stores to try the tool on. What they are is decided in the room `fixtures`."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rmqtool.answer.exit_codes import ExitCode
from rmqtool.commands.messages import messages_of
from rmqtool.commands.options.completion import damages, recipes
from rmqtool.commands.options.help_groups import option
from rmqtool.commands.options.store import FormatOption
from rmqtool.commands.screen import screen, write_rows
from rmqtool.engine.rules.versions import NEWEST, SUPPORTED, SUPPORTED_RULES, nearest_releases, rules_for
from rmqtool.errors import UnreadableError, UsageError, WriteError
from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import MARK, damage_store, require_generated
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.report.names import unknown_name
from rmqtool.report.screens.fixture_screen import list_lines
from rmqtool.report.writers import OutputFormat
from rmqtool.store.source import reason

LIST_FIELDS: Final = ("type", "name", "about", "recipes", "findings", "harm", "versions")
CHANGE_FIELDS: Final = ("type", "action", "file", "file_position", "length")
CHECK_FIELDS: Final = ("type", "id", "promised", "found")
SeedOption = Annotated[int, option("--seed N", "Seed; another seed makes another store of this kind.")]


def list_kinds(output: FormatOption = OutputFormat.TABLE) -> None:
    """List the recipes of healthy stores, and the kinds of damage.

    Example: rmqtool fixture list
    """
    recipe_rows: list[dict[str, Any]] = [
        {
            "type": "recipe",
            "name": recipe.name,
            "about": recipe.about,
            "versions": [rules.version for rules in SUPPORTED_RULES if recipe.fits(rules)],
        }
        for recipe in RECIPES.values()
    ]
    newest = rules_for(NEWEST)
    damage_rows: list[dict[str, Any]] = [
        {
            "type": "damage",
            "name": kind.name,
            "about": kind.about,
            "recipes": list(kind.recipes),
            "findings": list(kind.findings),
            "harm": kind.harm_to(newest).value,
        }
        for kind in DAMAGES.values()
    ]
    if output is OutputFormat.TABLE:
        lines = list_lines(recipe_rows, damage_rows, SUPPORTED, screen().table_width)
        sys.stdout.writelines(f"{line}\n" for line in lines)
        return
    write_rows((*recipe_rows, *damage_rows), output, LIST_FIELDS)


def make(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of a recipe from `fixture list`.", autocompletion=recipes)
    ],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory; new or empty.")],
    seed: SeedOption = 0,
    settings: Annotated[
        list[str] | None, option("--set K=V", "version=X.Y.Z: the broker version of the store.")
    ] = None,
) -> None:
    """Make a healthy store: the same bytes for the same name, version and seed.

    Example: rmqtool fixture make crashed /tmp/store --set version=5.3.3
    """
    recipe = RECIPES.get(name)
    if recipe is None:
        raise UsageError(unknown_name("recipe", name, RECIPES, "rmqtool fixture list"))
    version = _version(settings or [])
    messages_of(context).interrupted = f"{directory} may be incomplete"
    is_new = not os.path.lexists(directory)
    is_ours = is_new or (directory.is_dir() and not any(directory.iterdir()))
    try:
        make_store(recipe, directory, version, seed)
        _write_mark(directory, {"recipe": name, "version": version, "seed": seed, "damage": []})
    except WriteError:
        if is_ours:
            _clear(directory, is_new=is_new)
        raise


def damage(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of a damage from `fixture list`.", autocompletion=damages)
    ],
    store: Annotated[Path, typer.Argument(metavar="STORE", help="A store that `fixture make` made.")],
    seed: SeedOption = 0,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Damage a generated store, and say what was changed.

    Example: rmqtool fixture damage log-bit-flip-late /tmp/store
    """
    kind = DAMAGES.get(name)
    if kind is None:
        raise UsageError(unknown_name("damage", name, DAMAGES, "rmqtool fixture list"))
    require_generated(store)
    mark = _read_mark(store)
    messages_of(context).interrupted = f"{store} may be changed"
    changes = damage_store(kind, store, seed, RECIPES[mark["recipe"]].conf.settings())
    _write_mark(store, {**mark, "damage": [*mark["damage"], name]})
    write_rows([{"type": "change", **vars(change)} for change in changes], output, CHANGE_FIELDS)


def check(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A store that `fixture make` made.")],
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Check that `rmqtool verify` finds each damage of a generated store, and nothing in a healthy one.

    Example: rmqtool fixture check /tmp/store
    """
    from rmqtool.fixtures.recipe_expectation import checked

    require_generated(directory)
    mark = _read_mark(directory)
    expectation = checked(
        directory, RECIPES[mark["recipe"]], mark["version"], [DAMAGES[name] for name in mark["damage"]]
    )
    write_rows(expectation.rows(), output, CHECK_FIELDS)
    if not expectation.is_kept:
        raise typer.Exit(ExitCode.FINDINGS)


ACTIONS: Final = {"list": list_kinds, "make": make, "damage": damage, "check": check}
"""Subcommands of `fixture`."""


def _version(settings: list[str]) -> str:
    version = NEWEST
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or key != "version":
            raise UsageError(f"--set: {text!r} is not version=X.Y.Z")
        if value not in SUPPORTED:
            try:
                problem = f"no broker version {value!r}; did you mean {' or '.join(nearest_releases(value))}?"
            except UsageError:  # it is no version
                problem = unknown_name("broker version", value, SUPPORTED)
            raise UsageError(f"--set: {problem}")
        version = value
    return version


def _read_mark(directory: Path) -> dict[str, Any]:
    path = directory / MARK
    try:
        mark: Any = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UnreadableError(f"{path}: {reason(error)}") from error
    except ValueError as error:
        raise UsageError(f"{path}: not what `rmqtool fixture make` wrote") from error
    if (
        not isinstance(mark, dict)
        or mark.get("recipe") not in RECIPES
        or not isinstance(mark.get("version"), str)
        or not isinstance(mark.get("damage"), list)
        or not all(name in DAMAGES for name in mark["damage"])
    ):
        raise UsageError(f"{path}: not what `rmqtool fixture make` wrote")
    return dict(mark)


def _clear(directory: Path, *, is_new: bool) -> None:
    """Remove a store that could not be written whole, from a directory that was new or empty."""
    with suppress(OSError):
        for path in directory.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        if is_new:
            directory.rmdir()


def _write_mark(directory: Path, content: dict[str, Any]) -> None:
    path = directory / MARK
    try:
        path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise WriteError(f"{path}: {reason(error)}") from error
