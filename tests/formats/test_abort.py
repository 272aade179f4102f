"""The abort file has a process id, or none."""

from __future__ import annotations

import pytest

from rmqtool.formats import abort


@pytest.mark.parametrize("process_id", [None, 1, 4194304])
def test_an_abort_file_is_read_as_it_was_written(process_id: int | None) -> None:
    assert abort.parse_abort(abort.build_abort(process_id)) == process_id


@pytest.mark.parametrize(
    ("raw", "expected"), [(b"", None), (b"42\n", 42), (b"x", None), (b"-1", None), (b"9" * 99, None)]
)
def test_abort_files(raw: bytes, expected: int | None) -> None:
    assert abort.parse_abort(raw) == expected
