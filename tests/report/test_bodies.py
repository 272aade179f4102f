"""Bodies: decompressed within a limit, decoded as asked, and an honest word where that fails."""

from __future__ import annotations

import contextlib
import zlib
from dataclasses import dataclass

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.errors import UnreadableError
from rmqtool.formats.compression import decompress
from rmqtool.report.bodies import BodyChoice, BodyForm, body_fields

COMPRESSORS = {"zlib": zlib.compress, "lz4": lz4.frame.compress, "zstd": zstandard.ZstdCompressor().compress}


@dataclass
class Body:
    content: bytes
    compression: str | None = None

    @property
    def body_length(self) -> int:
        return len(self.content)

    def body(self, length_max: int) -> bytes:
        return self.content[:length_max]


class Unreadable(Body):
    def body(self, length_max: int) -> bytes:
        del length_max
        raise UnreadableError("00000: input/output error at byte 0")


@given(st.sampled_from(sorted(COMPRESSORS)), st.binary(max_size=3000), st.integers(0, 2000))
def test_decompressed_is_the_content_up_to_one_byte_beyond_the_limit(name: str, content: bytes, limit: int) -> None:
    assert decompress(COMPRESSORS[name](content), name, limit) == content[: limit + 1]


@given(st.sampled_from([*COMPRESSORS, "unknown"]), st.binary(max_size=200))
def test_random_bytes_are_refused_or_bounded(name: str, stored: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert len(decompress(stored, name, 100)) <= 101


@pytest.mark.parametrize("name", COMPRESSORS)
def test_every_cut_is_noticed(name: str) -> None:
    stored = COMPRESSORS[name](bytes(range(256)) * 4)
    for length in range(len(stored) - (4 if name == "lz4" else 0)):  # the end mark of a frame is part of it
        with pytest.raises(ValueError, match=r"ends in the middle|is not"):
            decompress(stored[:length], name, 5000)


@pytest.mark.parametrize("size", [100, 1000])
def test_a_streamed_zstd_frame_without_a_size_is_read(size: int) -> None:
    compressor = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    stored = compressor.compress(bytes(size)) + compressor.flush()
    assert decompress(stored, "zstd", 500) == bytes(min(size, 501))


def test_a_frame_that_asks_for_too_much_memory_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    compressor = zstandard.ZstdCompressor(compression_params=parameters, dict_data=None).compressobj()
    stored = compressor.compress(b"x" * 10) + compressor.flush()
    with pytest.raises(ValueError, match="zstd"):
        decompress(stored, "zstd", 500)


@pytest.mark.parametrize(
    ("form", "content", "shown"),
    [
        (BodyForm.TEXT, "aü\xff".encode("latin-1"), "a\\xfc\\xff"),
        (BodyForm.TEXT, "aü世".encode(), "aü世"),
        (BodyForm.HEX, b"\0\xff", "00ff"),
        (BodyForm.BASE64, b"\0\xff", "AP8="),
        (BodyForm.JSON, b'{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}),
        (BodyForm.REDACTED, b"secret", "6 bytes"),
    ],
)
def test_forms(form: BodyForm, content: bytes, shown: object) -> None:
    found = body_fields(Body(content), BodyChoice(form))
    assert found == {"body": shown, "body_encoding": str(form), "body_truncated": False, "body_error": None}


def test_a_cut_text_does_not_end_in_half_a_character() -> None:
    whole = "aü世🚀".encode()
    for limit in range(len(whole)):
        found = body_fields(Body(whole), BodyChoice(BodyForm.TEXT, limit))
        assert "aü世🚀".startswith(found["body"])
        assert found["body_truncated"]


def test_nothing_is_said_of_bodies_that_nobody_asked_for() -> None:
    assert body_fields(Unreadable(b"x"), BodyChoice()) == {}


def test_an_unreadable_body_is_said_to_be_so() -> None:
    found = body_fields(Unreadable(b"x"), BodyChoice(BodyForm.TEXT))
    assert found["body"] is None
    assert "input/output error" in found["body_error"]


def test_raw_is_the_stored_body_and_base64_where_no_form_is_asked() -> None:
    stored = zlib.compress(b"hello")
    assert body_fields(Body(stored, "zlib"), BodyChoice(BodyForm.HEX, raw=True))["body"] == stored.hex()
    assert body_fields(Body(stored, "zlib"), BodyChoice(raw=True))["body_encoding"] == "base64"
    assert body_fields(Body(stored, "zlib"), BodyChoice(BodyForm.TEXT))["body"] == "hello"
