"""`verify` as scripts meet it: rows, reports for other programs, exit codes, and that it changes nothing."""

from __future__ import annotations

import csv
import io
import json
import os
import stat
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import rmqtool
from rmqtool.commands.command_list import command_of_repair
from rmqtool.commands.reading.verify import FIELDS
from rmqtool.findings.registry import BY_ID, finding
from rmqtool.report.check_formats import sarif_text
from rmqtool.report.screens.verify_screen import findings_lines
from rmqtool.store.location import StoreLocation
from tests.commands.schema_check import schema_errors
from tests.commands.transcripts import Ran
from tests.commands.transcripts import rmqtool as command_line
from tests.conftest import Unpacked
from tests.golden_stores import broker_names, names
from tests.store_state import assert_store_unchanged

SCHEMA = json.loads((Path(__file__).resolve().parents[3] / "docs" / "schema" / "verify.json").read_text("utf-8"))
DAMAGED = "5.5.0-many-flip-second-file-no-checkpoint-abort"
SAMPLE = [*names()[::9], *broker_names()[::3]]


def verify(path: Path, *options: object) -> Ran:
    """A run that changes no byte and no time of the store."""
    with assert_store_unchanged(path):
        ran = command_line("verify", path, *options)
    assert "Traceback" not in ran.err
    assert "internal error" not in ran.err
    return ran


def lines(path: Path, *options: object) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
    """Exit code, findings and summary of JSON lines."""
    ran = verify(path, "--format", "jsonl", *options)
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert [error for row in rows for error in schema_errors(row, SCHEMA)] == []
    assert [row["type"] for row in rows] == ["finding"] * (len(rows) - 1) + ["summary"]
    return ran.code, rows[:-1], rows[-1]


def place(row: dict[str, Any]) -> tuple[str, int]:
    return row["file"], -1 if row["file_position"] is None else row["file_position"]


@pytest.mark.parametrize("name", SAMPLE)
def test_json_lines_of_every_kind_of_store(golden: Unpacked, name: str) -> None:
    code, findings, summary = lines(golden(name))
    needs_attention = any(row["severity"] in ("error", "warning") for row in findings)
    assert code == (3 if needs_attention or summary["not_looked_at"] else 0)
    counted: dict[str, int] = {}
    for row in findings:
        counted[row["id"]] = counted.get(row["id"], 0) + 1
        is_whole = row["id"] == "config.queue-without-topic"  # a note where the whole file lacks the topic
        assert row["severity"] == ("note" if is_whole else BY_ID[row["id"]].severity.value)
    assert summary["findings"] == counted


@pytest.mark.parametrize("name", [DAMAGED, "5.5.0-clean-basic"])
def test_json_is_the_same_in_one_object(golden: Unpacked, name: str) -> None:
    code, findings, summary = lines(golden(name))
    ran = verify(golden(name), "--format", "json")
    said = json.loads(ran.out)
    assert schema_errors(said, SCHEMA) == []
    assert ran.code == code
    assert sorted(said["findings"], key=json.dumps) == sorted(findings, key=json.dumps)
    assert {"type": "summary", **said["summary"]} == summary


