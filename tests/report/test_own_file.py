"""A file for later runs is recognized before it is replaced, is replaced whole or not at all, and nothing is left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqtool.errors import RefusedError, UnreadableError, WriteError
from rmqtool.report.own_file import OwnFile, demand_own, read_own, replace_own, replaced_own

KIND = OwnFile.WATCH_STATE
OWN = '{"format": "rmqtool-watch-state-1", "position": '


def test_a_file_is_made_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "state"
    for text in ("1}", "22 \udce9}", "3}"):
        replace_own(path, KIND, OWN + text)
        assert path.read_text() == OWN + text.replace("\udce9", "\\udce9")
    assert list(tmp_path.iterdir()) == [path]
    assert read_own(path, KIND, 10) == OWN.encode()[:11]
    assert read_own(tmp_path / "none", KIND, 10) is None


@pytest.mark.parametrize("kind", OwnFile, ids=lambda kind: kind.name)
@pytest.mark.parametrize("content", [b"", b"{", b"{}\n", b'{"format"', b"precious", bytes(300), b"\xff\xfe"], ids=repr)
def test_another_file_stays(tmp_path: Path, kind: OwnFile, content: bytes) -> None:
    path = tmp_path / "state"
    path.write_bytes(content)
    with pytest.raises(RefusedError, match=f"not {kind.text}; name another file"):
        replace_own(path, kind, OWN)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_of_another_kind_stays(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text(OWN)
    for kind in set(OwnFile) - {KIND}:
        with pytest.raises(RefusedError, match="is not"):
            demand_own(path, kind)
    demand_own(path, KIND)


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    target = tmp_path / "other"
    target.write_text(OWN)
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = sorted(tmp_path.iterdir())
    for path in (
        tmp_path / "link",
        tmp_path / "dangling",
        tmp_path / "directory",
        tmp_path / "pipe",
        Path("/dev/null"),
    ):
        with pytest.raises(RefusedError, match="a link, or not a regular file"):
            replace_own(path, KIND, OWN)
    assert sorted(tmp_path.iterdir()) == before
    assert target.read_text() == OWN


def test_a_file_that_appears_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "state"

    def meanwhile() -> None:
        with replaced_own(path, KIND) as file:
            file.write(OWN.encode())
            path.write_text("precious")

    with pytest.raises(RefusedError, match="is not"):
        meanwhile()
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WriteError, match="no such file"):
        replace_own(tmp_path / "gone" / "state", KIND, OWN)
    with pytest.raises(UnreadableError, match="null byte"):
        replace_own(tmp_path / "a\0b", KIND, OWN)
    path = tmp_path / "state"
    replace_own(path, KIND, OWN)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match="state: no space left on device"):
        replace_own(path, KIND, OWN + "2}")
    assert path.read_text() == OWN
    assert list(tmp_path.iterdir()) == [path]
