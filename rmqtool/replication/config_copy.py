"""Copies a broker's configuration, the files of `config/`, from a directory that is reachable.

Replication sends the commit log only. Topics and consumer offsets are in these files, which a broker rewrites while it
runs: each is read whole and must be JSON as brokers write it, so that a torn one replaces nothing.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Final

from rmqtool.errors import UnreadableError
from rmqtool.store.relaxed_json import parse_relaxed_json
from rmqtool.store.sink import DirectorySink
from rmqtool.store.source import read_range
from rmqtool.store.view import open_directory

SIZE_MAX: Final = 256 << 20
"""Bytes of a file that is copied; consumer offsets of a large cluster have some MiB."""


def copy_config(directory: Path, sink: DirectorySink) -> tuple[list[str], list[str]]:
    """Copy the JSON files of a `config/`, or of the store that has it.

    Returns:
        The names of the files that were copied, and sentences about those that were not.

    Raises:
        NotAStoreError: there is no such directory.
        UnreadableError: it may not be read.
        WriteError: a copy cannot be written.
    """
    view = open_directory(directory)
    if (nested := view.stat("config")) is not None and nested.is_directory:
        view = open_directory(directory / "config")
    copied, problems = [], []
    for entry in view.list(""):
        if entry.is_directory:
            problems.append(f"{view.label}/{entry.name}: a directory (a database?) is not copied")
            continue
        if not entry.is_file or not entry.name.endswith((".json", ".json.bak")):
            continue
        if entry.is_link or entry.size > SIZE_MAX:
            problems.append(f"{view.label}/{entry.name}: a link, or more than {SIZE_MAX} bytes; not copied")
            continue
        try:
            with closing(view.open(entry.path)) as source:
                content = read_range(source, 0, SIZE_MAX)
            parse_relaxed_json(content.decode("utf-8"))
        except (UnreadableError, ValueError) as error:
            problems.append(f"{view.label}/{entry.name}: not copied ({error})")
            continue
        path = f"config/{entry.name}"
        sink.create(path, len(content))
        sink.resize(path, len(content))
        sink.write_at(path, 0, content)
        sink.sync(path)
        copied.append(entry.name)
    return copied, problems