def test_csv_has_the_findings_and_a_header(golden: Unpacked) -> None:
    code, findings, _ = lines(golden(DAMAGED))
    ran = verify(golden(DAMAGED), "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert ran.code == code
    assert tuple(rows[0]) == FIELDS
    assert set(FIELDS) == set(findings[0])
    assert [(row["id"], row["file"], row["file_position"]) for row in rows] == [
        (row["id"], row["file"], "" if row["file_position"] is None else str(row["file_position"])) for row in findings
    ]


def test_findings_come_before_the_run_is_over(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line is flushed with its finding, so that whoever waits at the pipe sees it."""
    flushed: list[int] = []

    class Watched(io.StringIO):
        def flush(self) -> None:
            flushed.append(self.getvalue().count("\n"))

    watched = Watched()
    monkeypatch.setattr("sys.stdout", watched)
    from rmqtool.commands.app import run

    assert run(["verify", str(golden(DAMAGED)), "--format", "jsonl"]) == 3
    total = watched.getvalue().count("\n")
    assert flushed[: total - 1] == list(range(1, total))


def test_junit_has_a_case_for_every_file(golden: Unpacked, tmp_path: Path) -> None:
    store, report = golden(DAMAGED), tmp_path / "report.xml"
    _, findings, _ = lines(store, "--junit", report)
    suite = ET.parse(report).getroot()
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert suite.tag == "testsuite"
    assert int(suite.get("tests", 0)) == len(cases)
    failing = {row["file"] for row in findings if row["severity"] != "note"}
    assert {name for name, case in cases.items() if case.find("failure") is not None} == failing
    assert int(suite.get("failures", 0)) == len(failing)
    assert "commitlog/00000000000000000000" in cases
    for row in findings:
        case = cases[row["file"]]
        said = case.findtext("failure") or case.findtext("system-out") or ""
        assert row["id"] in said


def test_sarif_says_what_the_findings_say(golden: Unpacked, tmp_path: Path) -> None:
    report = tmp_path / "report.sarif"
    _, findings, _ = lines(golden(DAMAGED), "--sarif", report)
    log = json.loads(report.read_text("utf-8"))
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("rmqtool", rmqtool.__version__)
    rules = {rule["id"]: rule for rule in driver["rules"]}
    assert len(rules) == len(driver["rules"]) == len(BY_ID)
    assert all(rule["shortDescription"]["text"] for rule in rules.values())
    assert len(run["results"]) == len(findings)
    by_place = sorted(
        findings, key=lambda row: (row["file"], -1 if row["file_position"] is None else row["file_position"])
    )
    for result, row in zip(run["results"], by_place, strict=True):
        assert result["ruleId"] in rules
        assert (result["ruleId"], result["level"], result["message"]["text"]) == (
            row["id"], row["severity"], row["message"],
        )  # fmt: skip
        (location,) = result["locations"]
        physical = location["physicalLocation"]
        assert physical["artifactLocation"]["uri"] == row["file"]
        if row["file_position"] is not None:
            assert physical["region"] == {"byteOffset": row["file_position"], "byteLength": row["length"] or 0}


def test_sarif_of_odd_names_is_ascii_and_whole() -> None:
    odd = finding("consumequeue.unsafe-name", "consumequeue/\udcff\x1b[2J", "topic \udcff", topic="\udcff")
    text = sarif_text("1", [], [{**odd.as_json(), "repair": None}])
    assert text.isascii()
    json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8")  # no half of a character
    assert json.loads(text)["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"] == {
        "uri": "consumequeue/%FF%1B%5B2J"
    }


def test_slices_together_find_what_one_run_finds(golden: Unpacked) -> None:
    store = golden(DAMAGED)
    _, whole, summary = lines(store)
    parts = [lines(store, "--slice", f"{number}/3") for number in (1, 2, 3)]
    assert sum(part[2]["checked"]["records"] for part in parts) == summary["checked"]["records"]
    assert not any(part[2]["complete"] for part in parts)
    of_log = {json.dumps(row) for row in whole if row["file"].startswith("commitlog/")}
    found = {json.dumps(row) for part in parts for row in part[1] if row["file"].startswith("commitlog/")}
    assert of_log
    assert found == of_log


def test_a_sample_is_a_part(golden: Unpacked) -> None:
    store = golden("5.5.0-clean-basic")
    code, found, half = lines(store, "--sample", "0.5")
    assert (code, found, half["complete"]) == (3, [], False)
    assert 0 < half["checked"]["records"] < 320
    assert half["left_out_bytes"] > 0
    assert lines(store, "--sample", "1")[2]["complete"]


def test_only_the_whole_depth_is_complete(golden: Unpacked) -> None:
    store = golden("5.5.0-clean-basic")
    amounts = {depth: lines(store, "--depth", depth)[2] for depth in ("structure", "records", "full")}
    assert [amounts[depth]["complete"] for depth in amounts] == [False, False, True]
    assert [amounts[depth]["checked"]["records"] for depth in amounts] == [0, 320, 320]
    assert amounts["structure"]["left_out_bytes"] == 5 * 65536
    assert amounts["records"]["left_out_bytes"] == 0


def test_a_run_goes_on_where_the_last_one_stopped(golden: Unpacked, tmp_path: Path) -> None:
    store, state = golden(DAMAGED), tmp_path / "state.json"
    _, whole, summary = lines(store)
    _, _, none = lines(store, "--max-duration", "0s", "--state", state)
    assert (none["complete"], none["checked"]["records"]) == (False, 0)
    _, _, first = lines(store, "--slice", "1/2", "--state", state)
    done = json.loads(state.read_text("utf-8"))["done"]
    # Nothing may be begun any more, so what this run says of the log is what the state remembers.
    _, _, second = lines(store, "--max-duration", "0", "--state", state)
    assert 0 < first["checked"]["records"] == second["checked"]["records"] < summary["checked"]["records"]
    _, found, last = lines(store, "--state", state)
    assert (found, last) == (whole, summary)
    assert len(json.loads(state.read_text("utf-8"))["done"]) > len(done) > 0
    _, found, last = lines(store, "--max-duration", "0", "--state", state)
    assert (found, last) == (whole, summary)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"null", b'{"format": "other"}', b"\xff", b'{"format": "rmqtool-verify-state-1"}']
)
def test_a_file_that_is_no_state_is_left_alone(golden: Unpacked, tmp_path: Path, content: bytes) -> None:
    state = tmp_path / "notes.txt"
    state.write_bytes(content)
    ran = verify(golden("5.5.0-clean-single"), "--state", state)
    assert ran.code == 5
    assert "state file of verify" in ran.err
    assert state.read_bytes() == content


@pytest.mark.parametrize(
    "change",
    [
        {"checked_bytes": 7}, {"checked_bytes": {}}, {"reported_bytes": -(1 << 63)}, {"reported_bytes": 1 << 80},
        {"left_out_bytes": None}, {"path": "commitlog/x"}, {"last_record": [1]}, {"last_record": [1 << 62, 0]},
        {"missing_keys": [[1]]}, {"missing_keys": True},
        {"missing": [["t", 0, False, 0, 1, 1 << 62, 1 << 62, 1, True, True]]},
        {"missing": [[]]}, {"findings": [{"id": "x"}]}, {"newest_ms": []}, {"begin": "0"}, {"file_size": 0},
        {"more": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_state_whose_result_cannot_be_is_checked_again(
    golden: Unpacked, tmp_path: Path, change: dict[str, Any]
) -> None:
    store, state = golden(DAMAGED), tmp_path / "state.json"
    _, found, summary = lines(store, "--state", state)
    document = json.loads(state.read_text("utf-8"))
    for entry in document["done"].values():
        entry["result"] |= change
    state.write_text(json.dumps(document), "utf-8")
    assert lines(store, "--state", state)[1:] == (found, summary)


@pytest.mark.parametrize("entry", [None, True, [], {}, {"file": 1}, {"file": [0, 0]}, {"result": {}}], ids=str)
def test_an_entry_of_a_state_that_cannot_be_is_checked_again(golden: Unpacked, tmp_path: Path, entry: Any) -> None:
    store, state = golden("5.5.0-clean-single"), tmp_path / "state.json"
    _, found, summary = lines(store, "--state", state)
    document = json.loads(state.read_text("utf-8"))
    document["done"] = dict.fromkeys(document["done"], entry)
    state.write_text(json.dumps(document), "utf-8")
    assert lines(store, "--state", state)[1:] == (found, summary)


def test_a_state_of_any_depth_is_refused(golden: Unpacked, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_text('{"format": "rmqtool-verify-state-2", "done": ' + "[" * 100_000, "utf-8")
    ran = verify(golden("5.5.0-clean-single"), "--state", state)
    assert ran.code == 5
    assert "damaged; remove it" in ran.err


def test_a_state_that_cannot_be_is_an_error(golden: Unpacked, tmp_path: Path) -> None:
    store, pipe = golden("5.5.0-clean-single"), tmp_path / "pipe"
    os.mkfifo(pipe)
    assert verify(store, "--state", pipe).code == 5
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert verify(store, "--state", tmp_path).code == 5
    ran = verify(store, "--state", tmp_path / "nowhere" / "state.json")
    assert ran.code == 4
    assert "state.json" in ran.err


@pytest.mark.parametrize("option", ["--state", "--junit", "--sarif"])
def test_nothing_is_written_into_the_store(golden: Unpacked, tmp_path: Path, option: str) -> None:
    store = golden("5.5.0-clean-single")
    (tmp_path / "door").symlink_to(store / "commitlog")
    for place in (store / "x", store / "config" / "x", tmp_path / "door" / "x", store / "commitlog" / ".." / "x"):
        ran = verify(store, option, place)
        assert (ran.code, ran.out) == (5, "")
        assert "must be outside the store" in ran.err


def test_a_report_that_can_no_longer_be_written_costs_no_finding(
    golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried before the check (test_early_refusals.py), but a disk may fill up meanwhile."""
    monkeypatch.setattr("rmqtool.commands.reading.verify.demand_writable", lambda _files: None)
    ran = verify(golden(DAMAGED), "--format", "jsonl", "--junit", tmp_path / "nowhere" / "report.xml")
    assert ran.code == 4
    assert ran.err.count("\n") == 1
    assert json.loads(ran.out.splitlines()[-1])["type"] == "summary"


def test_what_to_run_fits_a_shell() -> None:
    assert command_of_repair("verify --depth full", StoreLocation(Path("/a store/it's"))) == (
        "rmqtool verify --depth full '/a store/it'\"'\"'s'"
    )
    assert command_of_repair("no-such-command", StoreLocation(Path("/x"))) is None
    assert command_of_repair(None, StoreLocation(Path("/x"))) is None
    assert command_of_repair("verify", StoreLocation(None, "s3://bucket/x")) is None


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_screen_fits_the_terminal(golden: Unpacked, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.commands.transcripts.WIDTH", width)
    for name in ("5.5.0-crashed", DAMAGED, "5.5.0-damage-index-zero"):
        ran = verify(golden(name))
        # A command to be copied stays on one line.
        assert max(len(line) for line in ran.out.splitlines() if not line.startswith("  rmqtool ")) <= width
        assert ran.out.split()[0] in {"DAMAGED:", "INCONSISTENT:", "OK:", "NOT"}


def test_many_findings_of_a_file_are_counted() -> None:
    rows = [finding("index.bad-entry", "index/1", f"entry {at}", file_position=at).as_json() for at in range(50)]
    amounts = dict.fromkeys(("records", "units", "entries", "bytes"), 1)
    summary = {"complete": True, "checked": amounts, "left_out_bytes": 0, "not_looked_at": []}
    summary |= {"verdict": "inconsistent", "headline": "INCONSISTENT", "needs_decision": False}
    summary |= {"next_step": {"command": None, "reason": ""}}
    shown = [list(findings_lines(rows, summary, 80, color=False, all_rows=every)) for every in (False, True)]
    assert [sum("index.bad-entry" in line for line in screen) for screen in shown] == [20, 50]
    assert ["... and 30 more (--verbose shows all)" in "".join(screen) for screen in shown] == [True, False]


def test_notes_of_one_kind_are_counted_and_hide_no_finding() -> None:
    notes = [finding("commitlog.tombstone", "commitlog/0", "a tombstone", physical_offset=at) for at in range(60)]
    worse = finding("commitlog.bad-magic", "commitlog/0", "damage", physical_offset=70)
    rows = [{"type": "finding", **one.as_json()} for one in (*notes, worse)]
    summary = {"verdict": "damaged", "headline": "DAMAGED", "needs_decision": False, "complete": True}
    summary |= {"next_step": {"command": None, "reason": ""}, "left_out_bytes": 0}
    summary |= {"checked": dict.fromkeys(("records", "units", "entries", "bytes"), 0)}
    shown = [list(findings_lines(rows, summary, 80, color=False, all_rows=every)) for every in (False, True)]
    assert [sum("commitlog.tombstone" in line for line in screen) for screen in shown] == [2, 60]
    assert "  n commitlog.tombstone: 59 more (--verbose shows all)" in shown[0]
    assert any("commitlog.bad-magic" in line for line in shown[0])
