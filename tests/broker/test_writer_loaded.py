"""Stores that we wrote, or went on with, before real brokers: nothing is cut, all is served, and they go on."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from rmqtool.engine.append.message import Message
from rmqtool.engine.append.open_writer import config_of, existing_store
from rmqtool.engine.append.status import PutResult
from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.recipe import End, Recipe, make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.fixtures.samples import BORN_HOST, STORE_HOST
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.broker.broker import Answer, Judge, OpenStore
from tests.broker.files import copy_store
from tests.broker.versions import ROUTINE
from tests.broker.writing import Both, answers_differ, at_time, differences, judge_message, judge_topics

JudgeOf = Callable[[str], Judge]
VERSIONS_OFTEN = ("4.9.7", "5.5.0")
LARGE = ("default-size", "multi-path")


def held() -> list[ParameterSet]:
    return [
        pytest.param(
            name,
            version,
            marks=() if version in VERSIONS_OFTEN and name not in LARGE else pytest.mark.slow,
        )
        for version in ROUTINE
        for name, recipe in RECIPES.items()
        if recipe.fits(rules_for(version)) and not recipe.has_database
    ]


def survey_of(recipe: Recipe, path: Path) -> Any:
    return survey(open_directory(path), recipe.conf.settings())


def next_offsets(recipe: Recipe, path: Path, version: str) -> dict[tuple[str, int], int]:
    with open_reader(survey_of(recipe, path), rules_for(version)) as reader:
        return {name: reader.queue(*name).max_queue_offset for name in reader.queues()}


def places(results: list[PutResult], begin: int) -> set[int]:
    """Where the records of these puts lie, without those that retention has removed since."""
    return {result.physical_offset for result in results if result.is_written and result.physical_offset >= begin}


def assert_whole(recipe: Recipe, store: OpenStore, results: list[PutResult], read: Answer, begin: int) -> None:
    """Nothing was unlinked or cut; every put lies in the log, good; every key leads to its message."""
    assert cut_files(store.opened["files"]["removed"], read["offsets"]["max"]) == []
    good = {row[0] for row in read["commitLog"] if len(row) == 2}
    assert places(results, begin) <= good
    last = max(results, key=lambda result: result.physical_offset, default=None)
    end = last.physical_offset + last.size if last is not None else 0
    if end in {row[0] for row in read["commitLog"] if len(row) > 2 and row[2] == "blank"}:
        end += -end % int(recipe.settings["mappedFileSizeCommitLog"])
    assert read["offsets"]["max"] == end
    assert not [row for row in read["commitLog"] if len(row) > 2 and row[2] != "blank"]


def cut_files(removed: Iterable[str], log_end: int) -> list[str]:
    """Files of log and queues that a start unlinked, but for the one that a killed broker had made in advance."""
    ours = [path for path in removed if path.startswith(("commitlog", "consumequeue", "batchconsumequeue"))]
    return [path for path in ours if not (path.startswith("commitlog") and int(Path(path).name) >= log_end)]


def assert_served(read: Answer) -> None:
    """Each queue offset gives a message, and each key all messages that the log has under it."""
    for queue in read["queues"]:
        assert [row[0] for row in queue["messages"] if row[1] != "FOUND"] == [], queue["topic"]


@pytest.mark.parametrize(("name", "version"), held())
def test_a_broker_loads_what_we_wrote(judge_of: JudgeOf, tmp_path: Path, name: str, version: str) -> None:
    recipe = RECIPES[name]
    results = make_store(recipe, tmp_path, version, seed=2)
    begin = survey_of(recipe, tmp_path).commitlog[0].start if results else 0
    if End.KILLED_UNCOMMITTED in {run.end for run in recipe.planned_runs(rules_for(version), 2)}:
        written = len(results)
        results = [result for result in results if record_is_there(tmp_path, result)]
        assert 0 < len(results) < written
    with judge_of(version).open(tmp_path, recipe.settings, judge_topics(recipe)) as store:
        assert store.serving, store.opened
        read = store.read(times=0)
        assert_whole(recipe, store, results, read, begin)
        assert_served(read)
        assert_goes_on(store, read)


def record_is_there(path: Path, result: PutResult) -> bool:
    """Whether the log has the record's size at its place: what was never committed left zeros."""
    for file in sorted((path / "commitlog").iterdir()):
        position = result.physical_offset - int(file.name)
        if 0 <= position < file.stat().st_size:
            return int.from_bytes(file.read_bytes()[position : position + 4], "big") == result.size
    return False


def assert_goes_on(store: OpenStore, read: Answer) -> None:
    """One more put into each of a few queues gets the next offset and is served."""
    ends = {(queue["topic"], queue["queueId"]): queue["max"] for queue in read["queues"] if queue["topic"] == "orders"}
    for (topic, queue_id), end in [*ends.items(), (("fresh", 0), 0)][:3]:
        [answer] = store.put({"topic": topic, "queueId": queue_id, "body": b"more", "properties": {"KEYS": "more"}})
        assert (answer["status"], answer["queueOffset"]) == ("PUT_OK", end)
        store.wait_dispatched()
        [row] = store.get(topic, queue_id, [end], count=1)["rows"]
        assert row[1] == "FOUND"
        assert row[4] == [answer["physicalOffset"]]


