"""The floor of each command that changes a store: what a sound store serves it serves afterwards, at its place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from rmqtool.forecast import floor
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests import golden_stores, life_stores
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.forecast.test_floor import BASE, LIVES, plan_of, records_of, served
from tests.repair.dledger_stores import as_dledger
from tests.store_state import store_state

BOTH_SIDES = (
    "5.5.0-clean-basic",
    "5.5.0-expired-head-and-queues",
    "5.5.0-filler-queue",
    "5.5.0-lmq",
    "broker-5.5.0-mixed-clean",
    "deleted-topic-5.5.0",
    "deleted-topic-used-again-5.5.0",
    "upgraded-4.9.7-5.5.0",
)
PLAIN = ("4.9.7-clean-basic", "5.5.0-many-files", "5.5.0-expired-head-and-queues", "5.5.0-transaction")
BODY_AT = 88
"""Where the body of a record with IPv4 hosts begins."""
Places = Mapping[life_stores.Place, int]
MANY = ("4.9.7-many-files", "5.5.0-many-files")


def options_of(name: str) -> tuple[object, ...]:
    """The version that wrote a store, and the size of its queue files."""
    if name in life_stores.names():
        life = life_stores.life_store(name)
        return "--broker-version", life.asked, "--queue-file-size", life.config["mappedFileSizeConsumeQueue"]
    size = golden_stores.settings(name).consumequeue_file_size
    if name.startswith("broker-"):
        return "--broker-version", golden_stores.broker_manifest(name)["broker_version"], "--queue-file-size", size
    return "--broker-version", golden_stores.manifest(name).writer, "--queue-file-size", size


def configured(path: Path, places: Places) -> dict[life_stores.Place, int]:
    """What is served of topics that the configuration has; of others nobody gets anything."""
    topics = path / "config/topics.json"
    names = json.loads(topics.read_text())["topicConfigTable"] if topics.exists() else {topic for topic, *_ in places}
    return {place: at for place, at in places.items() if place[0] in names}


def check_floor(
    path: Path, command: Sequence[object], options: Sequence[object], *, ends: Sequence[int] = (0,)
) -> None:
    """What the plan says, and what a start serves once it is carried out."""
    version = str(options[1])
    before = served(path, version)
    plan = plan_of(*command, *options)
    assert plan["steps"], plan
    assert (plan["floor"]["taken_away"], plan["floor"]["moved"]) == (0, 0)
    assert plan["floor"]["kept"] + plan["floor"]["added"] >= len(before) > 0
    ran = rmqtool(*command, *options, "--yes")
    assert ran.code in ends, ran
    after = served(path, version)
    assert {place: after.get(place) for place in before} == before


@pytest.mark.parametrize("name", BOTH_SIDES)
def test_queues_go_to_rocksdb_and_back(golden_copy: Unpacked, name: str) -> None:
    path, options = golden_copy(name), options_of(name)
    first = served(path, str(options[1]))
    for side in ("rocksdb", "both", "file"):
        check_floor(path, ("convert", path, "--queues", side), options)
    topics = {topic for topic, *_ in first}
    assert {topic for topic, *_ in served(path, str(options[1]))} == topics


@pytest.mark.parametrize("name", [*PLAIN, *(name for name in LIVES if life_stores.life_store(name).asked != "4.4.0")])
def test_a_plain_log_from_dledger_serves_the_same(golden_copy: Unpacked, tmp_path: Path, name: str) -> None:
    path, options, output = golden_copy(name), options_of(name)[:2], tmp_path / "plain"
    before = served(path, str(options[1]))
    command = ("convert", as_dledger(path), "--from-dledger", "--output", output, *options)
    assert plan_of(*command)["floor"] == {
        "kept": len(configured(path, before)), "added": 0, "taken_away": 0, "moved": 0, "restored_topics": [],
        "runs": [],
    }  # fmt: skip
    ran = rmqtool(*command, "--yes")
    assert (ran.code, served(output, str(options[1]))) == (0, before), ran


def test_what_a_queue_of_a_group_no_longer_leads_to_is_taken_away(golden_copy: Unpacked, tmp_path: Path) -> None:
    """One record says that it is another of its queue, whose place is taken."""
    path, options = golden_copy("4.9.7-damage-flip-queue-offset"), options_of("4.9.7-damage-flip-queue-offset")[:2]
    command = ("convert", as_dledger(path), "--from-dledger", "--output", tmp_path / "plain", *options)
    floor = plan_of(*command)["floor"]
    assert (floor["kept"], floor["added"], floor["taken_away"], floor["moved"]) == (199, 0, 1, 0)
    assert (rmqtool(*command, "--yes").code, (tmp_path / "plain").exists()) == (5, False)
    assert rmqtool(*command, "--yes", "--accept-loss").code == 3
    assert len(served(tmp_path / "plain", str(options[1]))) == 199


def lose_timer(path: Path) -> None:
    (path / "timerwheel").unlink()
    for file in path.glob("timerlog/*"):
        file.write_bytes(bytes(file.stat().st_size))


def lose_delays(path: Path) -> None:
    for file in (path / "config").glob("delayOffset.json*"):
        file.unlink()


def lose_topics(path: Path) -> None:
    for file in (path / "config").glob("topics.json*"):
        file.unlink()


def lose_compacted(path: Path) -> None:
    for file in path.glob("compaction/compaction*/*/*/000*"):
        file.write_bytes(bytes(file.stat().st_size))


@pytest.mark.parametrize(
    ("name", "lose", "part"),
    [
        ("broker-5.5.0-timer", lose_timer, "--timer"),
        ("broker-4.9.7-mixed-clean", lose_delays, "--delay-offsets"),
        ("broker-5.5.0-delay-killed", lose_delays, "--delay-offsets"),
        ("broker-4.9.7-mixed-clean", lose_topics, "--topics"),
        ("broker-5.5.0-mixed-killed", lose_topics, "--topics"),
        ("deleted-topic-used-again-5.5.0", lose_topics, "--topics"),
        ("broker-5.5.0-compaction", lose_compacted, "--compaction"),
    ],
)
def test_a_part_that_is_rebuilt_takes_nothing_away(
    golden_copy: Unpacked, name: str, lose: Callable[[Path], None], part: str
) -> None:
    path = golden_copy(name)
    lose(path)
    check_floor(path, ("rebuild", path, part), options_of(name), ends=(0, 3))


@pytest.mark.parametrize("name", LIVES)
@pytest.mark.parametrize("part", ["--timer", "--delay-offsets", "--topics", "--compaction"])
def test_a_part_of_a_life_that_is_rebuilt_takes_nothing_away(golden_copy: Unpacked, name: str, part: str) -> None:
    path, version = golden_copy(name), life_stores.life_store(name).asked
    before = served(path, version)
    ran = rmqtool("rebuild", path, part, "--yes", "--broker-version", version)
    has_part = not (version.startswith("4") and part in ("--timer", "--compaction"))
    assert ran.code in ((0, 3) if has_part else (4,)), ran  # 5: its floor does not let it
    after = served(path, version)
    assert {place: after.get(place) for place in before} == before


def test_patches_of_what_consumers_do_not_see_take_nothing_away(golden_copy: Unpacked) -> None:
    path, options = golden_copy(BASE), options_of(BASE)
    file = path / "commitlog/00000000000000000000"
    first = json.loads(rmqtool("dump", path, "--format", "jsonl").out.splitlines()[0])
    for change in (("born_timestamp_ms=1",), (f"body={'x' * first['body_length']}", "--fix-crc")):
        check_floor(path, ("patch", file, "--at", 0, "--set", *change), options[:2])


@pytest.mark.parametrize("limit", [2, 20_000])
def test_all_records_that_a_plan_damages_are_counted(
    golden_copy: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(floor, "CHECKED_MAX", limit)
    path, options = golden_copy(BASE), options_of(BASE)[:2]
    first = path / "commitlog/00000000000000000000"
    places = records_of(survey(open_directory(path)), "TopicTest", 0)
    inside = sorted(place for place in places.values() if place < first.stat().st_size)
    content = bytearray(first.read_bytes())
    for place in inside:
        content[place + BODY_AT] ^= 1
    (tmp_path / "damaged").write_bytes(content)
    command = ("patch", first, "--at", 0, "--from", tmp_path / "damaged", "--length", len(content), *options)
    plan = plan_of(*command)
    assert plan["floor"]["taken_away"] == len(inside) > 4
    before = store_state(path)
    assert (rmqtool(*command, "--yes").code, store_state(path)) == (5, before)


@pytest.mark.parametrize("name", LIVES)
def test_a_new_message_comes_behind_what_a_life_serves(golden_copy: Unpacked, name: str) -> None:
    path, life = golden_copy(name), life_stores.life_store(name)
    before = configured(path, served(path, life.asked))
    topic, queue_id, last = max(before)
    append = ("append", path, "--topic", topic, "--queue-id", queue_id, "--body", "new")
    ran = rmqtool(*append, "--broker-version", life.asked, *(["--after-crash"] if (path / "abort").exists() else ()))
    assert ran.code == 0, ran
    after = served(path, life.asked)
    assert {place: after.get(place) for place in before} == before
    assert [place for place in after if place not in before and place[0] == topic] == [(topic, queue_id, last + 1)]


@pytest.mark.parametrize("number", [1, 7])
@pytest.mark.parametrize("has_queues", [True, False])
@pytest.mark.parametrize("ends", ["clean", "killed"])
@pytest.mark.parametrize("name", MANY)
def test_a_missing_log_file_is_no_small_thing(
    golden_copy: Unpacked, name: str, ends: str, *, has_queues: bool, number: int
) -> None:
    path, options = golden_copy(name), options_of(name)
    version = str(options[1])
    gone = sorted((path / "commitlog").iterdir())[number]
    start, size = int(gone.name), gone.stat().st_size
    count = sum(start <= at < start + size for at in served(path, version).values())
    gone.unlink()
    if ends == "killed":
        (path / "abort").touch()
    if not has_queues:
        shutil.rmtree(path / "consumequeue")
    before = served(path, version)
    (forecast,) = json.loads(rmqtool("forecast", path, *options, "--format", "json").out)["forecasts"]
    if has_queues:
        assert forecast["messages_without_log"] == count > 0
        screen = rmqtool("forecast", path, *options).out
        assert screen.startswith("WOULD LOSE: ")
        assert f"{count} messages" in screen
    for command in ("recover", "rebuild", "salvage"):
        planned = rmqtool(command, path, "--dry-run", *options)
        assert planned.code == 3, planned
        assert "No messages will be lost" not in planned.out
        assert str(start) in planned.out
        assert f"{count} " in planned.out or not has_queues
        assert "lose nothing" not in planned.out or not has_queues
        ran = rmqtool(command, path, "--yes", *options)
        assert ran.code in (3, 5), ran
        check_kept(before, served(path, version), has_queues=has_queues)
    assert rmqtool("salvage", path, "--yes", "--accept-loss", *options).code == 0
    check_kept(before, served(path, version), has_queues=has_queues)
    assert rmqtool("forecast", path, *options).code == 0


def check_kept(before: Places, after: Places, *, has_queues: bool) -> None:
    """Without queues a start gives messages after the gap places that are not their own: there they may move."""
    if has_queues:
        assert {place: after.get(place) for place in before} == before
    assert set(before.values()) <= set(after.values())


@pytest.mark.parametrize("name", [*MANY, "broker-4.9.7-mixed-clean", "5.5.0-clean-basic", "4.9.7-expired-head"])
def test_a_log_without_its_last_file_is_repaired_with_consent_only(golden_copy: Unpacked, name: str) -> None:
    path, options = golden_copy(name), options_of(name)
    version = str(options[1])
    gone = max(file for file in (path / "commitlog").iterdir() if any(file.read_bytes()))
    count = sum(at >= int(gone.name) for at in served(path, version).values())
    gone.unlink()
    before, state = served(path, version), store_state(path)
    (forecast,) = json.loads(rmqtool("forecast", path, *options, "--format", "json").out)["forecasts"]
    assert forecast["messages_without_log"] == count > 0
    plan = plan_of("recover", path, *options)
    assert plan["loss"]["without_log"] == sum(plan["loss"]["by_topic"].values()) == count
    ran = rmqtool("recover", path, "--yes", *options)
    assert (ran.code, store_state(path)) == (5, state)
    assert rmqtool("recover", path, "--yes", "--accept-loss", *options).code == 0
    assert served(path, version) == before
    assert rmqtool("forecast", path, *options).code == 0


@pytest.mark.parametrize("name", golden_stores.crashed_names())
def test_no_command_takes_a_message_from_a_store_whose_broker_was_killed(golden_copy: Unpacked, name: str) -> None:
    """A start may give the first message after a gap a place that is not its own; it is served all the same."""
    config = golden_stores.settings(name)
    options = (*options_of(name), "--index-slots", config.index_slot_count, "--index-entries", config.index_entry_count)
    version, before = str(options[1]), store_state(path := golden_copy(name))
    messages = set(served(path, version).values())
    for command in ("recover", "rebuild", "salvage"):
        ran = rmqtool(command, path, "--yes", *options)
        assert ran.code in (0, 3, 5), ran  # 5: units lead to a log file that was removed
        assert ran.code == 5 or store_state(path) != before
        assert messages <= set(served(path, version).values())
        rmqtool("undo", path, "--yes")
        shutil.rmtree(path / ".rmqtool", ignore_errors=True)
        assert store_state(path) == before
