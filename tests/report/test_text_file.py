"""A text file is replaced whole or not at all, and nothing is left beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.errors import WriteError
from rmqtool.report.text_file import replace_text


def test_a_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "state"
    for text in ("old", "new \udce9"):
        replace_text(path, text)
    assert path.read_text() == "new \\udce9"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "other"
    target.write_text("kept")
    path = tmp_path / "state"
    path.symlink_to(target)
    replace_text(path, "new")
    assert (target.read_text(), path.read_text(), path.is_symlink()) == ("kept", "new", False)


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.mkdir()
    (path / "file").touch()
    with pytest.raises(WriteError, match="state: "):
        replace_text(path, "text")
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(WriteError, match="no such file"):
        replace_text(tmp_path / "gone" / "state", "text")
