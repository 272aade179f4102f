"""Durations, numbers of bytes and pairs are read as a person writes them, and anything else names its option."""

from __future__ import annotations

import pytest

from rmqtool.commands.options.run import byte_count, duration_s, is_duration, pairs
from rmqtool.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("90", 90), ("90s", 90), ("20m", 1200), ("2h", 7200), ("1d", 86400)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_s(text, "--interval") == seconds
    assert is_duration(text)


@pytest.mark.parametrize("text", ["", "soon", "-1s", "1.5h", "1y", "s", "1 s", "9" * 10, "١s", "1S"])
def test_what_is_no_duration_names_its_option(text: str) -> None:
    assert not is_duration(text)
    with pytest.raises(UsageError, match=r"--interval: .* is not a duration"):
        duration_s(text, "--interval")


def test_a_value_may_be_empty_and_have_equals_signs() -> None:
    assert list(pairs(["a=b", "c=", "d=e=f"], "--set")) == [("a", "b"), ("c", ""), ("d", "e=f")]


@pytest.mark.parametrize("text", ["", "a", "=b"])
def test_what_is_no_pair_names_its_option(text: str) -> None:
    with pytest.raises(UsageError, match=r"--conf: .* is not K=V"):
        list(pairs(["a=b", text], "--conf", "K=V"))


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
