"""Text files that are replaced whole or not at all: written beside and renamed, so that nobody reads half of one."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rmqtool.errors import WriteError


def replace_text(path: Path, text: str) -> None:
    """Replace a text file.

    Raises:
        WriteError: it cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, "utf-8", errors="backslashreplace")
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise WriteError(f"{path}: {(error.strerror or str(error)).lower()}") from error
