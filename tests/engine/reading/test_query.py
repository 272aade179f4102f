"""Queries by key: chains, circles, time ranges, collisions, and what the index points to but is gone."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.engine.reading.reader import COUNT_MAX, QueryResult, Reader, open_reader
from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import UnsupportedError, UsageError
from rmqtool.formats.index import HEADER_SIZE, entry_position, key_hash, key_text, tag_text
from tests.conftest import Unpacked
from tests.engine.memory_view import index_file, log_file, made_store, record, segment_name
from tests.engine.reading.golden_answers import open_golden
from tests.golden_stores import manifest

LOG_FILE = 1 << 16
SLOTS, ENTRIES = 10, 100
BEGIN_MS = 1_000_000
Entry = tuple[int, int, int, int]
HASH = key_hash(key_text("T", "k"))


def reader_over(*index_files: bytes, records: list[bytes] | None = None, version: str = "5.5.1") -> Reader:
    files = {f"commitlog/{segment_name(0)}": log_file(records or [], LOG_FILE)}
    files |= {f"index/2026010100000{number:04d}": raw for number, raw in enumerate(index_files)}
    store = made_store(files, commitlog_file_size=LOG_FILE, index_slot_count=SLOTS, index_entry_count=ENTRIES)
    return open_reader(store, rules_for(version))


def chain(entries: list[Entry], newest: int | None = None, slot_of: int = HASH, **times: int) -> bytes:
    span = {"begin_ms": BEGIN_MS, "end_ms": BEGIN_MS + 100_000, **times}
    newest = len(entries) if newest is None else newest
    return index_file(entries, {slot_of % SLOTS: newest}, slot_count=SLOTS, entry_count=ENTRIES, **span)


def keyed_records(count: int) -> list[bytes]:
    records: list[bytes] = []
    for number in range(count):
        at = sum(map(len, records))
        records.append(record(at, properties={"KEYS": "k other" if number % 2 else "else"}))
    return records


def offsets(found: QueryResult) -> list[int]:
    return list(found.indexed_physical_offsets)


def test_a_chain_is_followed_from_the_newest_entry() -> None:
    file = chain([(HASH, 0, 0, 0), (HASH + SLOTS, 100, 1, 1), (HASH, 200, 2, 2), (HASH, 300, 3, 3)])
    assert offsets(reader_over(file).query_message("T", "k")) == [0, 200, 300]
    assert offsets(reader_over(file).query_message("T", "k", 2)) == [200, 300]
    assert offsets(reader_over(file).query_message("T", "none")) == []


def test_files_are_searched_newest_first() -> None:
    old = chain([(HASH, 0, 0, 0)])
    new = chain([(HASH, 500, 0, 0)], begin_ms=BEGIN_MS + 200_000, end_ms=BEGIN_MS + 300_000)
    assert offsets(reader_over(old, new).query_message("T", "k")) == [0, 500]
    assert offsets(reader_over(old, new).query_message("T", "k", 1)) == [500]
    # A file that begins before the range ends the search; the one behind it is not asked.
    assert offsets(reader_over(old, new).query_message("T", "k", 32, BEGIN_MS + 250_000)) == []


def test_times_are_whole_seconds() -> None:
    file = chain([(HASH, number * 10, number, number) for number in range(10)])
    reader = reader_over(file)
    assert offsets(reader.query_message("T", "k", 32, BEGIN_MS + 3000, BEGIN_MS + 5000)) == [30, 40, 50]
    assert offsets(reader.query_message("T", "k", 32, BEGIN_MS + 3001, BEGIN_MS + 4999)) == [40]
    assert offsets(reader.query_message("T", "k", 32, BEGIN_MS + 200_000)) == []


@pytest.mark.parametrize(
    ("entries", "newest", "places"),
    [
        pytest.param([(HASH, 7, 0, 1)], 1, [7], id="an entry that names itself ends the chain"),
        pytest.param([(HASH, 7, 0, 9)], 1, [7], id="an entry beyond the last ends it"),
        pytest.param([(HASH, 7, 0, -1)], 1, [7], id="a negative one too"),
        pytest.param([(HASH, 7, -1, 0)], 1, [], id="a negative time ends it before the entry counts"),
        pytest.param([(HASH, 7, 0, 0)], 3, [], id="a slot beyond the last entry is empty"),
        pytest.param([(HASH, 7, 0, 0)], 0, [], id="a slot of 0 is empty"),
        pytest.param([(HASH, 7, 0, 0)], -5, [], id="a negative slot is empty"),
        pytest.param([(HASH, 7, 0, 0), (HASH, 8, 0, 3), (HASH, 9, 0, 1)], 2, [7, 8, 9], id="a step upwards is taken"),
    ],
)
def test_odd_chains_end_where_the_broker_ends_them(entries: list[Entry], newest: int, places: list[int]) -> None:
    found = reader_over(chain(entries, newest)).query_message("T", "k")
    assert (offsets(found), found.never_ends) == (places, False)


@pytest.mark.parametrize("length", [2, 3, 7])
def test_a_circle_with_hits_fills_the_answer(length: int) -> None:
    circle = [(HASH if number == 0 else HASH + SLOTS, 5, 0, number or length) for number in range(length)]
    found = reader_over(chain(circle)).query_message("T", "k", 10)
    assert (offsets(found), found.never_ends) == ([5] * 10, False)


@pytest.mark.parametrize("length", [2, 3, 7])
def test_a_circle_without_hits_is_seen_to_never_end(length: int) -> None:
    circle = [(HASH + SLOTS, 5, 0, number or length) for number in range(length)]
    found = reader_over(chain(circle)).query_message("T", "k")
    assert (offsets(found), found.messages, found.never_ends) == ([], (), True)


def test_a_circle_behind_hits_keeps_them() -> None:
    entries = [(HASH + SLOTS, 5, 0, 2), (HASH + SLOTS, 5, 0, 1), (HASH, 9, 0, 2)]
    found = reader_over(chain(entries)).query_message("T", "k")
    assert (offsets(found), found.never_ends) == ([9], True)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([HASH, HASH + SLOTS]), st.integers(0, 50), st.integers(-1, 3), st.integers(-2, 22)),
        max_size=20,
    ),
    st.integers(-2, 25),
    st.integers(1, 70),
)
def test_every_chain_ends_and_agrees_with_the_plain_walk(entries: list[Entry], newest: int, count: int) -> None:
    found = reader_over(chain(entries, newest)).query_message("T", "k", count)
    places, ended = _plain_walk(entries, newest, min(count, COUNT_MAX))
    assert found.never_ends is not ended
    assert offsets(found) == sorted(places)


def _plain_walk(entries: list[Entry], newest: int, count: int) -> tuple[list[int], bool]:
    """The broker's own loop, given up after more steps than any chain with hits can take."""
    following = len(entries) + 1
    places: list[int] = []
    if newest <= 0 or newest > following or following <= 1:
        return places, True
    number = newest
    for _ in range(70 * 25):
        if len(places) >= count:
            return places, True
        known = 1 <= number <= len(entries)
        key, place, seconds, previous = entries[number - 1] if known else (0, 0, 0, 0)
        if seconds < 0:
            return places, True
        if key == HASH:
            places.append(place)
        if previous <= 0 or previous > following or previous == number:
            return places, True
        number = previous
    return places, False


