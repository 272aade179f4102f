"""A blank is 8 bytes and reaches to its file's end: 4.4.0 leaves old bytes after those, which mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.engine.append.message import Message
from rmqtool.engine.append.open_writer import config_of, existing_store
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.forecast.forecast import forecast_store
from rmqtool.formats.commitlog import BLANK_SIZE_MIN, MAGIC_BLANK
from rmqtool.store.directory import Store, survey
from rmqtool.store.view import open_directory
from tests.repair.salvage.trial import Files, Healthy, healthy, salvaged
from tests.verify.stores import above_note, verified

MAGIC = (MAGIC_BLANK & 0xFFFFFFFF).to_bytes(4, "big")


def _ends(store: Healthy) -> dict[str, int]:
    """File position of the blank in each file of the log that ends in one."""
    ends = {}
    for at, raw in sorted(store.content.records.items()):
        path, position = store.file_of(at)
        ends[path] = position + len(raw)
    return {path: end for path, end in ends.items() if store.files[path][end + 4 : end + BLANK_SIZE_MIN] == MAGIC}


def _with_old_bytes(store: Healthy) -> Files:
    """Whole records of the log's first file after each blank, as they lie in a file that was used before."""
    files = dict(store.files)
    old = store.files[store.log_files[0]]
    for path, end in _ends(store).items():
        start = end + BLANK_SIZE_MIN
        files[path] = files[path][:start] + old[: len(old) - start]
    assert files != store.files
    return files


@pytest.mark.parametrize(("name", "version"), [("many-files", "4.4.0"), ("file-end", "4.9.7"), ("record-crc", "5.5.0")])
def test_they_are_no_finding_and_change_no_forecast(tmp_path: Path, name: str, version: str) -> None:
    store = healthy(name, version)
    damaged = store.store(_with_old_bytes(store))
    assert not above_note(verified(damaged, version)[1])
    assert salvaged(damaged, version, tmp_path).made.steps == ()
    assert forecast_store(damaged, rules_for(version)) == forecast_store(store.undamaged, rules_for(version))


def test_append_goes_on_at_a_last_blank_as_a_broker_does(tmp_path: Path) -> None:
    recipe, path = RECIPES["file-end"], tmp_path / "store"
    make_store(recipe, path, "4.4.0")

    def look() -> Store:
        return survey(open_directory(path), recipe.conf.settings())

    last = path / look().commitlog[-1].path
    content = last.read_bytes()
    end = len(content.rstrip(b"\0"))
    blank = (len(content) - end).to_bytes(4, "big") + MAGIC
    last.write_bytes(content[:end] + blank + b"\x01" * (len(content) - end - len(blank)))
    start = look().commitlog[-1].start + end
    config = config_of(look(), WriterConfig())
    with existing_store(path, look, rules_for("4.4.0"), config) as writer:
        put = writer.put(Message(topic="T", queue_id=0, body=b"x"))
    assert put.physical_offset == start
