"""The overlay shows what was written over a store, keeps it however much it is, and leaves the store alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.errors import UnreadableError
from rmqtool.store.overlay import PAGE, WRITTEN_NS, Overlay
from rmqtool.store.source import Zeros, read_range
from tests.engine.memory_view import MemoryView

CONTENT = bytes(number * 7 % 251 for number in range(PAGE * 2 + 100))

writes = st.lists(
    st.tuples(st.integers(0, PAGE * 4), st.binary(min_size=1, max_size=200) | st.just(b"\x55" * (PAGE + 9))), max_size=8
)


def content(overlay: Overlay, path: str) -> bytes:
    source = overlay.open(path)
    return read_range(source, 0, source.size)


@pytest.mark.parametrize("memory_bytes", [1, PAGE, 100 * PAGE])
@given(changes=writes)
def test_reads_what_was_written_over_a_file(changes: list[tuple[int, bytes]], memory_bytes: int) -> None:
    view = MemoryView({"a/b": CONTENT})
    expected = bytearray(CONTENT)
    expected[100 : 100 + PAGE] = bytes(PAGE)
    with Overlay(view, memory_bytes) as overlay:
        overlay.lay("a/b", 100, Zeros(PAGE))
        opened_before = overlay.open("a/b")
        for position, data in changes:
            overlay.write_at("a/b", position, data)
            expected.extend(bytes(max(0, position + len(data) - len(expected))))
            expected[position : position + len(data)] = data
        assert content(overlay, "a/b") == expected
        assert read_range(opened_before, 0, len(expected)) == expected
    assert view.files == {"a/b": CONTENT}


def test_memory_keeps_no_more_than_it_is_told() -> None:
    with Overlay(MemoryView({}), 2 * PAGE + 1) as overlay:
        for number in range(10):
            overlay.write_at("a/b", number * PAGE, bytes([number]) * PAGE)
        assert len(overlay._kept) == 2 * PAGE
        assert content(overlay, "a/b") == b"".join(bytes([number]) * PAGE for number in range(10))


def test_a_file_that_is_too_short_is_lengthened_with_zeros() -> None:
    with Overlay(MemoryView({"index/1": b"abc"})) as overlay:
        overlay.create("index/1", 10)
        assert content(overlay, "index/1") == b"abc" + bytes(7)
        overlay.create("index/1", 5)
        assert content(overlay, "index/1") == b"abc" + bytes(7)


def test_removed_and_made_anew() -> None:
    with Overlay(MemoryView({"d/1": b"one", "d/2": b"two"})) as overlay:
        overlay.remove("d/1")
        overlay.remove("d/2")
        assert overlay.stat("d/1") is None
        with pytest.raises(UnreadableError):
            overlay.open("d/1")
        overlay.create("d/2", 4)
        overlay.write_at("d/2", 1, b"x")
        assert content(overlay, "d/2") == b"\0x\0\0"
        assert overlay.unlinked() == ("d/1",)
        assert [(entry.path, entry.size, entry.mtime_ns) for entry in overlay.list("d")] == [("d/2", 4, WRITTEN_NS)]


def test_what_was_only_made_leaves_no_trace() -> None:
    with Overlay(MemoryView({"d/1": b"one"})) as overlay:
        overlay.create("d/9", 3)
        assert [entry.path for entry in overlay.list("d")] == ["d/1", "d/9"]
        overlay.remove("d/9")
        assert [entry.path for entry in overlay.list("d")] == ["d/1"]
        assert overlay.unlinked() == ()
