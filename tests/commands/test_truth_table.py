"""Headlines are true: each store that was called better than it is, or worse, and what every command says of it now."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import golden_stores
from tests.commands.advice import REPAIRS, follow
from tests.commands.transcripts import rmqtool
from tests.commands.truth_table import CLEAN, TABLE, spoil
from tests.conftest import Unpacked
from tests.store_state import assert_store_unchanged

QUEUE = ("--topic", "OrderEvents", "--queue-id", "0", "--queue-offset", "0")
OTHER_USER = 65534


def answer(command: str, path: Path, *options: object) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of a command that only looks."""
    with assert_store_unchanged(path):
        ran = rmqtool(command, path, *options, "--format", "json")
    assert "internal error" not in ran.err
    assert ran.out, ran.err
    return ran.code, json.loads(ran.out)


@contextmanager
def other_user(path: Path) -> Iterator[None]:
    """Run as a user who may enter the directories above the store, but owns nothing."""
    for directory in path.parents:
        if directory.stat().st_uid == os.geteuid() and directory != Path("/"):
            directory.chmod(directory.stat().st_mode | 0o111)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(OTHER_USER)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.parametrize("emptied", [False, True], ids=["missing", "empty"])
def test_get_answers_and_claims_nothing_where_the_log_is_missing(golden_copy: Unpacked, emptied: bool) -> None:
    path = golden_copy(CLEAN)
    shutil.rmtree(path / "commitlog")
    if emptied:
        (path / "commitlog").mkdir()
    ran = rmqtool("get", path, *QUEUE)
    assert ran.code == 4
    assert "LOG MISSING" in ran.err


def test_get_does_not_call_absent_what_it_may_not_read(golden_copy: Unpacked) -> None:
    path = golden_copy(CLEAN)
    record = golden_stores.manifest(CLEAN).records[0]
    assert rmqtool("get", path, "--message-id", record.msg_id).code == 0
    (path / "commitlog").chmod(0)
    with other_user(path):
        ran = rmqtool("get", path, "--message-id", record.msg_id)
    (path / "commitlog").chmod(0o755)
    assert ran.code == 4
    assert "permission denied" in ran.err


@pytest.mark.parametrize("form", ["{}", "0x{}", '"{}"', "msgId={}, offsetMsgId=null", "SendResult [msgId={}, x]"])
def test_get_takes_the_id_that_clients_print(golden: Unpacked, form: str) -> None:
    record = next(each for each in golden_stores.manifest(CLEAN).records if "UNIQ_KEY" in each.properties)
    unique_key = record.properties["UNIQ_KEY"]
    for message_id in (unique_key, unique_key.lower(), record.msg_id, record.msg_id.lower()):
        code, found = answer("get", golden(CLEAN), "--message-id", form.format(message_id))
        assert code == 0
        assert [row["physical_offset"] for row in found["messages"]] == [record.at]


def test_get_says_what_it_could_not_look_into(golden: Unpacked) -> None:
    code, found = answer("get", golden("broker-5.5.0-compaction"), "--topic", "TopicTest", "--key", "no such key")
    assert code == 4
    assert "compaction log" in [files["kind"] for files in found["not_looked_at"]]


def test_get_names_the_topics_that_are_near(golden: Unpacked) -> None:
    for options in (("--queue-id", 0, "--queue-offset", 0), ("--key", "x")):
        ran = rmqtool("get", golden(CLEAN), "--topic", "OrderEvent", *options)
        assert ran.code == 6
        assert "did you mean OrderEvents?" in ran.err


def summary_of(path: Path) -> tuple[int, dict[str, Any]]:
    code, found = answer("verify", path)
    summary: dict[str, Any] = found["summary"]
    assert (summary["verdict"] == "ok") == (code == 0) == (summary["complete"] and not above_note(found))
    assert summary["complete"] == (not summary["not_looked_at"])
    return code, summary


def above_note(found: dict[str, Any]) -> list[str]:
    return [each["id"] for each in found["findings"] if each["severity"] != "note"]


FORECAST_ROWS = {
    ("wheel cut", "timer log"),
    ("timer log half zeroed", "timer log"),
    ("compaction log overwritten", "compaction log"),
    ("compaction log cut", "compaction log"),
}
"""What verify and forecast look at, and info does not."""
VERIFY_ROWS = {("DLedger overwritten", "DLedger")}
"""What only verify looks at."""
ROWS = pytest.mark.parametrize(("row", "name", "verdict", "kind"), TABLE, ids=[row[0] for row in TABLE])


