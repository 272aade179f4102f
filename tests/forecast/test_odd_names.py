"""A file of a queue whose name lies within another one: whatever is read ends within a unit, and nothing breaks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import UnknownSizeError
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.forecast.forecast import forecast_store
from rmqtool.forecast.options import ForecastOptions
from rmqtool.store.directory import survey
from rmqtool.store.file_kinds import segment_name
from rmqtool.store.view import open_directory
from tests.commands.transcripts import rmqtool


@pytest.mark.parametrize("number", [1, 19, 21])
def test_a_copy_of_a_queue_file_within_it(tmp_path: Path, number: int) -> None:
    recipe = RECIPES["expired-head"]
    make_store(recipe, tmp_path, "5.4.0")
    for directory in (tmp_path / "consumequeue").glob("*/*"):
        for path in sorted(directory.iterdir())[1:]:
            path.unlink()
        [first] = directory.iterdir()
        shutil.copy(first, directory / f"{int(first.name) + number:020d}")
    store = survey(open_directory(tmp_path), recipe.conf.settings())
    for version in ("4.4.0", "4.9.7", "5.3.1", "5.4.0", "5.5.0"):
        forecast_store(store, rules_for(version), ForecastOptions())
        with open_reader(store, rules_for(version)) as reader:
            for topic, queue_id in reader.queues():
                reader.get_message(topic, queue_id, reader.queue(topic, queue_id).min_queue_offset)
    for command in ("recover", "rebuild", "salvage"):
        assert rmqtool(command, tmp_path, "--dry-run", "--broker-version", "5.4.0").code in (3, 4)


@pytest.mark.parametrize(("version", "starts"), [("4.9.7", True), ("5.0.0", True), ("5.1.0", False), ("5.5.0", False)])
def test_a_directory_whose_name_is_that_of_an_index_file(tmp_path: Path, version: str, starts: bool) -> None:
    recipe = RECIPES["keys-index"]
    make_store(recipe, tmp_path, "4.9.7")
    (tmp_path / "index" / "lost+found").mkdir()
    before = forecast_store(survey(open_directory(tmp_path)), rules_for(version), ForecastOptions())
    assert before.starts
    (tmp_path / "index" / "1").mkdir()
    after = forecast_store(survey(open_directory(tmp_path)), rules_for(version), ForecastOptions())
    assert after.starts == starts
    assert starts or after.why_not == "index/1: a directory in index/"


@pytest.mark.parametrize("version", ["5.1.4", "5.5.0"])
def test_what_a_start_deletes_before_it_fails_over_the_index(tmp_path: Path, version: str) -> None:
    """Brokers recover whatever the load of the index says: 5.1.4 and 5.5.1 deleted files, and then did not start."""
    make_store(RECIPES["keys-index"], tmp_path, "4.9.7")
    (tmp_path / "index" / "77").mkdir()
    [last] = sorted((tmp_path / "commitlog").iterdir())[-1:]
    following = last.with_name(segment_name(int(last.name) + last.stat().st_size))
    with following.open("wb") as file:
        file.truncate(last.stat().st_size)
    after = forecast_store(survey(open_directory(tmp_path)), rules_for(version), ForecastOptions())
    assert not after.starts
    assert after.deleted_files == (f"commitlog/{following.name}",)


@pytest.mark.parametrize("version", ["4.9.8", "5.5.0"])
def test_the_log_ends_later_by_what_a_wrong_name_adds(tmp_path: Path, version: str) -> None:
    """Recovery comes to 27382 in a file called 1, keeps that as the place in it, and adds 1 (4.9.8, 5.4.0, 5.5.0)."""
    recipe = RECIPES["single"]
    make_store(recipe, tmp_path, "4.9.7")
    (tmp_path / "abort").touch()
    settings = recipe.conf.settings()
    before = forecast_store(survey(open_directory(tmp_path), settings), rules_for(version), ForecastOptions())
    [file] = (tmp_path / "commitlog").iterdir()
    file.rename(file.with_name(segment_name(1)))
    after = forecast_store(survey(open_directory(tmp_path), settings), rules_for(version), ForecastOptions())
    assert after.stops_at is not None
    assert after.stops_at.physical_offset == before.log_end_offset + 1
    assert after.log_end_offset == before.log_end_offset + 2


def test_a_file_that_begins_within_another_hides_the_first_record_after_it(tmp_path: Path) -> None:
    """4.4.0 with 32768, 32769 and 65536 looks for offset 65536 in its file number 2, which holds that byte too."""
    make_store(RECIPES["many-files"], tmp_path, "4.4.0")
    (tmp_path / "abort").touch()
    before = forecast_store(survey(open_directory(tmp_path)), rules_for("4.4.0"), ForecastOptions())
    assert before.lost.messages == 0
    first, second, third = sorted((tmp_path / "commitlog").iterdir())[:3]
    twin = Path(shutil.copy(second, second.with_name(f"{int(second.name):022d}")))
    twins = forecast_store(survey(open_directory(tmp_path)), rules_for("4.4.0"), ForecastOptions())
    assert twins.lost.messages == 0
    twin.rename(second.with_name(segment_name(int(second.name) + 1)))
    after = forecast_store(survey(open_directory(tmp_path)), rules_for("4.4.0"), ForecastOptions())
    assert after.lost.messages == 1
    assert int(third.name) == 2 * int(second.name) > int(first.name) == 0


def test_a_queue_file_that_is_last_by_its_name_only_ends_the_queue(tmp_path: Path) -> None:
    """Of 0, 800, 1200 and 1 (400 bytes each), 4.9.7 reads up to 401, and deletes all files that begin later."""
    recipe = RECIPES["expired-head"]
    make_store(recipe, tmp_path, "4.9.7")
    settings = recipe.conf.settings()
    directory = next(path for path in sorted(tmp_path.glob("consumequeue/*/*")) if len(list(path.iterdir())) > 2)
    first, second, *later, last = sorted(directory.iterdir())
    second.rename(directory / str(int(first.name) + 1))
    last.unlink()  # all others are full
    after = forecast_store(survey(open_directory(tmp_path), settings), rules_for("4.9.7"), ForecastOptions())
    gone = {str(path.relative_to(tmp_path)) for path in later}
    assert gone <= set(after.deleted_files)


@pytest.mark.parametrize("name", ["basic", "inner-batch"])
def test_a_start_dispatches_into_a_queue_file_with_leading_zeros(tmp_path: Path, name: str) -> None:
    """5.5.1 wrote the units of 35 messages into a batch queue's file whose name had 22 digits, and served them."""
    recipe = RECIPES[name]
    make_store(recipe, tmp_path, "5.5.0")
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").unlink()
    unit = 46 if name == "inner-batch" else 20
    for directory in tmp_path.glob("*consumequeue/*/*"):  # as if they had been killed after two units
        *_, last = sorted(directory.iterdir())
        content = last.read_bytes()
        last.write_bytes(content[: 2 * unit].ljust(len(content), b"\0"))
    settings = recipe.conf.settings()
    before = forecast_store(survey(open_directory(tmp_path), settings), rules_for("5.5.0"))
    for directory in [*tmp_path.glob("*consumequeue/*/*")]:
        *_, last = sorted(directory.iterdir())
        last.rename(last.with_name(f"{int(last.name):022d}"))
    after = forecast_store(survey(open_directory(tmp_path), settings), rules_for("5.5.0"))
    assert (after.lost, after.queues) == (before.lost, before.queues)
    assert any(queue.max_queue_offset for queue in after.queues)


