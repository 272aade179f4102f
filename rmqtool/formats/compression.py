"""Bodies that a producer compressed, decompressed within a limit.

Broker: `MessageDecoder#decode` (decompression by sysFlag), `ZlibCompressor`, `Lz4Compressor`, `ZstdCompressor`.
"""

from __future__ import annotations

import zlib
from typing import Final

_WINDOW_MAX: Final = 32 << 20
"""Bytes of memory that a zstd frame may ask for; a broker takes messages of 4 MiB by default."""


def decompress(stored: bytes, compression: str, limit: int) -> bytes:
    """The content of a compressed body, at most `limit` + 1 bytes of it, so that one sees whether there is more.

    Raises:
        ValueError: it is not what its flags say, or ends in the middle.
    """
    try:
        if compression == "zlib":
            return _zlib(stored, limit + 1)
        if compression == "lz4":
            return _lz4(stored, limit + 1)
        if compression == "zstd":
            return _zstd(stored, limit + 1)
    except (zlib.error, RuntimeError, MemoryError) as error:
        raise ValueError(f"flagged as {compression} and is not: {error}") from error
    raise ValueError("flagged as compressed in a way that no broker knows")


def _zlib(stored: bytes, length_max: int) -> bytes:
    stream = zlib.decompressobj()
    content = stream.decompress(stored, length_max)
    if len(content) < length_max and not stream.eof:
        raise ValueError("the zlib data ends in the middle")
    return content


def _lz4(stored: bytes, length_max: int) -> bytes:
    from lz4.frame import LZ4FrameDecompressor

    stream = LZ4FrameDecompressor()
    content = bytes(stream.decompress(stored, max_length=length_max))
    if len(content) < length_max and not stream.eof:
        raise ValueError("the LZ4 frame ends in the middle")
    return content


def _zstd(stored: bytes, length_max: int) -> bytes:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_MAX)
    try:
        with decompressor.stream_reader(stored) as stream:
            content = stream.read(length_max)
        if len(content) < length_max:  # all of it fits, so that it may be asked again whether the frame was whole
            whole = decompressor.decompressobj()
            whole.decompress(stored)
            if not whole.eof:
                raise ValueError("the zstd frame ends in the middle")
    except zstandard.ZstdError as error:
        raise ValueError(f"flagged as zstd and is not: {error}") from error
    return content
