"""A log whose only file has no record yet, and queues that lead to records which are gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtool.engine.reading.reader import GetMessageStatus, Reader, open_reader
from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory

FOUND, REMOVED = GetMessageStatus.FOUND, GetMessageStatus.MESSAGE_WAS_REMOVING


def _first_place(reader: Reader, name: tuple[str, int]) -> int:
    units = reader.queue(*name).units_from(0, 1)
    return next(iter(units)).physical_offset if units is not None else -1


@pytest.mark.parametrize(("content", "status"), [(b"", REMOVED), (b"another record", FOUND)])
def test_the_record_at_0_is_looked_for_in_a_file_that_holds_something(
    tmp_path: Path, content: bytes, status: GetMessageStatus
) -> None:
    """4.4.0 answers so with one log file 65536: it looks there for what a unit says is at 0."""
    make_store(RECIPES["basic"], tmp_path, "4.4.0")
    file = min((tmp_path / "commitlog").iterdir())
    size = file.stat().st_size
    shutil.rmtree(tmp_path / "commitlog")
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{3 * size:020d}").write_bytes(content.ljust(size, b"\0"))
    store = survey(open_directory(tmp_path), RECIPES["basic"].conf.settings())
    with open_reader(store, rules_for("4.4.0")) as reader:
        (name,) = (name for name in reader.queues() if _first_place(reader, name) == 0)
        assert reader.get_message(*name, 0, 1).status is status
