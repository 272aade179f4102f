"""Times: what is printed names its zone, and what is printed can be typed again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.errors import UsageError
from rmqtool.times import hour_begin, parse_time, show_in, time_text, time_width, zone_named

NOW = 1_700_000_000_001
"""2023-11-14T22:13:20.001Z, the 15th in Shanghai."""
SHANGHAI = "2023-11-15T06:13:20.001+08:00"


@pytest.fixture(autouse=True)
def _zone() -> Iterator[None]:
    show_in(UTC)
    yield
    show_in(UTC)


def test_times_are_printed_in_the_zone_of_the_run() -> None:
    assert time_text(NOW) == "2023-11-14T22:13:20.001Z"
    show_in(zone_named("Asia/Shanghai"))
    assert time_text(NOW) == SHANGHAI
    show_in(zone_named("-0330"))
    assert time_text(NOW) == "2023-11-14T18:43:20.001-03:30"
    show_in(zone_named("Europe/Berlin"))
    assert time_text(NOW) == "2023-11-14T23:13:20.001+01:00"
    assert time_text(NOW - 180 * 86_400_000) == "2023-05-19T00:13:20.001+02:00"
    assert len(time_text(NOW)) == time_width()


def test_the_machines_own_zone_is_that_of_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    show_in(None)
    try:
        monkeypatch.setenv("TZ", "CST-8")
        time.tzset()
        assert time_text(NOW) == SHANGHAI
        assert parse_time("2023-11-15T06:13:20.001", "--time") == NOW
    finally:
        monkeypatch.undo()
        time.tzset()


def test_times_that_no_calendar_has_are_numbers() -> None:
    for name in ("UTC", "+08:00", "Asia/Shanghai"):
        show_in(zone_named(name))
        for number in ((1 << 63) - 1, -(1 << 63), 253_402_300_800_000):
            assert time_text(number) == str(number)
    show_in(UTC)
    assert (time_text(0), time_text(-1)) == ("1970-01-01T00:00:00.000Z", "1969-12-31T23:59:59.999Z")


@given(st.integers(-(10**13), 10**14), st.sampled_from(["UTC", "Asia/Shanghai", "America/New_York", "-03:30"]))
def test_what_is_printed_can_be_typed_again(timestamp_ms: int, name: str) -> None:
    show_in(zone_named(name))
    assert parse_time(time_text(timestamp_ms), "--time") == timestamp_ms


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("2023-11-14T22:13:20.001Z", NOW),
        (SHANGHAI, NOW),
        ("2023-11-15T06:13:20.001", NOW),
        ("2023-11-15 06:13:20.001", NOW),
        ("2023-11-15", NOW - (6 * 3600 + 13 * 60 + 20) * 1000 - 1),
        (str(NOW), NOW),
        ("0", 0),
        ("-5", -5),
        ("now", NOW),
        ("2h", NOW - 7_200_000),
        ("1h30m", NOW - 5_400_000),
        ("45s", NOW - 45_000),
        ("1w2d", NOW - 9 * 86_400_000),
        ("today", NOW - (6 * 3600 + 13 * 60 + 20) * 1000 - 1),
        ("yesterday 06:13:20.001", NOW - 86_400_000),
        ("Yesterday 14:00", NOW - 1 - (16 * 3600 + 13 * 60 + 20) * 1000),
    ],
)
def test_what_can_be_typed(text: str, expected_ms: int) -> None:
    show_in(zone_named("Asia/Shanghai"))
    assert parse_time(text, "--from-time", NOW) == expected_ms


@pytest.mark.parametrize("text", ["", "tomorrow", "yesterday 25:00", "2 h", "1x", "2024-13-01", "１２", "9" * 30])
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match=r"--to-time: .* is not a time; examples: .*yesterday 14:00, now, 17"):
        parse_time(text, "--to-time")


def test_numbers_that_would_be_a_time_in_1970_are_refused() -> None:
    with pytest.raises(UsageError, match=r"seconds since 1970; use milliseconds: 1700000000000"):
        parse_time("1700000000", "--time")
    with pytest.raises(UsageError, match=r"looks like a date; write 2024-05-31"):
        parse_time("20240531", "--time")


@pytest.mark.parametrize("name", ["", "Nowhere/City", "../../etc/passwd", "+25:00", "/etc/localtime", "Asia"])
def test_a_zone_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"no time zone .*Asia/Shanghai"):
        zone_named(name)


@pytest.mark.parametrize(
    ("zone", "begin"),
    [
        ("UTC", "2023-11-14T22:00:00.000Z"),
        ("Asia/Shanghai", "2023-11-15T06:00:00.000+08:00"),
        ("Asia/Kolkata", "2023-11-15T03:00:00.000+05:30"),
        ("Asia/Kathmandu", "2023-11-15T03:00:00.000+05:45"),
        ("-09:30", "2023-11-14T12:00:00.000-09:30"),
    ],
)
def test_an_hour_begins_where_a_clock_of_the_zone_shows_it(zone: str, begin: str) -> None:
    show_in(zone_named(zone))
    assert time_text(hour_begin(NOW)) == begin
    assert hour_begin(hour_begin(NOW)) == hour_begin(NOW)


def test_an_hour_that_a_clock_shows_twice_is_two_hours() -> None:
    show_in(zone_named("Europe/Berlin"))
    first, second = (parse_time(f"2023-10-29T02:30:00+0{offset}:00", "--time") for offset in (2, 1))
    assert hour_begin(second) - hour_begin(first) == 3_600_000
    assert time_text(hour_begin(second)) == "2023-10-29T02:00:00.000+01:00"


def test_a_time_that_no_calendar_has_lies_in_an_hour_of_utc() -> None:
    assert hour_begin((1 << 62) + 5) == (1 << 62) // 3_600_000 * 3_600_000
