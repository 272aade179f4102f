"""Contents of bodies: the compressed ones decompressed, only as many at a time as memory should hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.formats import system_flag
from rmqtool.formats.compression import decompress

CONTENT_MAX: Final = 16 << 20
"""Bytes of a decompressed body that are read; a broker takes messages of 4 MiB."""
BATCH_BYTES: Final = 32 << 20
"""Bytes of contents at which a batch ends."""
Decode = Callable[[bytes, str], bytes | None]
"""The content of a body that was compressed in this way; None where it has none."""


def content_batches(bodies: pa.Array, flags: pa.Array, decode: Decode) -> Iterator[tuple[int, pa.Array]]:
    """The contents of bodies in batches: number of the first body, and the contents of it and of those after it."""
    flags_of = np.asarray(pc.fill_null(flags, 0))
    if not (flags_of & system_flag.COMPRESSED).any():
        yield 0, bodies
        return
    first, held = 0, 0
    contents: list[bytes | None] = []
    for number, flag in enumerate(flags_of.tolist()):
        body, kind = bodies[number].as_py(), system_flag.compression(flag)
        content = body if body is None or kind is None else decode(body, kind)
        contents.append(content)
        held += 0 if content is None else len(content)
        if held >= BATCH_BYTES or number + 1 == len(bodies):
            yield first, pa.array(contents, pa.binary())
            first, held, contents = number + 1, 0, []


def whole_content(body: bytes, kind: str) -> bytes | None:
    """The content of a body; None where it contradicts its flags, or is longer than `CONTENT_MAX`."""
    try:
        content = decompress(body, kind, CONTENT_MAX)
    except ValueError:
        return None
    return content if len(content) <= CONTENT_MAX else None


def searched_content(body: bytes, kind: str) -> bytes:
    """Searched part of a body: the first bytes of its content; a body that contradicts its flags is
    searched as it is.
    """
    try:
        return decompress(body, kind, CONTENT_MAX)[:CONTENT_MAX]
    except ValueError:
        return body
