"""Files of controller mode: epochs as a broker reads them, where two logs are one, and who a broker is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.controller import Epochs, agreed_end, crc_of, epochs_text, identity_problem, parse_epochs
from rmqtool.quantities import JAVA_LONG_MAX

entries = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, JAVA_LONG_MAX)), max_size=20)


@given(entries)
def test_epochs_are_read_as_they_were_written(epochs: list[tuple[int, int]]) -> None:
    assert parse_epochs(epochs_text(epochs).encode()) == Epochs(tuple(epochs))


@given(st.binary(max_size=60))
def test_any_bytes_are_epochs_or_a_problem(raw: bytes) -> None:
    epochs = parse_epochs(raw)
    assert epochs.problem is None or not epochs.entries


@pytest.mark.parametrize(
    ("text", "problem", "prevents_start"),
    [
        ("", "numbers of entries", True),
        ("1\n", "numbers of entries", True),
        ("x\n0\n", "numbers of entries", True),
        ("1\n0\n1-a\n", "not a number", True),
        (f"1\n0\n{1 << 31}-0\n", "not a number", True),
        (f"1\n0\n1-{1 << 63}\n", "not a number", True),
        ("1\n7\n1-0\n", "CRC is wrong", False),
        ("2\n0\n1-0\n", "1 entries and not 2", False),
    ],
)
def test_epochs_that_a_broker_does_not_use(text: str, problem: str, prevents_start: bool) -> None:
    epochs = parse_epochs(text.encode())
    assert problem in (epochs.problem or "")
    assert (epochs.prevents_start, epochs.entries) == (prevents_start, ())


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_end_that_java_knows_counts(end: str) -> None:
    text = epochs_text([(1, 0), (2, 100)]).replace("\n", end)
    assert parse_epochs(text.encode()).entries == ((1, 0), (2, 100))


def test_lines_that_are_no_entries_are_skipped_but_count_for_the_crc() -> None:
    lines = ["1-0", "a line", "1-2-3"]
    text = "".join(f"{line}\n" for line in ("1", crc_of(lines), *lines))
    assert parse_epochs(text.encode()).entries == ((1, 0),)
    assert parse_epochs(b"1\n0\n1-0--\n").entries == ((1, 0),)


@pytest.mark.parametrize(
    ("epochs", "log_end", "others", "other_end", "expected"),
    [
        ({1: 0}, 100, {1: 0}, 80, 80),
        ({1: 0, 2: 50}, 100, {1: 0}, 80, 50),
        ({1: 0, 2: 50}, 100, {1: 0, 2: 60}, 120, 50),
        ({1: 0, 2: 50, 3: 70}, 100, {1: 0, 2: 50}, 90, 70),
        ({1: 0}, 100, {1: 10}, 100, None),
        ({1: 0}, 100, {2: 0}, 100, None),
        ({1: 0, 2: 100}, 90, {1: 0, 2: 100}, 150, 150),
    ],
)
def test_where_two_logs_are_one(
    epochs: dict[int, int], log_end: int, others: dict[int, int], other_end: int, expected: int | None
) -> None:
    assert agreed_end(epochs, log_end, others, other_end) == expected
    assert agreed_end(others, other_end, epochs, log_end) == expected


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"cluster#broker#1", None),
        (b"cluster#broker#-1#more", None),
        (b"cluster#broker", "no cluster"),
        (b"cluster#broker#", "no cluster"),
        (b"", "no cluster"),
        (b"cluster#broker#one", "not a number"),
        (b"cluster#broker#9223372036854775808", "not a number"),
    ],
)
def test_identity_of_a_broker(raw: bytes, problem: str | None) -> None:
    found = identity_problem(raw)
    assert found is None if problem is None else problem in (found or "")
