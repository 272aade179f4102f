"""Rows of `kvStore/`: what a broker writes is read, and anything else is counted and never believed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.formats.rocksdb.pop import POP_FAMILY, PopKeyRow, parse_pop_key, pop_key
from rmqtool.sides.pop import PopDatabase, PopRow, parse_pop_row
from rmqtool.store.databases.rocksdb import RocksFailure
from rmqtool.store.view import open_directory
from tests.rocksdb_cases import write_rows

KEY = pop_key(PopKeyRow(1795456186358, b"poppers", b"tickets", 1, 2))
# As a broker of 5.5.0 wrote it.
VALUE = (
    b'{"popTime":1795455586358,"groupId":"poppers","topicId":"tickets","queueId":1,"retryFlag":0,'
    b'"invisibleTime":600000,"offset":2,"attemptTimes":0,"suspend":false}'
)
ROW = PopRow("tickets", 1, 2, "poppers", 1795455586358, 1795456186358)


def test_a_row_of_a_broker_is_read() -> None:
    assert KEY.hex() == "000001a2098737f6706f7070657273407469636b6574734000000001400000000000000002"
    assert parse_pop_row(KEY, VALUE) == ROW


@pytest.mark.parametrize(
    "changed",
    [
        {"popTime": 0},
        {"groupId": "others"},
        {"groupId": None},
        {"topicId": 7},
        {"queueId": 2},
        {"queueId": 1 << 40},
        {"offset": "2"},
        {"offset": True},
        {"invisibleTime": 1 << 70},
    ],
)
def test_a_value_that_does_not_give_its_key_is_odd(changed: dict[str, object]) -> None:
    assert parse_pop_row(KEY, json.dumps(json.loads(VALUE) | changed).encode()) is None


@pytest.mark.parametrize("value", [b"", b"no JSON", b"\xff", b"[]", b"null", b"{}"])
def test_a_value_that_is_no_such_object_is_odd(value: bytes) -> None:
    assert parse_pop_row(KEY, value) is None


@settings(deadline=None)  # a busy machine is no failure
@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_are_a_row_or_none(key: bytes, value: bytes) -> None:
    parsed = parse_pop_key(key)
    assert parsed is None or pop_key(parsed) == key
    parse_pop_row(key, value)


def test_a_database_counts_what_is_odd(tmp_path: Path) -> None:
    write_rows(tmp_path / "kvStore", {POP_FAMILY: {KEY: VALUE, b"odd": VALUE}})
    view = open_directory(tmp_path)
    database = PopDatabase(view, view.list("kvStore"))
    assert list(database.rows()) == [ROW]
    assert (database.failure, database.odd_row_count, database.odd_row) == (None, 1, f"key {b'odd'.hex()}")
    (tmp_path / "kvStore/CURRENT").write_text("no database")
    database = PopDatabase(view, view.list("kvStore"))
    assert list(database.rows()) == []
    assert database.failure is RocksFailure.DOES_NOT_OPEN
