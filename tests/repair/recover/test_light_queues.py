"""Light queues whose units are all that tells of a record: its properties no longer name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

STORES = ["4.9.7-lmq", "5.5.0-lmq"]
LOG = "commitlog/00000000000000000000"
NAME = b"INNER_MULTI_QUEUE_OFFSET"
UNIT_SIZE = 20


def _light_queues(path: Path) -> dict[Path, bytes]:
    """The files of light queues with several messages."""
    files = {file: file.read_bytes() for file in path.glob("consumequeue/%LMQ%*/0/*")}
    return {file: units for file, units in files.items() if any(units[2 * UNIT_SIZE : 3 * UNIT_SIZE])}


def _damage(path: Path, record: int) -> None:
    """Zero the property that tells the places of a record in its further queues."""
    log = (path / LOG).read_bytes()
    at = log.index(NAME, record)
    (path / LOG).write_bytes(log[:at] + bytes(len(NAME)) + log[at + len(NAME) :])


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("command", [["recover", "--full"], ["rebuild", "--queues"]], ids=lambda words: words[0])
def test_no_later_message_of_a_light_queue_moves(golden_copy: Unpacked, name: str, command: list[str]) -> None:
    path = golden_copy(name)
    queues = _light_queues(path)
    assert queues
    units = next(iter(queues.values()))
    _damage(path, int.from_bytes(units[UNIT_SIZE:][:8], "big"))
    rmqtool(command[0], path, "--yes", *command[1:])
    assert {each: each.read_bytes() for each in queues} == queues


@pytest.mark.parametrize("name", STORES)
def test_a_unit_that_leads_elsewhere_does_not_stay(golden_copy: Unpacked, name: str) -> None:
    """The record before the gap's own is not between its neighbors."""
    path = golden_copy(name)
    file, units = next(iter(_light_queues(path).items()))
    _damage(path, int.from_bytes(units[UNIT_SIZE:][:8], "big"))
    file.write_bytes(units[:UNIT_SIZE] + units[:UNIT_SIZE] + units[2 * UNIT_SIZE :])
    # The message after the gap moves up, to another offset than the one at which consumers get it today.
    assert rmqtool("recover", path, "--yes", "--full").code == 5
    rmqtool("recover", path, "--yes", "--full", "--accept-loss")
    assert file.read_bytes()[: 2 * UNIT_SIZE] == units[:UNIT_SIZE] + units[2 * UNIT_SIZE : 3 * UNIT_SIZE]
