"""The stores of a life are complete, and what their brokers served lies in their logs."""

from __future__ import annotations

import json

import pytest

from tests import golden_stores
from tests.conftest import Unpacked
from tests.life_stores import life_store, names


def test_each_store_has_an_archive_and_a_manifest_and_a_name_of_its_own() -> None:
    archives = {path.name.removesuffix(golden_stores.SUFFIX) for path in golden_stores.LIFE_FOLDER.glob("*.tar.xz")}
    assert archives == set(names())
    assert len(archives) == 9
    assert not archives & {*golden_stores.names(), *golden_stores.broker_names()}
    page = (golden_stores.LIFE_FOLDER / "README.md").read_text("utf-8")
    assert all(name in page or f"-{life_store(name).asked}" in page for name in archives)


@pytest.mark.parametrize("name", names())
def test_a_served_message_is_a_record_of_the_log(name: str, golden: Unpacked) -> None:
    store = golden(name)
    segments = {int(path.name): path.read_bytes() for path in (store / "commitlog").iterdir()}
    magics = {0xDAA320A7.to_bytes(4, "big"), 0xDAA320AB.to_bytes(4, "big")}
    known = life_store(name)
    assert known.load
    assert known.served
    for physical_offset in known.served.values():
        start = max(start for start in segments if start <= physical_offset)
        assert segments[start][physical_offset - start + 4 :][:4] in magics


@pytest.mark.parametrize("name", names())
def test_the_count_of_served_messages_is_that_of_the_manifest(name: str) -> None:
    raw = json.loads((golden_stores.LIFE_FOLDER / f"{name}.json").read_text("utf-8"))
    assert len(life_store(name).served) == raw["served"]
