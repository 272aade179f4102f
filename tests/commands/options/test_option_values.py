"""Durations and pairs are read as a person writes them, and anything else names its option."""

from __future__ import annotations

import pytest

from rmqtool.commands.options.option_values import duration_s, is_duration, pairs
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
