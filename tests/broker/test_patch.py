"""A store that `patch` repaired by one field is served whole by real brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import golden_stores
from tests.broker.conftest import JudgeOf
from tests.broker.files import copy_store
from tests.broker.test_convert import count
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

pytestmark = pytest.mark.broker

CLEAN = "5.5.0-clean-basic"
LOG = "commitlog/00000000000000000000"


@pytest.mark.parametrize(("field", "damage", "repair"), [
    ("body_crc", 8, ("--fix-crc",)),
    ("magic", 4, ("--set", "magic=0xDAA320A7")),
])  # fmt: skip
def test_one_field_makes_a_broker_serve_all_again(
    golden_copy: Unpacked, judge_of: JudgeOf, tmp_path: Path, field: str, damage: int, repair: tuple[str, ...]
) -> None:
    store, config = golden_copy(CLEAN), golden_stores.manifest(CLEAN).config
    judge = judge_of("5.5.0")

    def served(name: str) -> int:
        return count(judge.examine(copy_store(store, tmp_path / name), config))

    whole = served("whole")
    with (store / LOG).open("r+b") as file:
        file.seek(damage)
        file.write(b"\x01\x02\x03\x04")
    (store / "abort").touch()
    assert served("damaged") < whole, field
    ran = rmqtool("patch", store / LOG, "--at", 0, *repair, "--broker-version", "5.5.0", "--yes")
    assert ran.code in (0, 3), ran.err
    assert served("patched") == whole