def test_at_most_64_are_answered() -> None:
    file = chain([(HASH, number, 0, number - 1) for number in range(1, 90)])
    assert len(offsets(reader_over(file).query_message("T", "k", 1000))) == COUNT_MAX
    assert len(offsets(reader_over(file).query_message("T", "k"))) == 32


def test_records_are_served_unchecked_and_told_apart() -> None:
    records = keyed_records(4)
    places = [0, *itertools.accumulate(map(len, records))][:4]
    file = chain([(HASH, place, 0, number) for number, place in enumerate(places)])
    found = reader_over(file, records=records).query_message("T", "k")
    assert [message.physical_offset for message in found.messages] == places
    assert found.carries_key == (False, True, False, True)


def test_what_is_gone_is_indexed_but_not_served() -> None:
    records = keyed_records(2)
    file = chain([(HASH, len(records[0]), 0, 0), (HASH, 10 * LOG_FILE, 0, 1), (HASH, -7, 0, 2)])
    found = reader_over(file, records=records).query_message("T", "k")
    assert offsets(found) == [-7, len(records[0]), 10 * LOG_FILE]
    assert [message.physical_offset for message in found.messages] == [len(records[0])]


def test_tags_are_asked_for_only_where_they_are_indexed() -> None:
    hashed = key_hash(tag_text("T", "a||b"))
    raw = record(0, properties={"TAGS": "a||b", "KEYS": "k"})
    file = chain([(hashed, 0, 0, 0)], slot_of=hashed)
    found = reader_over(file, records=[raw], version="5.4.0").query_message("T", "a||b", by_tag=True)
    assert (offsets(found), found.carries_key) == ([0], (True,))
    with pytest.raises(UsageError, match="tags"):
        reader_over(file, version="5.3.4").query_message("T", "a||b", by_tag=True)


