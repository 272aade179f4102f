"""The golden stores are complete, and the tools that the suite uses on them see what they should."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import golden_stores
from tests.conftest import Unpacked
from tests.golden_effects import load_effects
from tests.store_state import assert_store_unchanged


def test_every_store_has_its_manifest_and_no_manifest_lacks_its_store() -> None:
    stores = {*golden_stores.names(), *golden_stores.broker_names()}
    manifests = {path.stem for path in golden_stores.FOLDER.glob("*.json")} - {"more-verdicts"}
    assert stores == manifests
    assert len(stores) >= 326, "a store was lost"


def test_every_manifest_is_spelt_out() -> None:
    for name in golden_stores.names():
        found = golden_stores.manifest(name)
        assert found.name == name
        for read in found.reads.values():
            if read.served is None:
                continue
            rows = [*read.served.commitlog, *read.served.keys]
            for queue in read.served.queues:
                rows += [*queue.edges.values(), *queue.pulls, *queue.messages]
                assert all(isinstance(answer, dict) for answer in queue.by_time)
            assert all(isinstance(row, list) for row in rows)


def test_kinds_of_store_are_told_apart() -> None:
    kinds = [golden_stores.healthy_names(), golden_stores.crashed_names(), golden_stores.damaged_names()]
    assert sorted(name for kind in kinds for name in kind) == golden_stores.names()
    assert all(len(kind) >= least for kind, least in zip(kinds, (49, 22, 234), strict=True)), list(map(len, kinds))


@pytest.mark.parametrize(
    "name", ["4.9.7-crashed", "5.5.0-multi-path", "4.9.7-damage-cq-short-file", "5.5.0-default-size"]
)
def test_an_archive_holds_the_files_of_its_manifest(name: str, golden: Unpacked) -> None:
    store = golden(name)
    files = {str(path.relative_to(store)): path.stat().st_size for path in store.rglob("*") if path.is_file()}
    assert files == {path: length for path, length in golden_stores.manifest(name).files.items() if length is not None}


def test_holes_are_kept(golden: Unpacked) -> None:
    (log,) = (golden("5.5.0-default-size") / "commitlog").iterdir()
    assert log.stat().st_size == golden_stores.settings("5.5.0-default-size").commitlog_file_size == 1 << 30
    assert log.stat().st_blocks * 512 < 1 << 24


def test_a_damaged_store_shows_its_damage(golden: Unpacked) -> None:
    name = "4.9.7-damage-flip-body-last-file"
    (edit,) = golden_stores.manifest(name).damage
    damaged, base = (golden(each) / edit["file"] for each in (name, "4.9.7-damage-base"))
    place = slice(edit["position"], edit["position"] + edit["length"])
    assert damaged.read_bytes()[place].hex() == edit["new"]
    assert base.read_bytes()[place].hex() == edit["old"]


@pytest.mark.parametrize(
    ("name", "version", "effect"),
    [
        ("4.9.7-clean-basic", "5.3.3", None),
        ("4.9.7-damage-flip-topic-byte", "4.9.7", None),
        ("4.9.7-damage-torn-last-record", "4.9.7", "the log is cut at 280119, its last record ends at 282038"),
        (
            "5.5.0-damage-cq-entry-zero-first-file",
            "5.5.0",
            "consumequeue/Audit/0/00000000000000000600 is removed, added or changed",
        ),
        ("4.9.7-damage-size-huge", "4.9.7", "the store does not load"),
        ("5.5.0-v2", "4.9.7", "the log is cut at 120, its last record ends at 13420"),
    ],
)
def test_what_a_load_changed_is_known(name: str, version: str, effect: str | None, golden: Unpacked) -> None:
    effects = load_effects(name, version, golden(name))
    assert effects == [] if effect is None else effect in effects


def test_a_queue_that_was_cut_is_known(golden: Unpacked) -> None:
    effects = load_effects("4.9.7-damage-torn-last-record", "4.9.7", golden("4.9.7-damage-torn-last-record"))
    assert "queue OrderEvents/1 ends at 27, its files at 28" in effects


def _touch(path: Path) -> None:
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1))


def _flip(path: Path) -> None:
    before = path.stat()
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 0xFF]) + content[1:])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    "change",
    [
        _touch,
        _flip,
        Path.unlink,
        lambda path: path.chmod(0o600),
        lambda path: path.with_name("new").touch(),
        lambda path: _touch(path.parent),
    ],
    ids=["mtime", "content", "removed", "mode", "added", "folder's mtime"],
)
def test_any_change_of_a_store_is_seen(change: object, golden_copy: Unpacked) -> None:
    assert callable(change)
    store = golden_copy("5.5.0-clean-single")
    with assert_store_unchanged(store):
        sum(len(path.read_bytes()) for path in store.rglob("*") if path.is_file())
    with pytest.raises(AssertionError, match="the store changed"), assert_store_unchanged(store):
        change(store / "checkpoint")
