"""Every crashed or edited store, recovered: nothing that can be derived is wrong any more, nothing is left to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.repair.derived.log_window import window_of
from rmqtool.repair.machine.plan import PlannedRepair
from rmqtool.repair.machine.steps import Create, Remove, Replace, WriteRange
from rmqtool.repair.recover.plan import RecoverOptions, plan_recover
from rmqtool.store.config.config_json import consumer_offsets
from rmqtool.store.config.config_kinds import CONSUMER_OFFSETS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Store
from rmqtool.store.source import read_range
from tests import golden_stores
from tests.repair.golden_repairs import derived_differences, options_of, planned_store, rules_of, store_of
from tests.store_state import assert_store_unchanged
from tests.verify.stores import above_note, verified
from tests.verify.test_golden import damage_of

Unpacked = Callable[[str], Path]

SALVAGED = (
    "blank-in-middle",
    "cq-ahead",
    "flip-body",
    "flip-physical-offset",
    "flip-queue-offset",
    "flip-topic-byte",
    "log-dir",
    "many-flip",
    "missing-final-blank",
    "size-",
    "wrong-magic",
    "zero-hole",
)
"""Damage inside the log, by the begin of its name."""
STAYS = {
    "commitlog.missing-file": "gone is gone",
    "commitlog.resurrected-tail": "the records are sound, and a person decides",
    "commitlog.store-time-regress": "a clock that was set back, or a log that was cut: the records are sound",
    "commitlog.stray-file": "a directory is no file, and is not removed",
}
"""Findings that no repair answers."""
BELOW = "the commit log below physical offset"


def _is_salvaged(name: str) -> bool:
    return damage_of(name).startswith(SALVAGED)


def _edited() -> list[ParameterSet]:
    """Stores whose damage lies in derived files or the tail; those of the newest version in each run."""
    names = [*golden_stores.crashed_names(), *golden_stores.damaged_names()]
    slow = pytest.mark.slow
    return [
        pytest.param(name, marks=() if name.startswith("5.5.0") and ("abort" in name or "crashed" in name) else slow)
        for name in names
        if not _is_salvaged(name)
    ]


def _recovered(place: Path | Store, name: str, staging: Path, **options: bool) -> PlannedRepair:
    staging.mkdir()
    store = store_of(place, name) if isinstance(place, Path) else place
    return plan_recover(store, rules_of(name), staging, RecoverOptions(options_of(name), **options))


@pytest.mark.parametrize("name", _edited())
@pytest.mark.parametrize("full", [True, False])
def test_recovered_store_has_nothing_wrong(golden: Unpacked, tmp_path: Path, name: str, *, full: bool) -> None:
    path = golden(name)
    with assert_store_unchanged(path):
        made = _recovered(path, name, tmp_path / "staging", full=full)
        ours = planned_store(path, name, made.steps)
        window = window_of(ours, made.begin or 0)
        left = above_note(verified(window.store, rules_of(name).version)[1])
        again = _recovered(ours, name, tmp_path / "again", full=full)
    assert set(left) <= {*STAYS, *(["commitlog.torn-record"] if damage_of(name) == "slave-middle" else [])}
    assert made.damage == ()
    assert made.loss.messages == 0
    assert again.steps == ()
    assert not ours.has_abort
    assert not (full and made.begin is not None)
    assert any(BELOW in text for text in made.left_out) == (made.begin is not None)


@pytest.mark.parametrize(
    "name", [name for name in golden_stores.healthy_names() if golden_stores.manifest(name).base is None]
)
def test_nothing_is_done_to_a_healthy_store(golden: Unpacked, tmp_path: Path, name: str) -> None:
    made = _recovered(golden(name), name, tmp_path / "staging")
    if "filler" in name:  # healthy by how it was stopped; its broker had lost units before
        assert {found.id.split(".")[0] for found in made.findings if found.repair} <= {"consumequeue"}
    else:
        assert made.steps == ()
        assert made.damage == ()


@pytest.mark.parametrize("writer", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize(
    "damage", ["cq-dir-missing-abort", "index-zero-abort", "cq-entry-wrong-tag", "checkpoint-corrupt-abort"]
)
def test_derived_files_are_those_before_the_damage(golden: Unpacked, tmp_path: Path, writer: str, damage: str) -> None:
    name = f"{writer}-damage-{damage}"
    made = _recovered(golden(name), name, tmp_path / "staging")
    base = golden_stores.manifest(name).base
    assert base is not None
    known = store_of(golden(base), base)
    assert list(derived_differences(known, planned_store(golden(name), name, made.steps))) == []


@pytest.mark.parametrize("name", ["4.9.7-damage-cq-entry-wrong-tag", "5.5.0-damage-cq-only-file-zero"])
def test_only_the_wrong_queue_is_touched(golden: Unpacked, tmp_path: Path, name: str) -> None:
    made = _recovered(golden(name), name, tmp_path / "staging")
    (edit,) = golden_stores.manifest(name).damage
    queues = {step.path for step in made.steps if step.path.startswith("consumequeue")}
    assert queues == {edit["file"]}
    assert {step.path for step in made.steps} <= queues | {"checkpoint"}


@pytest.mark.parametrize("name", ["4.9.7-damage-torn-last-record-abort", "5.5.0-damage-torn-last-record"])
def test_torn_tail_is_zeroed(golden: Unpacked, tmp_path: Path, name: str) -> None:
    made = _recovered(golden(name), name, tmp_path / "staging")
    ours = planned_store(golden(name), name, made.steps)
    (torn,) = (found for found in made.findings if found.id == "commitlog.torn-record")
    assert torn.physical_offset is not None
    last = ours.commitlog[-1]
    source = ours.view.open(last.path)
    position = torn.physical_offset - last.start
    assert not any(read_range(source, position, last.size - position))
    assert any(isinstance(step, WriteRange) and step.file_position == position for step in made.steps)


@pytest.mark.parametrize("name", ["4.9.7-damage-flip-body-middle-file-abort", "5.5.0-damage-zero-hole"])
def test_damage_in_the_log_is_named_and_left(golden: Unpacked, tmp_path: Path, name: str) -> None:
    made = _recovered(golden(name), name, tmp_path / "staging", full=True)
    assert made.steps == ()
    assert [found.severity.value for found in made.damage] == ["error"]
    assert (made.abort_stays is not None) == name.endswith("-abort")


@pytest.mark.parametrize(
    "name",
    [
        "4.9.7-damage-flip-body-middle-file-abort",
        "5.5.0-damage-flip-body-first-record-abort",
        "5.5.0-damage-zero-hole",
    ],
)
def test_cut_at_damage_gives_up_what_lies_behind(golden: Unpacked, tmp_path: Path, name: str) -> None:
    made = _recovered(golden(name), name, tmp_path / "staging", cut_at_damage=True, full=True)
    ours = planned_store(golden(name), name, made.steps)
    place = min(found.physical_offset or 0 for found in made.findings if found.severity.value == "error")
    intact = [
        record for record in golden_stores.manifest(name).records if record.at > place and not record.body_crc_bad
    ]
    hole = sum(found.length or 0 for found in made.findings if found.id == "commitlog.hole")
    behind = [record for record in intact if record.at >= place + max(hole, 1)]
    assert made.loss.messages == len(behind)
    assert made.loss.bytes == sum(record.size for record in behind)
    assert sum(made.loss.by_topic.values()) == len(behind)
    assert above_note(verified(ours, rules_of(name).version)[1]) == {}
    assert _recovered(ours, name, tmp_path / "again").steps == ()


@pytest.mark.parametrize("name", ["4.9.7-slave-middle", "5.5.0-slave-middle"])
def test_a_last_record_that_brokers_serve_is_cut_on_request_only(golden: Unpacked, tmp_path: Path, name: str) -> None:
    kept = _recovered(golden(name), name, tmp_path / "kept")
    assert any("is incomplete" in note for note in kept.notes)
    assert not any(isinstance(step, WriteRange) for step in kept.steps)
    cut = _recovered(golden(name), name, tmp_path / "cut", cut_at_damage=True)
    ours = planned_store(golden(name), name, cut.steps)
    assert cut.loss.messages == 1
    assert above_note(verified(ours, rules_of(name).version)[1]) == {}


def test_a_cut_in_front_of_zeros_gives_up_nothing(golden: Unpacked, tmp_path: Path) -> None:
    name = "5.5.0-damage-cq-ahead-abort"
    made = _recovered(golden(name), name, tmp_path / "staging", cut_at_damage=True)
    ours = planned_store(golden(name), name, made.steps)
    assert made.loss.messages == 0
    assert above_note(verified(ours, "5.5.0")[1]) == {}


def test_abort_stays_where_dispatch_writes_more(
    golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqtool.store.databases.rocksdb.LIBRARY", "no_such_library")
    name = "5.5.0-rocksdb-cq-crashed"
    made = _recovered(golden(name), name, tmp_path / "staging")
    assert made.steps == ()
    assert "RocksDB" in (made.abort_stays or "")


def test_a_longer_file_is_cut(golden_copy: Unpacked, tmp_path: Path) -> None:
    name = "5.5.0-clean-basic"
    path = golden_copy(name)
    known = store_of(path, name)
    first = path / known.commitlog[0].path
    first.write_bytes(first.read_bytes() + bytes(7))
    made = _recovered(path, name, tmp_path / "staging")
    (step,) = (step for step in made.steps if isinstance(step, Replace))
    assert step.length == known.commitlog_file_size
    assert above_note(verified(planned_store(path, name, made.steps), "5.5.0")[1]) == {}


def test_strays_in_log_and_queue_are_removed(golden_copy: Unpacked, tmp_path: Path) -> None:
    name = "5.5.0-clean-basic"
    path = golden_copy(name)
    queue = next(iter(store_of(path, name).queues.values()))
    strays = ["commitlog/core.1234", f"{queue.directory}/notes.txt"]
    for stray in strays:
        (path / stray).write_bytes(b"x")
    made = _recovered(path, name, tmp_path / "staging")
    assert sorted(step.path for step in made.steps if isinstance(step, Remove)) == sorted(strays)


def test_configuration_comes_back_from_its_copy(golden_copy: Unpacked, tmp_path: Path) -> None:
    name = "5.5.0-clean-basic"
    path = golden_copy(name)
    config = path / "config"
    config.mkdir(exist_ok=True)
    (config / "topics.json.bak").write_text('{"topicConfigTable":{}}')
    (config / "topics.json").write_text('{"topicConfig')
    (config / "delayOffset.json.bak").write_text('{"offsetTable":{1:5}}')
    made = _recovered(path, name, tmp_path / "staging")
    assert [type(step) for step in made.steps] == [Create, Replace]
    ours = planned_store(path, name, made.steps)
    assert read_config(ours.view, "config/topics.json").value == {"topicConfigTable": {}}


@pytest.mark.parametrize("clamp", [False, True])
def test_consumers_beyond_a_queue_are_set_back_on_request(
    golden_copy: Unpacked, tmp_path: Path, *, clamp: bool
) -> None:
    name = "5.5.0-clean-basic"
    path = golden_copy(name)
    topic, queue_id = next(iter(store_of(path, name).queues))
    wanted = {"offsetTable": {f"{topic}@group": {str(queue_id): 1_000_000, "99": 3}}, "dataVersion": {"counter": 7}}
    (path / "config").mkdir(exist_ok=True)
    (path / CONSUMER_OFFSETS).write_text(json.dumps(wanted))
    made = _recovered(path, name, tmp_path / "staging", clamp_offsets=clamp)
    ours = planned_store(path, name, made.steps)
    found = read_config(ours.view, CONSUMER_OFFSETS)
    offsets = consumer_offsets(found)[topic, "group"]
    records = [r for r in golden_stores.manifest(name).records if (r.topic, r.queue_id) == (topic, queue_id)]
    assert offsets == {queue_id: len(records) if clamp else 1_000_000, 99: 3}
    assert found.value is not None
    assert found.value["dataVersion"] == {"counter": 7}


def test_a_file_of_the_log_that_cannot_be_read_is_an_error_or_damage(golden_copy: Unpacked, tmp_path: Path) -> None:
    name = "5.5.0-clean-basic"
    path = golden_copy(name)
    first = path / store_of(path, name).commitlog[0].path
    first.unlink()
    first.symlink_to("/nowhere")
    try:
        made = _recovered(path, name, tmp_path / "staging")
    except UnreadableError:
        return
    assert all(step.path != f"commitlog/{first.name}" for step in made.steps)


@pytest.mark.parametrize("name", ["broker-4.9.7-dledger", "broker-5.3.3-dledger"])
def test_a_log_of_dledger_is_refused(golden: Unpacked, tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsupportedError, match="DLedger"):
        _recovered(golden(name), name, tmp_path / "staging")


@pytest.mark.parametrize("name", ["4.9.7-damage-log-dir-empty", "5.5.0-damage-log-dir-missing"])
def test_nothing_is_made_of_a_store_without_its_log(golden: Unpacked, tmp_path: Path, name: str) -> None:
    made = _recovered(golden(name), name, tmp_path / "staging", cut_at_damage=True)
    assert made.steps == ()
    assert [found.id for found in made.damage] == ["commitlog.missing-file"]


def test_abort_stays_for_compacted_topics(golden_copy: Unpacked, tmp_path: Path) -> None:
    name = "broker-5.5.0-compaction"
    path = golden_copy(name)
    (path / "abort").write_text("4711")
    made = _recovered(path, name, tmp_path / "staging")
    assert "compact" in (made.abort_stays or "")
    assert made.steps == ()


@pytest.mark.parametrize("name", ["4.9.7-cq-ext", "5.5.0-cq-ext"])
def test_a_lost_extension_is_built_with_its_queue(
    golden: Unpacked, golden_copy: Unpacked, tmp_path: Path, name: str
) -> None:
    path = golden_copy(name)
    extension = next(iter(store_of(path, name).extensions.values()))
    (path / extension.segments[0].path).write_bytes(bytes(extension.segments[0].size))
    made = _recovered(path, name, tmp_path / "staging", full=True)
    assert {step.path for step in made.steps} <= {*(found.path for found in extension.segments), "checkpoint"}
    ours = planned_store(path, name, made.steps)
    assert list(derived_differences(store_of(golden(name), name), ours)) == []
