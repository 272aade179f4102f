"""Annotated bytes of a long range: its two ends, and a line for what is left out between them."""

from __future__ import annotations

import pytest

from rmqtool.report.hexview import BYTES_SHOWN_MAX, bare_parts, hex_fields, hex_lines

CONTENT = bytes(number % 251 for number in range(5000))


def read(position: int, length: int) -> bytes:
    return CONTENT[position : position + length]


@pytest.mark.parametrize("width", [80, 120])
def test_a_long_range_shows_its_two_ends(width: int) -> None:
    lines = list(hex_lines(bare_parts(read, 5000), width, start=0x10000))
    step = 16 if width >= 120 else 8
    left_out = [number for number, line in enumerate(lines) if "left out" in line]
    assert len(left_out) == 1
    assert f"{5000 - BYTES_SHOWN_MAX} bytes of bytes left out" in lines[left_out[0]]
    shown = [bytes.fromhex(line[12 : 12 + 3 * step - 1]) for line in lines if "left out" not in line]
    assert b"".join(shown[: left_out[0]]) == CONTENT[:512]
    assert b"".join(shown[left_out[0] :]) == CONTENT[-512:]
    assert int(lines[left_out[0] + 1][:10], 16) == 0x10000 + 5000 - 512


@pytest.mark.parametrize(
    ("length", "limit"), [(1024, 1024), (1025, 1024), (100, 1), (100, 17), (100, 0), (0, 10), (33, 32)]
)
def test_the_limit_counts_both_ends(length: int, limit: int) -> None:
    (part,) = bare_parts(read, length, limit)
    assert len(part.content) + len(part.tail) == min(length, limit)
    assert part.left_out == max(0, length - limit)
    assert CONTENT[:length].startswith(part.content)
    assert CONTENT[:length].endswith(part.tail)
    assert len(list(hex_lines([part], 80))) >= 1


def test_a_program_gets_both_ends() -> None:
    (field,) = hex_fields(bare_parts(read, 5000), 80)["bytes"]
    assert (field["length"], field["hex"], field["hex_end"]) == (5000, CONTENT[:512].hex(), CONTENT[-512:].hex())
    (field,) = hex_fields(bare_parts(read, 40), 80)["bytes"]
    assert (field["hex"], field["hex_end"]) == (CONTENT[:40].hex(), None)
