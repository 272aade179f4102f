"""Files read in ranges: every byte is right, requests are few, and what is not given is not waited for twice."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from rmqtool.errors import UnreadableError
from rmqtool.quantities import JAVA_INT_MAX
from rmqtool.store.ranged_source import FAILURES_MAX, FETCH_MAX, FETCH_MIN, PATIENCE_S, Health, RangedSource
from rmqtool.store.remote import RemotePlace, RemoteView
from rmqtool.store.source import read_salvaging
from rmqtool.store.view import Entry, EntryKind

MIB = 1 << 20


@dataclass
class Served:
    """A file behind a network: what was asked of it, and ranges that it does not give."""

    length: int
    bad: tuple[tuple[int, int], ...] = ()
    asked: list[tuple[int, int]] = field(default_factory=list)
    opened: int = 0
    error: type[Exception] = OSError

    def open(self) -> Served:
        self.opened += 1
        return self

    def size(self) -> int:
        return self.length

    def read_at(self, nbytes: int, at: int, /) -> bytes:
        self.asked.append((at, at + nbytes))
        if any(start < at + nbytes and at < end for start, end in self.bad):
            raise self.error("it is\nbroken")
        return self.content(at, min(at + nbytes, self.length))

    def content(self, start: int, end: int) -> bytes:
        return (
            bytes((at * 131 + (at >> 8) * 7) & 0xFF for at in range(start, end))
            if end - start < MIB
            else bytes(end - start)
        )

    def close(self) -> None:
        pass


def source_of(served: Served, size: int | None = None, health: Health | None = None) -> RangedSource:
    return RangedSource("file", served.length if size is None else size, served.open, health or Health())


def read(source: RangedSource, position: int, length: int) -> bytes:
    buffer = bytearray(length)
    return bytes(buffer[: source.read_into(position, memoryview(buffer))])


def test_a_scan_forwards_asks_a_few_times() -> None:
    served = Served(1 << 30)
    source = source_of(served)
    buffer = memoryview(bytearray(512 << 10))
    for at in range(0, 1 << 30, len(buffer)):
        assert source.read_into(at, buffer) == len(buffer)
    assert len(served.asked) <= (1 << 30) // FETCH_MAX + 8
    assert sum(end - start for start, end in served.asked) == 1 << 30
    assert served.opened == 1


def test_a_search_backwards_asks_a_few_times() -> None:
    served = Served(64 * MIB)
    source = source_of(served)
    for at in range(64 * MIB - (64 << 10), -1, -(64 << 10)):
        assert len(read(source, at, 64 << 10)) == 64 << 10
    assert len(served.asked) <= 64 * MIB // FETCH_MAX + 8
    assert sum(end - start for start, end in served.asked) == 64 * MIB


def test_single_looks_fetch_little() -> None:
    served = Served(1 << 30)
    source = source_of(served)
    for at in (5, 900 * MIB, 30 * MIB, 500 * MIB + 7):
        read(source, at, 20)
    assert [end - start for start, end in served.asked] == [FETCH_MIN] * 4


@pytest.mark.parametrize("seed", range(20))
def test_any_reads_give_the_files_bytes(seed: int) -> None:
    chance = random.Random(seed)
    served = Served(chance.choice((0, 1, 1000, 300_000, 900_000)))
    source = source_of(served)
    at = 0
    for _ in range(40):
        length = chance.choice((0, 1, 20, 5000, 200_000))
        at = chance.choice((at, at - length, chance.randrange(served.length + 10)))
        at = max(at, 0)
        assert read(source, at, length) == served.content(at, max(at, min(at + length, served.length)))
        at += length


def test_only_what_is_bad_is_lost() -> None:
    bad = 3 * FETCH_MIN + 100, 3 * FETCH_MIN + 200
    served = Served(900_000, bad=(bad,))
    buffer = bytearray(served.length)
    source = source_of(served)
    (lost,) = read_salvaging(source, 0, memoryview(buffer))
    assert lost[0] <= bad[0] < bad[1] <= lost[1]
    assert lost[1] - lost[0] <= FETCH_MIN
    expected = bytearray(served.content(0, served.length))
    expected[slice(*lost)] = bytes(lost[1] - lost[0])
    assert buffer == expected
    assert len(served.asked) < 20


def test_a_file_that_fails_always_is_given_up() -> None:
    served = Served(1 << 30, bad=((0, 1 << 30),))
    health = Health()
    buffer = bytearray(4 * MIB)
    for at in range(0, 1 << 30, 64 * MIB):
        source = source_of(served, health=health)
        assert read_salvaging(source, at, memoryview(buffer)) == [(at, at + 4 * MIB)]
    assert len(served.asked) <= FAILURES_MAX


def test_a_bad_range_is_no_disk_whose_sectors_are_looked_for() -> None:
    served = Served(1 << 30, bad=((0, 1 << 30),))

    class Counted(RangedSource):
        reads = 0

        def read_into(self, position: int, buffer: memoryview) -> int:
            Counted.reads += 1
            return super().read_into(position, buffer)

    buffer = bytearray(4 * MIB)
    source = Counted("file", served.length, served.open, Health())
    for at in range(0, 1 << 30, 64 * MIB):
        assert read_salvaging(source, at, memoryview(buffer)) == [(at, at + 4 * MIB)]
    assert Counted.reads <= 16 + FAILURES_MAX


def test_a_size_that_no_file_of_a_broker_has_is_not_believed() -> None:
    for size, is_known in ((JAVA_INT_MAX, True), (JAVA_INT_MAX + 1, False), (1 << 62, False)):
        view = RemoteView(RemotePlace(None, "bucket", "s3://bucket"), {"": [Entry("abort", EntryKind.FILE, size)]})
        if is_known:
            assert view.open("abort").size == size
            continue
        with pytest.raises(UnreadableError, match=f"abort: {size} bytes"):
            view.open("abort")


def test_a_bad_file_is_no_reason_to_give_up_the_others() -> None:
    health = Health()
    bad, good = Served(64 * MIB, bad=((0, 64 * MIB),)), Served(64 * MIB)
    for number in range(50):
        with pytest.raises(OSError, match="broken"):
            read(RangedSource(f"bad-{number}", bad.length, bad.open, health), 0, MIB)
    assert len(read(source_of(good, health=health), 0, MIB)) == MIB


def test_a_file_system_that_keeps_one_waiting_is_given_up() -> None:
    now = [0.0]

    class Slow(Served):
        def read_at(self, nbytes: int, at: int, /) -> bytes:
            now[0] += 20
            return super().read_at(nbytes, at)

    health = Health(lambda: now[0])
    slow = Slow(64 * MIB, bad=((0, 64 * MIB),))
    for number in range(50):
        with pytest.raises(OSError):
            read(RangedSource(f"slow-{number}", slow.length, slow.open, health), 0, MIB)
    assert now[0] <= PATIENCE_S + 20


def test_whatever_a_library_raises_is_an_io_error_of_one_line() -> None:
    served = Served(1000, bad=((0, 1000),), error=RuntimeError)
    with pytest.raises(OSError, match="it is broken") as found:
        read(source_of(served), 0, 10)
    assert "\n" not in str(found.value.strerror)


def test_a_file_that_is_gone_is_asked_for_once() -> None:
    served = Served(1 << 20, bad=((0, 1 << 20),), error=FileNotFoundError)
    source = source_of(served)
    for _ in range(3):
        with pytest.raises(OSError):
            read(source, 5, 10)
    assert len(served.asked) == 1


def test_a_file_that_became_shorter_is_read_to_its_end() -> None:
    source = source_of(Served(1000), size=5000)
    assert len(read(source, 900, 300)) == 100
    assert read(source, 3000, 10) == b""


def test_a_connection_that_is_cut_is_no_end_of_the_file() -> None:
    class Cut(Served):
        def read_at(self, nbytes: int, at: int, /) -> bytes:
            return super().read_at(nbytes, at)[:50]

    with pytest.raises(OSError, match="the connection was lost"):
        read(source_of(Cut(1000)), 0, 100)