def test_a_start_that_searches_a_queue_without_end_is_no_start(tmp_path: Path) -> None:
    """5.4.0 halves 21 bytes for ever (`ConsumeQueue#correctMinOffset`), where all units lead before the log."""
    recipe = RECIPES["basic"]
    make_store(recipe, tmp_path, "5.4.0")
    *expired, last = sorted((tmp_path / "commitlog").iterdir())
    last.rename(last.with_name(segment_name(int(last.name) + 100 * last.stat().st_size)))
    for file in expired:
        file.unlink()
    directory, *_ = sorted((tmp_path / "consumequeue").glob("*/*"))
    first, *later = sorted(directory.iterdir())
    for file in later:
        file.unlink()
    content = first.read_bytes()
    first.rename(first.with_name("1")).write_bytes(content[:400].ljust(len(content), b"\0"))
    store = survey(open_directory(tmp_path), recipe.conf.settings())
    after = forecast_store(store, rules_for("5.4.0"), ForecastOptions())
    assert not after.starts
    assert "no end" in (after.why_not or "")
    with open_reader(store, rules_for("5.4.0")) as reader:
        assert all(reader.queue(*name).max_queue_offset for name in reader.queues())
        for name in reader.queues():
            reader.get_message(*name, 0)


def test_messages_of_a_log_file_and_its_copy_are_lost_once(tmp_path: Path) -> None:
    make_store(RECIPES["many-files"], tmp_path, "4.4.0")
    shutil.rmtree(min((tmp_path / "consumequeue").glob("*/*")))
    once = forecast_store(survey(open_directory(tmp_path)), rules_for("4.4.0"), ForecastOptions())
    assert once.lost.messages > 0
    for file in sorted((tmp_path / "commitlog").iterdir()):
        shutil.copy(file, file.with_name(f"{int(file.name):022d}"))
    twice = forecast_store(survey(open_directory(tmp_path)), rules_for("4.4.0"), ForecastOptions())
    assert twice.lost == once.lost


