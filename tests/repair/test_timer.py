"""`rebuild --timer`: the timer's files with what waits; tests/broker/test_timer.py shows them to a real broker."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import UnknownSizeError, UnsupportedError
from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import damage_store
from rmqtool.fixtures.recipe import Run, make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.fixtures.samples import FIRST_TIME_MS, Samples
from rmqtool.formats import properties as names
from rmqtool.formats.timer import SLOT_COUNT
from rmqtool.repair.machine.plan import PlannedRepair
from rmqtool.repair.timer import plan_timer
from rmqtool.sides.timer.files import TimerUnit
from rmqtool.sides.timer.loaded import LoadedTimer, load_timer, timer_files, timer_queue
from rmqtool.sides.timer.waiting import waiting_messages
from rmqtool.sides.timer.writer import LATE_SLOTS, ROLL_WINDOW_SLOTS, TimerMessage, TimerShape, write_timer
from rmqtool.store.directory import Settings, survey
from rmqtool.store.view import open_directory
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.store_state import assert_store_unchanged

RULES = rules_for("5.5.0")
RECIPE = RECIPES["timer"]
GOLDEN = "broker-5.5.0-timer"
NOW_MS = 1_795_285_300_000
REPAIRED = [
    name
    for name, damage in DAMAGES.items()
    if name.startswith("timer-") and "timer.expired-record" not in damage.findings
]


def planned(path: Path, staging: Path, settings: Settings | None = None, now_ms: int = NOW_MS) -> PlannedRepair:
    staging.mkdir(exist_ok=True)
    return plan_timer(survey(open_directory(path), settings), RULES, staging, now_ms)


def loaded(path: Path, settings: Settings | None = None) -> LoadedTimer:
    with open_reader(survey(open_directory(path), settings), RULES) as reader:
        return load_timer(timer_files(reader.store), reader, timer_queue(reader))


def waiting_units(timer: LoadedTimer) -> list[TimerUnit]:
    units = []
    for slot in timer.pending_slots():
        chain, broken = timer.chain(slot)
        assert broken is None
        units += chain
    return units


def test_a_timer_that_matches_is_left_alone(golden: Unpacked, tmp_path: Path) -> None:
    plan = planned(golden(GOLDEN), tmp_path / "staging")
    assert (plan.steps, plan.notes) == ((), ("the timer matches the commit log",))


def test_what_waits_is_what_a_broker_had_in_its_wheel(golden: Unpacked) -> None:
    with open_reader(survey(open_directory(golden(GOLDEN))), RULES) as reader:
        waiting = waiting_messages(reader, timer_queue(reader))
    of_wheel = {unit.physical_offset for unit in waiting_units(loaded(golden(GOLDEN)))}
    offsets = {message.physical_offset for message in waiting.messages}
    assert offsets - of_wheel == set()
    assert of_wheel - offsets == {18411}  # delivered right before the kill; a start delivers it a second time
    assert (len(waiting.messages), waiting.delivered, waiting.queue_end) == (41, 20, 61)
    assert sum(message.deletes for message in waiting.messages) == 1


@pytest.mark.parametrize("name", REPAIRED)
def test_each_kind_of_damage_is_repaired_and_undone(tmp_path: Path, name: str) -> None:
    store = tmp_path / "store"
    make_store(RECIPE, store, "5.5.0")
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in RECIPE.settings.items()))
    damage_store(DAMAGES[name], store, settings=RECIPE.conf.settings())
    options = ("--broker-conf", conf, "--broker-version", "5.5.0")
    with assert_store_unchanged(store):
        ran = rmqtool("rebuild", store, "--timer", "--dry-run", "--format", "json", *options)
    assert ran.code == 3, ran.err
    plan = json.loads(ran.out)
    assert {step["file"].partition("/")[0] for step in plan["steps"]} <= {"timerwheel", "timerlog", "config"}
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file() and path.name != "lock"}
    assert rmqtool("rebuild", store, "--timer", "--yes", *options).code == 0
    summary = json.loads(rmqtool("verify", store, "--format", "json", *options).out)["summary"]
    assert not [kind for kind in summary["findings"] if kind.startswith("timer.")]
    assert rmqtool("rebuild", store, "--timer", "--yes", *options).out.startswith("Nothing to do")
    assert rmqtool("undo", store, "--yes").code == 0
    shutil.rmtree(store / ".rmqtool", ignore_errors=True)
    after = {path: path.read_bytes() for path in store.rglob("*") if path.is_file() and path.name != "lock"}
    assert after == before


ROLLS = {"a": (0, 1, 2), "b": (0, 1), "c": (0, 1), "d": (0,)}
"""For each message how often each of its records was put into the timer again; of "c" the last one was delivered."""


def rolled_runs(samples: Samples) -> Sequence[Run]:
    puts = []
    for rolls, name in sorted((rolls, name) for name, counts in ROLLS.items() for rolls in counts):
        due_ms = FIRST_TIME_MS + (-5000 if name == "c" else 300_000_000)
        properties = {names.REAL_TOPIC: "orders", names.REAL_QUEUE_ID: "1", names.TIMER_OUT_MS: str(due_ms)}
        properties |= {names.UNIQUE_KEY: name} | ({names.TIMER_ROLL_TIMES: str(rolls)} if rolls else {})
        puts.append(samples.message(names.TIMER_TOPIC, 0, 5000, properties=properties))
        if (name, rolls) == ("c", 1):
            puts.append(samples.message("orders", 1, properties=properties))
    return [Run(puts)]


@pytest.mark.parametrize("expired_files", [0, 1], ids=["all", "first records expired"])
def test_of_a_message_that_rolled_only_the_last_record_waits(tmp_path: Path, expired_files: int) -> None:
    recipe = replace(RECIPE, runs=rolled_runs, expired_files=expired_files)
    settings = recipe.conf.settings()
    make_store(recipe, tmp_path / "store", "5.5.0")
    with open_reader(survey(open_directory(tmp_path / "store"), settings), RULES) as reader:
        queue = timer_queue(reader)
        waiting = [reader.message_at(each.physical_offset) for each in waiting_messages(reader, queue).messages]
    records = [message.record for message in waiting if message is not None and message.record is not None]
    waits = {record.unique_key: record.properties.get(names.TIMER_ROLL_TIMES) for record in records}
    assert (waits, len(waiting)) == ({"a": "2", "b": "1", "d": None}, 3)
    assert (queue.min_queue_offset > 0) == bool(expired_files)
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in recipe.settings.items()))
    ran = rmqtool("verify", tmp_path / "store", "--format", "json", "--broker-conf", conf)
    assert not [kind for kind in json.loads(ran.out)["summary"]["findings"] if kind.startswith("timer.")]


def test_what_cannot_be_known_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "store"
    make_store(RECIPE, store, "5.5.0")
    settings = RECIPE.conf.settings()
    damage_store(DAMAGES["timer-check-missing"], store, settings=settings)
    damaged = tmp_path / "damaged"
    shutil.copytree(store, damaged)
    with (damaged / "commitlog/00000000000000000000").open("r+b") as log:
        log.seek(100)  # in the first body
        log.write(bytes(8))
    with pytest.raises(UnsupportedError, match=r"the commit log is damaged at .* run rmqtool salvage first"):
        planned(damaged, tmp_path / "one", settings)
    short = tmp_path / "short"
    shutil.copytree(store, short)
    newest = max((short / "consumequeue/rmq_sys_wheel_timer/0").iterdir())
    newest.write_bytes(bytes(newest.stat().st_size))
    with pytest.raises(UnsupportedError, match="missing in its consume queue: run rmqtool recover first"):
        planned(short, tmp_path / "two", settings)
    with pytest.raises(UnknownSizeError, match="mappedFileSizeTimerLog"):
        planned(store, tmp_path / "three")
    ran = rmqtool("rebuild", store, "--timer", "--index")
    assert (ran.code, "--timer: rebuild the timer alone" in ran.err) == (2, True)
    assert (
        "not known to brokers of version 4.9.7"
        in rmqtool("rebuild", store, "--timer", "--dry-run", "--broker-version", "4.9.7").err
    )


def message(queue_offset: int, due_s: int, *, deletes: bool = False) -> TimerMessage:
    return TimerMessage(queue_offset, queue_offset * 500, 500, due_s * 1000, 7, deletes)


def written(folder: Path, messages: list[TimerMessage], newest: TimerMessage, now_s: int, size: int) -> LoadedTimer:
    """What a load makes of written files, in a store that has no message of theirs."""
    folder.mkdir()
    (folder / "commitlog").mkdir()
    (folder / "commitlog/00000000000000000000").write_bytes(bytes(4096))
    write_timer(folder, messages, newest, 1000, TimerShape(now_s * 1000, size))
    return loaded(folder, Settings(timer_log_file_size=size))


def test_late_timers_keep_their_order_and_their_difference(tmp_path: Path) -> None:
    now_s = 2_000_000_000
    due = [now_s - 9 * LATE_SLOTS, now_s - 8 * LATE_SLOTS, now_s - 8 * LATE_SLOTS, now_s - 5, now_s + 100]
    messages = [message(number, due_s) for number, due_s in enumerate(due)]
    timer = written(tmp_path / "store", messages, messages[-1], now_s, 104_857_600)
    units = waiting_units(timer)
    assert [unit.physical_offset for unit in units] == [0, 500, 1000, 1500, 2000]
    ticks = [unit.due_timestamp_ms // 1000 for unit in units]
    assert ticks == [now_s - LATE_SLOTS + 1, now_s - LATE_SLOTS + 2, now_s - LATE_SLOTS + 2, now_s - 5, now_s + 100]
    assert timer.files.check.read_timestamp_ms < units[0].due_timestamp_ms
    assert all(unit.delay_ms >= 0 for unit in units)


def test_a_timer_beyond_the_window_rolls(tmp_path: Path) -> None:
    now_s, window = 2_000_000_000, ROLL_WINDOW_SLOTS
    due = [now_s + window - 1, now_s + window, now_s + window + window // 3, now_s + 3 * window]
    messages = [message(number, due_s) for number, due_s in enumerate(due)]
    units = waiting_units(written(tmp_path / "store", messages, messages[-1], now_s, 104_857_600))
    seen = {unit.physical_offset // 500: (unit.rolls, unit.due_timestamp_ms // 1000 - now_s) for unit in units}
    assert seen == {0: (False, window - 1), 1: (True, window // 2), 2: (True, window), 3: (True, window)}


def test_the_log_ends_with_the_newest_message_and_goes_on_over_files(tmp_path: Path) -> None:
    now_s = 2_000_000_000
    messages = [message(number, now_s + 10 + number % 3, deletes=number % 5 == 0) for number in range(40)]
    newest = message(99, now_s - 1000)
    timer = written(tmp_path / "store", messages, newest, now_s, 640)
    units = waiting_units(timer)
    assert len(timer.files.log) == 4
    assert max(units, key=lambda unit: unit.position).physical_offset == newest.physical_offset
    (idle,) = [unit for unit in units if unit.physical_offset == newest.physical_offset]
    assert idle.deletes
    assert Counter(unit.due_timestamp_ms for unit in units)[idle.due_timestamp_ms] == 1
    assert {slot.due_tick % SLOT_COUNT for slot in timer.slots.values()} == timer.slots.keys()
    assert timer.log_end == timer.files.check.flushed_position
