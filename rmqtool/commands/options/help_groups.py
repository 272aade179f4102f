"""The help of a command: its own options first, then those that it shares with others, group by group."""

from __future__ import annotations

from typing import Any, Final

import typer
from typer.core import TyperCommand

OWN: Final = "Options"
REPAIR: Final = "Plan and consent"
STORE: Final = "The store"
OUTPUT: Final = "Output"
SPARK: Final = "Spark"
EVERY: Final = "Every command"
_ARGUMENTS: Final = "Arguments"
_ORDER: Final = (_ARGUMENTS, OWN, REPAIR, STORE, OUTPUT, SPARK, EVERY)
"""The groups, in the order of the help."""


def option(shown: str, text: str, panel: str | None = None, **more: Any) -> Any:
    """An option of a command, for `Annotated`, as the help shows it: `--at POSITION`, `--yes`, or `POSITION` where it
    is named for its parameter; in the panel of its group, if it is not the command's own. `more` is for `typer.Option`.
    """
    words = shown.split()
    names = [word for word in words if word.startswith("-")]
    metavar = next((word for word in words if not word.startswith("-")), None)
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, **more)


class GroupedCommand(TyperCommand):
    """A command whose help shows options by their groups (`rich_help_panel`), without rich: it loads too slowly."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in _ORDER}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                groups[group_of(parameter)].append(record)
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


def group_of(parameter: Any) -> str:
    """The group of the help that an argument or option belongs to."""
    if parameter.param_type_name == "argument":
        return _ARGUMENTS
    # The option for help is Typer's own.
    return EVERY if parameter.name == "help" else getattr(parameter, "rich_help_panel", None) or OWN
