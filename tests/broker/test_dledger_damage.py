"""Each damage of the fixtures to a log of DLedger before real brokers: whether they start, and what they serve."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from struct import pack, unpack_from

import pytest

from rmqtool.formats import dledger
from rmqtool.formats.commitlog import BODY_CRC_AT
from tests.broker.conftest import JudgeOf
from tests.broker.files import copy_store
from tests.broker.test_rebuild_dledger import VERSIONS, served
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

pytestmark = pytest.mark.broker

NAME = "dledger-n0/{}/" + f"{0:020}"
DATA, INDEX = NAME.format("data"), NAME.format("index")
Damage = Callable[[Path, list[int]], None]


def starts_of(content: bytes) -> list[int]:
    """Where each entry of the first file of a log starts."""
    starts, at = [], 0
    while unpack_from(">i", content, at)[0] == dledger.MESSAGE:
        starts.append(at)
        at += unpack_from(">i", content, at + 4)[0]
    return starts


def patch(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def entry_garbage(store: Path, starts: list[int]) -> None:
    patch(store / DATA, starts[len(starts) // 2], b"\xa5" * dledger.ENTRY_SIZE)


def message_overwritten(store: Path, starts: list[int]) -> None:
    field = BODY_CRC_AT
    patch(store / DATA, starts[len(starts) // 2] + dledger.ENTRY_SIZE + field, b"\x01\x02\x03\x04")


def end_lost(store: Path, starts: list[int]) -> None:
    middle = starts[len(starts) // 2]
    patch(store / DATA, middle, bytes((store / DATA).stat().st_size - middle))
    files = sorted((store / DATA).parent.iterdir())
    for file in files[1:]:
        patch(file, 0, bytes(file.stat().st_size))


def entry_renumbered(store: Path, starts: list[int]) -> None:
    position = starts[len(starts) // 2] + dledger.ENTRY.position("index")
    patch(store / DATA, position, pack(">q", 0))


def unit_zeroed(store: Path, starts: list[int]) -> None:
    patch(store / INDEX, len(starts) // 2 * dledger.INDEX_UNIT_SIZE, bytes(dledger.INDEX_UNIT_SIZE))


SERVED = {
    entry_garbage: ("dledger.bad-entry", 213, 198),
    message_overwritten: ("dledger.bad-entry", 500, 500),
    end_lost: ("dledger.missing-entries", 213, 198),
    entry_renumbered: ("dledger.wrong-order", 213, 198),
    unit_zeroed: ("dledger.wrong-unit", 500, 500),
}
"""Damage: what `verify` says, and of 500 messages those that 4.9.7 and 5.3.3 serve once they lead."""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("damage", SERVED, ids=lambda damage: damage.__name__)
def test_what_a_member_serves_of_a_damaged_log(
    golden: Unpacked, judge_of: JudgeOf, tmp_path: Path, damage: Damage, version: str
) -> None:
    store = copy_store(golden(f"broker-{version}-dledger"), tmp_path / "store")
    damage(store, starts_of((store / DATA).read_bytes()))
    finding, *counts = SERVED[damage]
    shown = json.loads(rmqtool("verify", store, "--format", "json").out)
    assert finding in {each["id"] for each in shown["findings"]}
    assert len(served(judge_of, version, store)) == counts[VERSIONS.index(version)]