APPENDED = ("basic", "single", "empty", "batch", "delay", "lmq", "cq-ext", "inner-batch", "restarted", "keys-index")


@pytest.mark.parametrize("version", VERSIONS_OFTEN)
@pytest.mark.parametrize("name", APPENDED)
def test_we_go_on_where_a_real_broker_stopped(judge_of: JudgeOf, tmp_path: Path, name: str, version: str) -> None:
    """A real store, ours behind it, a real broker again: every message of both is served, offsets without a gap."""
    recipe, rules, judge = RECIPES[name], rules_for(version), judge_of(version)
    if not recipe.fits(rules):
        return
    [first, *_] = recipe.planned_runs(rules, 3)
    assert first.end is End.CLEAN
    with judge.open(tmp_path / "real", recipe.settings, judge_topics(recipe)) as real:
        answers = real.put(*map(judge_message, first.puts))
        real.wait_dispatched()
    # The judge's process still has the stopped store's files mapped, and such a store is not written.
    path = copy_store(tmp_path / "real", tmp_path / "ours")
    ends = next_offsets(recipe, path, version)
    more = [message(topic, queue_id, number) for number in range(40) for topic, queue_id in [("orders", number % 3)]]
    config = config_of(survey_of(recipe, path), recipe.config)
    with existing_store(path, lambda: survey_of(recipe, path), rules, config) as writer:
        results = writer.put_all(more)
    assert all(result.is_written for result in results)
    for queue_id in range(3):
        own = [r.queue_offset for r, put in zip(results, more, strict=True) if put.queue_id == queue_id]
        begin = ends.get(("orders", queue_id), 0)
        assert own == list(range(begin, begin + len(own)))
    with judge.open(path, recipe.settings, judge_topics(recipe)) as again:
        assert again.serving, again.opened
        read = again.read(times=0)
        assert cut_files(again.opened["files"]["removed"], read["offsets"]["max"]) == []
        assert_served(read)
        good = {row[0] for row in read["commitLog"] if len(row) == 2}
        assert {answer["physicalOffset"] for answer in answers} | places(results, 0) <= good
        assert read["offsets"]["max"] == results[-1].physical_offset + results[-1].size
        for number, result in enumerate(results):
            assert again.query("orders", f"ours-{number}")["served"] == [result.physical_offset]
        assert_goes_on(again, read)


@pytest.mark.parametrize("version", [*VERSIONS_OFTEN, "5.3.1", "5.5.1"])
@pytest.mark.parametrize("is_directory_kept", [True, False])
def test_extension_files_of_queues_without_files(
    judge_of: JudgeOf, tmp_path: Path, version: str, is_directory_kept: bool
) -> None:
    """A broker writes after the extension files of a queue whose directory it loads, and over those of any other."""
    recipe, rules, judge = RECIPES["cq-ext"], rules_for(version), judge_of(version)
    [first, *_] = recipe.planned_runs(rules, 3)
    with judge.open(tmp_path / "first", recipe.settings, judge_topics(recipe)) as store:
        store.put(*map(judge_message, first.puts))
        store.wait_dispatched()
    empty = copy_store(tmp_path / "first", tmp_path / "empty")
    for folder in ("consumequeue", "index"):
        for file in [file for file in (empty / folder).rglob("*") if file.is_file()]:
            file.unlink()
    files = sorted((empty / "commitlog").iterdir())
    files[0].write_bytes(bytes(files[0].stat().st_size))
    for file in files[1:]:
        file.unlink()
    if not is_directory_kept:
        shutil.rmtree(empty / "consumequeue")
    real, ours = copy_store(empty, tmp_path / "real"), copy_store(empty, tmp_path / "ours")
    more = [message("orders", 0, number) for number in range(30)]
    with judge.open(real, recipe.settings, judge_topics(recipe)) as store:
        answers = store.put(*map(judge_message, more))
        store.wait_dispatched()
    timed = [at_time(put, answer["storeTimestamp"], rules) for put, answer in zip(more, answers, strict=True)]
    config = config_of(survey_of(recipe, ours), recipe.config)
    with existing_store(ours, lambda: survey_of(recipe, ours), rules, config) as writer:
        results = writer.put_all(timed)
    both = Both(answers, results)
    assert [*answers_differ(both, rules), *differences(real, ours)] == []


def message(topic: str, queue_id: int, number: int) -> Message:
    return Message(
        topic=topic,
        queue_id=queue_id,
        body=b"%d" % number * 50,
        properties={"KEYS": f"ours-{number}", "TAGS": "ours", "UNIQ_KEY": f"{number:032X}"},
        born_timestamp_ms=1_700_000_000_000,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
    )
