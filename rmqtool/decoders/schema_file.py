"""Reads the schema file that a person names, up to a size that no schema has."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SCHEMA_MAX: Final = 64 << 20


def read_schema_file(name: str) -> bytes:
    """The bytes of a schema file.

    Raises:
        ValueError: it cannot be read, or is too large.
    """
    try:
        with Path(name).open("rb") as file:
            content = file.read(SCHEMA_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"{name}: {reason or error}") from error
    if len(content) > SCHEMA_MAX:
        raise ValueError(f"{name}: larger than {SCHEMA_MAX} bytes, which no schema is")
    return content