def test_a_log_file_called_0_is_the_log(tmp_path: Path) -> None:
    """4.9.8 and 5.5.1 load it, serve all messages, and end the log where it ended under its right name."""
    recipe = RECIPES["basic"]
    make_store(recipe, tmp_path, "4.9.7")
    settings = recipe.conf.settings()
    before = forecast_store(survey(open_directory(tmp_path), settings), rules_for("4.9.8"))
    file = min((tmp_path / "commitlog").iterdir())
    file.rename(file.with_name("0"))
    after = forecast_store(survey(open_directory(tmp_path), settings), rules_for("4.9.8"))
    assert after.starts
    assert (after.log_end_offset, after.messages_without_log, after.lost) == (before.log_end_offset, 0, before.lost)
    assert after.counted_from == 0


def test_the_size_of_a_log_file_called_0_counts_like_that_of_any_other(tmp_path: Path) -> None:
    make_store(RECIPES["single"], tmp_path, "4.9.7")
    [file] = (tmp_path / "commitlog").iterdir()
    size = file.stat().st_size
    file = file.rename(file.with_name("0"))
    assert survey(open_directory(tmp_path)).commitlog_file_size == size
    with file.open("r+b") as opened:
        opened.truncate(size + 1000)
    with pytest.raises(UnknownSizeError, match=f"commitlog/0: {size + 1000} bytes"):
        forecast_store(survey(open_directory(tmp_path)), rules_for("4.9.8"))


@pytest.mark.parametrize("version", ["4.4.0", "4.9.7", "5.5.1"])
def test_the_size_of_a_lone_queue_file_called_0_counts_like_that_of_any_other(tmp_path: Path, version: str) -> None:
    make_store(RECIPES["single"], tmp_path, "4.4.0" if version == "4.4.0" else "4.9.7")
    files = list((tmp_path / "consumequeue").glob("*/*/*"))
    for file in files[1:]:
        shutil.rmtree(file.parent, ignore_errors=True)
    before = forecast_store(survey(open_directory(tmp_path)), rules_for(version))
    files[0].rename(files[0].with_name("0"))
    store = survey(open_directory(tmp_path))
    assert not store.queues
    after = forecast_store(store, rules_for(version))
    assert after.starts
    assert (after.queues, after.lost, after.assumptions) == (before.queues, before.lost, before.assumptions)


