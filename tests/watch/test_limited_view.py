"""The rate holds over all files, with a clock that the test moves; all bytes are counted; a stop ends a wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.store.view import open_directory
from rmqtool.watch.limited_view import LimitedView, ReadLimit


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_no_more_is_read_than_the_rate_allows(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(range(256)) * 40)
    clock = Clock()
    limit = ReadLimit(1000, clock=clock, sleep=clock.sleep)
    view = LimitedView(open_directory(tmp_path), limit)
    source, buffer = view.open("a"), bytearray(10_240)
    assert source.read_into(0, memoryview(buffer)) == 10_240
    assert bytes(buffer) == bytes(range(256)) * 40
    assert limit.byte_count == 10_240
    assert 10_240 / 1000 - 0.5 <= clock.now - 100 <= 10_240 / 1000
    source.close()


def test_a_read_past_the_end_is_short(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    buffer = bytearray(8)
    limit = ReadLimit()
    source = LimitedView(open_directory(tmp_path), limit).open("a")
    assert source.read_into(1, memoryview(buffer)) == 2
    assert limit.byte_count == 2
    source.close()


def test_a_wait_ends_where_somebody_asks_to_stop(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(100))
    clock, naps = Clock(), []

    def stop_if_asked() -> None:
        if len(naps) > 2:
            raise KeyboardInterrupt

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        clock.sleep(seconds)

    limit = ReadLimit(1, stop_if_asked, clock, sleep)
    source = LimitedView(open_directory(tmp_path), limit).open("a")
    with pytest.raises(KeyboardInterrupt):
        source.read_into(0, memoryview(bytearray(100)))
    assert limit.byte_count < 5
    source.close()