def test_a_short_file_reads_as_if_zeros_followed() -> None:
    whole = chain([(HASH, 7, 0, 0), (HASH, 8, 0, 1)])
    first, second, third = (entry_position(number, SLOTS) for number in (1, 2, 3))
    for length, places in (
        (0, []),
        (HEADER_SIZE, []),
        (first, []),
        (second, []),
        (third, [7, 8]),
        (len(whole), [7, 8]),
    ):
        found = reader_over(whole[:length]).query_message("T", "k")
        assert (offsets(found), found.never_ends) == (places, False)


def test_an_unknown_slot_count_is_said_and_not_guessed() -> None:
    store = made_store({f"commitlog/{segment_name(0)}": bytes(100), "index/20260101000000000": b"\xff" * 1000})
    with open_reader(store, rules_for("5.5.1")) as reader, pytest.raises(UnsupportedError, match="slots"):
        reader.query_message("T", "k")


def test_no_index_finds_nothing() -> None:
    found = reader_over().query_message("T", "k")
    assert (found.messages, found.indexed_physical_offsets, found.never_ends) == ((), (), False)


@pytest.mark.parametrize("name", ["4.9.7-keys-index", "5.5.0-keys-index", "5.5.0-clean-basic"])
def test_each_key_finds_its_records_in_every_range_of_time(golden: Unpacked, name: str) -> None:
    """Brute force over the records; whole seconds widen each range."""
    records = manifest(name).records
    times = sorted({found.store_timestamp_ms for found in records})
    ranges = [(0, 1 << 62), (times[0] - 1000, times[-1] + 1000), (times[-1] + 2000, 1 << 62)]
    keys = sorted({(found.topic, key) for found in records for key in (found.properties.get("KEYS") or "").split()})
    with open_golden(golden(name), name, "5.5.0") as reader:
        for topic, key in keys[:20]:
            holding = [found for found in records if found.topic == topic and key in _keys(found.properties)]
            for begin_ms, end_ms in ranges:
                found = reader.query_message(topic, key, 64, begin_ms, end_ms)
                carrying = [
                    message.physical_offset
                    for message, carries in zip(found.messages, found.carries_key, strict=True)
                    if carries
                ]
                expected = [each.at for each in holding if begin_ms <= each.store_timestamp_ms <= end_ms]
                if len(found.indexed_physical_offsets) < COUNT_MAX:
                    assert sorted(set(carrying)) == expected


def _keys(properties: object) -> list[str]:
    assert isinstance(properties, dict)
    return [*(properties.get("KEYS") or "").split(" "), properties.get("UNIQ_KEY") or ""]
