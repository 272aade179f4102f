"""A source that is open only while it is read: opened when bytes are asked for, and again after it was closed."""

from __future__ import annotations

import pytest

from rmqtool.errors import UnreadableError
from rmqtool.scan.split import LazySource
from rmqtool.store.source import BytesSource, read_range


class Opener:
    """Counts how often a file is opened."""

    def __init__(self) -> None:
        self.count = 0
        self.is_gone = False

    def __call__(self) -> BytesSource:
        if self.is_gone:
            raise UnreadableError("file: no such file")
        self.count += 1
        return BytesSource("file", b"content")


def test_it_is_opened_by_the_first_read_after_it_was_closed() -> None:
    opener = Opener()
    source = LazySource.look(opener)
    assert read_range(source, 0, 3) == b"con"
    assert opener.count == 1
    source.close()
    source.close()
    assert opener.count == 1
    assert read_range(source, 3, 10) == b"tent"
    assert opener.count == 2


def test_name_and_size_are_those_of_the_first_look() -> None:
    opener = Opener()
    source = LazySource.look(opener)
    source.close()
    opener.is_gone = True
    assert (source.name, source.size) == ("file", 7)


def test_a_file_that_is_gone_meanwhile_has_no_bytes_but_may_hold_some() -> None:
    opener = Opener()
    source = LazySource.look(opener)
    source.close()
    opener.is_gone = True
    with pytest.raises(UnreadableError, match="no such file"):
        read_range(source, 0, 7)
    assert list(source.extents(2, 7)) == [(2, 7)]
    assert list(source.extents(7, 7)) == []
    assert source.identity is None


def test_a_file_that_cannot_be_opened_at_first_is_an_error() -> None:
    opener = Opener()
    opener.is_gone = True
    with pytest.raises(UnreadableError):
        LazySource.look(opener)
