"""The compiled key hashes are those of the plain way, entry for entry, and leave what is not ASCII to it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.engine.dispatch import index_entries
from rmqtool.engine.dispatch.queue_entries import RowBytes
from rmqtool.engine.rules.versions import rules_for
from rmqtool.formats import system_flag
from rmqtool.formats.commitlog import MAGIC_BLANK
from rmqtool.scan.columns import bare_row, row_dtype
from rmqtool.scan.rules import Verdict
from rmqtool.scan.walk import PlainReader
from tests.scan.logs import Message, log_bytes, scan

TEXTS = st.one_of(
    st.sampled_from(["", " ", "a", "a b", " a", "a ", "a  b", "  a   b  ", "k" * 600, "é", "键 x"]),
    st.text("ab z", max_size=12),
)
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["orders", "主题", "T"]),
        st.sampled_from([0, 0, 0, system_flag.TRANSACTION_PREPARED, system_flag.TRANSACTION_ROLLBACK]),
        st.dictionaries(st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "X"]), TEXTS),
    ),
    min_size=1,
    max_size=12,
)


def _entries(given_messages: list[tuple[str, int, dict[str, str]]], version: str, *, compiled: bool) -> list[list[int]]:
    log = log_bytes(
        [
            Message(
                topic=topic.encode(),
                sys_flag=sys_flag,
                properties=b"".join(f"{name}\x01{text}\x02".encode() for name, text in properties.items()),
            )
            for topic, sys_flag, properties in given_messages
        ]
    )
    found = scan(log, PlainReader)
    texts = RowBytes(np.frombuffer(bytearray(log.content), np.uint8), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_entries, "is_worth", lambda _count, _least: compiled)
        entries = index_entries.index_entries(
            np.array(found.rows, row_dtype()), found.topics, texts, rules_for(version)
        )
    return [column.tolist() for column in entries[:3]] + [[int(entries.ends_without)]]


@settings(deadline=None)
@given(messages=MESSAGES, version=st.sampled_from(["4.9.7", "5.5.0"]))
def test_compiled_and_plain_agree(messages: list[tuple[str, int, dict[str, str]]], version: str) -> None:
    assert _entries(messages, version, compiled=True) == _entries(messages, version, compiled=False)


def test_many_keys_fill_the_room_for_them() -> None:
    messages = [("T", 0, {"KEYS": "a " * 1000, "UNIQ_KEY": "u", "TAGS": "t"})] * 3
    found = _entries(messages, "5.5.0", compiled=True)
    assert found == _entries(messages, "5.5.0", compiled=False)
    assert len(found[0]) == 3 * 1002


def test_the_kernel_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    true_entries = index_entries._compiled_entries

    def watched(*arguments: object) -> object:
        found = true_entries(*arguments)  # type: ignore[arg-type]
        calls.append(found is not None)
        return found

    monkeypatch.setattr(index_entries, "_compiled_entries", watched)
    _entries([("T", 0, {"KEYS": "a b"})], "5.5.0", compiled=True)
    _entries([("T", 0, {"KEYS": "é"})], "5.5.0", compiled=True)
    _entries([("T", 0, {"KEYS": "a b"})], "5.5.0", compiled=False)
    assert calls == [True, False]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_blank_alone_has_no_entry(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_entries, "is_worth", lambda _count, _least: compiled)
    rows = np.array([bare_row(0, 100, Verdict.GOOD, MAGIC_BLANK)], row_dtype())
    texts = RowBytes(np.zeros(100, np.uint8), 0)
    entries = index_entries.index_entries(rows, [], texts, rules_for("5.5.0"))
    assert not entries.key_hashes.size
    assert not entries.ends_without


@pytest.mark.parametrize("at", [-60, 60])
def test_texts_outside_the_buffer_are_read(at: int) -> None:
    """A record longer than a block lies in no window whole."""
    log = log_bytes([Message(topic=b"T", properties=b"KEYS\x01a b\x02")])
    rows = np.array(scan(log, PlainReader).rows[:1], row_dtype())
    content = bytearray(log.content)
    buffer = np.frombuffer(content, np.uint8)[max(at, 0) : len(content) + min(at, 0)].copy()
    part = RowBytes(buffer, max(at, 0), lambda start, length: bytes(content[start : start + length]))
    whole = RowBytes(np.frombuffer(content, np.uint8), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_entries, "is_worth", lambda _count, _least: True)
        found = index_entries.index_entries(rows, [b"T"], part, rules_for("5.5.0"))
    expected = index_entries.index_entries(rows, [b"T"], whole, rules_for("5.5.0"))
    assert [column.tolist() for column in found[:3]] == [column.tolist() for column in expected[:3]]
    assert found.key_hashes.size == 2
