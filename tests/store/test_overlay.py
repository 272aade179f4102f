"""A store with planned changes laid over it reads exactly like the store in which they were made."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.errors import UnreadableError
from rmqtool.store.overlay import Overlay
from rmqtool.store.source import Content, FilePart, Literal, Zeros
from rmqtool.store.view import DirectoryView, EntryKind, StoreView

SIZES = st.integers(0, 300)
PLACES = ("a", "log/b", "log/c", "queues/T/0/d")
NEW_PLACES = ("e", "log/f", "queues/T/1/g", "queues/U/0/h")
Change = tuple[str, str, int, Content]


def contents(source: Path) -> st.SearchStrategy[Content]:
    whole = len(source.read_bytes())
    parts = st.tuples(st.integers(0, whole), st.integers(0, whole)).map(
        lambda ends: FilePart(source, min(ends), max(ends) - min(ends))
    )
    return st.one_of(st.binary(max_size=300).map(Literal), SIZES.map(Zeros), parts)


@st.composite
def changes(draw: st.DrawFn, source: Path) -> list[Change]:
    """Changes of some files, each in one way; ranges of one file lie apart."""
    made: list[Change] = []
    for path in PLACES:
        how = draw(st.sampled_from(["nothing", "write", "replace", "remove"]))
        if how == "write":
            at = 0
            for _ in range(draw(st.integers(1, 3))):
                at += draw(SIZES)
                content = draw(contents(source))
                made.append((how, path, at, content))
                at += content.length
        elif how != "nothing":
            made.append((how, path, 0, draw(contents(source))))
    new = draw(st.lists(st.sampled_from(NEW_PLACES), unique=True))
    made += [("create", path, 0, draw(contents(source))) for path in new]
    return draw(st.permutations(made))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_the_overlay_equals_the_changed_store(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        root, source = Path(name, "store"), Path(name, "source")
        source.write_bytes(bytes(range(1, 200)))
        for number, path in enumerate(PLACES):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(bytes([number + 1]) * data.draw(SIZES))
        planned = Overlay(DirectoryView(root))
        chosen = data.draw(changes(source))
        for how, path, position, content in chosen:
            lay(planned, how, path, position, content)
        shown = everything(planned)
        splits = {path: pieced(planned, path, data) for path in shown if isinstance(shown[path], bytes)}
        for how, path, position, content in chosen:
            make(root, how, path, position, content)
        assert shown == everything(DirectoryView(root))
        for path, (start, part) in splits.items():
            assert (root / path).read_bytes()[start : start + len(part)] == part


@pytest.mark.parametrize("order", [(b"", b"", b"new"), (b"new", b"", b"")])
def test_what_has_no_bytes_hides_nothing(tmp_path: Path, order: tuple[bytes, ...]) -> None:
    (tmp_path / "a").write_bytes(b"old bytes")
    planned = Overlay(DirectoryView(tmp_path))
    for content in order:
        planned.lay("a", 0, Literal(content))
    assert everything(planned) == {"a": b"new bytes"}


def lay(view: Overlay, how: str, path: str, position: int, content: Content) -> None:
    if how == "write":
        view.lay(path, position, content)
    elif how == "replace":
        view.replace(path, content)
    elif how == "create":
        view.add(path, content)
    else:
        view.remove(path)


def make(root: Path, how: str, path: str, position: int, content: Content) -> None:
    """The change, really made and by the shortest way."""
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    new = bytes_of(content)
    if how == "write":
        old = place.read_bytes().ljust(position + len(new), b"\0")
        place.write_bytes(old[:position] + new + old[position + len(new) :])
    elif how == "remove":
        place.unlink()
    else:
        place.write_bytes(new)


def bytes_of(content: Content) -> bytes:
    match content:
        case Literal():
            return content.data
        case Zeros():
            return bytes(content.length)
        case FilePart():
            return content.place.read_bytes()[content.position : content.position + content.length]


def everything(view: StoreView, directory: str = "") -> dict[str, bytes | None]:
    """Content by path as listing and reading show it; None for directories."""
    found: dict[str, bytes | None] = {}
    for entry in view.list(directory):
        stated = view.stat(entry.path)
        assert stated is not None
        assert (stated.kind, stated.size) == (entry.kind, entry.size)
        if entry.kind is EntryKind.DIRECTORY:
            found[entry.path] = None
            found |= everything(view, entry.path)
        else:
            found[entry.path] = whole(view, entry.path)
            assert len(found[entry.path] or b"") == entry.size
    return found


def whole(view: StoreView, path: str) -> bytes:
    """All bytes, and proof that what the extents leave out is zero."""
    source = view.open(path)
    buffer = bytearray(b"?" * source.size)
    assert source.read_into(0, memoryview(buffer)) == source.size
    told = bytearray(source.size)
    last = 0
    for start, end in source.extents(0, source.size):
        assert last <= start < end <= source.size
        told[start:end] = buffer[start:end]
        last = end
    assert told == buffer
    source.close()
    return bytes(buffer)


def pieced(view: StoreView, path: str, data: st.DataObject) -> tuple[int, bytes]:
    """A read that begins and ends anywhere, beyond the end too."""
    source = view.open(path)
    start, length = data.draw(SIZES), data.draw(SIZES)
    buffer = bytearray(length)
    count = source.read_into(start, memoryview(buffer))
    assert count == max(0, min(length, source.size - start))
    source.close()
    return start, bytes(buffer[:count])


def test_nothing_is_laid_over_a_file_that_is_not_there(tmp_path: Path) -> None:
    view = Overlay(DirectoryView(tmp_path))
    with pytest.raises(UnreadableError):
        view.lay("gone", 0, Zeros(1))
    with pytest.raises(UnreadableError):
        view.replace("gone", Zeros(1))
    view.add("made/here", Zeros(1 << 40), mtime_ns=7)
    view.remove("made/here")
    with pytest.raises(UnreadableError):
        view.open("made/here")


def test_a_terabyte_of_zeros_is_laid_over_in_no_time(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\1" * 4096)
    view = Overlay(DirectoryView(tmp_path))
    view.lay("log", 1024, Zeros(1 << 40))
    source = view.open("log")
    assert source.size == 1024 + (1 << 40)
    assert list(source.extents(0, source.size)) == [(0, 1024)]
    tail = bytearray(b"?" * 10)
    assert source.read_into(1020, memoryview(tail)) == 10
    assert tail == b"\1" * 4 + bytes(6)
    source.close()
