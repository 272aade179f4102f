"""Forecasts of stores that few brokers meet, each held against what the real broker then does."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.findings.finding import Finding
from rmqtool.forecast.forecast import forecast_store
from rmqtool.forecast.options import ForecastOptions, forecast_options
from rmqtool.forecast.result import Forecast
from rmqtool.formats import commitlog
from rmqtool.formats.commitlog import SYS_FLAG_AT
from rmqtool.formats.consumequeue import UNIT_SIZE
from rmqtool.store.config.broker_conf import broker_conf
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import VerifyOptions
from tests.broker.broker import Judge
from tests.broker.files import copy_store

JudgeOf = Callable[[str], Judge]

LOG_FILE_SIZE = 32768
CONFIG = {"mappedFileSizeCommitLog": LOG_FILE_SIZE, "mappedFileSizeConsumeQueue": 2000}
BODY_AT = 88
"""Where the body of a record begins whose hosts are IPv4."""
BORN_AT = commitlog.MESSAGE_V1.position("born_timestamp_ms")
ROLLBACK = 0xC


def killed_store(judge: Judge, path: Path, config: Mapping[str, Any], count: int = 150) -> list[dict[str, Any]]:
    """A store whose broker was killed after `count` messages of 400 bytes; its answers."""
    path.mkdir()
    store = judge.open(path, config)
    answers = store.put(*({"topic": "T", "queueId": 0, "body": bytes(400)} for _ in range(count)))
    store.wait_dispatched()
    store.halt()
    return answers


def log_file(path: Path, physical_offset: int) -> tuple[Path, int]:
    """The file that holds a physical offset, and the position in it."""
    start = physical_offset - physical_offset % LOG_FILE_SIZE
    return path / "commitlog" / f"{start:020}", physical_offset - start


def assert_same(
    judge: Judge, path: Path, config: Mapping[str, Any], options: ForecastOptions | None = None
) -> Forecast:
    """Forecast, let the broker start, and compare the log's end, the queue and what is lost."""
    forecast = forecast_store(survey(open_directory(path)), rules_for(judge.version), options or ForecastOptions())
    report = judge.examine(path, config)
    assert forecast.starts == ("served" in report), forecast.why_not
    if forecast.starts:
        assert forecast.log_end_offset == report["afterLoad"]["offsets"]["max"]
        served = {
            (queue["topic"], queue["queueId"]): (queue["min"], queue["max"]) for queue in report["served"]["queues"]
        }
        for queue in forecast.queues:
            assert served[queue.topic, queue.queue_id] == (queue.min_queue_offset, queue.max_queue_offset)
    return forecast


@pytest.mark.parametrize(
    ("version", "record_crc"), [("4.4.0", False), ("4.9.7", False), ("5.5.0", False), ("5.5.0", True)]
)
def test_a_broker_that_checks_no_checksum_reads_on_behind_a_damaged_body(
    judge_of: JudgeOf, tmp_path: Path, version: str, record_crc: bool
) -> None:
    judge, path = judge_of(version), tmp_path / "store"
    more = {"enabledAppendPropCRC": True, "forceVerifyPropCRC": True} if record_crc else {}
    answers = killed_store(judge, path, CONFIG | more)
    file, position = log_file(path, answers[-20]["physicalOffset"])
    with file.open("r+b") as opened:
        opened.seek(position + BODY_AT)
        opened.write(b"x")
    ends = []
    for check_crc in (True, False):
        copy = tmp_path / f"check-{check_crc}"
        copy_store(path, copy)
        config = CONFIG | more | {"checkCRCOnRecover": check_crc}
        options = forecast_options(broker_conf({key: str(value) for key, value in config.items()}))
        ends.append(assert_same(judge, copy, config, options).log_end_offset)
    last = answers[-1]
    assert ends == [answers[-20]["physicalOffset"], last["physicalOffset"] + last["size"]]


