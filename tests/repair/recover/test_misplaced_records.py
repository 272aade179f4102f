"""Records with wrong headers in queues that are built again: no other message gets another queue offset by them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.verify.stores import above_note, verified

STORES = ["4.9.7-clean-basic", "5.5.0-clean-basic"]
LOG = "commitlog/00000000000000000000"
QUEUE = "consumequeue/TopicTest/1"
UNIT_SIZE = 20
CHANGED = 5
"""Queue offset of the record whose header is changed; the queue's units are lost from there on."""


def _lose_units(queue: Path) -> int:
    """Swap the first two units, zero all from the changed one on; the physical offset of the changed record."""
    first, *others = sorted(queue.iterdir())
    raw = first.read_bytes()
    kept = raw[UNIT_SIZE : 2 * UNIT_SIZE] + raw[:UNIT_SIZE] + raw[2 * UNIT_SIZE : CHANGED * UNIT_SIZE]
    first.write_bytes(kept.ljust(len(raw), b"\0"))
    for file in others:
        file.write_bytes(bytes(file.stat().st_size))
    return int.from_bytes(raw[CHANGED * UNIT_SIZE :][:8], "big")


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize(
    "changed",
    [(12, (-1).to_bytes(4, "big", signed=True)), (20, (CHANGED + 1).to_bytes(8, "big"))],
    ids=["id", "offset"],
)
def test_what_follows_a_wrong_header_keeps_its_place(
    golden_copy: Unpacked, name: str, changed: tuple[int, bytes]
) -> None:
    path, version = golden_copy(name), name[:5]
    log, units = (path / LOG).read_bytes(), {file: file.read_bytes() for file in (path / QUEUE).iterdir()}
    record, (position, value) = _lose_units(path / QUEUE), changed
    (path / LOG).write_bytes(log[: record + position] + value + log[record + position + len(value) :])
    refused = rmqtool("recover", path, "--yes", "--full", "--format", "json")
    plan = json.loads(refused.out)
    assert refused.code == 3
    assert [(row["id"], row["physical_offset"]) for row in plan["damage"]] == [("commitlog.doubtful-header", record)]
    assert plan["steps"] == []
    # The two units that were swapped move: consumers get their messages at other offsets today.
    assert rmqtool("salvage", path, "--yes").code == 5
    assert rmqtool("salvage", path, "--yes", "--accept-loss").code == 0
    assert (path / LOG).read_bytes() == log
    assert {file: file.read_bytes() for file in units} == units
    assert not above_note(verified(path, version)[1])


@pytest.mark.parametrize("name", STORES)
def test_a_queue_that_lacks_no_record_is_built_at_once(golden_copy: Unpacked, name: str) -> None:
    path, version = golden_copy(name), name[:5]
    units = {file: file.read_bytes() for file in (path / QUEUE).iterdir()}
    _lose_units(path / QUEUE)
    assert rmqtool("recover", path, "--yes", "--full").code == 5
    assert rmqtool("recover", path, "--yes", "--full", "--accept-loss").code == 0
    assert {file: file.read_bytes() for file in units} == units
    assert not above_note(verified(path, version)[1])


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("wild", [(1 << 63) - 1, 1 << 62])
def test_a_wild_queue_offset_before_damage_moves_no_message(golden_copy: Unpacked, name: str, wild: int) -> None:
    """The two messages after it are lost: only they may be missing in the queue afterwards."""
    path, version = golden_copy(name), name[:5]
    log, queue = bytearray((path / LOG).read_bytes()), min((path / QUEUE).iterdir())
    units = queue.read_bytes()
    record, *lost = (int.from_bytes(units[at * UNIT_SIZE :][:8], "big") for at in range(CHANGED, CHANGED + 3))
    log[record + 20 : record + 28] = wild.to_bytes(8, "big")
    for place in lost:
        log[place + 88 : place + 92] = b"\xff" * 4
    (path / LOG).write_bytes(log)
    assert above_note(verified(path, version)[1])["commitlog.doubtful-header"] == 1
    assert rmqtool("salvage", path, "--yes").code == 0
    log[record + 20 : record + 28] = CHANGED.to_bytes(8, "big")
    assert (path / LOG).read_bytes()[: lost[0]] == log[: lost[0]]
    kept = [number for number in range(len(units) // UNIT_SIZE) if number not in (CHANGED + 1, CHANGED + 2)]
    after = queue.read_bytes()
    for number in kept:
        assert after[number * UNIT_SIZE :][:UNIT_SIZE] == units[number * UNIT_SIZE :][:UNIT_SIZE], number
    assert not above_note(verified(path, version)[1])
