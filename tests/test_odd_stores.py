"""Odd stores are judged as a real broker treats them: tests/golden/life/README.md says how that is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtool.store.file_kinds import segment_name
from tests.commands.transcripts import json_answer, rmqtool
from tests.golden_stores import LIFE_FOLDER, unpack
from tests.odd_stores import MIXED_CONF, odd_names, unpack_odd
from tests.repair.dledger_stores import records_of
from tests.store_state import store_state
from tests.tiered_store import add_tiered


def test_each_odd_store_is_told_of() -> None:
    page = (LIFE_FOLDER / "README.md").read_text("utf-8")
    assert len(odd_names()) == 7
    assert [name for name in odd_names() if f"| {name}" not in page] == []


def ids(answer: dict[str, Any]) -> set[str]:
    """What is found, but for notes."""
    return {finding["id"] for finding in answer["findings"] if finding["severity"] != "note"}


def test_a_last_record_without_properties_is_counted_to_its_end(tmp_path: Path) -> None:
    store = unpack_odd("dledger-empty-properties", tmp_path)
    _, verified = json_answer("verify", store)
    assert (verified["summary"]["checked"]["records"], verified["summary"]["complete"]) == (10, True)
    assert ids(verified) == {"checkpoint.missing", "consumequeue.missing-queue"}  # 5.x serves none of them before
    step = verified["summary"]["next_step"]  # rebuild refuses without the size
    assert (step["command"], "--queue-file-size" in step["reason"]) == (None, True), step


@pytest.mark.parametrize("options", [(), ("--broker-conf", MIXED_CONF)])
def test_a_plain_log_is_continued_by_one_of_dledger(tmp_path: Path, options: tuple[object, ...]) -> None:
    store = unpack_odd("mixed-plain-then-dledger", tmp_path)
    code, verified = json_answer("verify", store, *options)
    assert (code, verified["summary"]["verdict"], verified["summary"]["checked"]["records"]) == (0, "ok", 3000)
    assert {finding["id"] for finding in verified["findings"]} == {"dledger.continues-log"}
    code, shown = json_answer("forecast", store, *options)
    assert (code, shown["verdict"], shown["not_looked_at"][0]["path"]) == (4, "not-fully-checked", "dledger-n0")
    before = store_state(store)
    for command in ("recover", "salvage"):
        ran = rmqtool(command, store, *options, "--accept-loss", "--yes", "--log-file-size", 102400)
        assert (ran.code, "DLedger" in ran.err, store_state(store) == before) == (4, True, True)
        assert "rmqtool rebuild repairs its consume queues and index" in ran.err


def test_settings_that_turn_dledger_off_are_told_of(tmp_path: Path) -> None:
    store, conf = unpack_odd("mixed-plain-then-dledger", tmp_path), tmp_path / "off.conf"
    conf.write_text(MIXED_CONF.read_text("utf-8").replace("enableDLegerCommitLog=true\n", ""), "utf-8")
    code, verified = json_answer("verify", store, "--broker-conf", conf)
    assert (code, ids(verified)) == (3, {"dledger.not-enabled"})
    assert "enableDLegerCommitLog=true" in verified["summary"]["next_step"]["reason"]
    ran = rmqtool("recover", store, "--broker-conf", conf, "--accept-loss", "--yes")
    assert (ran.code, "DLedger" in ran.err) == (4, True)


def test_both_logs_become_one_plain_log(tmp_path: Path) -> None:
    store, output = unpack_odd("mixed-plain-then-dledger", tmp_path), tmp_path / "plain"
    ran = rmqtool("convert", store, "--from-dledger", "--output", output, "--yes", "--broker-conf", MIXED_CONF)
    assert ran.code == 0, ran.err
    code, verified = json_answer("verify", output)
    assert (code, verified["summary"]["checked"]["records"], verified["findings"]) == (0, 3000, [])
    for file in (store / "commitlog").iterdir():
        assert (output / "commitlog" / file.name).read_bytes() == file.read_bytes()


def test_a_log_of_dledger_without_its_data_is_missing(tmp_path: Path) -> None:
    store = unpack_odd("dledger-data-missing", tmp_path)
    for command in ("info", "verify", "forecast"):
        code, shown = json_answer(command, store)
        summary = shown.get("summary", shown)
        assert (code, summary["verdict"]) == (0 if command == "info" else 3, "log-missing")
        assert "dledger-n0/data" in summary["headline"]
    _, shown = json_answer("forecast", store)
    assert len(shown["forecasts"][0]["deleted_files"]) == 12
    assert json_answer("recover", store, "--dry-run")[1]["verdict"] == "log-missing"
    ran = rmqtool("convert", store, "--from-dledger", "--output", tmp_path / "plain", "--dry-run")
    assert (ran.code, "check that its disk is mounted" in ran.err) == (4, True), ran


def test_of_several_logs_of_dledger_none_is_read_and_none_is_ok(tmp_path: Path) -> None:
    store = unpack_odd("dledger-empty-properties", tmp_path)
    shutil.copytree(store / "dledger-n0", store / "dledger-n1")
    code, verified = json_answer("verify", store)
    assert (code, verified["summary"]["checked"]["records"], verified["summary"]["complete"]) == (3, 0, False)
    assert "--broker-conf" in str(verified["summary"]["not_looked_at"])
    conf = tmp_path / "broker.conf"
    conf.write_text("enableDLegerCommitLog=true\ndLegerSelfId=n1\nmappedFileSizeCommitLog=102400\n", "utf-8")
    _, verified = json_answer("verify", store, "--broker-conf", conf)
    assert (verified["summary"]["checked"]["records"], verified["summary"]["complete"]) == (10, True)


def test_batch_queues_without_topics_do_not_load_where_a_timer_tells_of_a_broker(tmp_path: Path) -> None:
    store = unpack_odd("batchcq-no-topics", tmp_path)
    code, verified = json_answer("verify", store)
    assert (code, verified["summary"]["verdict"]) == (3, "will-not-start")
    assert "config.topics-missing" in ids(verified)
    assert any("of 1 topic with queues" in finding["message"] for finding in verified["findings"])
    code, shown = json_answer("forecast", store)
    assert (code, shown["verdict"], shown["next_step"]["command"].split()[1:4:2]) == (
        3, "will-not-start", ["rebuild", "--topics"],
    )  # fmt: skip
    assert rmqtool("rebuild", store, "--topics", "--yes").code == 3  # `abort` is there still
    code, shown = json_answer("forecast", store)
    assert (code, shown["verdict"]) == (0, "ok")


def test_a_directory_with_a_tiered_store_and_its_metadata_is_a_store_without_its_log(tmp_path: Path) -> None:
    unpack("5.5.0-clean-basic", tmp_path)
    store = tmp_path / "5.5.0-clean-basic"
    add_tiered(store, 20)
    for path in store.iterdir():
        if path.name not in ("config", "tiered"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    code, verified = json_answer("verify", store)
    assert (code, verified["summary"]["verdict"]) == (3, "log-missing")
    ran = rmqtool("dump", store, "--type", "tiered", "--format", "jsonl")
    assert (ran.code, len(ran.out.splitlines()) > 20) == (0, True)
    shutil.rmtree(store / "config")
    ran = rmqtool("verify", store)
    assert (ran.code, "tieredStoreMetadata.json" in ran.err) == (4, True)


def test_a_lone_log_file_of_an_unusual_size_depends_on_the_size(tmp_path: Path) -> None:
    """No other size that holds the file divides its name, 1700; at offset 0 nothing shows the size."""
    store = unpack_odd("single-file-1700", tmp_path)
    code, shown = json_answer("forecast", store)
    assert (code, shown["verdict"]) == (0, "ok")
    assert "only the length of the only commit log file" in str(shown["forecasts"][0]["assumptions"])
    (log,) = (store / "commitlog").iterdir()
    records = [moved(record, 1700) for record in records_of(log.read_bytes())]
    log.unlink()
    log = log.with_name(segment_name(0))
    log.write_bytes(b"".join(records).ljust(1700, b"\0"))
    for command in ("forecast", "recover"):
        ran = rmqtool(command, store)
        assert (ran.code, "nothing shows whether that is the size of a full file" in ran.err) == (5, True)
    _, verified = json_answer("verify", store)
    assert "commitlog.wrong-file-size" not in ids(verified)
    assert "--log-file-size" in str(verified["summary"]["not_looked_at"])
    assert {json_answer(command, store)[1].get("verdict") for command in ("info", "verify")} == {"inconsistent", None}
    (forecast,) = json_answer("forecast", store, "--log-file-size", 1700)[1]["forecasts"]
    assert (forecast["starts"], forecast["lost"]["messages"]) == (True, 0)
    log.write_bytes(log.read_bytes()[:1500])
    assert json_answer("forecast", store)[1]["verdict"] == "will-not-start"  # its last record does not end in it


def moved(record: bytearray, distance: int) -> bytes:
    """A record that lies earlier in the log."""
    record[28:36] = (int.from_bytes(record[28:36], "big") - distance).to_bytes(8, "big")
    return bytes(record)


def test_an_index_that_never_was_is_no_damage(tmp_path: Path) -> None:
    store = unpack_odd("no-index-broker", tmp_path)
    conf = store.parent / "b.conf"
    code, verified = json_answer("verify", store)
    assert (code, {finding["id"] for finding in verified["findings"]}) == (0, {"index.absent"})
    code, forecast = json_answer("forecast", store)
    assert (code, forecast["verdict"], forecast["next_step"]["command"]) == (0, "ok", None)
    assert json_answer("forecast", store, "--broker-version", "all")[0] == 0
    code, verified = json_answer("verify", store, "--broker-conf", conf)
    assert (code, verified["findings"]) == (0, [])
    for options in ((), ("--broker-conf", conf)):
        before = store_state(store)
        assert (rmqtool("recover", store, "--yes", *options).code, store_state(store) == before) == (0, True)
    assert rmqtool("rebuild", store, "--yes", "--broker-conf", conf).code == 0
    assert not (store / "index").exists()


@pytest.mark.parametrize("trace", ["the directory", "a time in the checkpoint", "the settings"])
def test_an_index_that_was_there_is_lost(tmp_path: Path, trace: str) -> None:
    store = unpack_odd("no-index-broker", tmp_path)
    conf, options = tmp_path / "on.conf", ()
    if trace == "the directory":
        (store / "index").mkdir()
    elif trace == "the settings":
        conf.write_text("mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=6000\n", "utf-8")
        options = ("--broker-conf", conf)
    else:
        with (store / "checkpoint").open("r+b") as file:
            file.seek(16)
            file.write((1_700_000_000_000).to_bytes(8, "big"))
    code, verified = json_answer("verify", store, *options)
    assert (code, ids(verified)) == (3, {"index.missing-file"})


def test_a_timer_that_takes_messages_again_is_found_and_mended(tmp_path: Path) -> None:
    store = unpack_odd("timercheck-behind", tmp_path)
    code, verified = json_answer("verify", store)
    (behind,) = (finding for finding in verified["findings"] if finding["id"] == "timer.check-behind")
    assert (code, behind["count"], behind["file"]) == (3, 20, "config/timercheck")
    code, shown = json_answer("forecast", store)
    assert (code, shown["verdict"], shown["timer"][0]["id"]) == (3, "inconsistent", "timer.check-behind")
    rows = [json.loads(line) for line in rmqtool("dump", store, "--pending", "--format", "jsonl").out.splitlines()]
    assert len(rows) == len({row["unique_key"] for row in rows}) == 48
    ran = rmqtool("recover", store, "--yes")
    assert "timers that wait" in " ".join(ran.out.split()), ran.err
    assert "timer.check-behind" not in ids(json_answer("verify", store)[1])
    assert json_answer("forecast", store)[1]["verdict"] == "ok"
