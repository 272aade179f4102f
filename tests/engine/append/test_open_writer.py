"""Going on with a store unlinks files of zeros after the end of its log or queues, as a start of a broker does."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.engine.append.message import Message
from rmqtool.engine.append.open_writer import config_of, existing_store
from rmqtool.engine.append.writer_config import WriterConfig, config_from
from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.store.directory import Store, survey
from rmqtool.store.file_kinds import segment_name
from rmqtool.store.view import open_directory
from tests.verify.stores import above_note, verified


@pytest.mark.parametrize("version", ["4.4.0", "5.5.0"])
def test_a_clean_end_leaves_no_file_of_zeros(tmp_path: Path, version: str) -> None:
    recipe, path = RECIPES["many-files"], tmp_path / "store"
    make_store(recipe, path, version)

    def look() -> Store:
        return survey(open_directory(path), recipe.conf.settings())

    store = look()
    segments = [store.commitlog[-1], *(queue.segments[-1] for queue in store.queues.values())]
    extra = [path / segment.path.rpartition("/")[0] / segment_name(segment.end) for segment in segments]
    for file, segment in zip(extra, segments, strict=True):
        file.write_bytes(bytes(segment.size))
    # A queue or log whose last file is full goes on in the next one, which is there already.
    full = {
        file for file, segment in zip(extra, segments, strict=True) if any((path / segment.path).read_bytes()[-20:])
    }
    assert len(full) < len(extra)
    before = {file for file in path.rglob("*") if file.is_file() and file not in extra}
    rules = rules_for(version)
    topic, queue_id = next(iter(store.queues))
    with existing_store(path, look, rules, config_of(look(), WriterConfig())) as writer:
        writer.put(Message(topic=topic, queue_id=queue_id, body=b"x"))
    after = {file for file in path.rglob("*") if file.is_file()}
    assert before <= after
    assert {file for file in extra if file in after} == full
    assert above_note(verified(path, version)[1]) == {}


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_an_extension_goes_on_after_its_last_address(tmp_path: Path, version: str) -> None:
    """What lies after it a start unlinks, and files of other units are used again."""
    recipe, path = RECIPES["cq-ext"], tmp_path / "store"
    make_store(recipe, path, version)

    def look() -> Store:
        return survey(open_directory(path), recipe.conf.settings())

    rules, config = rules_for(version), config_of(look(), config_from(recipe.conf))
    name = next(iter(look().extensions))
    last = look().extensions[name].segments[-1]
    unused = [path / last.path.replace(segment_name(last.start), segment_name(last.end + at)) for at in (0, 400)]
    for file in unused:
        file.write_bytes((path / last.path).read_bytes())
    with existing_store(path, look, rules, config) as writer:
        assert not any(file.exists() for file in unused)
        writer.put_all([Message(topic=name[0], queue_id=name[1], body=b"x") for _ in range(20)])
    assert above_note(verified(path, version)[1]) == {}


def test_an_extension_of_expired_messages_goes_on_after_them(tmp_path: Path) -> None:
    recipe, path = RECIPES["cq-ext"], tmp_path / "store"
    make_store(recipe, path, "5.5.0")

    def look() -> Store:
        return survey(open_directory(path), recipe.conf.settings())

    rules, config = rules_for("5.5.0"), config_of(look(), config_from(recipe.conf))
    name, *others = look().queues
    last = look().commitlog[-1]
    with existing_store(path, look, rules, config) as writer:
        while look().commitlog[-1].start == last.start:
            writer.put_all([Message(topic=others[0][0], queue_id=others[0][1], body=bytes(2000)) for _ in range(9)])
    for segment in look().commitlog[:-1]:
        (path / segment.path).unlink()
    with existing_store(path, look, rules, config) as writer:
        writer.put_all([Message(topic=name[0], queue_id=name[1], body=b"x") for _ in range(30)])
    assert above_note(verified(path, "5.5.0")[1]) == {}
