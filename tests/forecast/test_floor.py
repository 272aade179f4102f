"""The floor: what consumers get before and after a plan, and what a plan may not do without consent."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqtool.engine.reading.record import read_record
from rmqtool.engine.rules.versions import rules_for
from rmqtool.engine.segments.log import Log
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.forecast import floor
from rmqtool.forecast.floor import Served, compare_floors
from rmqtool.forecast.options import ForecastOptions
from rmqtool.forecast.result import Floor
from rmqtool.forecast.simulate import Simulation
from rmqtool.formats.consumequeue import UNIT_SIZE
from rmqtool.store.directory import Store, survey
from rmqtool.store.view import open_directory
from tests import life_stores
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.store_state import store_state

LIVES = [name for name in life_stores.names() if not name.startswith("old-setting-names")]
BASE = "4.9.7-damage-base"
QUEUE_ID_AT, QUEUE_OFFSET_AT = 12, 20
DELETED = ["deleted-topic-4.9.7", "deleted-topic-5.5.0"]


def started(path: Path, version: str) -> Simulation:
    simulation = Simulation(survey(open_directory(path)), rules_for(version), ForecastOptions(), past_obstacles=True)
    simulation.run()
    return simulation


def served(path: Path, version: str) -> dict[life_stores.Place, int]:
    """What consumers get after a start, as a manifest has it."""
    with started(path, version) as simulation:
        given = Served(simulation)
        places = ((name, given.between(name, *given.queues[name].span)) for name in given.queues)
        return {
            (*name, queue_offset): physical_offset
            for name, units in places
            for queue_offset, physical_offset in zip(
                units.queue_offsets.tolist(), units.physical_offsets.tolist(), strict=True
            )
        }


def floor_of(before: Path, after: Path, version: str) -> Floor:
    with started(before, version) as one, started(after, version) as other:
        return compare_floors(one, other)


def plan_of(*arguments: object) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads(rmqtool(*arguments, "--dry-run", "--format", "json").out)
    return plan


@pytest.mark.parametrize("name", LIVES)
def test_a_simulated_start_serves_what_the_broker_served(golden: Unpacked, name: str) -> None:
    life = life_stores.life_store(name)
    assert served(golden(name), life.asked) == life.served


@pytest.mark.parametrize("command", ["recover", "recover --full", "rebuild", "salvage"])
@pytest.mark.parametrize("name", LIVES)
def test_no_command_lowers_the_floor_of_a_life(golden_copy: Unpacked, name: str, command: str) -> None:
    path, life = golden_copy(name), life_stores.life_store(name)
    ran = rmqtool(*command.split(), path, "--yes", "--broker-version", life.asked)
    assert ran.code in (0, 3), ran
    after = served(path, life.asked)
    assert {place: after.get(place) for place in life.served} == life.served
    assert {topic for topic, _, _ in after} <= {topic for topic, _, _ in life.served}


@pytest.mark.parametrize("name", DELETED)
def test_a_deleted_topic_comes_back_on_demand_only(golden_copy: Unpacked, name: str) -> None:
    path, version = golden_copy(name), life_stores.life_store(name).asked
    before = store_state(path)
    for command in (["recover"], ["rebuild"], ["rebuild", "--queues"], ["salvage"]):
        ran = rmqtool(*command, path, "--yes", "--broker-version", version)
        assert (ran.code, store_state(path)) == (0, before), ran
    plan = plan_of("rebuild", path, "--restore-deleted", "--broker-version", version)
    assert plan["floor"]["restored_topics"] == ["orders"]
    assert plan["floor"]["taken_away"] == plan["floor"]["moved"] == 0
    assert rmqtool("rebuild", path, "--topic", "orders", "--yes", "--broker-version", version).code == 0
    assert sum(topic == "orders" for topic, _, _ in served(path, version)) == 72
    assert "orders" in json.loads((path / "config/topics.json").read_text())["topicConfigTable"]
    assert rmqtool("verify", path).code == 0
    assert rmqtool("undo", path, "--yes").code == 0
    shutil.rmtree(path / ".rmqtool", ignore_errors=True)
    assert store_state(path) == before


@pytest.mark.parametrize("older_copy", [False, True], ids=["no copy", "older copy"])
@pytest.mark.parametrize("name", DELETED)
def test_a_person_decides_where_nothing_tells_whether_a_topic_was_deleted(
    golden_copy: Unpacked, name: str, *, older_copy: bool
) -> None:
    path, version = golden_copy(name), life_stores.life_store(name).asked
    options = ("--broker-version", version)
    (path / "config/topics.json").write_text("{ cut")
    copy = path / "config/topics.json.bak"
    copy.unlink()
    if older_copy:
        copy.write_text('{"topicConfigTable":{"SELF_TEST_TOPIC":{"topicName":"SELF_TEST_TOPIC"}}}')
    before, asked = served(path, version), set[str]()
    for command in (["recover"], ["rebuild"], ["rebuild", "--topics"], ["recover", "--full"], ["salvage"]):
        ran = rmqtool(*command, path, "--yes", "--format", "json", *options)
        asked |= {one["id"] for one in json.loads(ran.out)["remaining"]}
        assert served(path, version) == before, ran
        assert "orders" not in json.loads(ran.out)["kept_beyond_broker"]["by_topic"]
    assert "topic.may-be-deleted" in asked
    if not older_copy:
        verified = json.loads(rmqtool("verify", path, "--format", "json", *options).out)
        assert verified["summary"]["needs_decision"], verified["summary"]
        assert any("of topic orders" in one["message"] for one in verified["findings"])
        ran = rmqtool("forecast", path, "--format", "json", *options)
        step = json.loads(ran.out)["next_step"]
        assert (step["command"], f"rmqtool rebuild {path} --topic orders" in step["reason"]) == (None, True), step
    assert rmqtool("rebuild", path, "--topic", "orders", "--yes", *options).code in (0, 3)
    assert sum(topic == "orders" for topic, _, _ in served(path, version)) == 72
    rmqtool("rebuild", path, "--topics", "--yes", *options)
    assert rmqtool("recover", path, "--yes", *options).code == 0


@pytest.mark.parametrize("name", DELETED)
def test_messages_are_appended_behind_those_of_a_deleted_topic(golden_copy: Unpacked, name: str) -> None:
    path, life = golden_copy(name), life_stores.life_store(name)
    options = ("--broker-version", life.asked)
    ran = rmqtool("append", path, "--topic", "payments", "--body", "new", *options)
    assert ran.code == 0, ran
    after = served(path, life.asked)
    kept = {place: at for place, at in life.served.items() if place[0] != "orders"}  # which a start enters, for nobody
    assert {place: after.get(place) for place in kept} == kept
    assert [place[0] for place in after if place not in life.served] == ["payments"]
    assert rmqtool("verify", path, *options).code == 0


def test_queues_that_were_lost_after_a_topic_began_again_have_its_newest_messages(golden_copy: Unpacked) -> None:
    name = "deleted-topic-used-again-5.5.0"
    path, life = golden_copy(name), life_stores.life_store(name)
    shutil.rmtree(path / "consumequeue")
    assert rmqtool("rebuild", path, "--yes", "--broker-version", life.asked, "--queue-file-size", 1000).code == 0
    assert served(path, life.asked) == life.served


@pytest.mark.parametrize("queue_id", range(4))
def test_one_damaged_queue_of_a_topic_that_began_again_gets_no_deleted_messages(
    golden_copy: Unpacked, queue_id: int
) -> None:
    """The other queues tell where it began again, also where only this one is built."""
    name = "deleted-topic-used-again-5.5.0"
    path, life = golden_copy(name), life_stores.life_store(name)
    first = min(at for (topic, queue, _), at in life.served.items() if (topic, queue) == ("orders", queue_id))
    store = survey(open_directory(path))
    patch(path, store, first, b"\xff" * 200)
    ran = rmqtool("salvage", path, "--yes", "--broker-version", life.asked)
    assert ran.code == 0, ran
    after = served(path, life.asked)
    kept = {place: at for place, at in life.served.items() if at != first}
    assert {place: after.get(place) for place in kept} == kept
    assert {at for (topic, _, _), at in after.items() if topic == "orders"} <= {first, *kept.values()}


@pytest.mark.parametrize("has_queues", [True, False])
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_start_that_ends_the_log_loses_nothing_of_a_deleted_topic(
    golden_copy: Unpacked, version: str, *, has_queues: bool
) -> None:
    """Where the topic began again, its units tell, which that start cuts, and else the order of its records."""
    name = f"deleted-topic-used-again-{version}"
    path, life = golden_copy(name), life_stores.life_store(name)
    first = min(life.served.values())
    log = min((path / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(first + 4)
        file.write(b"\0" * 4)  # no magic code
    (path / "checkpoint").unlink()
    (path / "abort").touch()
    if not has_queues:
        shutil.rmtree(path / "consumequeue" / "orders")
    options = ("--broker-version", version, "--queue-file-size", 1000)
    (forecast,) = json.loads(rmqtool("forecast", path, *options, "--format", "json").out)["forecasts"]
    lost = Counter(topic for (topic, _, _), at in life.served.items() if at > first)
    if not has_queues:  # no unit tells of a deleted one that 4.9.7 has entered again
        lost["orders"] = 32
    assert 32 <= lost["orders"] <= 33
    assert forecast["lost"]["by_topic"] == dict(sorted(lost.items()))


def test_what_is_taken_moved_and_added_is_counted(golden_copy: Unpacked, tmp_path: Path) -> None:
    path = golden_copy(BASE)
    other = tmp_path / "other"
    shutil.copytree(path, other)
    store = survey(open_directory(path))
    # Two units exchanged, one doubled over another, and a queue removed.
    first, second, third, fourth = (unit_at(other, store, 0, number) for number in (5, 7, 8, 9))
    put_unit(other, store, 0, 5, second)
    put_unit(other, store, 0, 7, first)
    put_unit(other, store, 0, 9, third)
    shutil.rmtree(other / "consumequeue/TopicTest/2")
    floor = floor_of(path, other, "5.5.0")
    lost = len([place for place in served(path, "5.5.0") if place[:2] == ("TopicTest", 2)])
    assert fourth != third
    assert (floor.moved, floor.taken_away, floor.added) == (2, lost + 1, 1)
    assert {(run.queue_offset, run.moved_to) for run in floor.runs if run.queue_id == 0} == {(5, 7), (7, 5), (9, None)}
    back = floor_of(other, path, "5.5.0")
    assert (back.moved, back.taken_away, back.added) == (2, 0, lost + 1)


def test_batches_are_counted_once_however_many_units_a_block_has(
    golden: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = golden("5.5.0-inner-batch")
    expected = floor_of(path, path, "5.5.0")
    monkeypatch.setattr(floor, "BLOCK_UNITS", 2)
    assert floor_of(path, path, "5.5.0") == expected
    assert expected.kept > 0


def test_moving_what_consumers_get_needs_consent(golden_copy: Unpacked) -> None:
    path = golden_copy(BASE)
    store = survey(open_directory(path))
    one, other = unit_at(path, store, 0, 5), unit_at(path, store, 0, 9)
    put_unit(path, store, 0, 5, other)
    put_unit(path, store, 0, 9, one)
    before = store_state(path)
    plan = plan_of("recover", path, "--full", "--broker-version", "4.9.7")
    assert (plan["floor"]["moved"], plan["floor"]["taken_away"]) == (2, 0)
    assert plan["needs_decision"] is True
    assert "--accept-loss" in plan["next_step"]["command"]
    refused = rmqtool("recover", path, "--full", "--yes", "--broker-version", "4.9.7")
    assert (refused.code, store_state(path)) == (5, before)
    assert rmqtool("recover", path, "--full", "--yes", "--accept-loss", "--broker-version", "4.9.7").code == 0
    assert served(path, "4.9.7")["TopicTest", 0, 5] == plan_offset(one)


@pytest.mark.parametrize("ends_badly", [False, True], ids=["short file", "abort"])
def test_exchanged_queue_offsets_hide_nothing(golden_copy: Unpacked, *, ends_badly: bool) -> None:
    # Log and units agree, so the messages are served; a repair of something else leaves them so.
    path = golden_copy(BASE)
    store = survey(open_directory(path))
    places = records_of(store, "TopicTest", 0)
    for one, other in ((5, 9), (9, 5)):
        patch(path, store, places[one] + QUEUE_OFFSET_AT, other.to_bytes(8, "big"))
    units = unit_at(path, store, 0, 5), unit_at(path, store, 0, 9)
    put_unit(path, store, 0, 5, units[1])
    put_unit(path, store, 0, 9, units[0])
    if ends_badly:
        (path / "abort").touch()
    else:
        file = path / store.commitlog[0].path
        file.write_bytes(file.read_bytes().rstrip(b"\0"))
    plan = plan_of("recover", path, "--broker-version", "4.9.7")
    assert plan["floor"] == {
        "kept": 200, "added": 0, "taken_away": 0, "moved": 0, "restored_topics": [], "runs": []
    }  # fmt: skip
    assert rmqtool("recover", path, "--yes", "--broker-version", "4.9.7").code == 0
    assert served(path, "4.9.7")["TopicTest", 0, 9] == places[5]
    assert rmqtool("verify", path).code == 0


def test_a_record_of_another_queue_moves_nothing(golden_copy: Unpacked) -> None:
    # One bit of a queue id, that record's unit gone, and all files cut: only the record's header is wrong.
    path = golden_copy("5.5.0-damage-base")
    store = survey(open_directory(path))
    place = records_of(store, "OrderEvents", 0)[2]
    patch(path, store, place + QUEUE_ID_AT, (1).to_bytes(4, "big"))
    put_unit(path, store, 0, 2, bytes(UNIT_SIZE), topic="OrderEvents")
    for file in (*path.glob("commitlog/*"), *path.glob("consumequeue/*/*/*")):
        os.truncate(file, len(file.read_bytes().rstrip(b"\0")))
    before = store_state(path)
    plan = plan_of("recover", path, "--broker-version", "5.4.0")
    assert (plan["steps"], plan["damage"][0]["id"]) == ([], "commitlog.doubtful-header")
    assert store_state(path) == before
    assert rmqtool("salvage", path, "--yes", "--broker-version", "5.4.0").code == 0
    after = served(path, "5.4.0")
    assert len(after) == 200
    assert after["OrderEvents", 0, 2] == place


def records_of(store: Store, topic: str, queue_id: int) -> dict[int, int]:
    """Physical offsets of a queue's records, by their queue offsets."""
    places: dict[int, int] = {}
    with OpenFiles(store.view) as files:
        log = Log(store, rules_for("5.5.0"), files)
        for segment in store.commitlog:
            at = segment.start
            while (record := read_record(log, at)) is not None and record.size:
                if (record.topic, record.queue_id) == (topic, queue_id):
                    places[record.queue_offset] = at
                at += record.size
    return places


