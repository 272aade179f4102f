"""Replaces texts that a customer wrote by others of the same length; equal texts stay equal within one bundle.

Consume queues and index hold Java's hash of tags and keys. A tag or key is therefore replaced by a text with the same
hash and number of characters, so that both files can stay as they are. The new texts come from a secret that is thrown
away: nothing but length, equality and that hash can be learnt from them. A single character stays, since no other one
has its hash, which shows it anyway.
"""

from __future__ import annotations

import hashlib
import secrets
from functools import lru_cache
from struct import Struct
from typing import Final

from rmqtool.evidence.hash_text import own_ranges, text_with_hash, usual_ranges
from rmqtool.evidence.names import BundleNames
from rmqtool.formats.java_text import java_hash

_TRIALS: Final = 16
_LETTERS: Final = bytes(b"abcdefghijklmnopqrstuvwxyz234567"[byte & 31] for byte in range(256))
_CACHED: Final = 1 << 14
_NUMBERS: Final = Struct(">4I")
_KNOWN_MIN: Final = 4
"""Bytes from which a text is no mere number or word of every log."""
_KNOWN_BITS: Final = 1 << 26
"""Bits in 8 MiB; each text sets four of them, so of 1,000,000 texts one other text in 70,000 is taken for known."""


class Pseudonyms:
    """The replacements of one bundle.

    Attributes:
        names: which names of topics, groups and brokers are shown, and what replaces others.
    """

    def __init__(
        self, secret: bytes | None = None, *, remembers: bool = False, names: BundleNames | None = None
    ) -> None:
        """Begin with no replacement.

        Args:
            remembers: whether `of_known` is to know texts that were replaced.
            names: which names are shown; None: those that every broker has.
        """
        self._secret = secret or secrets.token_bytes(32)
        self.names = names or BundleNames(self._secret, hides=False)
        self._known = bytearray(_KNOWN_BITS // 8) if remembers else None
        self.same_hash = lru_cache(_CACHED)(self._same_hash)

    def letters(self, text: bytes) -> bytes:
        """Letters and digits in place of a text, as many as it has bytes."""
        self._note(text)
        return self._stream(text, len(text), b"letters").translate(_LETTERS)

    def of_known(self, text: bytes) -> bytes:
        """Letters in place of a text that was replaced before, and of a few others; any other one as it is."""
        known = self._known
        if known is None or not all(known[at >> 3] >> (at & 7) & 1 for at in self._bits(text)):
            return text
        return self.letters(text)

    def _note(self, text: bytes) -> None:
        if self._known is not None and len(text) >= _KNOWN_MIN:
            for at in self._bits(text):
                self._known[at >> 3] |= 1 << (at & 7)

    def _bits(self, text: bytes) -> list[int]:
        numbers = _NUMBERS.unpack(hashlib.blake2b(text, key=self._secret, digest_size=_NUMBERS.size).digest())
        return [number % _KNOWN_BITS for number in numbers]

    def filler(self, content: bytes | memoryview) -> bytes:
        """Bytes in place of a body: eight letters over and over, which compress to nothing."""
        unit = self._stream(content, 8, b"body").translate(_LETTERS)
        return (unit * (len(content) // 8 + 1))[: len(content)]

    def _same_hash(self, text: bytes) -> bytes:
        """A text with the same number of bytes and characters and the same Java hash."""
        self._note(text)
        try:
            characters = text.decode()
        except UnicodeDecodeError:
            characters = ""
        widths = [len(character.encode()) for character in characters]
        if len(widths) == 1 and widths[0] < 4:
            return text
        for kind, ranges in enumerate((usual_ranges(widths), own_ranges(characters))):
            for trial in range(_TRIALS if ranges else 0):
                choices = self._stream(text, 8 * len(widths) + 4, b"hash%d" % (trial + kind * _TRIALS))
                other = text_with_hash(java_hash(characters) & 0xFFFFFFFF, ranges or (), choices)
                if other is not None and other != characters:
                    return other.encode()
        replaced = self.letters(text)
        return replaced if replaced != text else bytes(_LETTERS[byte + 1 & 31] for byte in replaced)

    def _stream(self, text: bytes | memoryview, length: int, purpose: bytes) -> bytes:
        key = hashlib.blake2b(text, key=self._secret, person=purpose).digest()
        return key[:length] if length <= len(key) else hashlib.shake_128(key).digest(length)