@pytest.mark.parametrize("version", ["4.4.0", "4.9.7", "5.5.0"])
def test_host_flags_that_the_record_does_not_follow(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    """4.4.0 knows no IPv6 hosts and reads on; later brokers look for the body in the wrong place."""
    judge, path = judge_of(version), tmp_path / "store"
    answers = killed_store(judge, path, CONFIG)
    file, position = log_file(path, answers[-20]["physicalOffset"])
    with file.open("r+b") as opened:
        opened.seek(position + SYS_FLAG_AT)
        opened.write((0x30).to_bytes(4, "big"))
    forecast = assert_same(judge, path, CONFIG)
    assert (forecast.log_end_offset == answers[-20]["physicalOffset"]) == (version != "4.4.0")


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_log_file_whose_longer_name_sorts_before_others(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    judge, path = judge_of(version), tmp_path / "store"
    answers = killed_store(judge, path, CONFIG)
    last, _ = log_file(path, answers[-1]["physicalOffset"])
    assert len(list((path / "commitlog").iterdir())) > 2
    last.rename(last.with_name("00" + last.name))
    (path / "checkpoint").unlink()
    forecast = assert_same(judge, path, CONFIG)
    assert forecast.lost.messages > 0


@pytest.mark.parametrize("version", ["4.4.0", "4.9.8", "5.1.4", "5.5.1"])
@pytest.mark.parametrize(("count", "name"), [(90, f"{1:020}"), (150, f"{1:020}"), (150, "1"), (150, "1999")])
def test_a_queue_file_whose_name_lies_within_a_unit(
    judge_of: JudgeOf, tmp_path: Path, version: str, count: int, name: str
) -> None:
    """A pull of the last unit throws where a part of a unit follows it (4.x, BufferUnderflowException)."""
    judge, path = judge_of(version), tmp_path / "store"
    kinds = [0] * count + [ROLLBACK]  # the last record is in no queue, so recovery does not cut the queues again
    with judge.open(path, CONFIG) as store:
        store.put(*({"topic": "T", "queueId": 0, "body": bytes(400), "sysFlag": kind} for kind in kinds))
        store.wait_dispatched()
    first = min((path / "consumequeue" / "T" / "0").iterdir())
    first.rename(first.with_name(name))
    forecast = assert_same(judge, path, CONFIG)
    with judge.open(path, CONFIG) as store:
        [queue] = [row for row in store.read(brief=True)["queues"] if row["topic"] == "T"]
    served = {row[2] for row in queue["messages"] if row[1] == "FOUND"}
    assert forecast.lost.messages == count - len(served)


@pytest.mark.parametrize("version", ["4.9.8", "5.1.4"])
def test_a_queue_file_whose_name_lies_within_a_unit_above_expired_messages(
    judge_of: JudgeOf, tmp_path: Path, version: str
) -> None:
    """The minimum lies within a unit then too, whose message no pull gets."""
    judge, path = judge_of(version), tmp_path / "store"
    with judge.open(path, CONFIG) as store:
        sent = ({"topic": "T", "queueId": int(number % 50 == 0), "body": bytes(400)} for number in range(249))
        answers = store.put(*sent)
        store.wait_dispatched()
        assert store.expire(1)
    begin = int(min(file.name for file in (path / "commitlog").iterdir()))
    live = {answer["physicalOffset"] for answer in answers[::50] if answer["physicalOffset"] >= begin}
    assert 2 < len(live) < 5
    (first,) = (path / "consumequeue" / "T" / "1").iterdir()
    first.rename(first.with_name("1"))
    forecast = assert_same(judge, path, CONFIG)
    with judge.open(path, CONFIG) as store:
        [queue] = [row for row in store.read(brief=True)["queues"] if (row["topic"], row["queueId"]) == ("T", 1)]
    served = {row[2] for row in queue["messages"] if row[1] == "FOUND"}
    assert forecast.lost.messages == len(live - served) == 1


@pytest.mark.parametrize("version", ["4.9.7", "5.5.1"])
def test_a_cut_queue_file_beside_a_copy_of_a_wrong_name(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    """The end that recovery comes to is the place in each file, and dispatch goes on from there."""
    judge, path = judge_of(version), tmp_path / "store"
    killed_store(judge, path, CONFIG, 80)
    (path / "abort").unlink()
    file = min((path / "consumequeue" / "T" / "0").iterdir())
    file.with_name(f"{1:020d}").write_bytes(file.read_bytes())
    with file.open("r+b") as opened:
        opened.seek(52 * 20)
        opened.write(bytes(2000 - 52 * 20))
    [queue] = [row for row in assert_same(judge, path, CONFIG).queues if row.topic == "T"]
    assert queue.max_queue_offset >= 52


@pytest.mark.parametrize("version", ["4.9.7", "4.9.8"])
def test_a_cut_copy_of_a_queue_file_after_the_others(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    """Its end is the queue's, and the files before it stay as long as they were: the minimum lies after that end."""
    judge, path = judge_of(version), tmp_path / "store"
    path.mkdir()
    with judge.open(path, CONFIG) as store:
        store.put(*({"topic": "T", "queueId": number // 250, "body": bytes(400)} for number in range(251)))
        store.wait_dispatched()
    (path / "commitlog" / f"{0:020d}").unlink()
    copy = (path / "consumequeue" / "T" / "0" / f"{2000:020d}").read_bytes()
    (path / "consumequeue" / "T" / "0" / "1").write_bytes(copy[: 52 * 20].ljust(2000, b"\0"))
    [queue] = [row for row in assert_same(judge, path, CONFIG).queues if row.queue_id == 0]
    assert queue.min_queue_offset > queue.max_queue_offset == 52


@pytest.mark.parametrize(("version", "has_property"), [("5.3.3", True), ("5.5.0", True), ("5.5.0", False)])
def test_a_record_without_the_checksum_that_the_broker_asks_for(
    judge_of: JudgeOf, tmp_path: Path, version: str, has_property: bool
) -> None:
    judge, path = judge_of(version), tmp_path / "store"
    config = {**CONFIG, "enabledAppendPropCRC": has_property}
    answers = killed_store(judge, path, config)
    if has_property:  # the last record loses its last bytes, which hold the checksum
        file, position = log_file(path, answers[-1]["physicalOffset"] + answers[-1]["size"])
        with file.open("r+b") as opened:
            opened.seek(position - 20)
            opened.write(bytes(20))
    strict = {**config, "forceVerifyPropCRC": True}
    forecast = assert_same(judge, path, strict, replace(ForecastOptions(), record_crc=True))
    expected = answers[-1]["physicalOffset"] if has_property else 0
    assert forecast.log_end_offset == max(expected, forecast.scan_start_offset or 0)


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_a_record_whose_checksum_has_another_name_is_served(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    """It is one without a checksum for a broker that does not ask for it, though another of its bytes changed too."""
    judge, path = judge_of(version), tmp_path / "store"
    config = {**CONFIG, "enabledAppendPropCRC": True}
    *_, last = killed_store(judge, path, config)
    file, position = log_file(path, last["physicalOffset"])
    with file.open("r+b") as opened:
        for at, byte in ((last["size"] - 16, b"/"), (BORN_AT, b"\1")):
            opened.seek(position + at)
            opened.write(byte)
    forecast = assert_same(judge, path, config)
    [queue] = judge.examine(path, config)["served"]["queues"]
    assert forecast.lost.messages == 0
    assert queue["messages"][-1][:3] == [last["queueOffset"], "FOUND", last["physicalOffset"]]


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_dispatch_after_the_start_does_not_pass_the_log_end(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    """The last good record enters no queue, so dispatch goes on from before it; the bad body after it ends the log."""
    judge, path = judge_of(version), tmp_path / "store"
    path.mkdir()
    store = judge.open(path, CONFIG)
    store.stop_dispatch()
    kinds = [0] * 10 + [ROLLBACK] + [0] * 10
    answers = store.put(*({"topic": "T", "queueId": 0, "body": bytes(400), "sysFlag": kind} for kind in kinds))
    store.halt()
    file, position = log_file(path, answers[11]["physicalOffset"])
    with file.open("r+b") as opened:
        opened.seek(position + 200)
        opened.write(b"\xff")
    forecast = assert_same(judge, path, CONFIG)
    assert forecast.log_end_offset == answers[11]["physicalOffset"]


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_an_extension_file_of_another_length(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    judge, path = judge_of(version), tmp_path / "store"
    config = {**CONFIG, "enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 400}
    killed_store(judge, path, config, 40)
    files = sorted((path / "consumequeue_ext" / "T" / "0").iterdir())
    assert len(files) > 1
    os.truncate(files[-1], 200)
    assert not assert_same(judge, path, config).starts


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_an_extension_whose_unit_leads_out_of_its_file(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    judge, path = judge_of(version), tmp_path / "store"
    config = {**CONFIG, "enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 400}
    killed_store(judge, path, config, 40)
    file = min((path / "consumequeue_ext" / "T" / "0").iterdir())
    with file.open("r+b") as opened:
        opened.seek(20)
        opened.write((390).to_bytes(2, "big"))
    store = survey(open_directory(path))
    found: list[Finding] = []
    verify_store(store, rules_for(version), VerifyOptions(), found.append)
    assert any(each.id == "consumequeue.bad-extension" and each.file_position == 20 for each in found)
    assert not assert_same(judge, path, config).starts


@pytest.mark.parametrize("number", [5, 20])
@pytest.mark.parametrize(("version", "is_ahead"), [("4.9.7", False), ("5.1.4", True), ("5.5.1", True)])
def test_an_extension_whose_bitmap_reaches_past_the_end_of_its_file(
    judge_of: JudgeOf, tmp_path: Path, version: str, number: int, *, is_ahead: bool
) -> None:
    """A pull throws that comes to it; brokers since 5.0 look at the next unit of a queue file before they end one."""
    judge, path = judge_of(version), tmp_path / "store"
    sizes = {"mappedFileSizeConsumeQueue": 400, "mappedFileSizeConsumeQueueExt": 400}
    config = {**CONFIG, **sizes, "enableConsumeQueueExt": True}
    killed_store(judge, path, config, 40)
    in_file, at = divmod(number, 19)
    file = sorted((path / "consumequeue_ext" / "T" / "0").iterdir())[in_file]
    with file.open("r+b") as opened:
        opened.seek(20 * at + 18)
        opened.write((400).to_bytes(2, "big"))
    lost = forecast_store(survey(open_directory(path)), rules_for(version)).lost
    with judge.open(path, config) as store:
        rows = store.get("T", 0, range(40), count=1)["rows"]
    failing = [row[0] for row in rows if row[1] != "FOUND"]
    assert failing == ([number - 1] if is_ahead and number % 20 else []) + [number]
    assert {row[1] for row in rows} == {"FOUND", "java.nio.BufferUnderflowException"}
    assert lost.messages == len(failing)


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
@pytest.mark.parametrize(
    ("edits", "is_dispatched"),
    [
        ({0: 0x9000, 38: 0x7FFF}, False),
        ({60: 0, 418: 0x7FFF}, True),
        ({678: 60}, True),
        ({698: 60}, True),
    ],
    ids=["noise", "after the end", "over the end", "last"],
)
def test_an_extension_counts_up_to_the_end_of_its_units(
    judge_of: JudgeOf, tmp_path: Path, version: str, edits: dict[int, int], *, is_dispatched: bool
) -> None:
    """Load ends at a unit without a length; units after that lead nowhere, and dispatch writes over them."""
    judge, path = judge_of(version), tmp_path / "store"
    config = {**CONFIG, "mappedFileSizeConsumeQueueExt": 2000, "enableConsumeQueueExt": True}
    path.mkdir()
    store = judge.open(path, config)
    store.put(*({"topic": "T", "queueId": 0, "body": bytes(100)} for _ in range(35)))
    store.wait_dispatched()
    if is_dispatched:
        store.shutdown()
    else:
        store.stop_dispatch()
        store.put(*({"topic": "T", "queueId": 0, "body": bytes(100)} for _ in range(5)))
        store.halt()
    with min((path / "consumequeue_ext" / "T" / "0").iterdir()).open("r+b") as file:
        for position, number in edits.items():
            file.seek(position)
            file.write(number.to_bytes(2, "big"))
    forecast = assert_same(judge, path, config)
    if not forecast.starts:
        return
    with judge.open(path, config) as store:
        store.wait_dispatched()
        rows = store.get("T", 0, range(35 if is_dispatched else 40), count=1)["rows"]
    assert forecast.lost.messages == len([row for row in rows if row[1] != "FOUND"])


@pytest.mark.parametrize("version", ["4.4.0", "4.9.8", "5.5.1"])
def test_a_unit_whose_record_would_end_after_all_numbers(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    """From 4.5 on they add its size and get a negative number: nothing counts as dispatched, and no unit is cut."""
    judge, path = judge_of(version), tmp_path / "store"
    killed_store(judge, path, CONFIG)
    file = max((path / "consumequeue" / "T" / "0").iterdir())
    with file.open("r+b") as queue:
        queue.seek(149 % 100 * 20)
        queue.write(((1 << 63) - 1).to_bytes(8, "big"))
    forecast = assert_same(judge, path, CONFIG)
    with judge.open(path, CONFIG) as store:
        [row] = [row for row in store.read(brief=True)["queues"] if row["topic"] == "T"]
    assert forecast.lost.messages == 150 - len({message[2] for message in row["messages"] if message[1] == "FOUND"})


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3", "5.4.0", "5.5.1"])
def test_a_full_queue_file_that_ends_with_an_older_unit(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    """A start makes the next file for a record that the queue has already, and counts its first unit of zeros.

    It reads that file again, because another queue leads behind the end of the log.
    """
    judge, path = judge_of(version), tmp_path / "store"
    path.mkdir()
    store = judge.open(path, CONFIG)
    store.put(*({"topic": "T", "queueId": 0, "body": bytes(400)} for _ in range(99)))
    (last,) = store.put({"topic": "T", "queueId": 1, "body": bytes(400)})
    store.wait_dispatched()
    store.halt()
    queue_file = path / "consumequeue" / "T" / "0" / f"{0:020}"
    units = queue_file.read_bytes()
    queue_file.write_bytes(units[:-UNIT_SIZE] + units[90 * UNIT_SIZE : 91 * UNIT_SIZE])
    file, position = log_file(path, last["physicalOffset"])
    content = file.read_bytes()
    file.write_bytes(content[:position] + bytes(len(content) - position))
    assert_same(judge, path, CONFIG)
