"""The command `formats`: which structures a store is made of, and what each of their bytes means."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rmqtool.commands.options.completion import format_names, schema_names
from rmqtool.commands.options.help_groups import option
from rmqtool.commands.options.store import FormatOption
from rmqtool.commands.screen import screen, write_rows
from rmqtool.errors import UsageError
from rmqtool.formats.catalog import BY_NAME
from rmqtool.formats.text_formats import TEXTS_BY_NAME
from rmqtool.report import layouts
from rmqtool.report.json_schemas import SCHEMAS, schema_text
from rmqtool.report.names import unknown_name
from rmqtool.report.writers import OutputFormat, json_text


def formats(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Name of a format (default: list all).", autocompletion=format_names),
    ] = None,
    json_schema: Annotated[
        str | None,
        option(
            "COMMAND",
            "Print the JSON schema of a command's output instead: verify, 'fixture list', ...",
            autocompletion=schema_names,
        ),
    ] = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Show the layout of every kind of file, field by field.

    Without a name: the list of all formats.

    Example: rmqtool formats message-v1
    """
    if json_schema is not None:
        if name is not None:
            raise UsageError("--json-schema prints the schema of a command's output; do not combine it with NAME")
        text = schema_text(json_schema)
        if text is None:
            raise UsageError(f"--json-schema: {unknown_name('schema for', json_schema, SCHEMAS)}")
        sys.stdout.write(text)
        return
    declared: layouts.AnyFormat | None = None
    if name is not None:
        declared = BY_NAME.get(name) or TEXTS_BY_NAME.get(name)
        if declared is None:
            raise UsageError(unknown_name("format", name, (*BY_NAME, *TEXTS_BY_NAME)))
    if output is OutputFormat.TABLE:
        terminal = screen()
        wide = max(terminal.width, 40)
        lines = layouts.list_lines(terminal.table_width) if declared is None else layouts.layout_lines(declared, wide)
        sys.stdout.writelines(f"{line}\n" for line in lines)
        return
    if declared is not None and output is OutputFormat.JSON:
        sys.stdout.write(json_text(layouts.layout_object(declared), indent=2) + "\n")
        return
    if declared is None:
        write_rows(layouts.list_rows(), output, layouts.LIST_FIELDS)
    else:
        write_rows(layouts.layout_rows(declared), output, layouts.LAYOUT_FIELDS)
