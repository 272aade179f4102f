"""Partitions of a table: days, hours, or columns whose texts become folder names of bounded length.

A topic may have 255 characters, and each may be one that a file system does not take or has a meaning in a URL. So the
folder is named for a form of the text that any file system takes, and the text itself stays in the rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from rmqtool.errors import UsageError
from rmqtool.report.names import unknown_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DERIVED: Final = ("day", "hour")
"""Partitions that are not columns of the rows: the date of the store time in UTC, and its hour."""
FOLDER_MAX: Final = 200
"""Characters of a folder name; a file system takes 255 bytes, of which some are the column's name."""
_KEPT: Final = 120
_EMPTY: Final = "..empty"
"""No text has this form: after a point come two digits, and `..` stands after `_KEPT` characters only."""
_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""Spark's folder name for rows without a value."""
_SHORTENED: Final = re.compile(rf".{{{_KEPT}}}\.\.[0-9a-f]{{32}}")


def folder_of(text: str) -> str:
    """The folder name of a text: percent-encoded with points for percent signs; a long one is cut, and has a hash."""
    folder = quote(text, safe="").replace(".", "%2E").replace("~", "%7E").replace("%", ".") or _EMPTY
    if len(folder) > FOLDER_MAX:
        return f"{folder[:_KEPT]}..{sha256(text.encode()).hexdigest()[:32]}"
    return folder.replace("_", ".5F", 1) if folder == _HIVE_NULL else folder


def text_of_folder(folder: str) -> str | None:
    """The text that a folder is named for; None of a name that was cut, whose text only the rows have.

    Raises:
        UsageError: no folder has this name.
    """
    if folder == _EMPTY:
        return ""
    if _SHORTENED.fullmatch(folder):
        return None
    try:
        text = unquote(folder.replace(".", "%"), errors="strict")
    except UnicodeDecodeError:
        text = ""
    if folder_of(text) != folder:
        raise UsageError(f"{folder}: is not the name of a folder that rmqtool export makes")
    return text


def partitioned(table: DataFrame, partition_by: Sequence[str], *, by_text: bool = False) -> tuple[DataFrame, list[str]]:
    """A table with the columns that it is partitioned by, and their names.

    Args:
        partition_by: columns of the table, or names of `DERIVED`.
        by_text: whether texts themselves are the folders, as rmqtool 0.3 had them.

    Raises:
        UsageError: there is no such column, or it has no form that can name a folder.
    """
    from pyspark.sql import functions as f

    names = []
    for name in partition_by:
        if name in DERIVED and name not in table.columns and "store_timestamp_ms" in table.columns:
            pattern = "yyyy-MM-dd" if name == "day" else "yyyy-MM-dd-HH"
            table = table.withColumn(name, f.date_format(f.timestamp_millis("store_timestamp_ms"), pattern))
        elif name not in table.columns:
            raise UsageError(f"--partition-by: {unknown_name('column', name, (*table.columns, *DERIVED))}")
        kind = dict(table.dtypes)[name]
        if kind == "binary" or kind.startswith(("array", "map")):
            raise UsageError(f"--partition-by: {name} has bytes or lists, which name no folder; choose another column")
        has_folder = kind == "string" and name not in DERIVED and not by_text
        if has_folder:
            table = table.withColumn(f"{name}_folder", _folder_column(name))
        names.append(f"{name}_folder" if has_folder else name)
    return table, names


def _folder_column(name: str) -> Column:
    """`folder_of` as an expression of Spark."""
    from pyspark.sql import functions as f

    folder = f.url_encode(f.col(name))  # as Java does it: `.` and `*` stay, a blank becomes `+`
    for character, code in ((".", "%2E"), ("*", "%2A"), ("+", "%20"), ("%", ".")):
        folder = f.replace(folder, f.lit(character), f.lit(code))
    shortened = f.concat(f.substring(folder, 1, _KEPT), f.lit(".."), f.substring(f.sha2(f.col(name), 256), 1, 32))
    return (
        f.when(folder == "", _EMPTY)
        .when(folder == _HIVE_NULL, folder_of(_HIVE_NULL))
        .when(f.length(folder) > FOLDER_MAX, shortened)
        .otherwise(folder)
    )
