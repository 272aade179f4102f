"""Compressed bodies: what producers write is decompressed within the limit, and what is cut or no such data is said."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.compression import decompress

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "zlib": zlib.compress,
    "lz4": lz4.frame.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}
kinds = pytest.mark.parametrize("kind", COMPRESSORS)


@kinds
@given(content=st.binary(max_size=2000))
def test_a_body_is_what_was_compressed(kind: str, content: bytes) -> None:
    assert decompress(COMPRESSORS[kind](content), kind, len(content)) == content


@kinds
def test_one_byte_more_than_the_limit_is_given(kind: str) -> None:
    stored = COMPRESSORS[kind](bytes(1 << 20))
    assert decompress(stored, kind, 1000) == bytes(1001)
    assert decompress(stored, kind, (1 << 20) - 1) == bytes(1 << 20)


@kinds
def test_data_that_is_cut_is_refused(kind: str) -> None:
    stored = COMPRESSORS[kind](bytes(range(256)) * 40)
    for length in (0, 1, len(stored) // 2, len(stored) - 1):
        with pytest.raises(ValueError, match=r"the middle|flagged as"):
            decompress(stored[:length], kind, 1 << 20)


@kinds
@given(stored=st.binary(min_size=1, max_size=200))
def test_any_bytes_give_content_or_a_value_error(kind: str, stored: bytes) -> None:
    try:
        content = decompress(stored, kind, 1000)
    except ValueError:
        return
    assert len(content) <= 1001


def test_a_zstd_frame_that_asks_for_much_memory_is_refused() -> None:
    large = zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(window_log=27))
    writer = large.compressobj()
    stored = writer.compress(b"a") + writer.flush()
    with pytest.raises(ValueError, match="flagged as zstd and is not"):
        decompress(stored, "zstd", 100)


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(ValueError, match="no broker knows"):
        decompress(b"", "unknown", 100)