@ROWS
def test_verify_says_what_is_true(golden_copy: Unpacked, row: str, name: str, verdict: str, kind: str | None) -> None:
    path = golden_copy(name)
    spoil(path, row)
    code, summary = summary_of(path)
    assert (code, summary["verdict"]) == (3, verdict), summary["headline"]
    looked_at = kind is None or (row, kind) in {*FORECAST_ROWS, *VERIFY_ROWS}
    assert looked_at or kind in {files["kind"] for files in summary["not_looked_at"]}
    assert "messages are lost" not in summary["headline"]


def test_verify_does_not_call_lost_what_it_may_not_read(golden_copy: Unpacked) -> None:
    path = golden_copy(CLEAN)
    assert rmqtool("verify", path).code == 0  # the other user may not read Python's own modules
    (path / "commitlog").chmod(0)
    with other_user(path):
        ran = rmqtool("verify", path, "--format", "json")
    (path / "commitlog").chmod(0o755)
    summary = json.loads(ran.out)["summary"]
    assert (ran.code, summary["verdict"], summary["next_step"]["command"]) == (4, "not-readable", None)
    assert "commitlog.missing-file" not in summary["findings"]
    assert "sudo -u" in summary["headline"]


FORECASTS = {
    "tables overwritten": (3, "will-not-start"),
    "CURRENT empty": (3, "will-not-start"),
    "units removed": (3, "will-not-start"),
    "three units removed": (3, "would-lose"),
    "wheel cut": (3, "will-not-start"),
    "timer log half zeroed": (3, "inconsistent"),
    "compaction log overwritten": (3, "inconsistent"),
    "compaction log cut": (3, "inconsistent"),
    "DLedger overwritten": (4, "not-fully-checked"),
    "topics lost": (3, "inconsistent"),
    "log missing": (3, "log-missing"),
    "log empty": (3, "log-missing"),
    "last log file short": (3, "will-not-start"),
    "stray file": (3, "will-not-start"),
    "middle file missing": (3, "would-lose"),
}


@ROWS
def test_forecast_says_what_is_true(golden_copy: Unpacked, row: str, name: str, verdict: str, kind: str | None) -> None:
    assert verdict
    path = golden_copy(name)
    spoil(path, row)
    code, found = answer("forecast", path)
    assert (code, found["verdict"]) == FORECASTS[row], found["headline"]
    looked_at = kind is None or (row, kind) in FORECAST_ROWS
    assert looked_at or kind in {files["kind"] for files in found["not_looked_at"]}
    screen = rmqtool("forecast", path)
    assert screen.out.startswith(found["verdict"].upper().replace("-", " "))
    assert "lose no" not in screen.out or found["verdict"] == "ok"


INFOS = {
    "compaction log overwritten": "not-fully-checked",
    "compaction log cut": "not-fully-checked",
    "DLedger overwritten": "not-fully-checked",
    "topics lost": "inconsistent",
    "middle file missing": "damaged",
    "timer log half zeroed": "not-fully-checked",
    "three units removed": "not-fully-checked",
}


@ROWS
def test_info_says_what_is_true(golden_copy: Unpacked, row: str, name: str, verdict: str, kind: str | None) -> None:
    path = golden_copy(name)
    spoil(path, row)
    code, found = answer("info", path)
    assert (code, found["verdict"]) == (0, INFOS.get(row, verdict)), found["headline"]
    assert kind is None or kind in {files["kind"] for files in found["not_looked_at"]}
    assert "nothing to do" not in found["next_step"]["reason"]
    assert found["next_step"]["command"] is not None or found["needs_decision"]


def test_a_store_with_its_queues_in_rocksdb_can_be_ok(golden: Unpacked) -> None:
    path = golden("5.5.0-rocksdb-cq")
    assert summary_of(path)[1]["verdict"] == "ok"
    assert answer("forecast", path)[1]["verdict"] == "ok"
    _, found = answer("info", path)
    assert found["consumequeue"]["kind"] == "rocksdb"
    assert (found["consumequeue"]["topic_count"], found["consumequeue"]["queue_count"]) == (3, 6)
    code, found = answer("get", path, "--topic", "Audit", "--queue-id", 0, "--queue-offset", 43)
    assert (code, [row["physical_offset"] for row in found["messages"]]) == (0, [120_092])


