"""No repair writes `kvStore/`, for only its rows say which messages were acknowledged; a plan names the damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.formats.rocksdb.pop import POP_FAMILY, PopKeyRow, pop_key
from tests.broker.files import snapshot
from tests.commands.transcripts import rmqtool
from tests.rocksdb_cases import write_rows

FOLDER = "kvStore"
KEY = PopKeyRow(1_790_000_000_000, b"shop", b"orders", 0, 0)


@pytest.mark.parametrize("kind", ["pop.odd-row", "pop.not-loadable"])
def test_recover_leaves_it_and_says_why(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "store"
    make_store(RECIPES["pop"], path, "5.5.0")
    write_rows(path / FOLDER, {POP_FAMILY: {pop_key(KEY): b"no JSON"}})
    if kind == "pop.not-loadable":
        (path / FOLDER / "CURRENT").write_text("no database")
    before = snapshot(path)
    ran = rmqtool("recover", path, "--yes", "--broker-version", "5.5.0")
    text = " ".join(ran.out.split())
    assert ran.code == 3
    assert f"Left {kind}: " in text
    assert "only its rows say which messages were acknowledged" in text
    assert snapshot(path) == before
