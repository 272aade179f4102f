"""Numbers of bytes are read as a person types them, and anything else names its option."""

from __future__ import annotations

import pytest

from rmqtool.commands.options.sizes import byte_count
from rmqtool.errors import UsageError


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (None, None), ("0", 0), ("1048576", 1 << 20), ("1k", 1 << 10), ("20M", 20 << 20), ("20 MiB", 20 << 20),
        ("20MB", 20_000_000), ("3g", 3 << 30), (" 2T ", 2 << 40),
    ],
)  # fmt: skip
def test_numbers_of_bytes(text: str | None, count: int | None) -> None:
    assert byte_count(text, "--max-rate") == count


@pytest.mark.parametrize("text", ["", "M", "-1", "1.5M", "1B", "1P", "9" * 16, "1 M 2"])
def test_what_is_no_number_of_bytes_names_its_option(text: str) -> None:
    with pytest.raises(UsageError, match=r"--max-rate: .* is not a number of bytes"):
        byte_count(text, "--max-rate")
