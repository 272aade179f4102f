"""Finds a text that has a given Java hash."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

Range = tuple[int, int]
_RANGES: Final = {
    1: ((33, 126),),
    2: ((0x0100, 0x07FF),),
    3: ((0x4E00, 0x9FFF),),
    4: ((0xD83C, 0xD83E), (0xDC00, 0xDFFF)),
}
"""First and last UTF-16 unit of a character by the bytes that it has in UTF-8."""
_WIDE: Final = ((0x21, 0x7E), (0x80, 0x7FF), (0x800, 0xD7FF), (0xD800, 0xDBFF), (0xDC00, 0xDFFF), (0xE000, 0xFFFF))
"""Ranges whose UTF-16 units take as many bytes in UTF-8 as each other."""
_SOLVED: Final = 7
"""Last characters that are chosen to give the hash: 31 to the power of 7 is beyond 32 bits."""


def usual_ranges(widths: Iterable[int]) -> list[Range]:
    """Units of common characters with these widths."""
    return [part for width in widths for part in _RANGES[width]]


def own_ranges(text: str) -> list[Range] | None:
    """All units that may stand for those of a text; None where it has a control character or a space."""
    raw = text.encode("utf-16-be")
    units = [int.from_bytes(raw[at : at + 2], "big") for at in range(0, len(raw), 2)]
    ranges = [next((one for one in _WIDE if one[0] <= unit <= one[1]), None) for unit in units]
    known = [one for one in ranges if one is not None]
    return known if len(known) == len(units) else None


def text_with_hash(hash_value: int, ranges: Sequence[Range], choices: bytes) -> str | None:
    """A text of UTF-16 units from these ranges with this hash; None where the choices lead to none."""
    numbers = [int.from_bytes(choices[at : at + 4], "big") for at in range(0, len(choices), 4)]
    cut = max(0, len(ranges) - _SOLVED)
    chosen = [low + number % (high - low + 1) for (low, high), number in zip(ranges[:cut], numbers, strict=False)]
    state = 0
    for character in chosen:
        state = (31 * state + character) & 0xFFFFFFFF
    rest = ranges[cut:]
    weights = [31 ** (len(rest) - 1 - at) for at in range(len(rest))]
    low = sum(weight * first for weight, (first, _) in zip(weights, rest, strict=True))
    high = sum(weight * last for weight, (_, last) in zip(weights, rest, strict=True))
    value = (hash_value - state * 31 ** len(rest)) & 0xFFFFFFFF
    fewest, most = -((value - low) >> 32), (high - value) >> 32
    if fewest > most:
        return None
    value += (fewest + numbers[-1] % (most - fewest + 1)) << 32
    for at, (weight, (first, last)) in enumerate(zip(weights, rest, strict=True)):
        low, high = low - weight * first, high - weight * last
        least = max(first, -((high - value) // weight))
        largest = min(last, (value - low) // weight)
        if least > largest:
            return None
        character = least + numbers[cut + at] % (largest - least + 1)
        chosen.append(character)
        value -= weight * character
    if value:
        return None
    return b"".join(unit.to_bytes(2, "big") for unit in chosen).decode("utf-16-be")
