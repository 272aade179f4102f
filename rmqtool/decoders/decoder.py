"""Decoders: functions of a body and the facts about its message, made from the option's argument.

A plugin is an entry point of the group `rmqtool.decoders` that is such a maker. The argument may name a schema file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rmqtool.report.bodies import MessageFacts

Decode = Callable[[bytes, MessageFacts], Any]
"""Gives the value of a body, decompressed and whole; `...` (Ellipsis) leaves the message to the next decoder.

An exception, whichever, says why the body is none of this kind.
"""
MakeDecoder = Callable[[str | None], Decode]
"""Makes a decoder of the text after `=`; None where there is none. Raises ValueError for a wrong text."""
SCHEMA_MAX: Final = 64 << 20
"""Bytes of a schema file; no schema has so many."""


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
