"""Text of an `epochFileCheckpoint`, right or wrong."""

import zlib


def epochs_text(*entries: tuple[object, object], crc: int | None = None, count: int | None = None) -> str:
    """The file; `crc` and `count` where they should not be right."""
    lines = "".join(f"{epoch}-{start}\n" for epoch, start in entries)
    own_crc = zlib.crc32(lines.encode()) & 0x7FFFFFFF
    return f"{len(entries) if count is None else count}\n{own_crc if crc is None else crc}\n{lines}"
