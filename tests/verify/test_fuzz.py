"""Stores mutated at random: no crash, no hang, every byte accounted for (a run asserts that itself)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from rmqtool.errors import NotAStoreError
from rmqtool.store.directory import survey
from rmqtool.verify.survey.context import VerifyOptions
from tests.conftest import Unpacked
from tests.engine.memory_view import MemoryView
from tests.verify.flips import FlippedStore
from tests.verify.stores import verified

STORES = ("5.5.0-transaction", "4.9.7-lmq", "5.5.0-inner-batch", "5.5.0-cq-ext", "5.5.0-expired-head")
SLICE = 40
FULL = 20_000
SECONDS_MAX = 20.0

Files = dict[str, bytes]
Mutation = Callable[[random.Random, Files], None]


def _choose(source: random.Random, files: Files) -> str:
    return source.choice(sorted(files))


def _place(source: random.Random, raw: bytes) -> int:
    """A place in a file, more often where there is data."""
    used = len(raw.rstrip(b"\0")) + 64
    return source.randrange(max(1, min(len(raw), used) if source.random() < 0.9 else len(raw)))


def flip(source: random.Random, files: Files) -> None:
    path = _choose(source, files)
    if raw := bytearray(files[path]):
        raw[_place(source, files[path])] ^= 1 << source.randrange(8)
        files[path] = bytes(raw)


def zero(source: random.Random, files: Files) -> None:
    path = _choose(source, files)
    at = _place(source, files[path])
    length = source.choice((1, 8, 20, 512, 4096))
    raw = files[path]
    files[path] = raw[:at] + bytes(len(raw[at : at + length])) + raw[at + length :]


def noise(source: random.Random, files: Files) -> None:
    path = _choose(source, files)
    at, raw = _place(source, files[path]), files[path]
    part = source.randbytes(len(raw[at : at + source.choice((1, 4, 20, 100, 2000))]))
    files[path] = raw[:at] + part + raw[at + len(part) :]


def extreme(source: random.Random, files: Files) -> None:
    path = _choose(source, files)
    at, raw = _place(source, files[path]) & ~3, files[path]
    part = source.choice((b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff" * 4, b"\x7f" + b"\xff" * 7, b"\x80" + b"\0" * 7))
    files[path] = (raw[:at] + part + raw[at + len(part) :])[: len(raw)]


def cut(source: random.Random, files: Files) -> None:
    path = _choose(source, files)
    files[path] = files[path][: _place(source, files[path])]


def grow(source: random.Random, files: Files) -> None:
    files[_choose(source, files)] += source.randbytes(source.randrange(1, 100))


def remove(source: random.Random, files: Files) -> None:
    files.pop(_choose(source, files))


def rename(source: random.Random, files: Files) -> None:
    path = _choose(source, files)
    folder, _, name = path.rpartition("/")
    fresh = source.choice(("0" * 20, f"{source.randrange(1 << 40):020d}", "9" * 20, f"{name}.bak", "%s"))
    files[f"{folder}/{fresh}" if folder else fresh] = files.pop(path)


def duplicate(source: random.Random, files: Files) -> None:
    files[_choose(source, files)] = files[_choose(source, files)]


def shift(source: random.Random, files: Files) -> None:
    path = _choose(source, files)
    at, raw = _place(source, files[path]), files[path]
    files[path] = (raw[:at] + source.randbytes(source.randrange(1, 30)) + raw[at:])[: len(raw)]


MUTATIONS: tuple[Mutation, ...] = (flip, flip, zero, noise, extreme, cut, grow, remove, rename, duplicate, shift)


@pytest.mark.parametrize("name", STORES)
def test_some_mutated_stores(golden: Unpacked, name: str) -> None:
    _mutate(FlippedStore.load(golden(name), name[:5]), name, SLICE)


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_many_mutated_stores(golden: Unpacked, name: str) -> None:
    _mutate(FlippedStore.load(golden(name), name[:5]), f"full {name}", FULL)


def _mutate(store: FlippedStore, seed: str, count: int) -> None:
    for number in range(count):
        source = random.Random(f"{seed} {number}")
        files = dict(store.files)
        for mutation in source.choices(MUTATIONS, k=source.choice((1, 1, 2, 5))):
            if files:
                mutation(source, files)
        try:
            surveyed = survey(MemoryView(files), store.settings if source.random() < 0.7 else None)
        except NotAStoreError:
            continue
        begun = time.monotonic()
        summary, found = verified(surveyed, store.version, VerifyOptions(threads=1))
        assert time.monotonic() - begun < SECONDS_MAX, f"{seed} {number}"
        assert summary.findings.total() == len(found)
