"""Which rows are wanted: by ranges, names and texts; a file is left out only where its times prove that it may be."""

from __future__ import annotations

import pytest

from rmqtool.scan.compiled import CompiledReader
from rmqtool.scan.log import ScanOptions
from rmqtool.scan.row_filter import CLOCK_STEP_MS, RowFilter
from rmqtool.scan.split import whole_file
from rmqtool.scan.walk import PlainReader
from rmqtool.store.source import BytesSource
from tests.scan.logs import FIRST_STORE_TIMESTAMP_MS, LogBytes, MakeReader, Message, log_bytes

MESSAGES = [
    Message(
        topic=topic,
        queue_id=number % 3,
        store_timestamp_ms=FIRST_STORE_TIMESTAMP_MS + number,
        properties=b"KEYS\x01key%d all\x02TAGS\x01tag%d\x02UNIQ_KEY\x01unique%d\x02" % (number, number % 2, number),
    )
    for number, topic in enumerate([b"OrderEvents", b"Audit", b"OrderEvents", b"OrderPayments", b"Audit", b"Other"])
]
BASE = 1 << 20


@pytest.fixture(scope="module")
def log() -> LogBytes:
    return log_bytes(MESSAGES, physical_offset=BASE)


def places(log: LogBytes, make_reader: MakeReader, row_filter: RowFilter) -> list[int]:
    """Numbers of the messages that the columns do not rule out."""
    split = whole_file(BytesSource("log", log.content), BASE, more_follows=False)
    numbers = {BASE + start: number for number, (start, _) in enumerate(log.spans)}
    chosen = []
    for batch in ScanOptions().walk(split, make_reader()).batches():
        chosen += [numbers.get(int(row[0])) for row in row_filter.chosen(batch)]
    return [number for number in chosen if number is not None and number < len(MESSAGES)]


@pytest.mark.parametrize("make_reader", [PlainReader, CompiledReader])
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"topics": ("Order*",)}, [0, 2, 3]),
        ({"topics": ("Audit", "Other")}, [1, 4, 5]),
        ({"topics": ()}, []),
        ({"queue_ids": frozenset({0, 2})}, [0, 2, 3, 5]),
        ({"from_ms": FIRST_STORE_TIMESTAMP_MS + 2, "to_ms": FIRST_STORE_TIMESTAMP_MS + 4}, [2, 3]),
        ({"tag": "tag1"}, [1, 3, 5]),
        ({"tag": "tag"}, []),
        ({"key": "key3"}, [0, 1, 2, 3, 4, 5]),
        ({"key": "nowhere"}, []),
        ({"topics": ("Audit",), "tag": "tag0"}, [4]),
    ],
)
def test_rows_that_may_be_wanted(log: LogBytes, make_reader: MakeReader, asked: dict, expected: list[int]) -> None:
    assert places(log, make_reader, RowFilter(**asked)) == expected


@pytest.mark.parametrize("make_reader", [PlainReader, CompiledReader])
def test_ranges_of_physical_offsets_are_half_open(log: LogBytes, make_reader: MakeReader) -> None:
    second, fourth = BASE + log.spans[1][0], BASE + log.spans[3][0]
    row_filter = RowFilter(from_physical_offset=second, to_physical_offset=fourth)
    assert places(log, make_reader, row_filter) == [1, 2]
    assert row_filter.may_be_between(second - 1, second + 1)
    assert not row_filter.may_be_between(0, second)
    assert not row_filter.may_be_between(fourth, fourth + 1)


@pytest.mark.parametrize(
    ("asked", "has"),
    [
        ({"key": "a"}, True),
        ({"key": "u"}, True),
        ({"key": "c"}, False),
        ({"tag": "t"}, True),
        ({"tag": "T"}, False),
        ({"message_id": "u"}, True),
        ({"message_id": "7f00000100002a9f0000000000000000"}, True),
        ({"message_id": "7F00000100002A9F0000000000000001"}, False),
        ({"key": "a", "tag": "T"}, False),
    ],
)
def test_texts_of_a_message(asked: dict[str, str], has: bool) -> None:
    row_filter = RowFilter(**asked)
    assert row_filter.wants_texts
    assert row_filter.has_texts(["a", "b"], "u", "t", "7F00000100002A9F0000000000000000") is has


@pytest.mark.parametrize(
    ("first_ms", "next_ms", "may"),
    [
        (0, 10, False),
        (CLOCK_STEP_MS * 10, CLOCK_STEP_MS * 11, True),
        (CLOCK_STEP_MS * 9, CLOCK_STEP_MS * 9, True),
        (CLOCK_STEP_MS * 21, CLOCK_STEP_MS * 30, False),
        (CLOCK_STEP_MS * 21 - 1, CLOCK_STEP_MS * 30, True),
        (None, 10, True),
        (0, None, True),
        (CLOCK_STEP_MS * 30, 0, True),
    ],
)
def test_files_that_times_leave_out(first_ms: int | None, next_ms: int | None, may: bool) -> None:
    row_filter = RowFilter(from_ms=CLOCK_STEP_MS * 10, to_ms=CLOCK_STEP_MS * 20)
    assert row_filter.may_be_stored(first_ms, next_ms) is may