def test_without_the_library_nothing_is_claimed(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtool.store.databases.rocksdb.LIBRARY", "no_such_library")
    path = golden("5.5.0-rocksdb-cq")
    for command, code in (("verify", 3), ("forecast", 4), ("info", 0)):
        ran, found = answer(command, path)
        found = found.get("summary", found)
        assert (ran, found["verdict"]) == (code, "not-fully-checked"), command
        kinds = {files["kind"]: files["reason"] for files in found["not_looked_at"]}
        assert "install rmqtool[rocksdb]" in kinds["RocksDB consume queue"]
        if command == "verify":
            assert (found["next_step"]["command"], found["needs_decision"]) == (None, True)
            assert "pip install '.[rocksdb]'" in found["next_step"]["reason"]
    assert rmqtool("get", path, "--topic", "Audit", "--queue-id", 0, "--queue-offset", 43).code == 4


def test_info_does_not_promise_what_it_may_not_read(golden_copy: Unpacked) -> None:
    path = golden_copy(CLEAN)
    assert rmqtool("info", path).code == 0
    (path / "commitlog").chmod(0)
    with other_user(path):
        ran = rmqtool("info", path, "--format", "json")
    (path / "commitlog").chmod(0o755)
    found = json.loads(ran.out)
    assert (found["verdict"], found["needs_decision"]) == ("not-readable", True)


DIFFS = {
    "tables overwritten": (3, "not-fully-checked"),
    "CURRENT empty": (3, "not-fully-checked"),
    "units removed": (3, "not-fully-checked"),
    "three units removed": (3, "inconsistent"),
    "wheel cut": (3, "not-fully-checked"),
    "timer log half zeroed": (3, "not-fully-checked"),
    "compaction log overwritten": (3, "not-fully-checked"),
    "compaction log cut": (3, "not-fully-checked"),
    "DLedger overwritten": (4, None),
    "topics lost": (3, "inconsistent"),
    "log missing": (3, "log-missing"),
    "log empty": (3, "log-missing"),
    "last log file short": (3, "not-fully-checked"),
    "stray file": (3, "not-fully-checked"),
    "middle file missing": (3, "inconsistent"),
}


@ROWS
def test_diff_says_what_is_true(
    golden: Unpacked, golden_copy: Unpacked, tmp_path: Path, row: str, name: str, verdict: str, kind: str | None
) -> None:
    path = golden_copy(name)
    spoil(path, row)
    for words in ((golden(name), path), (path, golden(name))):
        check_diff(row, kind, *words)
    if DIFFS[row][1] is not None:
        assert rmqtool("diff", golden(name), "--make-manifest", tmp_path / "manifest").code == 0
        check_diff(row, kind, path, "--manifest", tmp_path / "manifest")


def check_diff(row: str, kind: str | None, *words: object) -> None:
    ran = rmqtool("diff", *words, "--format", "json")
    code, verdict = DIFFS[row]
    assert ran.code == code, ran.err
    if verdict is None:
        assert "DLedger" in ran.err
        return
    answer = json.loads(ran.out)
    assert answer["verdict"] == verdict, answer["headline"]
    assert kind is None or kind in str(answer["not_looked_at"]).replace("wheel", "log")
    screen = rmqtool("diff", *words).out
    assert not screen.startswith("EQUAL")


GETS = {
    "tables overwritten": 4,
    "CURRENT empty": 4,
    "units removed": 4,
    "compaction log overwritten": 4,
    "compaction log cut": 4,
    "DLedger overwritten": 4,
    "log missing": 4,
    "log empty": 4,
    "three units removed": 0,
    "last log file short": 0,
    "stray file": 0,
    "middle file missing": 0,
}
"""Rows whose stores have the queue, or hide whether they have it."""


@pytest.mark.parametrize("row", GETS)
def test_get_says_what_is_true(golden_copy: Unpacked, row: str) -> None:
    path = golden_copy(next(each[1] for each in TABLE if each[0] == row))
    spoil(path, row)
    ran = rmqtool("get", path, *QUEUE)
    assert ran.code == GETS[row], ran.err
    assert "internal error" not in ran.err
    assert ("LOG MISSING" in ran.err) == row.startswith("log ")


@ROWS
@pytest.mark.parametrize("command", REPAIRS)
def test_plans_say_what_is_true(
    golden_copy: Unpacked, command: str, row: str, name: str, verdict: str, kind: str | None
) -> None:
    path = golden_copy(name)
    spoil(path, row)
    with assert_store_unchanged(path):
        ran = rmqtool(command, path, "--dry-run", "--format", "json")
        screen = rmqtool(command, path, "--dry-run")
    assert "internal error" not in ran.err
    assert "othing to do" not in screen.out
    if not ran.out:  # the log is missing, or not decoded: nothing is planned
        assert ran.code == 4
        assert verdict in ("log-missing", "not-fully-checked") or kind == "DLedger"
        return
    plan = json.loads(ran.out)
    assert ran.code == 3
    assert plan["steps"] or plan["verdict"] != "ok", plan["headline"]
    assert plan["next_step"]["command"] is not None or plan["needs_decision"]


@ROWS
def test_advice_closes(golden_copy: Unpacked, row: str, name: str, verdict: str, kind: str | None) -> None:
    path = golden_copy(name)
    spoil(path, row)
    walk = follow(path)
    is_repaired = row in ("last log file short", "stray file", "middle file missing")
    assert walk.is_ok or not is_repaired, walk


def test_a_broker_without_a_timer_does_not_read_its_files(golden_copy: Unpacked, tmp_path: Path) -> None:
    """A real broker with timerWheelEnable=false starts: tests/broker/test_timer_off.py."""
    path, conf = golden_copy("broker-5.5.0-timer"), tmp_path / "broker.conf"
    spoil(path, "wheel cut")
    conf.write_text("timerWheelEnable=false\nmappedFileSizeCommitLog=262144\n", "utf-8")
    code, found = answer("forecast", path, "--broker-conf", conf)
    assert (code, found["verdict"]) == (0, "ok"), found["headline"]
    assert "timer" not in str(answer("info", path, "--broker-conf", conf)[1]["not_looked_at"])
    conf.write_text("timerWheelEnable=true\nmappedFileSizeCommitLog=262144\n", "utf-8")
    assert answer("forecast", path, "--broker-conf", conf)[1]["verdict"] == "will-not-start"


def test_recover_that_cuts_does_not_promise_to_lose_nothing(golden: Unpacked) -> None:
    path = golden("5.5.0-damage-zero-hole-abort")
    code, plan = answer("recover", path, "--cut-at-damage", "--dry-run", "--full")
    assert (code, plan["verdict"]) == (3, "would-lose")
    assert plan["loss"]["messages"] > 0
    assert f"{plan['loss']['messages']} messages" in plan["headline"]
    screen = rmqtool("recover", path, "--cut-at-damage", "--dry-run", "--full").out
    assert "loses nothing" not in screen


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize("command", ["recover", "salvage"])
def test_no_repair_offers_a_cut_where_only_times_speak_for_it(golden: Unpacked, version: str, command: str) -> None:
    path = golden(f"{version}-stale-tail")
    findings = answer("verify", path)[1]["findings"]
    (tail,) = (finding for finding in findings if finding["id"] == "commitlog.resurrected-tail")
    assert (tail["severity"], tail["repair"]) == ("note", None)
    assert "the clock was set back" in tail["message"]
    assert "--cut-at" not in rmqtool("verify", path).out + rmqtool(command, path, "--dry-run").out


@pytest.mark.parametrize("row", ["compaction log overwritten", "topics lost"])
def test_recover_has_nothing_to_do_only_where_all_was_looked_at(golden_copy: Unpacked, row: str) -> None:
    name = next(each[1] for each in TABLE if each[0] == row)
    path = golden_copy(name)
    spoil(path, row)
    code, plan = answer("recover", path, "--dry-run")
    assert (code, plan["steps"]) == (3, [])
    assert plan["verdict"] in ("not-fully-checked", "inconsistent")
    assert "Nothing to do" not in rmqtool("recover", path, "--dry-run").out


@pytest.mark.parametrize("name", ["4.9.7-damage-log-middle-file-missing", "5.5.0-damage-log-middle-file-missing"])
def test_brokers_start_without_a_middle_file_and_lose_what_is_in_it(golden: Unpacked, name: str) -> None:
    """Real brokers load such a store, so that WILL NOT START would be wrong: DAMAGED or WOULD LOSE is the verdict."""
    reads = golden_stores.manifest(name).reads
    assert reads
    for version, read in reads.items():
        assert read.load
        (forecast,) = answer("forecast", golden(name), "--broker-version", version)[1]["forecasts"]
        assert forecast["starts"]
    assert answer("forecast", golden(name))[1]["verdict"] == "would-lose"
    assert answer("verify", golden(name))[1]["summary"]["verdict"] == "damaged"
