"""Message bodies as a person asks for them: decompressed within a limit, decoded, and honest about what is not shown.

Broker: `MessageDecoder#decode` (decompression by sysFlag), `ZlibCompressor`, `Lz4Compressor`, `ZstdCompressor`.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from rmqtool.errors import UnreadableError

BODY_LIMIT: Final = 1 << 20
"""Bytes of a body that are shown where nothing else is asked for."""
_STORED_SLACK: Final = 1 << 16
"""Compressed bytes beyond the limit that are worth reading: data that does not compress grows a little."""
_WINDOW_MAX: Final = 32 << 20
"""Bytes of memory that a zstd frame may ask for; a broker takes messages of 4 MiB by default."""


class BodyForm(StrEnum):
    """How bodies are shown."""

    NONE = "none"
    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"
    JSON = "json"
    REDACTED = "redacted"


@dataclass(frozen=True)
class BodyChoice:
    """What is to be shown of bodies.

    Attributes:
        limit: bytes of a body, decompressed, beyond which it is cut.
        raw: the body as it is stored, compressed or not, and the property block as text beside the properties.
    """

    form: BodyForm = BodyForm.NONE
    limit: int = BODY_LIMIT
    raw: bool = False


class StoredBody(Protocol):
    """A record, as far as its body goes."""

    @property
    def body_length(self) -> int: ...
    @property
    def compression(self) -> str | None: ...

    def body(self, length_max: int) -> bytes:
        """The first bytes of the stored body; UnreadableError where the disk does not give them."""


def body_fields(record: StoredBody, choice: BodyChoice) -> dict[str, Any]:
    """What a row says of the body: `body`, its encoding, whether it was cut, and why it could not be shown.

    Stored bodies for which no form is asked are base64, the one that every byte comes through.
    """
    form = BodyForm.BASE64 if choice.raw and choice.form is BodyForm.NONE else choice.form
    if form is BodyForm.NONE:
        return {}
    error: str | None = None
    shown: Any = None
    cut = False
    if form is BodyForm.REDACTED:
        shown = f"{record.body_length} bytes"
    else:
        try:
            content = _content(record, choice)
            cut = len(content) > choice.limit
            shown = _encoded(content[: choice.limit], form, cut=cut)
        except (ValueError, UnreadableError) as trouble:
            error = str(trouble)
    return {"body": shown, "body_encoding": str(form), "body_truncated": cut, "body_error": error}


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


def _content(record: StoredBody, choice: BodyChoice) -> bytes:
    """The content up to one byte beyond the limit."""
    if choice.raw or record.compression is None:
        return record.body(choice.limit + 1)
    stored = record.body(2 * choice.limit + _STORED_SLACK)
    return decompress(stored, record.compression, choice.limit)


def _encoded(content: bytes, form: BodyForm, *, cut: bool) -> Any:
    if form is BodyForm.HEX:
        return content.hex()
    if form is BodyForm.BASE64:
        return base64.b64encode(content).decode("ascii")
    if form is BodyForm.TEXT:
        if cut:  # in the middle of a character, maybe
            content = content[: len(content) - _split_character(content)]
        return content.decode("utf-8", "backslashreplace")
    if cut:
        raise ValueError("longer than the limit, so not shown as JSON")
    try:
        return json.loads(content, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _split_character(content: bytes) -> int:
    """Bytes at the end that begin a UTF-8 character and do not finish it."""
    for back in range(1, min(4, len(content)) + 1):
        byte = content[-back]
        if byte >= 0xC0:
            return back if back < 2 + (byte >= 0xE0) + (byte >= 0xF0) else 0
        if byte < 0x80:
            return 0
    return 0


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
