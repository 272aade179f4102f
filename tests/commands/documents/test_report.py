"""`report` writes a page that says what verify, forecast and recover say, and nothing of what messages hold."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rmqtool.store.source import READS
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.report.page.html_text import Page, assert_harmless
from tests.store_state import assert_store_unchanged

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
HOLE = "5.5.0-damage-zero-hole-abort"


def reported(store: Path, file: Path, *options: object) -> tuple[int, Page]:
    with assert_store_unchanged(store):
        ran = rmqtool("report", store, "--html", file, *options)
    assert file.exists(), ran.err
    return ran.code, assert_harmless(file.read_text("utf-8"))


def said(command: str, store: Path, *options: object) -> dict[str, object]:
    told = json.loads(rmqtool(command, store, *options, "--format", "json").out)
    ending: dict[str, object] = told.get("summary", told)
    return ending


@pytest.mark.parametrize(
    "name",
    [
        HOLE,
        "5.5.0-clean-basic",
        "4.9.7-crashed",
        "5.5.0-damage-cq-only-file-zero-abort",
        "5.5.0-damage-checkpoint-missing",
    ],
)
def test_the_page_says_what_the_commands_say(golden: Unpacked, tmp_path: Path, name: str) -> None:
    code, page = reported(golden(name), tmp_path / "report.html")
    verify, forecast = said("verify", golden(name)), said("forecast", golden(name))
    for ending in (verify, forecast):
        assert str(ending["headline"]) in page.text
    assert code == (0 if verify["verdict"] == forecast["verdict"] == "ok" else 3)
    plan = rmqtool("recover", golden(name), "--full", "--dry-run").out.split("\n\n")[0]
    assert " ".join(plan.split()) in page.text


def test_damage_is_drawn_and_named_with_what_each_version_does(golden: Unpacked, tmp_path: Path) -> None:
    _, page = reported(golden(HOLE), tmp_path / "report.html")
    assert page.marked("damaged") > 2  # the legend, the log, the file
    assert page.marked("lost") > 1
    for text in ("commitlog.hole 1 error", "Brokers: up to 5.3.1", "TopicTest 19, Audit 9, OrderEvents 4"):
        assert text in page.text
    assert "Damage that keeps recover from changing anything" in page.text


def test_losses_that_no_topic_is_known_of_are_named(golden: Unpacked, tmp_path: Path) -> None:
    _, page = reported(golden("5.5.0-damage-log-middle-file-missing"), tmp_path / "report.html")
    assert "would lose, without 50 messages of a missing part of the commit log." in page.text


def test_a_finding_names_its_queue(golden: Unpacked, tmp_path: Path) -> None:
    _, page = reported(golden("5.5.0-damage-cq-only-file-zero-abort"), tmp_path / "report.html")
    lines = rmqtool("verify", golden("5.5.0-damage-cq-only-file-zero-abort"), "--format", "jsonl").out.splitlines()
    row = next(row for row in map(json.loads, lines) if row.get("topic"))
    assert f"{row['topic']}/{row['queue_id']}: {row['message']}" in page.text


def test_queues_of_a_dledger_log_are_not_said_to_be_missing(golden: Unpacked, tmp_path: Path) -> None:
    _, page = reported(golden("broker-4.9.7-dledger"), tmp_path / "report.html")
    assert "None of the 12 queues can be drawn" in page.text
    assert "There are no consume queues" not in page.text


def test_where_recover_is_blocked_by_damage_the_plan_of_salvage_is_shown(golden: Unpacked, tmp_path: Path) -> None:
    _, page = reported(golden(HOLE), tmp_path / "report.html")
    for text in (
        "rmqtool recover --full --dry-run",
        "rmqtool salvage --dry-run",
        "7 changes planned. 4 unreadable messages will be lost, all others are kept.",
        "Audit/0 from queue offset 51 (1)",
        "32 messages that a start without repair would lose: TopicTest 19, Audit 9, OrderEvents 4",
    ):
        assert text in page.text


def test_a_file_that_exists_is_kept(golden: Unpacked, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text("mine")
    ran = rmqtool("report", golden("5.5.0-clean-basic"), "--html", file)
    assert (ran.code, file.read_text()) == (5, "mine")
    assert "already exists" in ran.err
    link = tmp_path / "link.html"
    link.symlink_to(tmp_path / "nowhere")
    assert rmqtool("report", golden("5.5.0-clean-basic"), "--html", link).code == 5
    assert not (tmp_path / "nowhere").exists()


def test_no_page_is_written_into_the_store(golden: Unpacked) -> None:
    store = golden("5.5.0-clean-basic")
    with assert_store_unchanged(store):
        ran = rmqtool("report", store, "--html", store / "report.html")
    assert ran.code == 5


def test_a_directory_that_is_not_there_is_refused_before_the_store_is_read(golden: Unpacked, tmp_path: Path) -> None:
    ran = rmqtool("report", golden("5.5.0-clean-basic"), "--html", tmp_path / "no" / "report.html")
    assert (ran.code, ran.out) == (4, "")


def test_a_directory_that_is_no_store_gets_no_page(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert rmqtool("report", tmp_path / "empty", "--html", tmp_path / "report.html").code == 4
    assert not (tmp_path / "report.html").exists()


def test_without_a_known_version_the_page_says_why_there_is_no_plan(
    golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqtool.engine.reading.version_evidence.infer_version", lambda _store, _conf: None)
    _, page = reported(golden(HOLE), tmp_path / "report.html")
    assert "No plan was made" in page.text
    assert "nothing in the store shows its broker version; pass --broker-version X.Y.Z" in page.text


def private_texts(store: Path) -> set[str]:
    """Bodies, keys and property values of a store's messages, without those that are topics or tell nothing."""
    lines = rmqtool("dump", store / "commitlog", "--body", "text", "--format", "jsonl").out.splitlines()
    rows = [row for row in map(json.loads, lines) if row["type"] == "message"]
    texts: set[str] = set()
    for row in rows:
        texts |= {row["body"] or "", *(row["keys"] or ()), *row["properties"].values(), row["unique_key"] or ""}
    told = {text for text in texts if len(text) > 6 and not re.fullmatch(r"[\d.]+|true|false", text)}
    return told - {row["topic"] for row in rows}


