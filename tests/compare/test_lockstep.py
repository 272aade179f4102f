"""Two files that are read at once are equal only if all their bytes are, read in whatever order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmqtool.compare.log_side import LockstepSource, equal_bytes, first_difference
from rmqtool.store.source import BytesSource, read_range

contents = st.binary(max_size=200)
reads = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60)), max_size=8)


def pair(one: bytes, other: bytes) -> LockstepSource:
    return LockstepSource(BytesSource("one", one), BytesSource("other", other))


@given(contents, contents, reads)
def test_files_are_equal_where_their_bytes_are(one: bytes, other: bytes, asked: list[tuple[int, int]]) -> None:
    for second in (one, other):
        source = pair(one, second)
        for position, length in asked:
            assert read_range(source, position, length) == one[position : position + length]
        assert source.finish() == (one == second)


@given(contents.filter(bool), st.data(), reads)
def test_one_other_byte_is_noticed(one: bytes, data: st.DataObject, asked: list[tuple[int, int]]) -> None:
    at = data.draw(st.integers(0, len(one) - 1))
    source = pair(one, one[:at] + bytes([one[at] ^ 1]) + one[at + 1 :])
    for position, length in asked:
        read_range(source, position, length)
    assert not source.finish()


def test_a_disk_that_does_not_give_the_other_file_makes_them_differ() -> None:
    class Broken(BytesSource):
        def read_into(self, position: int, buffer: memoryview) -> int:
            raise OSError(5, f"Input/output error at {position} of {len(buffer)}")

    assert not LockstepSource(BytesSource("one", b"a"), Broken("other", b"a")).finish()
    assert not LockstepSource(Broken("one", b"a"), BytesSource("other", b"a")).finish()


@given(contents, contents, st.integers(0, 210))
def test_the_first_difference(one: bytes, other: bytes, start: int) -> None:
    longest = max(len(one), len(other))
    expected = next((at for at in range(start, longest) if one[at : at + 1] != other[at : at + 1]), None)
    assert first_difference(BytesSource("one", one), BytesSource("other", other), start) == expected


@given(contents, contents)
def test_bytes_are_compared_whole(one: bytes, other: bytes) -> None:
    length = min(len(one), len(other))
    one, other = one[:length], other[:length]
    assert equal_bytes(memoryview(one), memoryview(other)) == (one == other)
    assert equal_bytes(memoryview(one), memoryview(bytearray(one)))