@pytest.mark.parametrize("version", ["4.4.0", "4.9.7", "5.3.1", "5.5.1"])
@pytest.mark.parametrize(("name", "bounds"), [("1", (30, 30)), (f"{21:020d}", (1, 33))])
def test_a_misnamed_queue_file_ends_the_queue_at_its_own_place(
    tmp_path: Path, version: str, name: str, bounds: tuple[int, int]
) -> None:
    """Bounds as 4.4.0 to 5.5.1 gave them for a queue of 33 units in two files of 600 bytes."""
    recipe = RECIPES["basic"]
    make_store(recipe, tmp_path, "4.4.0" if version == "4.4.0" else "4.9.7")
    first = min((tmp_path / "consumequeue" / "orders" / "0").iterdir())
    first.rename(first.with_name(name))
    after = forecast_store(survey(open_directory(tmp_path), recipe.conf.settings()), rules_for(version))
    [queue] = [queue for queue in after.queues if (queue.topic, queue.queue_id) == ("orders", 0)]
    assert (queue.min_queue_offset, queue.max_queue_offset) == bounds


@pytest.mark.parametrize("version", ["4.9.7", "5.5.1"])
def test_a_queue_with_a_negative_id_is_one_like_others(tmp_path: Path, version: str) -> None:
    """4.4.0, 4.9.7, 5.3.1 and 5.5.1 took a message for queue -5, loaded its directory `-5` and served it."""
    recipe = RECIPES["single"]
    make_store(recipe, tmp_path, "4.9.7")
    with (tmp_path / "commitlog" / segment_name(0)).open("r+b") as log:
        log.seek(12)
        log.write((-5).to_bytes(4, "big", signed=True))
    shutil.rmtree(tmp_path / "consumequeue" / "orders")
    ran = rmqtool("recover", tmp_path, "--broker-version", version, "--yes", "--full", "--queue-file-size", 600)
    assert ran.code == 0, ran.out
    after = forecast_store(survey(open_directory(tmp_path), recipe.conf.settings()), rules_for(version))
    assert [(queue.topic, queue.queue_id, queue.max_queue_offset) for queue in after.queues] == [("orders", -5, 1)]
    assert after.lost.messages == 0
    where = ("--topic", "orders", "--queue-id", -5, "--queue-offset", 0)
    assert "FOUND" in rmqtool("get", tmp_path, *where, "--broker-version", version).out
    assert '"queue_id": -5' in rmqtool("dump", tmp_path, "--type", "consumequeue", "--format", "jsonl").out


@pytest.mark.parametrize(("version", "starts"), [("4.4.0", True), ("4.9.7", False)])
def test_a_copy_of_the_last_log_file_within_it(tmp_path: Path, version: str, starts: bool) -> None:
    """The end of the log is that of the copy, a byte later, and the file itself is read to its own end: 4.9.7 hung."""
    recipe = RECIPES["many-files"]
    make_store(recipe, tmp_path, version)
    store = survey(open_directory(tmp_path), recipe.conf.settings())
    end = forecast_store(store, rules_for(version), ForecastOptions()).log_end_offset
    assert end is not None
    [last] = [tmp_path / segment.path for segment in store.commitlog if segment.start <= end < segment.end]
    for later in store.commitlog:
        if later.start > end:
            (tmp_path / later.path).unlink()
    shutil.copy(last, last.with_name(f"{int(last.name) + 1:020d}"))
    store = survey(open_directory(tmp_path), recipe.conf.settings())
    forecast = forecast_store(store, rules_for(version), ForecastOptions())
    assert (forecast.starts, forecast.log_end_offset) == (starts, end + 1)
    expected = f"dispatch waits forever at physical offset {end}, where there is no record"
    assert forecast.why_not == (None if starts else expected)