@pytest.mark.parametrize(
    "name",
    [
        "5.5.0-properties",
        HOLE,
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in sorted(path.name.removesuffix(".tar.xz") for path in GOLDEN.glob("*damage*.tar.xz"))
        ),
    ],
)
def test_the_page_holds_nothing_of_what_messages_hold(golden: Unpacked, tmp_path: Path, name: str) -> None:
    store, file = golden(name), tmp_path / "report.html"
    private = private_texts(store)
    if name in ("5.5.0-properties", HOLE):
        assert private
    reported(store, file)
    text = file.read_text("utf-8")
    assert [value for value in private if value in text] == []


def test_a_large_log_is_read_once_for_checks_forecasts_and_plan(
    golden_copy: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden_copy("5.5.0-clean-basic")
    monkeypatch.setattr("rmqtool.commands.documents.report.READ_AGAIN_MAX", 0)
    counts = []
    for command, options in (("verify", ()), ("report", ("--html", tmp_path / "report.html"))):
        before = READS.byte_count
        assert rmqtool(command, store, *options).code == 0
        counts.append(READS.byte_count - before)
    log_size = sum(path.stat().st_size for path in (store / "commitlog").iterdir())
    assert counts[1] - counts[0] < log_size


def test_what_cannot_be_read_is_on_the_page(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("5.5.0-clean-basic")
    checkpoint = store / "checkpoint"
    checkpoint.unlink()
    checkpoint.mkdir()
    code, page = reported(store, tmp_path / "report.html")
    assert code in (3, 4)
    assert "checkpoint" in page.text


def test_a_topic_with_a_name_like_markup_stays_text(golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy(HOLE)
    (store / "consumequeue" / "Audit").rename(store / "consumequeue" / "<script>alert(1)<")
    (store / "consumequeue" / "<img src=x onerror=alert(1)>\x1b[31m").mkdir()
    _, page = reported(store, tmp_path / "report.html")
    assert "<script>alert(1)<" in page.text


def test_queues_on_both_sides_are_checked_once_verify_compared_them(tmp_path: Path) -> None:
    pytest.importorskip("rocksdict")
    assert rmqtool("fixture", "make", "rocksdb-both", tmp_path / "store").code == 0
    code, page = reported(tmp_path / "store", tmp_path / "report.html")
    assert code == 0
    assert "OK: no problems found" in page.text
