"""Tags codes, delay levels and Java's way to read a number."""

from __future__ import annotations

import pytest

from rmqtool.formats.tags import delivery_tags_code, parse_delay_levels, parse_java_int, tags_code

NOW = 1_700_000_000_000
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
LEVELS = parse_delay_levels()


def test_default_delay_levels() -> None:
    assert [delay // 1000 for delay in LEVELS] == [
        *(1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
    ]


def test_units_of_delay() -> None:
    assert parse_delay_levels("2s 3m 4h 5d") == (2_000, 180_000, 14_400_000, 432_000_000)
    assert parse_delay_levels("-1s +2s 1s ") == (-1_000, 2_000, 1_000)
    assert parse_delay_levels("  ") == ()


@pytest.mark.parametrize("text", ["", "1", "s", "1w", "1s x", "1.5s", "1ms", "1s  2s", " 1s", "1s\t2s"])
def test_a_setting_that_is_no_list_of_delays(text: str) -> None:
    with pytest.raises(ValueError, match="is not a list of delays"):
        parse_delay_levels(text)


@pytest.mark.parametrize(
    ("level", "expected"),
    [(-1, None), (0, None), (1, NOW + 1_000), (3, NOW + 10_000), (18, NOW + 7_200_000), (99, NOW + 7_200_000)],
)
def test_delivery_time(level: int, expected: int | None) -> None:
    assert delivery_tags_code(NOW, level, LEVELS) == expected


def test_no_levels_no_delivery_time() -> None:
    assert delivery_tags_code(NOW, 1, ()) is None


@pytest.mark.parametrize(
    ("topic", "properties", "expected"),
    [
        ("TopicTest", {}, 0),
        ("TopicTest", {"TAGS": ""}, 0),
        ("TopicTest", {"TAGS": "TagA"}, 2598919),
        ("TopicTest", {"TAGS": "a||b"}, 3012833),
        ("TopicTest", {"TAGS": "polygenelubricants"}, -2147483648),
        ("TopicTest", {"TAGS": "TagA", "DELAY": "3"}, 2598919),
        ("TopicTest", {"DELAY": "abc"}, 0),
        (SCHEDULE, {"TAGS": "TagA"}, 2598919),
        (SCHEDULE, {"TAGS": "TagA", "DELAY": "3"}, NOW + 10_000),
        (SCHEDULE, {"TAGS": "TagA", "DELAY": "0"}, 2598919),
        (SCHEDULE, {"DELAY": "-2"}, 0),
        (SCHEDULE, {"DELAY": "+1000"}, NOW + 7_200_000),
    ],
)
def test_tags_code(topic: str, properties: dict[str, str], expected: int) -> None:
    assert tags_code(topic, properties, NOW, LEVELS) == expected


def test_a_delay_that_is_no_number() -> None:
    with pytest.raises(ValueError, match="not an int"):
        tags_code(SCHEDULE, {"DELAY": "abc", "TAGS": "TagA"}, NOW, LEVELS)


# What a Java virtual machine makes of these.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7),
        ("+7", 7),
        ("-7", -7),
        ("007", 7),
        ("-0", 0),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
        ("٠١٢", 12),
        ("１", 1),
        ("0" * 5000 + "3", 3),
    ],
)
def test_numbers_that_java_reads(text: str, expected: int) -> None:
    assert parse_java_int(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "+", "-", "+-1", " 7", "7 ", "2147483648", "-2147483649", "𝟏", "1_0", "0x1", "7.0", "²", "9" * 5000],
)
def test_numbers_that_java_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="not an int"):
        parse_java_int(text)
