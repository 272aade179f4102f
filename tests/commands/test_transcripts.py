"""Every transcript in this folder is what the commands print today."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.transcripts import check_transcript, read_transcript, stores_named
from tests.conftest import Unpacked
from tests.golden_stores import broker_names, names

TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path, golden: Unpacked, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    for name in stores_named(path, [*names(), *broker_names()]):
        (tmp_path / name).symlink_to(golden(name))
    check_transcript(path, tmp_path, rewrite=pytestconfig.getoption("--rewrite"))


def test_a_difference_is_found(tmp_path: Path) -> None:
    path = tmp_path / "wrong.txt"
    path.write_text("$ rmqtool --version\n--------------------\nrmqtool 99\nexit 0\n", "utf-8")
    with pytest.raises(AssertionError):
        check_transcript(path, tmp_path, rewrite=False)
    check_transcript(path, tmp_path, rewrite=True)
    check_transcript(path, tmp_path, rewrite=False)
    assert "99" not in path.read_text("utf-8")


def test_comments_and_new_steps_are_read(tmp_path: Path) -> None:
    path = tmp_path / "new.txt"
    path.write_text("# why\n$ rmqtool a\n\n$ rmqtool b\n--------------------\nx\n\ny\nexit 3\n", "utf-8")
    assert [(step.comment, step.command, step.expected) for step in read_transcript(path)] == [
        ("# why\n", "rmqtool a", ""),
        ("", "rmqtool b", "x\n\ny\nexit 3\n"),
    ]