def patch(path: Path, store: Store, physical_offset: int, content: bytes) -> None:
    segment = next(segment for segment in store.commitlog if segment.start <= physical_offset < segment.end)
    with (path / segment.path).open("r+b") as file:
        file.seek(physical_offset - segment.start)
        file.write(content)


def unit_place(store: Store, topic: str, queue_id: int, queue_offset: int) -> tuple[str, int]:
    position, size = queue_offset * UNIT_SIZE, store.consumequeue_file_size
    queue = store.queues[topic, queue_id]
    segment = next(one for one in queue.segments if one.start <= position < one.start + size)
    return segment.path, position - segment.start


def unit_at(path: Path, store: Store, queue_id: int, queue_offset: int, topic: str = "TopicTest") -> bytes:
    name, position = unit_place(store, topic, queue_id, queue_offset)
    return (path / name).read_bytes()[position : position + UNIT_SIZE]


def put_unit(path: Path, store: Store, queue_id: int, queue_offset: int, unit: bytes, topic: str = "TopicTest") -> None:
    name, position = unit_place(store, topic, queue_id, queue_offset)
    with (path / name).open("r+b") as file:
        file.seek(position)
        file.write(unit)


def plan_offset(unit: bytes) -> int:
    """Where a unit leads to."""
    return int.from_bytes(unit[:8], "big")


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_name_used_again_is_told_without_topics_json(golden_copy: Unpacked, version: str) -> None:
    path, options = golden_copy(f"deleted-topic-used-again-{version}"), ("--broker-version", version)
    before = served(path, version)
    for file in (path / "config").glob("topics.json*"):
        file.unlink()
    assert rmqtool("forecast", path, *options).out.startswith("INCONSISTENT: config/topics.json")
    verified = json.loads(rmqtool("verify", path, "--format", "json", *options).out)
    assert verified["summary"]["next_step"]["command"].split()[-1] != "--queues", verified["summary"]
    assert set(verified["summary"]["findings"]) <= {
        "checkpoint.zero-time", "config.topics-missing", "consumequeue.filler-readable", "topic.deleted",
    }  # fmt: skip
    assert rmqtool("rebuild", path, "--topics", "--yes", *options).code == 0
    for command in ("verify", "forecast"):
        assert rmqtool(command, path, *options).code == 0
    for command in ("recover", "rebuild", "salvage"):
        assert rmqtool(command, path, "--yes", *options).code == 0
    assert served(path, version) == before
