"""Stores damaged at random, and disks that do not give all bytes: no exception, and the same through a manifest."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from rmqtool.compare.join import Kind
from rmqtool.compare.log_side import StoreLog, Terms
from rmqtool.compare.metadata import StoreMetadata
from rmqtool.compare.run import ComparedStore, CompareOptions, compare
from rmqtool.errors import UnreadableError
from rmqtool.store.directory import Settings, Store, survey
from rmqtool.store.source import ByteSource, BytesSource
from rmqtool.store.view import Entry
from tests.compare.stores import Message, compared, laid_out, numbered, store_of, through_manifest
from tests.engine.memory_view import MemoryView

FILE_SIZE = 4096
MESSAGES = numbered([Message("T", number % 3, 0, f"KEY{number}", bytes([number % 251]) * 80) for number in range(200)])


def damaged(store: Store, chance: random.Random) -> Store:
    """The store with bytes of its log flipped, zeroed, shifted, cut off, or files gone."""
    assert isinstance(store.view, MemoryView)
    files = dict(store.view.files)
    for _ in range(chance.choice((1, 1, 3, 10))):
        names = [name for name in files if name.startswith("commitlog/")]
        if not names:
            break
        name = chance.choice(names)
        content = bytearray(files[name])
        at = chance.randrange(max(1, len(content)))
        length = min(chance.choice((1, 4, 60, 900)), len(content) - at)
        what = chance.choice(("flip", "zero", "random", "cut", "gone", "copy", "longer"))
        if what == "flip" and content:
            content[at] ^= 1 << chance.randrange(8)
        elif what == "zero":
            content[at : at + length] = bytes(length)
        elif what == "random":
            content[at : at + length] = chance.randbytes(length)
        elif what == "cut":
            del content[at:]
        elif what == "copy":
            content[at : at + length] = content[:length]
        elif what == "longer":
            content += chance.randbytes(length)
        if what == "gone":
            del files[name]
        else:
            files[name] = bytes(content)
    return survey(MemoryView(files), Settings(commitlog_file_size=FILE_SIZE))


@pytest.mark.parametrize("seed", range(150))
def test_random_damage(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    whole = store_of(laid_out(MESSAGES))
    one, other = damaged(whole, chance) if seed % 3 == 0 else whole, damaged(whole, chance)
    direct = compared(one, other)
    assert direct.messages is not None
    only = direct.messages[Kind.ONLY_A].count - direct.messages[Kind.ONLY_B].count
    assert only == direct.a.totals.messages - direct.b.totals.messages
    left, right = direct.as_json(), through_manifest(one, other, tmp_path / "m").as_json()
    for each in (left, right):
        if each["first_divergence"] is not None:
            del each["first_divergence"]["physical_offset"], each["first_divergence"]["precision"]
    assert left == right
    assert compared(other, other).is_equal
    turned = compared(other, one)
    assert turned.messages is not None
    assert turned.messages[Kind.ONLY_A].count == direct.messages[Kind.ONLY_B].count
    assert turned.differing == direct.differing
    assert turned.is_equal == direct.is_equal


@dataclass
class BadDisk:
    """A file of which a range cannot be read."""

    inner: BytesSource
    bad: tuple[int, int]
    identity: ClassVar[None] = None

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def size(self) -> int:
        return self.inner.size

    def read_into(self, position: int, buffer: memoryview) -> int:
        if self.bad[0] < position + len(buffer) and position < self.bad[1]:
            raise OSError(5, "input/output error")
        return self.inner.read_into(position, buffer)

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        return self.inner.extents(start, end)

    def close(self) -> None:
        pass


@dataclass
class BadDiskView:
    """A view of which one file has a bad range, or may not be opened at all."""

    inner: MemoryView
    name: str
    bad: tuple[int, int] | None
    label: str = "bad disk"

    def list(self, path: str) -> list[Entry]:
        return self.inner.list(path)

    def stat(self, path: str) -> Entry | None:
        return self.inner.stat(path)

    def open(self, path: str) -> ByteSource:
        source = self.inner.open(path)
        if path != self.name:
            return source
        if self.bad is None:
            raise UnreadableError(f"{path}: permission denied")
        return BadDisk(source, self.bad)


@pytest.mark.parametrize("bad_side", [0, 1])
@pytest.mark.parametrize("bad", [(1024, 1536), (0, FILE_SIZE), None], ids=str)
def test_what_cannot_be_read_is_a_problem_and_no_loss_of_the_rest(bad: tuple[int, int] | None, bad_side: int) -> None:
    whole = store_of(laid_out(MESSAGES))
    assert isinstance(whole.view, MemoryView)
    view = BadDiskView(whole.view, f"commitlog/{FILE_SIZE * 2:020d}", bad)
    broken = survey(view, whole.settings)
    sides = [whole, whole]
    sides[bad_side] = broken
    logs = [StoreLog(store) for store in sides]
    subjects = [ComparedStore("s", "store", log, StoreMetadata({}), problems=tuple(log.problems)) for log in logs]
    found = compare(subjects[0], subjects[1], Terms(), CompareOptions(threads=1))
    assert found.problems
    assert found.messages is not None
    lost = found.messages[(Kind.ONLY_A, Kind.ONLY_B)[1 - bad_side]].count
    assert 0 < lost < 40
    assert found.messages[(Kind.ONLY_A, Kind.ONLY_B)[bad_side]].count == 0
    assert found.divergence is not None
    assert FILE_SIZE * 2 <= found.divergence.record_offset < FILE_SIZE * 3
