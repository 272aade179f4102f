"""Stores that real brokers wrote, against themselves and against their damaged twins, which manifests describe."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtool.compare.join import Kind
from rmqtool.compare.log_side import StoreLog, Terms
from rmqtool.compare.result import Comparison, Relation
from rmqtool.compare.rows import QueueNumbers, is_message
from rmqtool.store.directory import Store, survey
from rmqtool.store.view import open_directory
from tests import golden_stores
from tests.compare.stores import compared, through_manifest
from tests.conftest import Unpacked
from tests.store_state import assert_store_unchanged


def sampled(names: list[str], step: int) -> list[object]:
    """All names, those between every so many of them for the full run only."""
    return [pytest.param(name, marks=[] if at % step == 0 else pytest.mark.slow) for at, name in enumerate(names)]


WHOLE = [*golden_stores.healthy_names(), *golden_stores.crashed_names()]
TWINS = [name for name in golden_stores.damaged_names() if golden_stores.manifest(name).base]


def opened(path: Path) -> Store:
    return survey(open_directory(path))


def log_bytes(path: Path) -> dict[int, bytes]:
    """The files of a log by their start."""
    if not (path / "commitlog").exists():
        return {}
    return {int(file.name): file.read_bytes() for file in (path / "commitlog").iterdir() if file.name.isdigit()}


@pytest.mark.parametrize("name", sampled(golden_stores.names(), 4))
def test_a_store_equals_itself(golden: Unpacked, name: str, tmp_path: Path) -> None:
    store = opened(golden(name))
    direct = compared(store, store)
    assert direct.is_equal
    assert direct.relation is Relation.EQUAL
    manifest = through_manifest(store, store, tmp_path / "manifest")
    assert manifest.is_equal
    assert manifest.as_json() == direct.as_json()
    assert through_manifest(store, store, tmp_path / "blocks", has_rows=False).is_equal


@pytest.mark.parametrize("name", WHOLE)
def test_the_messages_are_those_that_the_broker_decoded(golden: Unpacked, name: str) -> None:
    log = StoreLog(opened(golden(name)))
    numbers = QueueNumbers()
    found = set()
    for number in range(len(log.files)):
        for block in log.stream(number, numbers, Terms()).blocks():
            assert block.rows is not None
            for row in block.rows[is_message(block.rows)]:
                topic, queue_id = numbers.keys[row["queue"]]
                found.add((int(row["physical_offset"]), int(row["size"]), topic, queue_id, int(row["queue_offset"])))
    assert found == {
        (record.at, record.size, record.topic.encode(), record.queue_id, record.queue_offset)
        for record in golden_stores.manifest(name).records
    }


@pytest.mark.parametrize("name", sampled(TWINS, 3))
def test_a_damaged_twin_differs_where_it_was_damaged(golden: Unpacked, name: str, tmp_path: Path) -> None:
    base = golden_stores.manifest(name).base
    assert base is not None
    paths = golden(base), golden(name)
    with assert_store_unchanged(paths[0]), assert_store_unchanged(paths[1]):
        found = compared(opened(paths[0]), opened(paths[1]))
    _check(name, found, *map(log_bytes, paths))
    manifest = through_manifest(opened(paths[0]), opened(paths[1]), tmp_path / "manifest")
    left, right = found.as_json(), manifest.as_json()
    for each in (left, right):
        if each["first_divergence"] is not None:
            del each["first_divergence"]["physical_offset"], each["first_divergence"]["precision"]
        each["a"]["store"] = each["b"]["store"] = "a store"
    assert left == right


def _check(name: str, found: Comparison, here: dict[int, bytes], there: dict[int, bytes]) -> None:
    totals = found.a.totals, found.b.totals
    begin = max(each.begin or 0 for each in totals)
    end = min(each.end or 0 for each in totals)
    assert found.messages is not None
    only = [found.messages[kind].count for kind in (Kind.ONLY_A, Kind.ONLY_B)]
    assert only[0] - only[1] == totals[0].messages - totals[1].messages
    assert only[1] == ("topic-byte" in name)  # what was changed is another message then
    differing = [
        start + at
        for start in sorted(here.keys() | there.keys())
        for at, (one, other) in enumerate(zip(here.get(start, b""), there.get(start, b""), strict=False))
        if one != other and begin <= start + at < end
    ]
    gaps = [start for start in here.keys() - there.keys() if begin <= start < end]
    expected = min([*differing[:1], *gaps], default=None)
    assert (found.divergence and found.divergence.physical_offset) == expected
    if found.divergence is not None:
        assert found.relation is Relation.DIVERGED


def test_a_slave_that_began_later_and_lags(golden: Unpacked, tmp_path: Path) -> None:
    master = golden("5.5.0-damage-base")
    slave = tmp_path / "slave"
    shutil.copytree(master, slave)
    files = sorted((slave / "commitlog").iterdir())
    files[0].unlink()
    cut = 5_000  # in the middle of a record, as a transfer ends
    files[-1].write_bytes(files[-1].read_bytes()[:cut].ljust(65_536, b"\0"))
    found = compared(opened(master), opened(slave))
    assert found.relation is Relation.B_IS_PREFIX
    assert found.divergence is None
    assert found.b.totals.begin == 65_536
    assert 262_144 < (found.b.totals.end or 0) <= 262_144 + cut
    assert found.messages is not None
    reasons = {row["reason"] for row in found.message_rows()}
    assert reasons == {"expired", "beyond-end"}
    turned = compared(opened(slave), opened(master))
    assert turned.relation is Relation.A_IS_PREFIX
    assert turned.messages is not None
    assert turned.messages[Kind.ONLY_B].count == found.messages[Kind.ONLY_A].count


def test_a_missing_file_is_said(golden_copy: Unpacked, golden: Unpacked) -> None:
    path = golden_copy("5.5.0-damage-base")
    (path / "commitlog" / "00000000000000131072").unlink()
    found = compared(opened(golden("5.5.0-damage-base")), opened(path))
    assert found.divergence is not None
    assert found.divergence.record_offset == 131_072
    assert found.differing.first == [(131_072, 196_608)]
