"""Every golden store is surveyed as its manifest says: each file found and known, sizes and counts inferred."""

from __future__ import annotations

import pytest

from rmqtool.store.config.config_json import ConfigState, consumer_offsets, topics
from rmqtool.store.config.config_kinds import CONSUMER_OFFSETS, TOPICS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Store, survey
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.probe_lock import LockStatus, lock_report
from rmqtool.store.view import open_directory
from tests import golden_stores
from tests.conftest import Unpacked

ALL = [*golden_stores.names(), *golden_stores.broker_names()]


def surveyed(golden: Unpacked, name: str) -> Store:
    return survey(open_directory(golden(name)))


@pytest.mark.parametrize("name", ALL)
def test_sizes_and_counts_are_the_writers(golden: Unpacked, name: str) -> None:
    store, written = surveyed(golden, name), golden_stores.settings(name)
    has_log = any(segment.size for segment in store.commitlog)
    assert store.commitlog_file_size == (written.commitlog_file_size if has_log else 0)
    assert store.consumequeue_file_size == (-(-written.consumequeue_file_size // 20) * 20 if store.queues else 0)
    is_told = name != "4.9.7-delay-crashed" and store.index_files  # its one index file was never written to
    assert store.index_slot_count == (written.index_slot_count if is_told else None)
    assert store.index_entry_count == (written.index_entry_count if is_told else None)


@pytest.mark.parametrize("name", ALL)
def test_every_file_is_found_and_known(golden: Unpacked, name: str) -> None:
    store = surveyed(golden, name)
    found = {entry.path: entry.size for entries in store.files.values() for entry in entries}
    if name.startswith("broker-"):
        listed = golden_stores.broker_manifest(name)["files"]
    else:
        listed = golden_stores.manifest(name).files
    unlisted = tuple(f"{directory}/" for directory in store.unknown_directories)
    listed = {path: size for path, size in listed.items() if not path.startswith(unlisted)}
    assert found == {path: size for path, size in listed.items() if size is not None}
    assert not store.problems
    assert FileKind.UNKNOWN not in store.files
    rocks = {path for path in found if path.startswith("consumequeue/") and path.count("/") == 1}
    assert store.queue_kind == ("rocksdb" if rocks else "file")
    assert not any(topic in {"CURRENT", "LOCK"} for topic, _ in store.queues)


@pytest.mark.parametrize("name", ALL)
def test_every_configuration_file_is_read(golden: Unpacked, name: str) -> None:
    store = surveyed(golden, name)
    for entry in store.files.get(FileKind.CONFIG, ()):
        found = read_config(store.view, entry.path)
        assert (found.state, found.read_path, found.problems) == (ConfigState.READ, entry.path, ())


@pytest.mark.parametrize("name", ALL)
def test_no_broker_runs_on_it(golden: Unpacked, name: str) -> None:
    report = lock_report(golden(name))
    has_lock = (golden(name) / "lock").exists()
    assert report.lock.status is (LockStatus.FREE if has_lock else LockStatus.ABSENT)
    assert all(lock.status is LockStatus.FREE for lock in report.databases)
    assert not report.is_in_use


def test_topics_say_how_their_queues_are_kept(golden: Unpacked) -> None:
    batch = topics(read_config(surveyed(golden, "broker-5.5.0-batchcq").view, TOPICS))
    assert (batch["packed"].queue_type, batch["packed"].cleanup_policy) == ("BatchCQ", "DELETE")
    assert (batch["packed"].read_queue_count, batch["packed"].write_queue_count) == (4, 4)
    assert batch["SCHEDULE_TOPIC_XXXX"].queue_type == "SimpleCQ"
    compacted = topics(read_config(surveyed(golden, "broker-5.5.0-compaction").view, TOPICS))
    assert compacted["settings"].cleanup_policy == "COMPACTION"


def test_offsets_with_unquoted_keys_are_read(golden: Unpacked) -> None:
    view = surveyed(golden, "broker-4.9.7-mixed-clean").view
    offsets = consumer_offsets(read_config(view, CONSUMER_OFFSETS))
    assert offsets["account-moves", "account-keepers"] == {0: 16, 1: 13, 2: 15, 3: 16}
    assert offsets["%RETRY%job-workers", "job-workers"] == {0: 12}
