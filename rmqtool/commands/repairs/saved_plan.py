"""A saved plan: written whole, and with the command's own options, so that `--apply` need not be given them again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from inspect import Parameter
from pathlib import Path
from typing import Any, Final

from typer.models import OptionInfo

from rmqtool.errors import UnreadableError, UsageError
from rmqtool.repair.machine.plan import Plan, read_saved
from rmqtool.report.own_file import OwnFile, replace_own
from rmqtool.report.writers import json_text

_LEAVES_PLAN_ALONE: Final = frozenset({"master", "conf", "show_lost"})
"""Options that say where a plan is made or how it is shown, and not what it is."""


def save_plan(path: Path, plan: Plan, options: Mapping[str, Any]) -> None:
    """Write a plan and the options that it was made with.

    Raises:
        RefusedError: a file that is no plan is there.
        WriteError: it cannot be written.
    """
    replace_own(path, OwnFile.PLAN, json_text({**plan.to_json(), "options": dict(options)}, indent=2) + "\n")


def options_to_save(own: Iterable[Parameter], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a person gave, by the names that are typed; paths are absolute."""
    return {flag: _as_json(options[name]) for name, flag in _flags(own) if _is_given(options[name])}


def add_saved_options(own: Iterable[Parameter], options: dict[str, Any], path: Path) -> None:
    """Take the options that are not given from a saved plan.

    Raises:
        UnreadableError: the file is no saved plan.
        UsageError: a given option has another value than in the plan.
    """
    own = tuple(own)
    saved = read_saved(path).get("options", {})
    flags = dict(_flags(own))
    if not isinstance(saved, dict):
        raise UnreadableError(f"{path}: not a saved plan")
    for parameter in own:
        if (flag := flags.get(parameter.name)) not in saved:
            continue
        value = _from_json(parameter.annotation, saved[flag], path)
        given = options[parameter.name]
        if _is_given(given) and _as_json(given) != _as_json(value):
            raise UsageError(f"{flag}: the saved plan has another value; leave it out, or make the plan again")
        options[parameter.name] = value


def _flags(own: Iterable[Parameter]) -> Iterable[tuple[str, str]]:
    """Name and flag of each option that belongs to a plan."""
    for parameter in own:
        info = parameter.annotation.__metadata__[0]
        if isinstance(info, OptionInfo) and parameter.name not in _LEAVES_PLAN_ALONE:
            declared = (info.default, *(info.param_decls or ()), f"--{parameter.name.replace('_', '-')}")
            yield parameter.name, next(text for text in map(str, declared) if text.startswith("--"))


def _is_given(value: Any) -> bool:
    return value is not None and value is not False


def _as_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_json(part) for part in value]
    if isinstance(value, Enum):
        return value.value
    return str(value.absolute()) if isinstance(value, Path) else value


def _from_json(annotation: Any, value: Any, path: Path) -> Any:
    """A value of the plan as the command line gives it.

    Raises:
        UnreadableError: it has another type, or is a number that no option takes.
    """
    import msgspec

    def of_text(kind: type, text: Any) -> Any:
        if not isinstance(text, str) or "\0" in text:
            raise ValueError(text)
        return kind(text)

    try:
        converted = msgspec.convert(value, annotation.__origin__, dec_hook=of_text)
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise UnreadableError(f"{path}: not a saved plan") from error
    if isinstance(converted, int) and converted < 0:
        raise UnreadableError(f"{path}: not a saved plan")
    return converted
