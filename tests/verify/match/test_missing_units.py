"""A zero file after a full one of a queue: brokers count a unit in it, and new messages change their queue offsets."""

from __future__ import annotations

import pytest

from rmqtool.store.file_kinds import segment_name
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.verify.stores import above_note, verified, writer_of

STORES = ["4.9.7-clean-basic", "5.5.0-clean-basic"]
ZERO = "consumequeue.zero-file"


@pytest.mark.parametrize("options", [("--full",), ()])
@pytest.mark.parametrize("name", STORES)
def test_a_zero_file_after_the_last_unit_is_removed(golden_copy: Unpacked, name: str, options: tuple[str, ...]) -> None:
    path, version = golden_copy(name), writer_of(name)
    queue = path / "consumequeue/TopicTest/1"
    last = max(queue.iterdir())
    size = last.stat().st_size
    zero = last.with_name(segment_name(int(last.name) + size))
    zero.write_bytes(bytes(size))
    findings = [row for row in verified(path, version)[1] if row.id == ZERO]
    assert [row.file for row in findings] == [str(zero.relative_to(path))]
    before = {file: file.read_bytes() for file in queue.iterdir() if file != zero}
    assert rmqtool("recover", path, "--yes", *options).code == 0
    assert {file: file.read_bytes() for file in queue.iterdir()} == before
    assert not above_note(verified(path, version)[1])


@pytest.mark.parametrize("name", STORES)
def test_a_zero_file_that_has_lost_its_units_is_filled_again(golden_copy: Unpacked, name: str) -> None:
    """A look at the end of the log does not show that messages of its begin belong into the file."""
    path, version = golden_copy(name), writer_of(name)
    lost = max((path / "consumequeue/TopicTest/1").iterdir())
    before = lost.read_bytes()
    lost.write_bytes(bytes(len(before)))
    assert rmqtool("recover", path, "--yes").code == 0
    assert lost.read_bytes() == before
    assert not above_note(verified(path, version)[1])
