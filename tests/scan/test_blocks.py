"""A window over a file gives its bytes wherever it stands, and notes what the disk does not give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from rmqtool.scan.blocks import Window, last_data_end
from rmqtool.store.source import BytesSource


@dataclass
class TornSource(BytesSource):
    """Bytes in memory, of which some sectors cannot be read."""

    bad: frozenset[int] = frozenset()

    def read_into(self, position: int, buffer: memoryview) -> int:
        if any(at in self.bad for at in range(position // 512, -(-(position + len(buffer)) // 512))):
            raise OSError(5, "Input/output error")
        return super().read_into(position, buffer)


steps = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 700)), min_size=1, max_size=12)


@given(st.binary(min_size=1, max_size=3000), st.integers(1, 600), steps)
def test_a_window_gives_the_bytes_of_the_file(content: bytes, block_size: int, asked: list[tuple[int, int]]) -> None:
    window = Window(BytesSource("file", content), block_size)
    for position, length in asked:
        assert bytes(window.bytes_at(position, length)) == content[position : position + length]
        window.fill(min(position, len(content)))
        assert bytes(window.buffer[: window.end - window.start]) == content[window.start : window.end]
        assert b"".join(map(bytes, window.chunks(position, len(content)))) == content[position:]
    assert window.unreadable == []


@given(st.frozensets(st.integers(0, 7)), steps)
def test_what_cannot_be_read_is_zero_and_noted_once(bad: frozenset[int], asked: list[tuple[int, int]]) -> None:
    content = bytes(range(1, 256)) * 17
    content = content[:4096]
    window = Window(TornSource("file", content, bad=bad), 1024)
    for position, length in asked:
        for at, byte in enumerate(window.bytes_at(position, length), position):
            assert byte == (0 if at // 512 in bad else content[at])
    assert sorted(window.unreadable) == window.unreadable
    assert all(start < end for start, end in window.unreadable)
    assert all(first[1] < second[0] for first, second in zip(window.unreadable, window.unreadable[1:], strict=False))
    assert all(at // 512 in bad for start, end in window.unreadable for at in range(start, end))


def test_the_readable_end_is_before_the_first_bad_sector() -> None:
    window = Window(TornSource("file", b"a" * 4096, bad=frozenset({3})), 4096)
    window.fill(0)
    assert window.readable_end(0) == 3 * 512
    assert window.readable_end(3 * 512) == 3 * 512
    assert window.readable_end(4 * 512) == 4096
    assert window.unreadable_in(0, 512) is None
    assert window.unreadable_in(0, 4096) == (1536, 2048)


def test_a_window_over_bytes_in_memory_copies_nothing() -> None:
    content = bytearray(b"abc")
    window = Window.over(BytesSource("file", content), content)
    content[1] = ord("x")
    assert bytes(window.bytes_at(0, 3)) == b"axc"


@given(st.binary(max_size=300), st.integers(0, 9000))
def test_the_end_of_data_is_after_the_last_byte_that_is_not_zero(content: bytes, zeros: int) -> None:
    source = BytesSource("file", content + bytes(zeros))
    assert last_data_end(source, 0, source.size) == len(content.rstrip(b"\0"))
    assert last_data_end(source, len(content), source.size) == len(content)


def test_a_sector_that_cannot_be_read_counts_as_data() -> None:
    source = TornSource("file", bytes(4096), bad=frozenset({5}))
    assert last_data_end(source, 0, source.size) > 5 * 512
    assert last_data_end(source, 0, 5 * 512) == 0


def test_holes_are_not_read() -> None:
    class Hole(TornSource):
        def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
            if start < 512:
                yield start, min(end, 512)

    source = Hole("file", b"a" + bytes(4095), bad=frozenset(range(1, 8)))
    assert last_data_end(source, 0, source.size) == 1
