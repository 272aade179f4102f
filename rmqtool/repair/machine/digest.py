"""Digests of file content that take no time for holes and zeros, however many gigabytes of them there are.

SHA-256 over the length and over each block of 64 KiB that is not all zero, with its position. Where the file system has
holes makes no difference.
"""

from __future__ import annotations

import hashlib
from contextlib import closing
from typing import Final

from rmqtool.errors import UnreadableError
from rmqtool.store.source import ByteSource, Content, read_salvaging, reason

BLOCK: Final = 64 << 10
_READ: Final = 16 * BLOCK
_ZEROS: Final = bytes(BLOCK)


def digest_of(source: ByteSource, start: int, end: int, *, salvaging: bool = False) -> str:
    """Digest of a range of a file, which depends on its bytes and not on where it lies; as `sparse-sha256:<hex>`.

    Args:
        salvaging: take what the disk does not give for zeros, as a copy of it has them.

    Raises:
        UnreadableError: the disk does not give the bytes, or the file has become shorter.
    """
    read = read_salvaging if salvaging else _read
    start = min(start, end)
    digest = hashlib.sha256((end - start).to_bytes(8, "big"))
    buffer = memoryview(bytearray(_READ))
    done = start
    for data_start, found_end in source.extents(start, end):
        # Blocks begin where the range begins, so that an extent is widened to whole ones.
        at = max(done, start + (data_start - start) // BLOCK * BLOCK)
        data_end = min(end, start + -(-(found_end - start) // BLOCK) * BLOCK)
        while at < data_end:
            part = buffer[: min(_READ, data_end - at)]
            read(source, at, part)
            for block in range(0, len(part), BLOCK):
                split = part[block : block + BLOCK]
                if split != _ZEROS[: len(split)]:
                    digest.update((at + block - start).to_bytes(8, "big"))
                    digest.update(split)
            at += len(part)
        done = max(done, at)
    return f"sparse-sha256:{digest.hexdigest()}"


def digest_of_content(content: Content) -> str:
    """Digest of content that is yet to be written; the same as that of the range once it holds it.

    Raises:
        UnreadableError: the file it comes from may not be read.
    """
    with closing(content.open()) as source:
        return digest_of(source, 0, content.length)


def _read(source: ByteSource, position: int, buffer: memoryview) -> None:
    try:
        count = source.read_into(position, buffer)
    except OSError as error:
        raise UnreadableError(f"{source.name}: {reason(error)} at byte {position}") from error
    if count < len(buffer):
        raise UnreadableError(f"{source.name}: became shorter while it was read")
