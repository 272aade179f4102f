"""Epochs are read from the file, else from its backup, as a broker in controller mode does."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.errors import UnreadableError
from rmqtool.formats.controller import EPOCHS, epochs_text
from rmqtool.sides.controller import BACKUP, SIZE_MAX, read_epochs, read_text_file
from rmqtool.store.view import DirectoryView

ONE, TWO = epochs_text([(1, 0)]), epochs_text([(2, 50)])


@pytest.mark.parametrize(
    ("own", "backup", "entries", "is_stopped"),
    [
        (None, None, (), False),
        (ONE, None, ((1, 0),), False),
        (ONE, TWO, ((1, 0),), False),
        (None, TWO, ((2, 50),), False),
        ("1\n7\n1-0\n", TWO, ((2, 50),), False),
        ("", TWO, (), True),
        ("1\n7\n1-0\n", "", (), True),
    ],
)
def test_which_file_counts(
    tmp_path: Path, own: str | None, backup: str | None, entries: tuple[tuple[int, int], ...], is_stopped: bool
) -> None:
    for name, text in ((EPOCHS, own), (BACKUP, backup)):
        if text is not None:
            (tmp_path / name).write_text(text)
    files = read_epochs(DirectoryView(tmp_path))
    assert files.used.entries == entries
    assert (files.why_not is not None) is is_stopped


def test_the_backup_is_not_asked_where_the_file_is_good(tmp_path: Path) -> None:
    (tmp_path / EPOCHS).write_text(ONE)
    (tmp_path / BACKUP).write_text(TWO)
    assert read_epochs(DirectoryView(tmp_path)).backup is None


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / EPOCHS).write_bytes(bytes(SIZE_MAX))
    assert read_text_file(DirectoryView(tmp_path), EPOCHS) == bytes(SIZE_MAX)
    (tmp_path / EPOCHS).write_bytes(bytes(SIZE_MAX + 1))
    with pytest.raises(UnreadableError, match="too large"):
        read_epochs(DirectoryView(tmp_path))
